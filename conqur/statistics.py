"""Statistics of scores: intervals, differences, robust aggregates.

Over the episodes of a network, which are many and skewed, intervals are by bootstrap; those of
differences, and over seeds, which are few, are Student's: a bootstrap is too sure of itself there.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
from jaxtyping import Float

from conqur import _checks

AT_ONCE = 2_000_000
"""How many numbers of the resamples are held at the same time."""


@dataclass(frozen=True)
class Difference:
    """How much better one of two is.

    Attributes:
        mean: of the differences, or difference of the means.
        standard_error: of that; NaN where there is only one score.
        interval: of that, (low, high) at 95 %; NaN where there is only one score.
    """

    mean: float
    standard_error: float
    interval: tuple[float, float]


def bootstrap_interval(
    values: Any,
    *,
    statistic: Callable[..., Any] = np.mean,
    level: float = 0.95,
    resamples: int = 10_000,
    seed: int = 0,
) -> tuple[float, float]:
    """A confidence interval (low, high) by bootstrap, of the mean unless told otherwise.

    Bias-corrected and accelerated (BCa), or the plain percentiles where BCa has no answer: where
    all resamples lie on one side, or leaving one value out changes nothing. A single value has
    no interval: (NaN, NaN). Equal values give an interval of no width, which says that the sample
    shows no spread, not that there is none.

    A bootstrap is too sure of itself on small samples: of intervals at 95 % from exponentially
    distributed values about 80 % hold the mean with 5 values, 90 % with 15, 93 % with 50. Over
    seeds use `student_interval`.

    Args:
        values: independent draws, [n].
        statistic: of arrays along `axis`, such as `numpy.median` or `interquartile_mean`.
        level: how often such an interval should hold the true value.
        resamples: how many.
        seed: of the resampling.
    """
    array = _checks.real_array("values", values, ["n"])
    _checks.number("level", level, above=0, below=1)
    _checks.count("resamples", resamples)
    _checks.count("seed", seed, at_least=0)
    if len(array) == 1:
        return math.nan, math.nan
    if (array == array[0]).all():  # not left to rounding in the statistic
        only = float(statistic(array, axis=-1))
        return only, only
    interval = _interval("BCa", array, statistic, level, resamples, seed)
    if not np.isfinite(interval).all():
        interval = _interval("percentile", array, statistic, level, resamples, seed)
    return interval


def _interval(
    method: str,
    values: Float[np.ndarray, " n"],
    statistic: Callable[..., Any],
    level: float,
    resamples: int,
    seed: int,
) -> tuple[float, float]:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # that BCa has no answer shows in the answer
        found = scipy.stats.bootstrap(
            (values,),
            statistic,
            vectorized=True,
            n_resamples=resamples,
            batch=max(1, AT_ONCE // len(values)),
            confidence_level=level,
            method=method,
            rng=np.random.default_rng(seed),
        )
    low, high = found.confidence_interval
    return float(low), float(high)


def student_interval(values: Any, *, level: float = 0.95) -> tuple[float, float]:
    """Student's confidence interval (low, high) of the mean; (NaN, NaN) for a single value.

    Exact for normally distributed values, however few.

    Args:
        values: independent draws, [n].
        level: how often such an interval should hold the true value.
    """
    array = _checks.real_array("values", values, ["n"])
    _checks.number("level", level, above=0, below=1)
    return _student(float(array.mean()), standard_error(array), len(array) - 1, level)


def _student(mean: float, error: float, freedom: float, level: float = 0.95) -> tuple[float, float]:
    reach = error * float(scipy.stats.t.ppf((1 + level) / 2, freedom))
    return mean - reach, mean + reach


def standard_error(values: Any) -> float:
    """The standard error of the mean of `values` [n]; NaN for a single one."""
    array = _checks.real_array("values", values, ["n"])
    return float(array.std(ddof=1) / math.sqrt(len(array))) if len(array) > 1 else math.nan


def paired_difference(a: Any, b: Any) -> Difference:
    """By how much `a` is ahead of `b` on the same starts: Student's interval.

    Args:
        a: scores, [n].
        b: the scores to hold them against, in the same order, [n].
    """
    first, second = _checks.real_array("a", a, ["n"]), _checks.real_array("b", b, ["n"])
    if len(first) != len(second):
        raise ValueError(f"a and b must come in pairs, got {len(first)} and {len(second)} scores")
    differences = first - second
    return Difference(
        mean=float(differences.mean()),
        standard_error=standard_error(differences),
        interval=student_interval(differences),
    )


def difference(a: Any, b: Any) -> Difference:
    """By how much `a` is ahead of `b` where nothing pairs them, as with seeds: Welch's interval.

    Args:
        a: independent scores, [n].
        b: the scores to hold them against, [m].
    """
    first, second = _checks.real_array("a", a, ["n"]), _checks.real_array("b", b, ["m"])
    mean = float(first.mean() - second.mean())
    if min(len(first), len(second)) == 1:
        return Difference(mean, math.nan, (math.nan, math.nan))
    error, freedom = _sum_of_means([first, second])
    return Difference(mean, error, _student(mean, error, freedom))


def mean_of_means(groups: Sequence[Any], *, level: float = 0.95) -> tuple[float, float, float]:
    """The mean of groups' means with its interval (mean, low, high), as Welch's of a difference.

    Groups weigh alike, whatever their sizes. There is no interval, NaN, if one has a single value.

    Args:
        groups: independent draws, [n] each.
        level: how often such an interval should hold the true value.
    """
    arrays = [_checks.real_array("groups", group, ["n"]) for group in groups]
    if not arrays:
        raise ValueError("groups must hold at least one")
    _checks.number("level", level, above=0, below=1)
    mean = float(np.mean([array.mean() for array in arrays]))
    if min(map(len, arrays)) == 1:
        return mean, math.nan, math.nan
    error, freedom = _sum_of_means(arrays)
    return mean, *_student(mean, error / len(arrays), freedom, level)


def _sum_of_means(arrays: Sequence[Float[np.ndarray, " _"]]) -> tuple[float, float]:
    """The standard error of the sum of means, and its degrees of freedom (Satterthwaite's)."""
    variances = np.array([standard_error(array) ** 2 for array in arrays])
    error = math.sqrt(variances.sum())
    share = variances / variances.sum() if error else np.ones(len(arrays))
    freedom = 1 / (share**2 / [len(array) - 1 for array in arrays]).sum()
    return error, float(freedom)


def interquartile_mean(values: Any, axis: int = -1) -> Any:
    """The mean of the middle half: without the lowest and the highest ⌊n/4⌋ values along `axis`.

    Less at the mercy of single scores than the mean, and of more of them than the median.
    """
    array = np.asarray(values)
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"values must hold at least one score, got shape {list(array.shape)}")
    return scipy.stats.trim_mean(array, 0.25, axis=axis)
