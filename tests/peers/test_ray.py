"""Studies on a real Ray cluster: two nodes on this machine, with a token; one is killed."""

import contextlib
import importlib.util
import os
import re
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
MARK = "CONQUR_TEST"
"""A variable by which runs' processes are known."""
TIME = 300
"""Seconds after which something must have gone wrong."""


class Cluster:
    """Two nodes, and all processes that come from them.

    Args:
        folder: for Ray's files; its name must be short, since sockets are in it.
    """

    def __init__(self, folder):
        self.folder = folder
        self.mark = secrets.token_hex(8)
        # Not 127.0.0.1, which Ray takes for the address on the network.
        network = f"127.{1 + secrets.randbelow(250)}.{secrets.randbelow(250)}"
        self.head, self.other = f"{network}.2", f"{network}.3"
        self.sessions = {}
        self.token = folder / "token"
        self.token.write_text(secrets.token_hex(32))
        own = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        self.environment = own | {
            MARK: self.mark,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(self.token),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": str(folder),
            "JAX_COMPILATION_CACHE_DIR": str(folder / "compiled"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            # Dead nodes are missed soon.
            "RAY_health_check_initial_delay_ms": "1000",
            "RAY_health_check_period_ms": "500",
            "RAY_health_check_failure_threshold": "4",
        }

    def begin(self):
        self.start("--head", "--port=0", "--include-dashboard=false", node=self.head)
        self.address = (self.folder / self.head / "ray_current_cluster").read_text().strip()
        self.start(f"--address={self.address}", node=self.other)

    def start(self, *options, node):
        options += (f"--node-ip-address={node}", f"--temp-dir={self.folder / node}")
        options += ("--num-cpus=2", "--object-store-memory=80000000", "--disable-usage-stats")
        with (self.folder / "started").open("w+") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "ray.scripts.scripts", "start", *options],
                env=self.environment,
                stdout=said,
                stderr=said,
                start_new_session=True,
            )
            self.sessions[node] = process.pid
            status = process.wait(TIME)
            said.seek(0)
            assert status == 0, said.read()

    def run(self, module, *arguments, **options):
        return subprocess.run(
            [sys.executable, "-m", module, *arguments],
            **{"env": self.environment, "capture_output": True, "text": True, "timeout": TIME}
            | options,
        )

    def processes(self):
        """All that live, whoever their parents are now: pids, and the sessions they are in.

        A node's own have its session, runs' have sessions of their own and the mark.
        """
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                state, *numbers = (process / "stat").read_text().rpartition(")")[2].split()
                session, mark = int(numbers[2]), f"{MARK}={self.mark}".encode()
                ours = session in self.sessions.values()
                if state != "Z" and (ours or mark in (process / "environ").read_bytes()):
                    found[int(process.name)] = session
            except OSError:  # it has ended
                continue
        return found

    def kill(self, *nodes):
        """Kill all processes of nodes themselves."""
        for pid, session in self.processes().items():
            if session in [self.sessions[node] for node in nodes]:
                kill(pid)

    def is_idle(self):
        """Whether nothing is there but Ray itself."""
        return set(self.processes().values()) <= set(self.sessions.values())

    def end(self):
        def is_over():
            for pid in self.processes():
                kill(pid)
            return not self.processes()

        until(is_over, "processes are left")


def kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def cluster():
    with TemporaryDirectory(prefix="r", dir="/tmp", ignore_cleanup_errors=True) as folder:
        made = Cluster(Path(folder))
        try:
            made.begin()
            yield made
        finally:
            made.end()


def until(condition, what):
    """Wait for something, and return it."""
    deadline = time.monotonic() + TIME
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def results(jobs, study):
    """What does not depend on where and when a run was made."""
    files = {}
    for job in jobs:
        folder = job.folder(study)
        for path in (folder / "log.jsonl", folder / "evaluation.json", *folder.glob("networks/*")):
            files[job.name, path.name] = path.read_bytes()
    return files


class Driver:
    """`conqur suite run` on a cluster, as a process."""

    def __init__(self, cluster, folder, *, seeds):
        self.study, self.said = folder / "studies" / "small", folder / "said"
        (folder / "small.toml").write_text(STUDY.replace("seeds = 3", f"seeds = {seeds}"))
        self.jobs = read_study(folder / "small.toml").jobs()
        options = ("--engine", "ray", "--address", cluster.address, "--json")
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "conqur", "suite", "run", "small.toml", *options],
                env=cluster.environment,
                cwd=folder,
                stdout=said,
                stderr=subprocess.STDOUT,
            )

    def saved(self, node=""):
        """A run that is under way at a node and has a checkpoint, if there is one."""
        assert self.process.poll() is None, self.said.read_text()
        for job in self.jobs:
            log, folder = job.log(self.study), job.folder(self.study)
            here = log.exists() and f"on the Ray node {node}" in log.read_text()
            if here and any(folder.glob("checkpoints/checkpoint-*")):
                return job
        return None


def test_a_study_that_is_stopped_is_saved(cluster, tmp_path):
    driver = Driver(cluster, tmp_path, seeds=1)
    job = until(driver.saved, "no run is under way")
    driver.process.send_signal(signal.SIGTERM)
    assert driver.process.wait(TIME) == 128 + signal.SIGTERM, driver.said.read_text()
    assert "goes on from what is saved" in driver.said.read_text()
    assert "all is saved" in job.log(driver.study).read_text()
    assert state(job, driver.study) is State.BEGUN
    until(cluster.is_idle, "processes are left")


def test_a_node_dies_and_its_run_goes_on_at_another(cluster, tmp_path, monkeypatch):
    driver = Driver(cluster, tmp_path, seeds=3)
    lost = until(lambda: driver.saved(cluster.other), "no run is under way")
    assert state(lost, driver.study) is State.BEGUN
    cluster.kill(cluster.other)
    assert driver.process.wait(TIME) == 0, driver.said.read_text()
    assert '"states": {"done": 3}' in driver.said.read_text()
    words = lost.log(driver.study).read_text()
    nodes = re.findall(r"on the Ray node (.*)", words)
    assert nodes == [cluster.other, cluster.head]
    assert words.count("step 0 of") == 1  # it went on, and did not begin again
    until(cluster.is_idle, "processes are left")
    assert not list((driver.study / "logs").glob(".ray-*"))

    here = tmp_path / "here"
    for name in cluster.environment.keys() - os.environ.keys():
        monkeypatch.setenv(name, cluster.environment[name])
    assert run_locally(driver.jobs, here, workers=1, retries=0).failed == ()
    expected = results(driver.jobs, here)
    assert len(expected) == 9
    assert results(driver.jobs, driver.study) == expected


def test_who_has_no_token_is_told_so(cluster, tmp_path):
    (tmp_path / "small.toml").write_text(STUDY)
    (tmp_path / "wrong").write_text(secrets.token_hex(32))
    options = ("--engine", "ray", "--address", cluster.address)
    for changed, words in (
        ({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "wrong")}, "does not take this token"),
        ({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")}, "there is no token"),
        ({"RAY_AUTH_MODE": "disabled"}, "RAY_AUTH_MODE must be token"),
    ):
        done = cluster.run(
            *("conqur", "suite", "run", "small.toml", *options),
            env=cluster.environment | changed,
            cwd=tmp_path,
        )
        assert done.returncode == 1
        assert words in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
        assert done.stdout == ""
        assert not list((tmp_path / "studies" / "small" / "runs").iterdir())
