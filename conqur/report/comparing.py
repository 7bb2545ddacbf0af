"""What exhibits of trainings and of searches have in common: improvements, aggregates, curves."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from conqur.aggregates import Aggregate, Improvements, aggregate, mean
from conqur.report.charts import Bar, Series, bar_chart, signed
from conqur.report.exhibits import Estimate, Figure
from conqur.statistics import mean_of_means, student_interval

BLACK, WON, LOST, EVEN = "var(--ink)", "var(--blue)", "var(--vermillion)", "var(--muted)"


def margins(title: str, lead: Improvements) -> Figure:
    """Improvements by game, the largest first."""
    ranked = sorted(lead.by_game.items(), key=lambda item: -item[1])
    bars = [
        Bar(
            game,
            100 * value,
            WON if value > 0.01 else LOST if value < -0.01 else EVEN,
            f"{signed(100 * value, 1)} %",
        )
        for game, value in ranked
    ]
    return Figure(title, bar_chart(bars, title=f"Improvement, per cent: {title}"))


def won_and_lost(lead: Improvements) -> str:
    """How many games are won and lost, in a sentence."""
    left_out = ""
    if lead.left_out:
        left_out = f" Left out for a baseline of zero: {', '.join(lead.left_out)}."
    if not lead.by_game:
        return f"no game can be compared.{left_out}"
    return (
        f"{lead.wins} won, {lead.losses} lost, {lead.even} within 1 %; median "
        f"{signed(100 * lead.median, 1)} %, mean {signed(100 * lead.mean, 1)} %.{left_out}"
    )


ENOUGH = 3
"""So many values of each game are the fewest that a bootstrap is worth anything with."""
NO_BOOTSTRAP = f" There is no interval where a game has fewer than {ENOUGH}."
"""Said of tables whose intervals are by a bootstrap."""


def of_intervals(units: str) -> str:
    """What to know of the intervals of `summed_up`, where a game has several of these units."""
    return (
        "Intervals at 95 %: Student's of the mean; of the others by a bootstrap that draws the "
        f"{units} of each game anew, which is too narrow with few of them, and left out with fewer "
        f"than {ENOUGH}."
    )


def summed_up(scores: Mapping[str, Sequence[float]], statistic: Callable[[Any], Any]) -> Estimate:
    """Scores by game as one number, with an interval if there are enough of them.

    The mean has Student's interval, which holds with few of them, too; others a bootstrap's.
    """
    if statistic is mean:
        value, low, high = mean_of_means(list(scores.values()))
        return Estimate(value) if np.isnan(low) else Estimate(value, low, high)
    found = aggregate(scores, statistic)
    return as_estimate(found, enough=min(map(len, scores.values())) >= ENOUGH)


def as_estimate(found: Aggregate, *, enough: bool) -> Estimate:
    """An aggregate as a cell of a table, with its interval if that is worth anything."""
    return Estimate(found.value, *found.interval) if enough else Estimate(found.value)


def mean_line(name: str, curves: Sequence[Sequence[tuple[float, float]]], colour: str) -> Series:
    """The mean of curves, from where all have begun to where the first ends, with its interval."""
    begin = max(points[0][0] for points in curves)
    end = min(points[-1][0] for points in curves)
    at = sorted({x for points in curves for x, _ in points if begin <= x <= end})
    values = np.array([np.interp(at, *np.transpose(points)) for points in curves])
    band = [student_interval(column) for column in values.T] if len(curves) > 1 else None
    means = [float(value) for value in values.mean(axis=0)]
    return Series(name, means, colour, at, band)
