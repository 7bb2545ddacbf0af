"""`conqur suite`: many runs as one study."""

import functools
import json
import os
import re
import shlex
import time as clock
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from conqur._files import replacing
from conqur._guess import did_you_mean
from conqur._messages import duration, printable
from conqur.commands.support import Flag, UsageError, announcer, option, say, warn

if TYPE_CHECKING:
    from conqur.suite import Job, Study
    from conqur.suite.making import Outcome

OF_ACTIONS = {
    "dir": ("plan", "run", "status", "collect"),
    "workers": ("plan", "run"),
    "shard": ("plan", "run"),
    "price": ("plan",),
    "engine": ("run",),
    "address": ("run",),
}
"""Which actions have an option; the others are of all."""


@dataclass(frozen=True)
class Suite:
    """Make many runs as one study: all combinations of games, algorithms, weights and seeds.

    STUDY is a TOML file:

      command = "train"                # or "tune"
      games = ["MinAtar/Breakout", "MinAtar/Asterix"]
      algorithms = ["dqn", "ddqn"]
      penalty_weights = [0, 0.5]
      seeds = 5
      [settings]                       # options of the command, for all runs
      steps = 1_000_000

    With command = "tune" there are networks instead of games (files, or bundled:NAME), and the
    algorithms are conqur, multi-dqn, no-penalty, no-search, random, rollouts, random-rollouts and
    refit: the paper's search, its baseline, and controls. presets = ["paper-16"] is what they have
    unless another is named; tuned and quick make no gradient steps, and go with random-rollouts.
    STUDY may also be the name of a study that comes with conqur: `list` shows them.

    `plan` measures a run of every kind for half a minute and says how long all will take. `run`
    makes every run in a folder of its own, named by its settings; what is done is not made again,
    what was broken off goes on, what failed is tried again. Ctrl-C or SIGTERM stops and saves all.
    Weights and seeds of a training are one run where the environment is written in JAX. `collect`
    writes one table of all networks, and `conqur report` makes a page of it. On a cluster, --shard
    3/8 makes the third of eight parts, for arrays of jobs; --engine ray hands the runs out to Ray
    (docs/clusters.md).

    Examples:
      conqur suite list
      conqur suite plan minatar-search-16
      conqur suite run study.toml
      conqur suite run study.toml --workers 4
      conqur suite status study.toml
      conqur suite collect study.toml
      conqur suite run study.toml --shard 1/8
      conqur suite run study.toml --engine ray --address head:6379
    """

    action: Annotated[
        tyro.conf.Positional[Literal["list", "plan", "run", "status", "collect"]],
        tyro.conf.arg(metavar="{list,plan,run,status,collect}"),
    ]
    """What to do."""
    study: Annotated[tyro.conf.Positional[Path | None], option("[STUDY]")] = None
    """The study's file, or its name."""
    dir: Annotated[Path | None, option("FOLDER", "studies/NAME")] = None
    """The study's folder."""
    workers: Annotated[int | None, option("INT", "one for two cores")] = None
    """How many runs are made at the same time."""
    engine: Literal["local", "ray"] = "local"
    """Where the runs are made: on this machine, or on a Ray cluster."""
    address: Annotated[str | None, option("HOST:PORT", "RAY_ADDRESS")] = None
    """Of the Ray cluster's head, which must ask for a token."""
    price: Annotated[float | None, option("FLOAT", "none")] = None
    """With plan: what an hour of a worker costs."""
    shard: Annotated[str | None, option("I/N", "all")] = None
    """Only the runs I, I + N, I + 2N, ..."""
    json: Flag = False
    """Show no progress, and print what came out as one JSON object."""

    def run(self, command: str) -> None:
        """Do what the action says."""
        from conqur.suite import read_study

        self._refuse_idle()
        if self.action == "list":
            self._list()
            return
        if self.study is None:
            raise UsageError("name a study's file, or one of `conqur suite list`")
        if self.price is not None and not 0 <= self.price < 1e9:
            raise UsageError("--price is of a worker's hour: at least 0")
        if self.workers is not None and self.workers < 1:
            raise UsageError(f"--workers must be at least 1, got {self.workers}")
        _leave_accelerators_alone()
        study = read_study(self.study)
        jobs = study.jobs()
        folder = self.dir or Path("studies") / study.name
        _refuse_other(study, folder)
        if self.action == "plan":
            self._plan(study, _shard(jobs, self.shard), folder)
        elif self.action == "run":
            self._run(study, _shard(jobs, self.shard), folder)
        elif self.action == "status":
            self._status(jobs, folder)
        else:
            self._collect(jobs, folder)

    def _refuse_idle(self) -> None:
        """Refuse options of other actions."""
        for field in fields(self):
            actions = OF_ACTIONS.get(field.name, (self.action,))
            if getattr(self, field.name) != field.default and self.action not in actions:
                raise UsageError(f"--{field.name} is for {', '.join(actions)}")

    def _list(self) -> None:
        """The studies that come with conqur."""
        from conqur.suite.study import ready_studies

        if self.study is not None:
            raise UsageError(f"list takes no study, got {self.study}")
        if self.json:
            print(json.dumps(ready_studies()))
            return
        for name, about in ready_studies().items():
            print(f"{name}\n    {about}")

    def _plan(self, study: "Study", jobs: Sequence["Job"], folder: Path) -> None:
        from conqur.suite import State, state
        from conqur.suite.local import default_workers
        from conqur.suite.planning import make_plan

        _check(study)
        left = [job for job in jobs if state(job, folder) is not State.DONE]
        if not left and not self.json:
            print(f"All {len(jobs)} runs are done, in {folder}.")
            return
        with announcer() as announce:
            plan = make_plan(left, show=announce)
        mine = self.workers or default_workers()
        workers = sorted({1, mine, *(count for count in (8, 64) if count < plan.runs)})
        if self.json:
            about = {
                "runs": plan.runs,
                "worker_seconds": plan.worker_seconds,
                "seconds": {count: plan.seconds(count) for count in workers},
                "cost": None if self.price is None else plan.worker_seconds / 3600 * self.price,
                "memory": plan.memory,
                "measured": [
                    {
                        "run": probe.job.name,
                        "stands_for": probe.runs,
                        f"{probe.unit}s": probe.total,
                        f"{probe.unit}s_per_second": probe.rate,
                        "start_seconds": probe.start,
                        "first_seconds": probe.once,
                        "seconds": probe.seconds,
                        "memory": probe.memory,
                    }
                    for probe in plan.probes
                ],
            }
            print(json.dumps(about))
            return
        for probe in plan.probes:
            print(
                f"{probe.job.name}: {probe.rate:.3g} {probe.unit}s/s, {probe.total:,} of them and "
                f"{probe.start:.0f} s to start: {duration(probe.seconds)}, as {probe.runs} runs"
                + f", and {probe.once:.0f} s for a worker's first"
                * (probe.once >= 1)
            )
        hours = plan.worker_seconds / 3600
        cost = "" if self.price is None else f", which cost {hours * self.price:,.2f}"
        memory = "" if plan.memory is None else f", {plan.memory / 1e9:.1f} GB of memory each"
        print(f"{plan.runs} runs, {hours:,.1f} hours of a worker{cost}{memory}")
        for count in workers:
            here = f" ({'as asked' if self.workers else 'the default here'})" * (count == mine)
            print(f"  {count:>3} at a time{here}: {duration(plan.seconds(count))}")
        print(
            "Workers are taken to be as fast as this machine with one run, and all Atari games, or "
            "all of MinAtar, as the first one; evaluations at the end are not counted."
        )

    def _run(self, study: "Study", jobs: Sequence["Job"], folder: Path) -> None:
        from conqur.suite import State, state

        make = self._engine()
        _check(study)
        _remember(study, self.study, folder)
        with announcer() as announce:
            shown = _Shown(len(jobs), folder, announce, quiet=self.json)
            outcome = make(jobs, folder, retries=study.retries, show=shown.update)
        states = Counter(state(job, folder).value for job in jobs)
        if self.json:
            print(json.dumps({"folder": str(folder), "runs": len(jobs), "states": states}))
        tell = say if self.json else print
        tell(f"{states[State.DONE]} of {len(jobs)} runs are done, in {folder}.")
        for job in outcome.failed:
            tell(f"Given up: {job.name}, see {job.log(folder)}")
        if outcome.stopped_by is not None:
            tell("Stopped. The same command goes on from what is saved.")
            raise SystemExit(128 + outcome.stopped_by)
        if not jobs:
            return
        if states[State.DONE] == len(jobs):
            tell(f"Next: {self._command('collect')}")
            return
        others = [job.name for job in jobs if state(job, folder) in (State.BEGUN, State.WAITING)]
        if others:
            more = f" and {len(others) - 3} more" * (len(others) > 3)
            tell(f"Somebody else is making {', '.join(others[:3])}{more}: wait, and try again.")
        raise SystemExit(1)

    def _command(self, verb: str) -> str:
        """What to type about this study."""
        there = [] if self.dir is None else ["--dir", str(self.dir)]
        return shlex.join(["conqur", "suite", verb, str(self.study), *there])

    def _engine(self) -> "Callable[..., Outcome]":
        """What makes the runs."""
        if self.engine == "local":
            from conqur.suite.local import default_workers, run_locally

            if self.address is not None:
                raise UsageError("--address is of a Ray cluster: --engine ray")
            return functools.partial(run_locally, workers=self.workers or default_workers())

        from conqur.suite.on_ray import run_on_ray
        from conqur.suite.ray_cluster import START

        address = self.address or os.environ.get("RAY_ADDRESS")
        if not address:
            raise UsageError(f"--engine ray needs --address HOST:PORT; to start Ray: {START}")
        return functools.partial(run_on_ray, address=address, workers=self.workers)

    def _status(self, jobs: Sequence["Job"], folder: Path) -> None:
        from conqur.suite import state
        from conqur.suite.jobs import last_words

        rows = [
            {"run": job.name, "state": state(job, folder).value, "said": last_words(job, folder)}
            for job in jobs
        ]
        if self.json:
            print(json.dumps({"folder": str(folder), "runs": rows}))
            return
        width = max(len(row["run"]) for row in rows)
        for row in rows:
            said = "" if row["state"] == "done" else printable(row["said"][:60])
            print(f"{row['run']:<{width}}  {row['state']:<8}  {said}".rstrip())
        counts = Counter(row["state"] for row in rows)
        print(", ".join(f"{count} {name}" for name, count in counts.items()))

    def _collect(self, jobs: Sequence["Job"], folder: Path) -> None:
        from conqur.suite import collect, collect_curves, collect_nodes
        from conqur.suite.results import MADE_WITH, manifest
        from conqur.suite.tables import CURVES, NODES, RESULTS, as_csv, as_parquet

        rows = collect(jobs, folder)
        if not rows:
            raise UsageError(f"no run in {folder} is done yet: {self._command('status')}")
        written: dict[str, bytes] = {}
        curves, nodes = collect_curves(jobs, folder), collect_nodes(jobs, folder)
        for name, table in ((RESULTS, rows), (CURVES, curves), (NODES, nodes)):
            parquet = name.replace(".csv", ".parquet")
            if not table:
                for old in (name, parquet):  # of an earlier time
                    (folder / old).unlink(missing_ok=True)
                continue
            written[name] = as_csv(type(table[0]), table).encode()
            try:
                written[parquet] = as_parquet(type(table[0]), table)
            except ImportError:
                warn("no Parquet is written: pip install 'conqur[parquet]'")
        done = {row.run for row in rows}
        made_with = manifest([job.folder(folder) for job in jobs if job.name in done])
        written[MADE_WITH] = (json.dumps(made_with, indent=2) + "\n").encode()
        for name, content in written.items():
            with replacing(folder / name, follow=False) as file:
                file.write(content)
        if self.json:
            networks = [row._asdict() for row in rows]
            print(json.dumps({"folder": str(folder), "networks": networks}, allow_nan=False))
        tell = say if self.json else print
        tell(f"{len(rows)} networks of {len(done)} of {len(jobs)} runs: {folder / RESULTS}")
        tell(f"Next: conqur report {folder}")


