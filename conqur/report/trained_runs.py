"""Training runs on one environment and how their networks scored: what a report is made from."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from conqur.environments.data import is_data
from conqur.report.charts import number
from conqur.report.lines import finite, read_rows, whole
from conqur.runs.files import Damaged, read_json

MOST_POINTS = 200
"""A curve with more is averaged down to so many."""


class Kind(NamedTuple):
    """What the members of a line or row have in common; they differ in their seeds."""

    algorithm: str
    penalty_weight: float

    def __str__(self) -> str:
        return f"{self.algorithm.upper()}, λ = {self.penalty_weight:g}"


Scores = dict[Kind, dict[int, float]]
"""One number for each seed of each kind."""


@dataclass(frozen=True, eq=False)
class Curve:
    """What one member's episodes returned while it learned.

    Attributes:
        kind: its algorithm and λ.
        seed: its seed.
        steps: at which the log has rows, [T].
        returns: the mean return of the episodes that ended since the row before, [T].
        episodes: how many those were, [T].
    """

    kind: Kind
    seed: int
    steps: Float[np.ndarray, " T"]
    returns: Float[np.ndarray, " T"]
    episodes: Float[np.ndarray, " T"]


@dataclass(frozen=True, eq=False)
class TrainedRuns:
    """Runs on one environment.

    Attributes:
        environment: its name.
        runs: of each, its settings and what it was made with.
        curves: of all members.
        evaluations: how was played, and what was scored, of each.
    """

    environment: str
    runs: tuple[dict[str, Any], ...]
    curves: tuple[Curve, ...]
    evaluations: tuple[tuple[str, Scores], ...]


def read_trained(runs: Sequence[Path], evaluations: Sequence[Path] = ()) -> TrainedRuns:
    """Read run folders and the outputs of `conqur evaluate --json` that belong to them.

    Args:
        runs: the folders; all of one environment, and no member twice.
        evaluations: the files; those that were played alike are put together.
    """
    about = tuple(
        {name: _read_json(run / f"{name}.json") for name in ("config", "manifest")} for run in runs
    )
    environments = sorted({run["config"]["environment"] for run in about})
    if len(environments) != 1:
        raise ValueError(
            f"the runs are on {', '.join(environments)}: name those of one environment at a time"
        )
    curves = [
        curve
        for run, read in zip(runs, about, strict=True)
        for curve in read_curves(run / "log.jsonl", read["config"]["algorithm"])
    ]
    members = [(curve.kind, curve.seed) for curve in curves]
    for member in members:
        if members.count(member) > 1:
            raise ValueError(f"{member[0]}, seed {member[1]} is in more than one of the runs")
    reached = {(curve.kind, curve.seed): curve.steps[-1] for curve in curves}
    played = _read_evaluations(evaluations, environments[0], reached)
    return TrainedRuns(environments[0], about, tuple(curves), played)


def by_kind(curves: Iterable[Curve]) -> dict[Kind, list[Curve]]:
    """The curves of each kind."""
    kinds: dict[Kind, list[Curve]] = {}
    for curve in curves:
        kinds.setdefault(curve.kind, []).append(curve)
    return kinds


def grid_of(curves: Sequence[Curve], most: int = MOST_POINTS) -> Float[np.ndarray, " T"]:
    """The steps to show curves at, as far as all go: the log's or, if those are many, fewer."""
    steps = np.unique(np.concatenate([curve.steps for curve in curves]))
    steps = steps[steps <= min(curve.steps[-1] for curve in curves)]
    if len(steps) <= most:
        return steps
    return np.linspace(0, steps[-1], most + 1)[1:]


def on_grid(curve: Curve, grid: Float[np.ndarray, " T"]) -> Float[np.ndarray, " T"]:
    """The mean return of the episodes that ended up to each step of the grid from the one before.

    The last value before where none did; NaN up to the first.
    """
    place = np.searchsorted(grid, curve.steps)
    known = (curve.episodes > 0) & (place < len(grid))
    totals = np.zeros((2, len(grid)))
    np.add.at(totals[0], place[known], (curve.returns * curve.episodes)[known])
    np.add.at(totals[1], place[known], curve.episodes[known])
    latest = np.maximum.accumulate(np.where(totals[1] > 0, np.arange(len(grid)), -1))
    means = totals[0] / np.where(totals[1] > 0, totals[1], 1.0)
    return np.where(latest < 0, np.nan, means[latest])


def to_json(trained: TrainedRuns) -> str:
    """All of it as JSON; every run, curve and score is one line."""
    parts = {
        "runs": trained.runs,
        "curves": [
            {
                "algorithm": kind.algorithm,
                "penalty_weight": kind.penalty_weight,
                "steps": np.rint(grid).astype(int).tolist(),
                "returns": {curve.seed: _rounded(on_grid(curve, grid)) for curve in curves},
            }
            for kind, curves in by_kind(trained.curves).items()
            for grid in [grid_of(curves)]
        ],
        "scores": [
            {
                "played": heading,
                "algorithm": kind.algorithm,
                "penalty_weight": kind.penalty_weight,
                "seed": seed,
                "mean": value,
            }
            for heading, scores in trained.evaluations
            for kind, by_seed in scores.items()
            for seed, value in by_seed.items()
        ],
    }
    lists = (
        f'"{name}": [\n  '
        + ",\n  ".join(json.dumps(entry, ensure_ascii=False) for entry in entries)
        + "\n]"
        for name, entries in parts.items()
    )
    head = f'"environment": {json.dumps(trained.environment)}'
    return "{\n" + ",\n".join([head, *lists]) + "\n}\n"


