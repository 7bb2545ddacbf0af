"""Runs of a study in processes of this machine: some at a time, tried again where they fail."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from signal import Signals

from conqur._files import replacing
from conqur.runs import stop_requested
from conqur.suite.jobs import Job, State, last_words, state

POLL = 0.2
"""Seconds between looks at the processes."""
PATIENCE = 60.0
"""Seconds that a process has to save and end when all is stopped."""
IN_USE = " is in use by "
"""What a run says that is made elsewhere at the same time."""


@dataclass(eq=False)
class Worker:
    """A process that makes a run."""

    job: Job
    attempt: int
    process: "subprocess.Popen[bytes]"
    evaluates: bool
    partial: Path | None = None
    began: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, eq=False)
class Outcome:
    """How it went.

    Attributes:
        failed: the runs that were given up.
        stopped_by: the signal that asked to stop; None if all runs were begun.
    """

    failed: tuple[Job, ...]
    stopped_by: Signals | None


def run_locally(
    jobs: Sequence[Job],
    study: Path,
    *,
    workers: int,
    retries: int,
    show: Callable[[Sequence[Worker], int], None] = lambda workers, left: None,
) -> Outcome:
    """Make all runs that are not done.

    Args:
        jobs: the runs.
        study: the study's folder.
        workers: how many processes at a time.
        retries: how often a run that failed is tried again.
        show: told now and then which runs are being made, and how many wait.
    """
    (study / "logs").mkdir(parents=True, exist_ok=True)
    (study / "runs").mkdir(exist_ok=True)
    waiting = [(job, 0) for job in jobs if state(job, study) is not State.DONE]
    for job, _ in waiting:
        job.failure(study).unlink(missing_ok=True)
    busy: list[Worker] = []
    failed: list[Job] = []
    with stop_requested() as stop:
        while (waiting and not stop) or busy:
            while waiting and len(busy) < workers and not stop:
                job, attempt = waiting.pop(0)
                busy.append(_begun(job, attempt, study, workers))
            if stop:
                _end(busy)
            for worker in [w for w in busy if w.process.poll() is not None]:
                busy.remove(worker)
                following = _next(worker, study, retries, stopped=bool(stop))
                if following == "evaluate":
                    busy.append(_begun(worker.job, worker.attempt, study, workers, evaluate=True))
                elif following == "again":
                    waiting.append((worker.job, worker.attempt + 1))
                elif following == "failed":
                    job = worker.job
                    job.failure(study).write_text(last_words(job, study) + "\n")
                    failed.append(job)
            show(busy, len(waiting))
            time.sleep(POLL)
        return Outcome(tuple(failed), stop.signal if stop else None)


def _begun(job: Job, attempt: int, study: Path, workers: int, *, evaluate: bool = False) -> Worker:
    """Start a process: the run, or its evaluation if the run itself is at its end."""
    environment = os.environ | {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / workers:.3f}"}
    evaluation = job.evaluation(study)
    arguments = evaluation if evaluate and evaluation else job.start(study)
    partial = job.result(study).with_suffix(".new") if evaluate else None
    with job.log(study).open("ab") as log, open(partial or os.devnull, "wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "conqur", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=out if evaluate else log,
            stderr=log,
            env=environment,
            start_new_session=True,  # Ctrl-C is passed on once, by us
        )
    return Worker(job, attempt, process, evaluate, partial)


def _next(worker: Worker, study: Path, retries: int, *, stopped: bool) -> str:
    """What follows the end of a process."""
    job, good = worker.job, worker.process.returncode == 0
    if worker.partial is not None and good:
        with replacing(job.result(study)) as file:
            file.write(worker.partial.read_bytes())
    if worker.partial is not None:
        worker.partial.unlink(missing_ok=True)
    if state(job, study) is State.DONE:
        return "done"
    if stopped:
        return "stopped"
    if good and not worker.evaluates and job.episodes is not None:
        return "evaluate"
    if not good and IN_USE in last_words(job, study):
        return "elsewhere"
    return "again" if worker.attempt < retries else "failed"


def _end(busy: Sequence[Worker]) -> None:
    """Ask processes to save and end; those that do not are killed."""
    for worker in busy:
        if worker.process.poll() is None:
            worker.process.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + PATIENCE
    for worker in busy:
        try:
            worker.process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            worker.process.kill()
            worker.process.wait()


def default_workers() -> int:
    """How many processes this machine is good for: one with a GPU, else one for two cores."""
    if shutil.which("nvidia-smi"):
        return 1
    return max(1, (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2) // 2)
