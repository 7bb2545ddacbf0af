"""How long a study will take and what it needs, from a rate that is measured before it is made."""

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals

from conqur.pretrained import load
from conqur.pretrained.bundle import is_bundled
from conqur.runs import StopRequest, stop_requested
from conqur.suite.jobs import Job, last_words
from conqur.suite.local import gpus
from conqur.suite.making import POLL, prepare
from conqur.suite.worker import Worker

SECONDS = 30.0
"""For which a run is watched, after it has got going."""
LEVELS = 11
"""Of a search that are watched, if they do not take long: by then it has all its nodes."""
PATIENCE = 600.0
"""Seconds in which it has to get going."""


@dataclass(frozen=True)
class Probe:
    """What was measured of a run that stands for others.

    Attributes:
        job: the run.
        runs: for how many it stands, itself included.
        unit: what it counts: "level" or "step".
        total: how many of these there are to be.
        rate: of these in a second.
        start: seconds before the first.
        once: seconds that it takes longer when a worker has made no such run before.
        memory: the most bytes of this machine's that it had; None if that is not known.
    """

    job: Job
    runs: int
    unit: str
    total: int
    rate: float
    start: float
    once: float
    memory: int | None

    @property
    def seconds(self) -> float:
        """How long such a run takes."""
        return self.start + self.total / self.rate


@dataclass(frozen=True)
class Plan:
    """What is to be expected.

    Attributes:
        probes: what was measured.
        runs: how many are still to be made.
    """

    probes: tuple[Probe, ...]
    runs: int

    @property
    def worker_seconds(self) -> float:
        """Of one worker that makes all runs."""
        return self.seconds(1)

    def seconds(self, workers: int) -> float:
        """How long all runs take if so many are made at a time."""
        longest = max((probe.seconds for probe in self.probes), default=0.0)
        every = sum(probe.runs * probe.seconds for probe in self.probes)
        return max(longest, every / workers) + sum(probe.once for probe in self.probes)

    @property
    def memory(self) -> int | None:
        """Of the run that needs most."""
        known = [probe.memory for probe in self.probes if probe.memory is not None]
        return max(known, default=None)


def make_plan(jobs: Sequence[Job], *, show: Callable[[str], None] = lambda words: None) -> Plan:
    """Measure one run of every algorithm, preset and family of games, each for half a minute.

    Other games of a family are taken to be as fast as the first; evaluations at the end do not
    count. A run that is over sooner is made twice: what the first has compiled, others find.

    Args:
        jobs: the runs that are to be made.
        show: told what is being measured.
    """
    kinds: dict[tuple[str, ...], list[Job]] = {}
    families: dict[str, str] = {}
    for job in jobs:
        where = job.about.get("network", job.like)
        if where not in families:
            families[where] = _family(_game(job))
        kind = (families[where], job.about.get("algorithm", ""), job.about.get("preset", ""))
        kinds.setdefault(kind, []).append(job)
    probes = []
    for number, alike in enumerate(kinds.values(), 1):
        show(f"measuring {alike[0].name}, {number} of {len(kinds)}")
        probes.append(_probe(alike[0], len(alike)))
    return Plan(tuple(probes), len(jobs))


def _probe(job: Job, runs: int) -> Probe:
    with tempfile.TemporaryDirectory() as folder, _worker() as worker:
        study = Path(folder)
        prepare([job], study)
        stop = StopRequest()
        began = time.monotonic()
        making = worker.obey(job.start(study), log=job.log(study), out=None, stop=stop)
        seen: list[tuple[float, int]] = []
        ended: list[bool] = []
        unit, total, memory = "", 0, 0
        with stop_requested() as asked:
            for _ in _until_over(making, ended):
                now = time.monotonic() - began
                memory = max(memory, _memory(worker.pid))
                found = re.findall(r"(level|step) ([\d,]+) of ([\d,]+)", _said(job, study))
                if found:
                    unit, at, total = found[-1][0], _number(found[-1][1]), _number(found[-1][2])
                    if not seen or seen[-1][1] < at:
                        seen.append((now, at))
                known = len(seen) > 2 and now - seen[0][0] > SECONDS
                enough = known and (unit == "step" or seen[-1][1] > LEVELS or now > 4 * SECONDS)
                if enough or asked or now > PATIENCE:
                    stop.signal = stop.signal or asked.signal or Signals.SIGTERM
                time.sleep(POLL)
        if asked:
            raise KeyboardInterrupt
        if ended != [True] and not stop:
            said = last_words(job, study) or "it said nothing"
            raise ValueError(f"{job.name} failed: {said}")
        if not stop:  # it is over already
            first = time.monotonic() - began
            again = _seconds_again(job, worker)
            once, total = max(0.0, first - again), total or 1
            return Probe(job, runs, unit or "run", total, total / again, 0.0, once, memory or None)
        return _measured(job, runs, unit, total, seen, memory, study)


def _seconds_again(job: Job, worker: Worker) -> float:
    """How long a run takes in a worker that has made it before."""
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder)
        prepare([job], study)
        began = time.monotonic()
        with stop_requested() as asked:
            for _ in worker.obey(job.start(study), log=job.log(study), out=None, stop=asked):
                time.sleep(POLL)
        if asked:
            raise KeyboardInterrupt
        return time.monotonic() - began


def _game(job: Job) -> str:
    """What is played; of a network for which the study does not say it, what its file says."""
    network = job.about.get("network", "")
    there = is_bundled(network) or Path(network).is_file()
    if "--env" in job.arguments or not there:
        return job.like
    try:
        return load(network).environment
    except ValueError:  # whoever makes the run is told
        return job.like


def _family(game: str) -> str:
    """What games have in common that are about as fast: Atari, MinAtar, or nothing."""
    return re.split(r"[/-]", game)[0] if game.startswith(("ALE/", "MinAtar")) else game


def _measured(
    job: Job,
    runs: int,
    unit: str,
    total: int,
    seen: list[tuple[float, int]],
    memory: int,
    study: Path,
) -> Probe:
    """From when how many were over, to a rate."""
    if len(seen) < 2:
        said = last_words(job, study) or "it said nothing"
        raise ValueError(f"{job.name} did not get going: {said}")
    (start, first), (end, last) = seen[0], seen[-1]
    rate = (last - first) / (end - start)
    start = max(0.0, start - first / rate)
    return Probe(job, runs, unit, total, rate, start, 0.0, memory or None)


@contextlib.contextmanager
def _worker() -> Iterator[Worker]:
    share = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"} if gpus() else {}
    worker = Worker(os.environ | share)
    try:
        yield worker
    finally:
        worker.close()


def _until_over(making: Generator[None, None, bool], ended: list[bool]) -> Iterator[None]:
    """What a worker yields; whether it ended well is noted."""
    ended.append((yield from making))


def _said(job: Job, study: Path) -> str:
    """All that a run has printed."""
    log = job.log(study)
    return log.read_text("utf-8", errors="replace") if log.exists() else ""


def _number(text: str) -> int:
    return int(text.replace(",", ""))


def _memory(process: int | None) -> int:
    """The most bytes that a process has had, as far as the system tells."""
    try:
        status = Path(f"/proc/{process}/status").read_text("ascii")
    except OSError:
        return 0
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) << 10 if match else 0
