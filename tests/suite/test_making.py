"""Making a run: tried again, left to others, and saved when whoever makes it is killed."""

import os
import signal
import subprocess
import sys
import time

import pytest

from conqur.runs import StopRequest
from conqur.runs.lock import Lock, in_use
from conqur.suite import Job, making
from conqur.suite.making import Ending, make_run, prepare
from conqur.suite.worker import Worker


class FakeWorker(Worker):
    """Says at once how a command ended.

    Args:
        endings: whether each went well.
    """

    def __init__(self, *endings):
        super().__init__({})
        self.endings, self.asked = list(endings), []

    def obey(self, arguments, *, log, out, stop):
        self.asked.append(arguments[0])
        log.write_text("it said something\n")
        if out is not None:
            out.write_text('{"mean": 1}')
        yield
        return self.endings.pop(0)


@pytest.fixture
def job(tmp_path):
    made = Job("one", ("train", "CartPole-v1"), {}, 3)
    assert prepare([made], tmp_path) == [made]
    made.folder(tmp_path).mkdir()
    return made


def made(job, study, worker, stop=None, **options):
    """How a run ended, and how often there was something to wait for."""
    seen = list(make_run(job, study, stop=stop or StopRequest(), worker=worker, **options))
    return seen[-1], len(seen) - 1


def test_what_fails_is_tried_again_and_then_given_up(tmp_path, job):
    worker = FakeWorker(False, True, False, True, True)
    assert made(job, tmp_path, worker, retries=2) == (Ending.DONE, 5)
    assert worker.asked == ["train", "train", "evaluate", "train", "evaluate"]
    assert job.result(tmp_path).read_text() == '{"mean": 1}'
    job.result(tmp_path).unlink()
    assert made(job, tmp_path, FakeWorker(False, False), retries=1) == (Ending.FAILED, 2)
    assert job.failure(tmp_path).read_text() == "it said something\n"
    assert prepare([job], tmp_path) == [job]
    assert not job.failure(tmp_path).exists()


def test_when_all_is_stopped_nothing_is_evaluated(tmp_path, job):
    stop = StopRequest()
    stop.signal = signal.SIGTERM
    assert made(job, tmp_path, FakeWorker(True), stop, retries=1) == (Ending.STOPPED, 1)


def test_a_run_that_somebody_else_makes_is_waited_for(tmp_path, job, monkeypatch):
    folder = job.folder(tmp_path)
    assert not in_use(folder)
    lock = Lock(folder, warn=pytest.fail)
    assert in_use(folder)
    worker = FakeWorker(True, True)
    making_it = make_run(job, tmp_path, retries=0, stop=StopRequest(), worker=worker)
    assert [next(making_it) for _ in range(3)] == [None] * 3
    assert worker.asked == []
    lock.release()
    assert not in_use(folder)
    assert list(making_it)[-1] is Ending.DONE

    job.result(tmp_path).unlink()
    worker = FakeWorker(True, True)  # somebody else evaluates the run when this one has trained it
    making_it = make_run(job, tmp_path, retries=0, stop=StopRequest(), worker=worker)
    next(making_it)
    lock = Lock(folder, warn=pytest.fail)
    assert list(making_it) == [Ending.ELSEWHERE]
    lock.release()
    making_it = make_run(job, tmp_path, retries=0, stop=StopRequest(), worker=worker)
    next(making_it)
    job.result(tmp_path).write_text("{}")  # and has done it
    assert list(making_it) == [Ending.DONE]
    assert worker.asked == ["train", "train"]

    job.result(tmp_path).unlink()
    lock = Lock(folder, warn=pytest.fail)
    monkeypatch.setattr(making, "PATIENCE", 0.0)
    assert made(job, tmp_path, FakeWorker(), retries=0) == (Ending.ELSEWHERE, 0)
    assert not job.failure(tmp_path).exists()
    lock.release()


def test_runs_save_when_whoever_makes_them_is_killed(tmp_path):
    (tmp_path / "long.toml").write_text(
        'command = "train"\ngames = ["CartPole-v1"]\nseeds = 1\n'
        "[settings]\nsteps = 1_000_000\nlearning_starts = 100\nlog_every = 100\n"
    )
    engine = subprocess.Popen(
        [sys.executable, "-m", "conqur", "suite", "run", "long.toml", "--json"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not (logs := [p for p in tmp_path.glob("studies/*/runs/*/log.jsonl") if p.read_bytes()]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    (run,) = (log.parent for log in logs)
    assert in_use(run)
    os.kill(engine.pid, signal.SIGKILL)
    engine.wait()
    while in_use(run):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert list(run.glob("checkpoints/checkpoint-*"))
    (said,) = tmp_path.glob("studies/*/logs/*.txt")
    assert "all is saved" in said.read_text()
    assert "Traceback" not in said.read_text()
