"""Runs of a study in processes of this machine, some at a time."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from conqur.runs import stop_requested
from conqur.suite.jobs import Job
from conqur.suite.making import POLL, Ending, Outcome, make_run, prepare


def run_locally(
    jobs: Sequence[Job],
    study: Path,
    *,
    workers: int,
    retries: int,
    show: Callable[[Sequence[Job], int], None] = lambda busy, waiting: None,
) -> Outcome:
    """Make all runs that are not done.

    Args:
        jobs: the runs.
        study: the study's folder.
        workers: how many processes at a time.
        retries: how often a run that failed is tried again.
        show: told now and then which runs are being made, and how many wait.
    """
    waiting = prepare(jobs, study)
    environment = os.environ | {"XLA_PYTHON_CLIENT_MEM_FRACTION": f"{0.9 / workers:.3f}"}
    busy: list[tuple[Job, Iterator[Ending | None]]] = []
    failed: list[Job] = []
    with stop_requested() as stop:
        while (waiting and not stop) or busy:
            while waiting and len(busy) < workers and not stop:
                job = waiting.pop(0)
                making = make_run(job, study, retries=retries, stop=stop, environment=environment)
                busy.append((job, making))
            for job, making in tuple(busy):
                ending = next(making)
                if ending is not None:
                    busy.remove((job, making))
                if ending is Ending.FAILED:
                    failed.append(job)
            show([job for job, _ in busy], len(waiting))
            time.sleep(POLL)
        return Outcome(tuple(failed), stop.signal if stop else None)


def default_workers() -> int:
    """How many processes this machine is good for: one with a GPU, else one for two cores."""
    if shutil.which("nvidia-smi"):
        return 1
    return max(1, (len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2) // 2)