def _rounded(values: Float[np.ndarray, " T"]) -> list[float | None]:
    return [None if math.isnan(value) else float(f"{value:.4g}") for value in values]


def _read_json(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except Damaged as reason:
        raise ValueError(f"{path.parent}: {reason}") from None


def read_curves(path: Path, algorithm: str) -> list[Curve]:
    """The curves of a run's log.

    Raises:
        ValueError: if there is none, or no log of a training run.
    """
    try:
        rows = read_rows(path, _log_row)
    except (Damaged, OSError) as error:
        raise ValueError(f"{path.parent}: {error}") from None
    if not rows:
        raise ValueError(f"{path.parent} has no log yet")
    members: dict[tuple[float, int], list[tuple[float, float, float]]] = {}
    for weight, seed, step, returned, episodes in rows:
        members.setdefault((weight, seed), []).append((step, returned, episodes))
    return [
        Curve(Kind(algorithm, weight), seed, *np.array(points, float).T)
        for (weight, seed), points in members.items()
    ]


def _log_row(row: dict[str, Any]) -> tuple[float, int, float, float, float]:
    """λ, seed, step, return and episodes."""
    returned = math.nan if row["return"] is None else finite(row["return"])
    steps, episodes = finite(row["step"]), finite(row["episodes"])
    return finite(row["penalty_weight"]), whole(row["seed"]), steps, returned, episodes


class _Manner(NamedTuple):
    """How networks were played; scores are put together if it is the same."""

    environment: str
    epsilon: float
    sticky: float | None
    preprocessing: str | None
    seed: int


def _read_evaluations(
    paths: Sequence[Path], environment: str, reached: Mapping[tuple[Kind, int], float]
) -> tuple[tuple[str, Scores], ...]:
    found: dict[_Manner, dict[tuple[Kind, int], dict[str, Any]]] = {}
    for path in paths:
        read = _read_json(path)
        try:
            manner = _Manner(*(read[name] for name in _Manner._fields))
            networks = {_member(entry["network"]): entry for entry in read.get("networks", [read])}
        except (KeyError, TypeError):
            raise ValueError(f"{path} is not what `conqur evaluate --json` prints") from None
        if manner.environment != environment and not is_data(environment):
            raise ValueError(
                f"{path} has scores in {manner.environment}, but the runs are on {environment}"
            )
        played = found.setdefault(manner, {})
        for (kind, seed), entry in networks.items():
            _check_score(f"{path} has a score of {kind}, seed {seed}", kind, seed, entry, reached)
            if (kind, seed) in played:
                raise ValueError(
                    f"{path} has a score of {kind}, seed {seed}, which another has too"
                )
        played |= networks
    return tuple(
        (_how_played(manner, environment, played), _scores(reached, played))
        for manner, played in found.items()
    )


def _member(about: Mapping[str, Any]) -> tuple[Kind, int]:
    return Kind(about["algorithm"], about["penalty_weight"]), about["seed"]


def _check_score(
    words: str,
    kind: Kind,
    seed: int,
    entry: Mapping[str, Any],
    reached: Mapping[tuple[Kind, int], float],
) -> None:
    if (kind, seed) not in reached:
        raise ValueError(f"{words}, which is in none of the runs")
    step = entry["network"]["step"]
    if step < reached[kind, seed]:
        raise ValueError(
            f"{words} at step {step:,}, but its run has come further: evaluate it again"
        )


def _how_played(manner: _Manner, environment: str, played: Mapping[Any, Mapping[str, Any]]) -> str:
    counts = [len(entry["episodes"]) for entry in played.values()]
    least, most = number(min(counts)), number(max(counts))
    episodes = least if least == most else f"{least} to {most}"
    where = "" if manner.environment == environment else f" in {manner.environment}"
    words = [
        f"Evaluation{where}: {episodes} episodes of each network",
        "" if all(entry["finished"] for entry in played.values()) else "some broken off",
        f"ε = {manner.epsilon:g}",
        "" if manner.sticky is None else f"sticky actions {manner.sticky:g}",
        "" if manner.preprocessing is None else f"preprocessing {manner.preprocessing}",
        f"seed {manner.seed}" if manner.seed else "",
    ]
    return ", ".join(filter(None, words))


def _scores(
    members: Iterable[tuple[Kind, int]], played: Mapping[tuple[Kind, int], Mapping[str, Any]]
) -> Scores:
    scores: Scores = {}
    for kind, seed in members:
        if (kind, seed) in played:
            scores.setdefault(kind, {})[seed] = played[kind, seed]["mean"]
    return scores