class _Shown:
    """One line about all runs, as often as something changed."""

    def __init__(self, total: int, folder: Path, announce: Any, *, quiet: bool) -> None:
        self._total, self._folder = total, folder
        self._announce, self._quiet, self._last = announce, quiet, ""
        self._began, self._before, self._done, self._left = clock.monotonic(), -1, -1, ""

    def update(self, busy: Sequence["Job"], waiting: int) -> None:
        from conqur.suite.jobs import last_words

        done = self._total - len(busy) - waiting
        if self._before < 0:
            self._before = self._done = done  # by an earlier call
        if done > self._done:
            seconds = (clock.monotonic() - self._began) / (done - self._before)
            self._left = f", about {duration((self._total - done) * seconds)} left"
            self._done = done
        runs = ", ".join(f"{job.name} ({_short(last_words(job, self._folder))})" for job in busy)
        line = f"{done} of {self._total} runs are over{self._left}; now {runs}"
        if not self._quiet and busy and line != self._last:
            self._announce(line)
            self._last = line


def _short(words: str) -> str:
    """Of a run's progress: how far it is."""
    level = r"level \d+ of \d+|level \d+/\d+: [\w ]+, \d+%"
    match = re.search(rf"(step [\d,]+ of [\d,]+|{level}|[a-z][\w ]*, \d+%)", words)
    return match[1] if match else "at work" if words else "starting"


