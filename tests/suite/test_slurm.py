"""scripts/suite.slurm, run as Slurm runs it, with a conqur that does nothing but wait."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "suite.slurm"
CONQUR = """#!/bin/bash
echo "$@" > typed
[ "$2" = run ] || exit 1
trap 'sleep 0.2; echo saved; exit 143' TERM
touch ready
[ -z "$ENDS" ] || exit "$ENDS"
while :; do sleep 0.05; done
"""


@pytest.fixture
def job(tmp_path):
    """Start the script as the third of eight jobs."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "conqur").write_text(CONQUR)
    (programs / "scontrol").write_text('#!/bin/bash\necho "$@" > requeued\n')
    for program in programs.iterdir():
        program.chmod(0o755)
    variables = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "SLURM_ARRAY_JOB_ID": "70",
        "SLURM_ARRAY_TASK_ID": "3",
        "SLURM_ARRAY_TASK_COUNT": "8",
        "SLURM_JOB_ID": "70",  # one job of an array has the array's own number
        "SLURM_CPUS_PER_TASK": "4",
    }
    started = []

    def start(*arguments, **more):
        process = subprocess.Popen(
            ["bash", str(SCRIPT), "study.toml", *arguments],
            cwd=tmp_path,
            env=os.environ | variables | more,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        deadline = time.monotonic() + 20
        while not (tmp_path / "ready").exists():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_a_job_makes_its_share(job, tmp_path):
    assert job("--dir", "a folder", ENDS="0").wait(20) == 0
    assert (tmp_path / "typed").read_text() == (
        "suite run --shard 3/8 --workers 2 study.toml --dir a folder\n"
    )
    (tmp_path / "ready").unlink()
    assert job(ENDS="1", SLURM_CPUS_PER_TASK="1").wait(20) == 1
    assert "--workers 1 " in (tmp_path / "typed").read_text()
    assert not (tmp_path / "requeued").exists()


def test_before_the_time_limit_it_saves_and_queues_up_again(job, tmp_path):
    process = job()
    process.send_signal(signal.SIGUSR1)
    said, _ = process.communicate(timeout=20)
    assert said == "saved\n"
    assert (tmp_path / "requeued").read_text() == "requeue 70_3\n"  # and no other part


def test_what_is_cancelled_saves_and_ends(job, tmp_path):
    process = job()
    process.send_signal(signal.SIGTERM)
    said, _ = process.communicate(timeout=20)
    assert (said, process.returncode) == ("saved\n", 143)
    assert not (tmp_path / "requeued").exists()


def test_slurm_reads_what_it_needs():
    options = [line.split()[1] for line in SCRIPT.read_text().splitlines() if "#SBATCH" in line]
    assert {"--array=1-8", "--requeue", "--signal=B:USR1@180"} <= set(options)
