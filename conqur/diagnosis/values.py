"""Measured values: means with intervals, and all of them as JSON holds them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from conqur.statistics import bootstrap_interval, student_interval

Interval = tuple[float, float]
UNKNOWN: Interval = (math.nan, math.nan)


@dataclass(frozen=True)
class Estimate:
    """A mean and how far it can be trusted.

    Attributes:
        mean: NaN if nothing was measured.
        interval: of the mean at 95 %; NaN where there is none.
    """

    mean: float
    interval: Interval


def over_repetitions(values: Iterable[float]) -> Estimate:
    """The mean of what independent repetitions gave, with Student's interval.

    So are differences: a bootstrap of a few of them is too sure of itself.

    Args:
        values: one for each repetition; those that are NaN were not measured.
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return Estimate(math.nan, UNKNOWN)
    return Estimate(float(np.mean(known)), student_interval(known))


def over_episodes(values: Iterable[float]) -> Estimate:
    """The mean of what independent episodes gave, with an interval by bootstrap."""
    known = list(values)
    if not known:
        return Estimate(math.nan, UNKNOWN)
    return Estimate(float(np.mean(known)), bootstrap_interval(known))


def share(found: Estimate) -> Estimate:
    """The estimate of a share, whose interval lies within 0 and 1."""
    low, high = found.interval
    if math.isnan(low):
        return found
    return Estimate(found.mean, (max(0.0, low), min(1.0, high)))


def plain_values(value: Any) -> Any:
    """For JSON: arrays as lists, outcomes as words, null for what is no number."""
    if isinstance(value, dict):
        return {name: plain_values(item) for name, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [plain_values(item) for item in value]
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value