def _shard(jobs: Sequence["Job"], words: str | None) -> Sequence["Job"]:
    if words is None:
        return jobs
    match = re.fullmatch(r"(\d+)/(\d+)", words)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard must be like 1/8, got {words}")
    mine = jobs[int(match[1]) - 1 :: int(match[2])]
    if not mine:
        warn(f"shard {words} has no runs: the study has {len(jobs)}")
    return mine


def _leave_accelerators_alone() -> None:
    """They are the workers': this process would take most of their memory for nothing."""
    import jax

    jax.config.update("jax_platforms", "cpu")  # type: ignore[no-untyped-call]


def _check(study: "Study") -> None:
    """Refuse what the runs would refuse, before any of them is begun."""
    from conqur.cli import parse
    from conqur.environments import make
    from conqur.pretrained import find_networks

    _check_settings(study)
    kinds: dict[tuple[str, ...], Any] = {}
    for job in study.jobs():
        place = job.about.get("network", job.about["game"])
        kind = (place, job.about["algorithm"], job.about["preset"])
        kinds.setdefault(kind, parse(job.arguments))
    for game in study.games:
        make(game, 1).close()
    for network in study.networks:
        find_networks(network.file)
        if network.env:
            make(network.env, 1).close()
    for command in kinds.values():
        command.check()


