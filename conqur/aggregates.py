"""Scores of many games at once: robust aggregates with intervals, and the paper's improvements.

Scores come by game, one for each independent run of it: a mapping from games to [n]. Games need not
have as many runs as each other. Aggregates weigh games alike whatever their number of runs, and
intervals are by a bootstrap that draws the runs of each game anew among themselves (stratified), as
in Agarwal et al. (2021), with seeds of its own.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from conqur import _checks
from conqur.statistics import interquartile_mean

Scores = Mapping[str, Sequence[float]]
"""By game, one for each run."""

LONGEST = 120
"""To which games with fewer runs than others are repeated at most: then they weigh alike nearly."""


@dataclass(frozen=True)
class Aggregate:
    """One number for many games.

    Attributes:
        value: of the scores as they are.
        interval: (low, high) at 95 %; NaN where no game has a second run.
    """

    value: float
    interval: tuple[float, float]


def median(scores: Any) -> Any:
    """The median over games of their mean scores, of [..., n, games]."""
    return np.median(np.mean(scores, axis=-2), axis=-1)


def mean(scores: Any) -> Any:
    """The mean over games of their mean scores, of [..., n, games]."""
    return np.mean(np.mean(scores, axis=-2), axis=-1)


def iqm(scores: Any) -> Any:
    """The mean of the middle half of all scores, of [..., n, games]."""
    array = np.asarray(scores)
    return interquartile_mean(array.reshape(*array.shape[:-2], -1), axis=-1)


def optimality_gap(scores: Any, target: float = 1.0) -> Any:
    """By how much scores fall short of the target on average, of [..., n, games]; less is better.

    What is above the target makes up for nothing.
    """
    return np.mean(np.maximum(0.0, target - np.asarray(scores)), axis=(-2, -1))


AGGREGATES: dict[str, Callable[[Any], Any]] = {
    "median": median,
    "IQM": iqm,
    "mean": mean,
    "optimality gap": optimality_gap,
}
"""By the names that reports call them."""


def aggregate(
    scores: Scores,
    statistic: Callable[[Any], Any] = iqm,
    *,
    level: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Aggregate:
    """One number for many games, with a stratified bootstrap interval (percentiles).

    Args:
        scores: by game; normalise them before, or games with large numbers rule. Where games have
            different numbers of runs, these are repeated so that all games weigh alike.
        statistic: from scores [..., n, games] to [...].
        level: how often such an interval should hold the true value.
        resamples: how many.
        seed: of the resampling.
    """
    columns = _columns("scores", scores)
    _checks.number("level", level, above=0, below=1)
    _checks.count("resamples", resamples)
    value = float(statistic(_side_by_side(columns)))
    if max(len(column) for column in columns) == 1:
        return Aggregate(value, (math.nan, math.nan))
    drawn = _side_by_side(_resampled(columns, resamples, seed))
    return Aggregate(value, _percentiles(statistic(drawn), level))


def relative(
    scores: Scores,
    baselines: Scores,
    statistic: Callable[[Any], Any] = iqm,
    *,
    level: float = 0.95,
    resamples: int = 2_000,
    seed: int = 0,
) -> Aggregate:
    """As `aggregate`, of scores in parts of a baseline's mean score m in each game.

    A score s counts as 1 + (s − m)/|m|. The baseline's runs are drawn anew, too: its mean is not
    known better than they tell. (Draws in which it is zero in a game are left out.)

    Args:
        scores: by game.
        baselines: of the same games; no mean may be zero.
        statistic: from scores [..., n, games] to [...].
        level: how often such an interval should hold the true value.
        resamples: how many.
        seed: of the resampling.
    """
    if set(scores) != set(baselines):
        differ = _differ(scores, baselines)
        raise ValueError(f"scores and baselines must be of the same games, but differ in {differ}")
    ours = _columns("scores", scores)
    theirs = _columns("baselines", {game: baselines[game] for game in scores})
    for game, column in zip(scores, theirs, strict=True):
        if np.mean(column) == 0:
            raise ValueError(f"baselines[{game!r}] has a mean of zero, which nothing is a part of")
    _checks.number("level", level, above=0, below=1)
    _checks.count("resamples", resamples)
    value = float(statistic(_side_by_side(_parts(ours, theirs))))
    if max(len(column) for column in (*ours, *theirs)) == 1:
        return Aggregate(value, (math.nan, math.nan))
    drawn = _resampled([*ours, *theirs], resamples, seed)
    above, below = drawn[: len(ours)], drawn[len(ours) :]
    whole = np.all([column.mean(axis=-1) != 0 for column in below], axis=0)
    found = statistic(_side_by_side(_parts(above, below))[whole])
    return Aggregate(value, _percentiles(found, level))


def probability_of_improvement(
    a: Scores, b: Scores, *, level: float = 0.95, resamples: int = 2_000, seed: int = 0
) -> Aggregate:
    """How probable it is that a run of `a` beats one of `b` in a game drawn at random.

    A tie counts half. The interval is by the stratified bootstrap, runs of a and b drawn apart.

    Args:
        a: scores by game.
        b: the scores to hold them against, of the same games.
        level: how often such an interval should hold the true value.
        resamples: how many.
        seed: of the resampling.
    """
    if set(a) != set(b):
        raise ValueError(f"a and b must be of the same games, but differ in {_differ(a, b)}")
    games = sorted(a)
    first, second = (_columns(name, {g: x[g] for g in games}) for name, x in (("a", a), ("b", b)))
    value = float(np.mean([_beats(x, y) for x, y in zip(first, second, strict=True)]))
    if max(len(column) for column in (*first, *second)) == 1:
        return Aggregate(value, (math.nan, math.nan))
    both = _resampled([*first, *second], resamples, seed)
    pairs = zip(both[: len(first)], both[len(first) :], strict=True)
    found = np.mean([_beats(x, y) for x, y in pairs], axis=0)
    return Aggregate(value, _percentiles(found, level))


def improvement(score: float, baseline: float) -> float | None:
    """The paper's (s_C − s_B)/|s_B|; None for a baseline of zero, which the paper leaves out."""
    return None if baseline == 0 else (score - baseline) / abs(baseline)


