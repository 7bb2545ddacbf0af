"""Runs of a study in processes of this machine, some at a time."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from conqur.runs import stop_requested
from conqur.suite.jobs import Job
from conqur.suite.making import POLL, Ending, Outcome, make_run, prepare
from conqur.suite.worker import Worker

ROOM = 8 << 30
"""Bytes of a GPU's memory that a run is given at least."""
STOPPING = "Stopping: runs have a minute to end their level and save. Ctrl-C again: at once."


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
    desks = [_Desk(Worker(variables)) for variables in _environments(workers, study)]
    failed: list[Job] = []
    try:
        with stop_requested(STOPPING) as stop:
            while (waiting and not stop) or any(desk.making for desk in desks):
                for desk in desks:
                    if waiting and desk.making is None and not stop:
                        desk.job = next_job(waiting, desk.job, _jobs(desks))
                        waiting.remove(desk.job)
                        desk.making = make_run(
                            desk.job, study, retries=retries, stop=stop, worker=desk.worker
                        )
                    ending = None if desk.making is None else next(desk.making)
                    if ending is Ending.FAILED and desk.job is not None:
                        failed.append(desk.job)
                    if ending is not None:
                        desk.making = None
                show(_jobs(desks), len(waiting))
                time.sleep(POLL)
            return Outcome(tuple(failed), stop.signal if stop else None)
    finally:
        for desk in desks:
            desk.worker.close()


class _Desk:
    """A worker, what it makes or has made last, and how that goes."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.job: Job | None = None
        self.making: Iterator[Ending | None] | None = None


def _jobs(desks: Sequence[_Desk]) -> list[Job]:
    """What is being made."""
    return [desk.job for desk in desks if desk.making is not None and desk.job is not None]


def next_job(waiting: Sequence[Job], last: Job | None, others: Sequence[Job]) -> Job:
    """The run for a worker: one that is like its last, or else like nobody's.

    Args:
        waiting: those that nobody makes.
        last: what the worker has made before.
        others: what is being made.
    """
    taken = {job.like for job in others}

    def rank(job: Job) -> tuple[bool, bool, bool]:
        other_game = last is None or job.like != last.like
        other_kind = last is None or job.about.get("algorithm") != last.about.get("algorithm")
        return other_game, other_game and job.like in taken, other_kind

    return min(waiting, key=rank)  # the first of the best


def default_workers() -> int:
    """How many processes this machine is good for: one for two cores, as far as GPUs have room."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    found = gpus()
    room = sum(gpu.memory // ROOM for gpu in found)
    return max(1, min(own // 2, room) if found else own // 2)


class Gpu(NamedTuple):
    """A GPU of this machine: how CUDA calls it, and its bytes of memory."""

    name: str
    memory: int


def gpus() -> list[Gpu]:
    """Those that nvidia-smi knows and CUDA_VISIBLE_DEVICES, if it is set, names."""
    if shutil.which("nvidia-smi") is None:
        return []
    asked = ["nvidia-smi", "--query-gpu=index,memory.total", "--format=csv,noheader,nounits"]
    said = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    found = []
    for line in said.splitlines():
        name, _, memory = line.partition(",")
        if memory.strip().isdigit():
            found.append(Gpu(name.strip(), int(memory) << 20))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not found:
        return found
    sizes = {gpu.name: gpu.memory for gpu in found}
    least = min(sizes.values())  # of a GPU by another name, or of a part of one
    return [Gpu(name, sizes.get(name, least)) for name in visible.split(",") if name]


def _environments(workers: int, study: Path) -> list[dict[str, str]]:
    """The variables of each process: GPUs in turn, with a share of the memory."""
    found = gpus()
    if not found:
        return [dict(os.environ)] * workers
    share = 0.9 / -(-workers // len(found))
    compiled = {"JAX_COMPILATION_CACHE_DIR": str((study / "compiled").resolve())}
    return [
        compiled  # for all workers, unless the user has a place for it
        | os.environ
        | {
            "CUDA_VISIBLE_DEVICES": found[i % len(found)].name,
            "XLA_PYTHON_CLIENT_MEM_FRACTION": f"{share:.3f}",
        }
        for i in range(workers)
    ]