def _check_settings(study: "Study") -> None:
    """Refuse settings that are no options of the command."""
    from conqur.commands import COMMANDS

    options = [field.name for field in fields(COMMANDS[study.command])]
    for name in study.settings:
        if name.replace("-", "_") not in options:
            guess = did_you_mean(name.replace("-", "_"), options)
            raise UsageError(f"{study.name}: conqur {study.command} has no setting {name!r}{guess}")


def _refuse_other(study: "Study", folder: Path) -> None:
    """Refuse a folder that was made for something else."""
    from conqur.suite.results import JOBS, study_jobs

    if (folder / JOBS).exists() and study_jobs(folder) != study.jobs():
        raise UsageError(
            f"{folder} is of a study that was different, or was begun by another version of "
            "conqur: name another --dir, or the old file"
        )


def _remember(study: "Study", file: Path | None, folder: Path) -> None:
    """Note what the folder is for."""
    from conqur.suite.jobs import described
    from conqur.suite.results import JOBS, STUDY
    from conqur.suite.study import study_text

    told = json.dumps([described(job) for job in study.jobs()])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in ((JOBS, told), (STUDY, study_text(file or Path()))):
            with replacing(folder / name, follow=False) as copy:
                copy.write(text.encode())
    except OSError as error:
        raise UsageError(f"--dir {folder} cannot be used: {error.strerror}") from error
