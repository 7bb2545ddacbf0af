"""Studies on a real Ray cluster: two nodes on this machine, which ask for a token; one is killed."""

import importlib.util
import os
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from conqur.suite import State, read_study, run_locally, state

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs ray")

STUDY = """
command = "train"
games = ["CartPole-v1"]
penalty_weights = [0]
seeds = 3
episodes = 3
[settings]
steps = 6000
learning_starts = 100
log_every = 1000
save_every = 1
"""
HEAD, OTHER = "127.0.0.2", "127.0.0.3"  # Ray takes 127.0.0.1 for the address on the network
MARK = "CONQUR_TEST"
TIME = 120
"""Seconds after which something must have gone wrong."""


class Cluster:
    """Two nodes, and all processes that come from them.

    Args:
        folder: for Ray's files; its name must be short, since sockets are in it.
    """

    def __init__(self, folder):
        self.folder = folder
        self.mark = secrets.token_hex(8)
        self.token = folder / "token"
        self.token.write_text(secrets.token_hex(32))
        own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.environment = own | {
            MARK: self.mark,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": str(folder),
            # Dead nodes are missed soon.
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_failure_threshold": "4",
        }
        self.start("--head", "--port=0", "--include-dashboard=false", node=HEAD)
        self.address = (folder / HEAD / "ray_current_cluster").read_text().strip()
        self.start(f"--address={self.address}", node=OTHER)

    def start(self, *options, node):
        options += (f"--node-ip-address={node}", f"--temp-dir={self.folder / node}")
        options += ("--num-cpus=2", "--object-store-memory=80000000", "--disable-usage-stats")
        started = self.run("ray.scripts.scripts", "start", *options)
        assert started.returncode == 0, started.stderr + started.stdout

    def run(self, module, *arguments, **options):
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            **{"env": self.environment, "capture_output": True, "text": True, "timeout": TIME}
            | options,
        )

    def processes(self):
        """What was started by us, whoever its parent is now: pid and command line."""
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if f"{MARK}={self.mark}".encode() in (process / "environ").read_bytes():
                    words = (process / "cmdline").read_bytes().decode(errors="replace")
                    found[int(process.name)] = words.replace("\0", " ").strip()
            except OSError:  # it has ended
                continue
        return {pid: words for pid, words in found.items() if words}

    def kill(self, node):
        """Kill a node: its raylet and its workers."""
        (raylet,) = (
            pid
            for pid, words in self.processes().items()
            if "raylet/raylet " in words and f"--node_ip_address={node} " in words
        )
        children = Path(f"/proc/{raylet}/task/{raylet}/children").read_text().split()
        for pid in (raylet, *map(int, children)):
            os.kill(pid, signal.SIGKILL)

    def end(self):
        deadline = time.monotonic() + TIME
        while (left := self.processes()) and time.monotonic() < deadline:
            for pid in left:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            time.sleep(0.1)
        assert not left


@pytest.fixture(scope="module")
def cluster():
    with TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder:
        made = Cluster.__new__(Cluster)
        try:
            made.__init__(Path(folder))
            yield made
        finally:
            made.end()


def until(condition, what):
    deadline = time.monotonic() + TIME
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def results(jobs, study):
    """What does not depend on where and when a run was made."""
    files = {}
    for job in jobs:
        folder = job.folder(study)
        for path in (folder / "log.jsonl", folder / "evaluation.json", *folder.glob("networks/*")):
            files[job.name, path.name] = path.read_bytes()
    return files


def test_a_node_dies_and_its_run_goes_on_at_another(cluster, tmp_path):
    file, study = tmp_path / "small.toml", tmp_path / "studies" / "small"
    file.write_text(STUDY)
    jobs = read_study(file).jobs()
    with (tmp_path / "said").open("w+") as said:
        driver = subprocess.Popen(
            [
                *(sys.executable, "-m", "conqur", "suite", "run", str(file)),
                *("--engine", "ray", "--address", cluster.address, "--json"),
            ],
            env=cluster.environment,
            cwd=tmp_path,
            stdout=said,
            stderr=subprocess.STDOUT,
        )

        def victim():
            """A run that is under way at the node, and has saved."""
            assert driver.poll() is None, (tmp_path / "said").read_text()
            for job in jobs:
                log = job.log(study)
                here = log.exists() and f"Ray node {OTHER}\n" in log.read_text()
                if here and any((job.folder(study) / "checkpoints").glob("checkpoint-*")):
                    return job
            return None

        until(victim, "no run at the other node")
        lost = victim()
        assert state(lost, study) is State.BEGUN
        cluster.kill(OTHER)
        assert driver.wait(TIME) == 0, (tmp_path / "said").read_text()
        said.seek(0)
        assert '"states": {"done": 3}' in said.read()
    words = lost.log(study).read_text()
    assert words.count("on the Ray node") == 2
    assert words.index(OTHER) < words.index(HEAD)
    assert words.count("step 0 of") == 1  # it went on, and did not begin again
    assert not list((study / "logs").glob(".ray-*"))
    until(lambda: not any("conqur" in words for words in cluster.processes().values()), "left")

    here = tmp_path / "here"
    assert run_locally(jobs, here, workers=2, retries=0).failed == ()
    assert results(jobs, study) == results(jobs, here)
    assert len(results(jobs, study)) == 9


def test_who_has_no_token_is_told_so(cluster, tmp_path):
    (tmp_path / "small.toml").write_text(STUDY)
    (tmp_path / "wrong").write_text(secrets.token_hex(32))
    bare = {name: v for name, v in cluster.environment.items() if name != "RAY_AUTH_TOKEN_PATH"}
    for environment, words in (
        (bare | {"RAY_AUTH_TOKEN_PATH": str(tmp_path / "wrong")}, "does not take this token"),
        (bare | {"HOME": str(tmp_path)}, "there is no token"),
        (bare | {"RAY_AUTH_MODE": "disabled"}, "RAY_AUTH_MODE must be token"),
    ):
        options = ("--engine", "ray", "--address", cluster.address)
        done = cluster.run(
            *("conqur", "suite", "run", "small.toml", *options), env=environment, cwd=tmp_path
        )
        assert done.returncode == 1
        assert words in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert done.stdout == ""
        assert not list((tmp_path / "studies" / "small" / "runs").iterdir())
