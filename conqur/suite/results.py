"""What there is to report of a study or of single runs: tables, from wherever they are."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conqur.runs import RunError
from conqur.runs.files import Damaged, file_size, read_json
from conqur.runs.layout import CONFIG, EVALUATION, LOG, MANIFEST
from conqur.suite.algorithms import algorithm_of
from conqur.suite.collecting import (
    check_alike,
    collect,
    collect_curves,
    collect_nodes,
    is_outdated,
    ranked_nodes,
    trained_points,
    trained_rows,
    tuned_points,
    tuned_rows,
)
from conqur.suite.jobs import Job
from conqur.suite.study import read_study
from conqur.suite.tables import (
    CURVES,
    NODES,
    RESULTS,
    RankedNode,
    Trained,
    TrainedPoint,
    Tuned,
    TunedPoint,
    read_csv,
)
from conqur.tuning_run import SUMMARY

STUDY, JOBS, MADE_WITH = "study.toml", "study.json", "made_with.json"
"""In a study's folder: what was asked for, its runs, and the manifest of the first of them."""


MOST_TEXT = 100_000
"""Bytes of a study's file that is shown."""


@dataclass(frozen=True, eq=False)
class Results:
    """What there is to report.

    Attributes:
        name: of the study.
        command: "train" or "tune".
        rows: of networks, `Trained` or `Tuned`.
        points: of curves, `TrainedPoint` or `TunedPoint`.
        nodes: the last ones of searches.
        runs: how many there are to be.
        done: how many of them are at their end.
        settings: what was asked for, as text.
        made_with: the manifest of a run.
        folders: of the runs, as far as they are here.
    """

    name: str
    command: str
    rows: tuple[Any, ...]
    points: tuple[Any, ...]
    nodes: tuple[RankedNode, ...]
    runs: int
    done: int
    settings: str
    made_with: dict[str, Any]
    folders: tuple[Path, ...]


def is_study(folder: Path) -> bool:
    """Whether a folder is that of a study, with its runs or only with their tables."""
    return (folder / JOBS).exists() or (folder / RESULTS).exists()


def read_results(folder: Path) -> Results:
    """Read a study: its runs if they are there, or else what was collected of them.

    Raises:
        RunError: if nothing in it is done yet.
        ValueError: if its files are not what a study writes.
    """
    if (folder / JOBS).exists() and (folder / "runs").is_dir():
        return _with_runs(folder)
    kind, rows = read_csv((Trained, Tuned), folder / RESULTS)
    points: list[Any] = []
    if (folder / CURVES).exists():
        other = TrainedPoint if kind is Trained else TunedPoint
        _, points = read_csv((other,), folder / CURVES)
    nodes: list[Any] = []
    if kind is Tuned and (folder / NODES).exists():
        _, nodes = read_csv((RankedNode,), folder / NODES)
    if not rows:
        raise RunError(f"{folder / RESULTS} has no rows: nothing was done yet")
    done = len({row.run for row in rows})
    runs = _asked_for(folder) or done
    command = "train" if kind is Trained else "tune"
    made_with = _json_or_nothing(folder / MADE_WITH)
    return Results(
        folder.resolve().name,
        command,
        tuple(rows),
        tuple(points),
        tuple(nodes),
        runs,
        done,
        _text_or_nothing(folder / STUDY),
        made_with,
        (),
    )


def read_runs(folders: Sequence[Path]) -> Results:
    """Read single runs as if they were a study; all have to be of one command.

    Raises:
        RunError: if they are not, or one is none.
    """
    rows: list[Any] = []
    points: list[Any] = []
    nodes: list[RankedNode] = []
    commands, done = set(), 0
    for folder in folders:
        try:
            config = read_json(folder / CONFIG)
            trained = "algorithm" in config
            commands.add("train" if trained else "tune")
            if trained:
                about = {
                    "game": config["environment"],
                    "algorithm": config["algorithm"],
                    "preset": "",
                }
                points += trained_points(folder, about)
                if (folder / EVALUATION).exists() and not is_outdated(folder):
                    rows += trained_rows(folder, about)
                    done += 1
            else:
                network = config["checkpoint"] or folder.name  # from scratch there is none
                about = {"network": network, "algorithm": algorithm_of(config), "preset": ""}
                points += tuned_points(folder, about)
                if (folder / SUMMARY).exists():
                    rows += tuned_rows(folder, about)
                    nodes += ranked_nodes(folder, about)
                    done += 1
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise RunError(f"{folder} is damaged, or no run of this version: {error}") from None
        except (Damaged, OSError, ValueError) as error:
            raise RunError(f"{folder} cannot be reported on: {error}") from None
    if not rows and not points:
        raise RunError(
            f"{folders[0]} has nothing to show yet: no episode that ended is in its log, and no "
            "scores are kept (conqur evaluate RUN --keep)"
        )
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise RunError("a run is named twice: its numbers would count twice")
    if len(commands) != 1:
        raise RunError("some of these runs train and some tune: report on them apart")
    if commands == {"train"}:
        _check_members(points)
    else:
        remedy = "report on them apart, or make them as a study with presets"
        check_alike(((_arm(folder), folder) for folder in folders), remedy=remedy)
    names = [folder.resolve().name for folder in folders]
    name = names[0] if len(names) == 1 else f"{len(names)} runs"
    manifest = _json_or_nothing(folders[0] / MANIFEST)
    return Results(
        name,
        commands.pop(),
        tuple(rows),
        tuple(points),
        tuple(nodes),
        len(folders),
        done,
        "",
        manifest,
        tuple(folders),
    )


