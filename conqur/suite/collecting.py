"""All results of runs as tidy tables, read from their folders."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from conqur.report.lines import finite, number_or_none, pair, read_rows, whole
from conqur.report.trained_runs import grid_of, on_grid, read_curves
from conqur.report.tuned_run import read_played
from conqur.runs import RunError
from conqur.runs.files import Damaged, file_size, read_json
from conqur.runs.layout import CONFIG, EVALUATION, LOG
from conqur.search.config import TuneConfig
from conqur.suite.jobs import Job, State, state
from conqur.suite.tables import RankedNode, Trained, TrainedPoint, Tuned, TunedPoint
from conqur.tuning_run import EVALUATIONS, SUMMARY

MOST_POINTS = 50
"""Of a curve."""
MAY_DIFFER = ("environment", "checkpoint", "preprocessing", "discount", "seed")
"""Settings in which searches differ that are averaged."""


def collect(jobs: Sequence[Job], study: Path) -> list[Any]:
    """A row for each network of the runs that are done: `Trained` or `Tuned`.

    Raises:
        RunError: if a run is damaged or of another version, or searches of one arm differ in their
            settings.
    """
    rows = _of_all(jobs, study, trained_rows, tuned_rows)
    searches = {job.name: job for job in jobs if job.episodes is None}
    arms = [
        ((row.game, row.algorithm, row.preset, row.penalty_weight), searches[row.run].folder(study))
        for row in rows
        if row.run in searches
    ]
    remedy = "they are of different versions; remove those of one, and `suite run` makes them again"
    check_alike(arms, remedy=remedy)
    return rows


def collect_curves(jobs: Sequence[Job], study: Path) -> list[Any]:
    """Points of the curves of the runs that are done: `TrainedPoint` or `TunedPoint`."""
    return _of_all(jobs, study, trained_points, tuned_points)


def collect_nodes(jobs: Sequence[Job], study: Path) -> list[RankedNode]:
    """The last nodes of all searches that are done."""
    return _of_all(jobs, study, lambda folder, about: [], ranked_nodes)


def _of_all(
    jobs: Sequence[Job], study: Path, trained: Callable[..., Any], tuned: Callable[..., Any]
) -> list[Any]:
    found: list[Any] = []
    for job in jobs:
        if state(job, study) is State.DONE:
            folder = job.folder(study)
            try:
                found += (tuned if job.episodes is None else trained)(folder, job.about)
            except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
                raise RunError(f"{folder} is damaged, or no run of this version: {error}") from None
            except (Damaged, OSError) as error:
                raise RunError(f"{folder}: {error}") from None
    return found


def trained_rows(folder: Path, about: dict[str, Any]) -> list[Trained]:
    """The networks of a training run that was evaluated.

    Args:
        folder: of the run.
        about: what it is called in tables: game, algorithm and preset.
    """
    found = read_json(folder / EVALUATION)
    return [
        Trained(
            game=about["game"],
            algorithm=about["algorithm"],
            preset=about["preset"],
            penalty_weight=finite(network["network"]["penalty_weight"]),
            seed=whole(network["network"]["seed"]),
            score=finite(network["mean"]),
            score_low=pair(network["interval"])[0],
            score_high=pair(network["interval"])[1],
            human_normalised=number_or_none(network["human_normalised"]),
            episodes=len(network["episodes"]),
            run=folder.name,
        )
        for network in found.get("networks", [found])
    ]


def is_outdated(folder: Path) -> bool:
    """Whether a training run went on after its networks were evaluated."""
    found = read_json(folder / EVALUATION)
    steps = [network["network"].get("step") for network in found.get("networks", [found])]
    logged = read_rows(folder / LOG, lambda row: whole(row["step"]))
    return any(isinstance(step, int) and step < max(logged, default=0) for step in steps)


def trained_points(folder: Path, about: dict[str, Any]) -> list[TrainedPoint]:
    """The learning curves of a training run; the arguments are those of `trained_rows`.

    A run that ended before its first row of the log has none.
    """
    points: list[TrainedPoint] = []
    if not (folder / LOG).exists() or not file_size(folder / LOG):
        return points
    for curve in read_curves(folder / LOG, about["algorithm"]):
        grid = grid_of([curve], MOST_POINTS)
        member = (curve.kind.penalty_weight, curve.seed)
        for step, value in zip(grid.tolist(), on_grid(curve, grid).tolist(), strict=True):
            if value == value:  # no episode has ended before
                names = (about["game"], about["algorithm"], about["preset"])
                points.append(TrainedPoint(*names, *member, round(step), value))
    return points


def tuned_rows(folder: Path, about: dict[str, Any]) -> list[Tuned]:
    """The network of a tuning run.

    Args:
        folder: of the run.
        about: what it is called in tables: network, algorithm and preset.
    """
    found, config = read_json(folder / SUMMARY), settings_of(folder)
    chosen, by_score = found.get("chosen") or {}, found.get("chosen_by_score") or {}
    points = tuned_points(folder, about)
    levels = [point for point in points if point.level]  # nodes, not the root
    low, high = pair(chosen.get("gain_interval") or (None, None))
    gain = number_or_none(chosen.get("gain"))
    return [
        Tuned(
            **_of_search(about, config),
            checkpoint=number_or_none((found.get("checkpoint") or {}).get("mean")),
            score=number_or_none(chosen.get("mean")),
            gain=gain,
            gain_low=low,
            gain_high=high,
            handed_back_gain=0.0 if found.get("handed_back") == "checkpoint" else gain,
            score_by_score=number_or_none(by_score.get("mean")),
            gain_by_score=number_or_none(by_score.get("gain")),
            best_evaluation=max(point.best for point in points) if levels else None,
            best_evaluation_checkpoint=(
                sum(point.checkpoint for point in levels) / len(levels) if levels else None
            ),
            diverged=int(found.get("candidates") == 0),
            episodes=None if chosen.get("episodes") is None else whole(chosen["episodes"]),
            frames=whole(found.get("frames", 0)) + whole(found.get("played_frames", 0)),
            seconds=number_or_none(found.get("seconds")),
            run=folder.name,
        )
    ]


def tuned_points(folder: Path, about: dict[str, Any]) -> list[TunedPoint]:
    """What evaluations in a search found, level by level."""
    config = settings_of(folder)
    levels: dict[int, list[Any]] = {}
    for row in read_played(folder / EVALUATIONS):
        levels.setdefault(row.level, []).append(row)
    return [
        TunedPoint(
            **_of_search(about, config),
            level=level,
            best=max(row.mean for row in rows),
            mean=sum(row.mean for row in rows) / len(rows),
            checkpoint=rows[0].checkpoint,
        )
        for level, rows in sorted(levels.items())
    ]


def ranked_nodes(folder: Path, about: dict[str, Any]) -> list[RankedNode]:
    """The nodes of a search's last evaluation, best first; none if only the root was evaluated."""
    config, played = settings_of(folder), read_played(folder / EVALUATIONS)
    last = max((row.level for row in played), default=0)
    nodes = [row for row in played if row.level == last] if last else []
    return [
        RankedNode(
            **_of_search(about, config),
            level=last,
            rank=rank,
            score=row.mean,
            checkpoint=row.checkpoint,
        )
        for rank, row in enumerate(sorted(nodes, key=lambda row: -row.mean), 1)
    ]


def check_alike(searches: Iterable[tuple[tuple[Any, ...], Path]], *, remedy: str) -> None:
    """Refuse searches that are called the same and differ in their settings.

    Args:
        searches: what each is called, and its folder.
        remedy: what to do about it.
    """
    known: dict[tuple[Any, ...], tuple[Path, dict[str, Any]]] = {}
    for arm, folder in searches:
        config = settings_of(folder).to_json()
        rest = {name: value for name, value in config.items() if name not in MAY_DIFFER}
        first, other = known.setdefault(arm, (folder, rest))
        differ = ", ".join(name for name in rest if rest[name] != other[name])
        if differ:
            raise RunError(f"{folder} and {first} differ in {differ}: {remedy}")


def settings_of(folder: Path) -> TuneConfig:
    """What a tuning run was made with, if it is a run of this version."""
    return TuneConfig.from_json(read_json(folder / CONFIG))


def _of_search(about: dict[str, Any], config: TuneConfig) -> dict[str, Any]:
    """What a search is known by."""
    named = {name: about[name] for name in ("network", "algorithm", "preset")}
    return named | {
        "game": config.environment,
        "nodes": config.nodes,
        "penalty_weight": float(config.penalty_weight),
        "seed": config.seed,
    }