@dataclass(frozen=True)
class Improvements:
    """Improvements over many games, as the paper counts them.

    Attributes:
        by_game: (s_C − s_B)/|s_B|, where there is one.
        wins: games with an improvement above `within`.
        losses: games with one below −`within`.
        even: the others.
        left_out: games whose baseline is zero.
        mean: of the improvements; NaN if there is none.
        median: likewise.
    """

    by_game: dict[str, float]
    wins: int
    losses: int
    even: int
    left_out: tuple[str, ...]
    mean: float
    median: float


def improvements(
    scores: Mapping[str, float], baselines: Mapping[str, float], *, within: float = 0.01
) -> Improvements:
    """Improvements of every game that both have, and how many are won and lost.

    Args:
        scores: by game.
        baselines: by game.
        within: improvements up to this are neither won nor lost; the paper's is 1 %.
    """
    games = [game for game in scores if game in baselines]
    found = {game: improvement(scores[game], baselines[game]) for game in games}
    known = {game: value for game, value in found.items() if value is not None}
    values = list(known.values())
    wins = sum(value > within for value in values)
    losses = sum(value < -within for value in values)
    return Improvements(
        by_game=known,
        wins=wins,
        losses=losses,
        even=len(values) - wins - losses,
        left_out=tuple(game for game, value in found.items() if value is None),
        mean=float(np.mean(values)) if values else math.nan,
        median=float(np.median(values)) if values else math.nan,
    )


def _columns(name: str, scores: Scores) -> list[Float[np.ndarray, " _"]]:
    if not scores:
        raise ValueError(f"{name} must hold at least one game")
    return [_checks.real_array(f"{name}[{game!r}]", scores[game], ["n"]) for game in scores]


def _resampled(
    columns: Sequence[Float[np.ndarray, " _"]], resamples: int, seed: int
) -> list[Float[np.ndarray, "resamples _"]]:
    """As many draws from each column as it has entries, many times."""
    rng = np.random.default_rng(_checks.count("seed", seed, at_least=0))
    return [c[rng.integers(len(c), size=(resamples, len(c)))] for c in columns]


def _side_by_side(columns: Sequence[Any]) -> Float[np.ndarray, "... n games"]:
    """Columns [..., n] of different lengths as one array: repeated until they are equally long."""
    lengths = [column.shape[-1] for column in columns]
    common = min(math.lcm(*lengths), max(LONGEST, *lengths))
    return np.stack([column[..., np.arange(common) % column.shape[-1]] for column in columns], -1)


def _parts(scores: Sequence[Any], baselines: Sequence[Any]) -> list[Any]:
    """Columns [..., n] in parts of the means of others; no numbers where such a mean is zero."""
    means = [np.mean(column, axis=-1, keepdims=True) for column in baselines]
    with np.errstate(divide="ignore", invalid="ignore"):
        return [1 + (own - mean) / np.abs(mean) for own, mean in zip(scores, means, strict=True)]


def _percentiles(values: Any, level: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _beats(a: Any, b: Any) -> Any:
    """How often a score of a [..., n] is above one of b [..., m]; a tie counts half."""
    lead = a[..., :, None] - b[..., None, :]
    return np.mean((np.sign(lead) + 1) / 2, axis=(-2, -1))


def _differ(a: Scores, b: Scores) -> str:
    return ", ".join(sorted(set(a) ^ set(b)))
