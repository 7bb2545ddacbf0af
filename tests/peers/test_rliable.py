"""rliable as the referee of aggregates over games."""

import numpy as np
import pytest
from rliable import library, metrics

from conqur.aggregates import (
    aggregate,
    iqm,
    mean,
    median,
    optimality_gap,
    probability_of_improvement,
)

pytestmark = pytest.mark.filterwarnings("ignore:random_state is deprecated:FutureWarning")
RNG = np.random.default_rng(7)
X, Y = RNG.gamma(2.0, 0.5, size=(9, 6)), RNG.gamma(2.5, 0.5, size=(9, 6))
BOTH = [
    (median, metrics.aggregate_median),
    (mean, metrics.aggregate_mean),
    (iqm, metrics.aggregate_iqm),
    (optimality_gap, metrics.aggregate_optimality_gap),
]


def by_game(array):
    return {str(i): list(column) for i, column in enumerate(array.T)}


@pytest.mark.parametrize(("ours", "theirs"), BOTH)
def test_aggregates_and_their_intervals(ours, theirs):
    reps = 3_000
    points, intervals = library.get_interval_estimates(
        {"x": X},
        lambda scores: np.array([theirs(scores)]),
        reps=reps,
        random_state=np.random.RandomState(0),
    )
    found = aggregate(by_game(X), ours, resamples=reps)
    assert found.value == pytest.approx(points["x"][0], abs=1e-12)
    assert found.interval == pytest.approx(tuple(intervals["x"][:, 0]), abs=0.03)


def test_probability_of_improvement():
    reps = 2_000
    points, intervals = library.get_interval_estimates(
        {"xy": (X, Y)},
        lambda x, y: np.array([metrics.probability_of_improvement(x, y)]),
        reps=reps,
        random_state=np.random.RandomState(0),
    )
    found = probability_of_improvement(by_game(X), by_game(Y), resamples=reps)
    assert found.value == pytest.approx(points["xy"][0], abs=1e-12)
    assert found.interval == pytest.approx(tuple(intervals["xy"][:, 0]), abs=0.02)