def _check_members(points: Sequence[TrainedPoint]) -> None:
    """Refuse runs of the same networks: their numbers would be mixed."""
    seen = set()
    for point in points:
        place = (point.game, point.algorithm, point.penalty_weight, point.seed, point.step)
        if place in seen:
            raise RunError(
                f"{point.game}, {point.algorithm.upper()}, λ = {point.penalty_weight:g}, seed "
                f"{point.seed} is in more than one of the runs: report on them apart"
            )
        seen.add(place)


def _arm(folder: Path) -> tuple[Any, ...]:
    config = read_json(folder / CONFIG)
    return (algorithm_of(config), config["penalty_weight"], config["nodes"])


def _asked_for(folder: Path) -> int:
    """How many runs a study is to have; 0 if nothing tells."""
    if (folder / JOBS).exists():
        return len(study_jobs(folder))
    try:
        asked = _text_or_nothing(folder / STUDY)
        return len(read_study(folder / STUDY).jobs()) if asked else 0
    except (ValueError, RecursionError):  # of another version, or none
        return 0


def study_jobs(folder: Path) -> tuple[Job, ...]:
    """The runs of a study, by its folder.

    Raises:
        ValueError: if the folder's list of them is none.
    """
    try:
        file_size(folder / JOBS)  # a file, and no device
        told = json.loads((folder / JOBS).read_text("utf-8"))
        jobs = [_job(*json.loads(line)) for line in told]
        return tuple(jobs)
    except (OSError, ValueError, TypeError, RecursionError, Damaged) as error:
        raise ValueError(f"{folder / JOBS} is no list of runs: {error}") from None


def _job(name: Any, typed: Any, about: Any, episodes: Any) -> Job:
    """A run of such a list; its name is that of a folder, and of none elsewhere."""
    if not isinstance(name, str) or name != Path(name).name or name in ("", ".."):
        raise ValueError(f"{str(name)[:60]!r} is no name of a run")
    if not isinstance(about, dict) or not all(isinstance(word, str) for word in typed):
        raise ValueError(f"{name[:60]!r} is no run")
    return Job(name, tuple(typed), about, episodes)


def _with_runs(folder: Path) -> Results:
    jobs = study_jobs(folder)
    rows = collect(jobs, folder)
    folders = tuple(job.folder(folder) for job in jobs if job.folder(folder).is_dir())
    if not rows:
        raise RunError(f"none of the {len(jobs)} runs of {folder} is done yet")
    logged = next((run for run in folders if (run / LOG).exists()), None)
    return Results(
        folder.resolve().name,
        "train" if isinstance(rows[0], Trained) else "tune",
        tuple(rows),
        tuple(collect_curves(jobs, folder)),
        tuple(collect_nodes(jobs, folder)),
        len(jobs),
        len({row.run for row in rows}),
        _text_or_nothing(folder / STUDY),
        {} if logged is None else _json_or_nothing(logged / MANIFEST),
        folders,
    )


def manifest(runs: Sequence[Path]) -> dict[str, Any]:
    """What the first of some runs was made with, and on what each of them, if not all alike."""
    every = [_json_or_nothing(run / MANIFEST) for run in runs]
    made_on = Counter(_made_on(each) for each in every if each)
    told = {machine: f"{count} runs" for machine, count in made_on.items()}
    return every[0] | ({"runs_made_on": told} if len(told) > 1 else {})


def _made_on(made_with: dict[str, Any]) -> str:
    """Machine, versions and commit of a run, in words."""
    device, packages = (_part(made_with, name) for name in ("device", "packages"))
    kind, processor = device.get("kind"), device.get("processor")
    machine = processor if kind == "cpu" else f"{kind}, {processor}"
    return (
        f"{machine}; Python {made_with.get('python')}; jax {packages.get('jax')}; commit "
        f"{made_with.get('commit')}"
    )


def _part(made_with: dict[str, Any], name: str) -> dict[str, Any]:
    found = made_with.get(name)
    return found if isinstance(found, dict) else {}


def _text_or_nothing(path: Path) -> str:
    try:
        return path.read_text("utf-8", errors="replace") if file_size(path) < MOST_TEXT else ""
    except (OSError, Damaged):
        return ""


def _json_or_nothing(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except Damaged:
        return {}
