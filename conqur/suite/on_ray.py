"""Runs of a study on a Ray cluster: a task makes a run on whichever node has room for it.

All nodes share the study's folder, and everything that counts goes through it: a run that loses
its node goes on at another, from its last checkpoint.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from conqur.runs import RunError, stop_requested
from conqur.runs.files import appending
from conqur.suite.jobs import Job
from conqur.suite.making import POLL, Ending, Outcome, give_up, make_run, prepare
from conqur.suite.ray_cluster import (
    ANSWER,
    ClusterError,
    Place,
    check_nodes,
    complaint,
    connected,
    marked,
    needs,
    told,
)
from conqur.suite.worker import PATIENCE, Worker

MOVES = 100
"""How often a run goes on at another node after it has lost one."""


def run_on_ray(
    jobs: Sequence[Job],
    study: Path,
    *,
    address: str,
    retries: int,
    workers: int | None = None,
    show: Callable[[Sequence[Job], int], None] = lambda busy, waiting: None,
) -> Outcome:
    """Make all runs that are not done, on a cluster of which this machine is a node.

    Args:
        jobs: the runs.
        study: the study's folder, on a file system that all nodes share.
        address: of the cluster's head, HOST:PORT.
        retries: how often a run that failed is tried again; that a node dies is no failure.
        workers: how many runs at a time; None: as many as there is room for.
        show: told now and then which runs are being made, and how many wait.

    Raises:
        ClusterError: if the cluster cannot be used.
    """
    waiting = prepare(jobs, study)
    with connected(address, study / "logs" / "ray.txt") as ray, marked(study) as place:
        nodes = [node for node in ray.nodes() if node["Alive"]]
        needed = needs([node["Resources"] for node in nodes])
        check_nodes(ray, nodes, needed, place)
        make = ray.remote(max_retries=MOVES, scheduling_strategy="SPREAD", **needed)(_make)

        def submit(job: Job) -> Any:
            return make.options(name=job.name).remote(job, place, retries)

        return _all_made(ray, submit, waiting, study, workers or len(waiting), show)


def _all_made(
    ray: Any,
    submit: Callable[[Job], Any],
    waiting: list[Job],
    study: Path,
    workers: int,
    show: Callable[[Sequence[Job], int], None],
) -> Outcome:
    """Hand out all runs, and wait for them."""
    before = {job.name: _size(job.log(study)) for job in waiting}
    tasks: dict[Any, Job] = {}
    failed: list[Job] = []
    deadline = None
    with stop_requested() as stop:
        while (waiting and not stop) or tasks:
            while waiting and len(tasks) < workers and not stop:
                job = waiting.pop(0)
                tasks[submit(job)] = job
            if stop and deadline is None:
                deadline = time.monotonic() + PATIENCE + ANSWER
                for task in tasks:
                    ray.cancel(task)
            if deadline is not None and time.monotonic() > deadline:
                break  # a node is gone that was to answer; what it made is saved anyway
            for task in ray.wait(list(tasks), timeout=POLL)[0]:
                job = tasks.pop(task)
                ending = _ending(ray, task, job, study)
                if ending is Ending.FAILED:
                    failed.append(job)
                elif ending is Ending.STOPPED:  # by us, or by somebody who stopped its node
                    waiting.append(job)
            busy = [job for job in tasks.values() if _size(job.log(study)) != before[job.name]]
            show(busy, len(waiting) + len(tasks) - len(busy))
        return Outcome(tuple(failed), stop.signal if stop else None)


def _ending(ray: Any, task: Any, job: Job, study: Path) -> Ending:
    """How a task ended."""
    try:
        return Ending(ray.get(task))
    except ray.exceptions.TaskCancelledError:
        return Ending.STOPPED
    except ray.exceptions.LocalRayletDiedError:
        raise ClusterError(
            "Ray has died on this machine; with a new cluster, the same command goes on"
        ) from None
    except ray.exceptions.RayError as error:  # not the run's fault, and so not in its log
        give_up(job, study, told(error))
        with contextlib.suppress(RunError), appending(job.log(study)) as log:
            log.write(f"{told(error)}\n".encode())
        return Ending.FAILED


def _make(job: Job, place: Place, retries: int) -> Ending:
    """Make a run, on the node that this is called on."""
    import ray

    node = ray.util.get_node_ip_address()
    wrong = complaint(place)
    if wrong:
        raise ClusterError(f"the Ray node {node} cannot make runs: {wrong}")
    ours = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = ours | {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9"}  # a GPU has one run
    with appending(job.log(place.study)) as log:
        log.write(f"on the Ray node {node}\n".encode())
    worker = Worker(environment)
    try:
        with stop_requested() as stop:  # by `ray.cancel`, or by `ray stop` on this node
            making = make_run(job, place.study, retries=retries, stop=stop, worker=worker)
            while (ending := next(making)) is None:
                time.sleep(POLL)
        return ending
    finally:
        worker.close()


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0
