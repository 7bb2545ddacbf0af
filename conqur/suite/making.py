"""One run of a study, made to its end: its processes, its evaluation, and tries that failed."""

import enum
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

from conqur._files import replacing
from conqur.runs import RunError, StopRequest
from conqur.runs.files import appending
from conqur.runs.lock import Lock, in_use
from conqur.suite.jobs import Job, State, last_words, state
from conqur.suite.worker import PATIENCE, Worker

POLL = 0.2
"""Seconds between looks at the processes."""
IN_USE = " is in use by "
"""What a run says that is made elsewhere at the same time."""


class Ending(enum.StrEnum):
    """How the making of a run ended."""

    DONE = "done"
    FAILED = "failed"
    STOPPED = "stopped"
    ELSEWHERE = "elsewhere"


@dataclass(frozen=True, eq=False)
class Outcome:
    """How it went with many.

    Attributes:
        failed: the runs that were given up.
        stopped_by: the signal that asked to stop; None if all runs were begun.
    """

    failed: tuple[Job, ...]
    stopped_by: Signals | None


def prepare(jobs: Sequence[Job], study: Path) -> list[Job]:
    """Make a study's folders; the runs that are not done, none of them marked as failed."""
    (study / "logs").mkdir(parents=True, exist_ok=True)
    (study / "runs").mkdir(exist_ok=True)
    waiting = [job for job in jobs if state(job, study) is not State.DONE]
    for job in waiting:
        log = job.log(study)
        if log.is_symlink() or (log.exists() and not log.is_file()):
            raise RunError(f"{log} is no regular file: remove it, or name another folder")
        job.failure(study).unlink(missing_ok=True)
    return waiting


def make_run(
    job: Job,
    study: Path,
    *,
    retries: int,
    stop: StopRequest,
    worker: Worker,
) -> Iterator[Ending | None]:
    """Begin a run or go on with it, evaluate it, and try again where that fails.

    Args:
        job: the run.
        study: the study's folder.
        retries: how often a run that failed is tried again.
        stop: set when the run is to be saved and left.
        worker: the process that makes it.

    Yields:
        None while there is something to wait for, and at last how it ended.
    """
    for _ in range(retries + 1):
        ending = yield from _try(job, study, stop, worker)
        if ending is not Ending.FAILED:
            break
    if ending is Ending.FAILED:
        give_up(job, study, last_words(job, study))
    yield ending


def give_up(job: Job, study: Path, why: str) -> None:
    """Mark a run as failed."""
    job.failure(study).write_text(why + "\n")


def _try(job: Job, study: Path, stop: StopRequest, worker: Worker) -> Generator[None, None, Ending]:
    """Make a run once, from where it is."""
    yield from _until_free(job, study, stop)
    if in_use(job.folder(study)):
        return Ending.STOPPED if stop else Ending.ELSEWHERE
    if state(job, study) is State.DONE:  # by somebody else
        return Ending.DONE
    good = yield from worker.obey(job.start(study), log=job.log(study), out=None, stop=stop)
    if good and not stop:
        try:
            yield from _evaluate(job, study, stop, worker)
        except RunError as error:
            if in_use(job.folder(study)):
                return Ending.ELSEWHERE
            with appending(job.log(study)) as log:
                log.write(f"{error}\n".encode())
    if state(job, study) is State.DONE:
        return Ending.DONE
    if stop:
        return Ending.STOPPED
    if not good and (IN_USE in last_words(job, study) or in_use(job.folder(study))):
        return Ending.ELSEWHERE
    return Ending.FAILED


def _evaluate(job: Job, study: Path, stop: StopRequest, worker: Worker) -> Iterator[None]:
    """Evaluate the networks of a run, unless its own command has done that.

    Raises:
        RunError: if the run cannot be locked, most likely as somebody else is at it.
    """
    evaluation = job.evaluation(study)
    if evaluation is None:
        return
    lock = Lock(job.folder(study), lambda words: None)
    try:
        if state(job, study) is State.DONE:  # by somebody who had the lock before
            return
        with tempfile.NamedTemporaryFile() as out:  # of this process: nobody else writes into it
            options = {"log": job.log(study), "out": Path(out.name)}
            if (yield from worker.obey(evaluation, **options, stop=stop)):
                with replacing(job.result(study), follow=False) as file:
                    file.write(out.read())
    finally:
        lock.release()


def _until_free(job: Job, study: Path, stop: StopRequest) -> Iterator[None]:
    """Wait, for some time, for a process of somebody who was killed to save and end."""
    deadline = time.monotonic() + PATIENCE
    while in_use(job.folder(study)) and time.monotonic() < deadline and not stop:
        yield
