"""Aggregates over games: by hand, against SciPy, and what has to hold of them."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from conqur.aggregates import (
    AGGREGATES,
    aggregate,
    improvement,
    improvements,
    iqm,
    mean,
    median,
    optimality_gap,
    probability_of_improvement,
    relative,
)

THREE = {"a": [0.0, 1.0], "b": [2.0, 4.0], "c": [10.0, 20.0]}


def test_aggregates_by_hand():
    values = {name: aggregate(THREE, function).value for name, function in AGGREGATES.items()}
    assert values["median"] == 3.0  # of 0.5, 3, 15
    assert values["mean"] == pytest.approx(18.5 / 3)
    assert values["IQM"] == pytest.approx((1 + 2 + 4 + 10) / 4)  # ⌊6/4⌋ = 1 is left out at each end
    assert values["optimality gap"] == pytest.approx(1 / 6)  # only the score 0 falls short of 1


def test_games_with_more_runs_weigh_no_more():
    few, many = {"a": [1.0], "b": [3.0, 5.0]}, {"a": [1.0, 1.0], "b": [3.0, 5.0]}
    for function in AGGREGATES.values():
        assert aggregate(few, function).value == aggregate(many, function).value
    longer = {"a": [1.0] * 11, "b": list(range(13)), "c": [7.0] * 9}  # too long to repeat exactly
    assert aggregate(longer, mean).value == pytest.approx((1 + 6 + 7) / 3, abs=0.1)


def test_the_interval_of_one_game_is_scipys():
    values = list(np.random.default_rng(3).gamma(2.0, size=12))
    found = aggregate({"only": values}, mean, resamples=20_000, seed=1)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=np.random.default_rng(2)
    ).confidence_interval
    assert found.value == pytest.approx(np.mean(values))
    assert found.interval == pytest.approx(tuple(theirs), rel=0.02)


def test_runs_are_drawn_within_their_games():
    """Games far apart and of no spread: a bootstrap that mixed games would have an interval."""
    apart = {"a": [0.0, 0.0, 0.0], "b": [100.0, 100.0, 100.0]}
    for function in (median, mean, iqm):
        found = aggregate(apart, function)
        assert found.interval == (found.value, found.value)


def test_a_game_with_few_runs_is_not_drawn_more_often_than_it_has_runs():
    """Two runs of a game are two, however many others have: the interval stays wide."""
    found = aggregate({"a": [0.0, 1.0], "b": [0.0] * 50}, mean)
    assert found.interval == (0.0, 0.5)  # in a quarter of resamples a is drawn as 0, 0


def test_parts_of_a_baseline_are_as_uncertain_as_the_baseline():
    scores, plain = {"a": [3.0, 3.0], "b": [-4.0, -4.0]}, {"a": [1.0, 3.0], "b": [-2.0, -2.0]}
    found = relative(scores, plain, mean)
    assert found.value == pytest.approx((1.5 + 0.0) / 2)  # −4 is one |−2| below −2
    # The mean of a's baseline is 1, 2 or 3, once, twice and once in four draws; b's is −2.
    assert found.interval == pytest.approx((0.5, 1.5))
    known = relative(scores, {"a": [2.0], "b": [-2.0]}, mean)
    assert known.interval == pytest.approx((0.75, 0.75))
    # With a baseline that is known, it is the aggregate of the parts.
    spread = {"a": [1.0, 2.0, 6.0], "b": [3.0, 5.0, 5.0]}
    parts = {"a": [0.5, 1.0, 3.0], "b": [0.75, 1.25, 1.25]}
    assert relative(spread, {"a": [2.0], "b": [4.0]}).value == aggregate(parts).value
    # Draws whose baseline is zero are no numbers, and are left out.
    assert relative({"a": [1.0, 1.0]}, {"a": [0.0, 2.0]}, mean).interval == (0.5, 1.0)


def test_single_runs_have_no_interval():
    found = aggregate({"a": [1.0], "b": [3.0]}, mean)
    assert found.value == 2.0
    assert all(math.isnan(end) for end in found.interval)
    found = probability_of_improvement({"a": [1.0]}, {"a": [0.0]})
    assert found.value == 1.0
    assert all(math.isnan(end) for end in found.interval)


def test_the_seed_decides_and_nothing_else():
    spread = {game: list(np.random.default_rng(2).gamma(2.0, size=9)) for game in "abc"}
    one = aggregate(spread, seed=4)
    assert aggregate(spread, seed=4) == one
    assert aggregate(spread, seed=5).interval != one.interval


def test_probability_of_improvement_by_hand():
    a, b = {"x": [1.0, 3.0], "y": [0.0, 0.0]}, {"x": [2.0, 2.0], "y": [0.0, 1.0]}
    assert probability_of_improvement(a, b).value == (0.5 + 0.25) / 2


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=8),
    st.lists(st.integers(0, 9), min_size=2, max_size=8).filter(lambda b: len(set(b)) > 1),
)
def test_the_probability_of_improvement_is_the_u_statistic(a, b):
    u = scipy.stats.mannwhitneyu(a, b, method="asymptotic").statistic
    found = probability_of_improvement({"x": a}, {"x": b}, resamples=10).value
    assert found == pytest.approx(u / len(a) / len(b))


def test_draws_with_a_baseline_of_zero_are_left_out():
    seen = []

    def noted(scores):
        seen.append(scores)
        return iqm(scores)

    relative({"x": [4.0, 4.0], "y": [1.0]}, {"x": [0.0, 0.0, 4.0], "y": [1.0]}, noted)
    drawn = seen[-1]
    assert np.isfinite(drawn).all()
    assert 0.6 < len(drawn) / 2_000 < 0.8  # 1 − (2/3)³ have a four


scores = st.lists(st.floats(-100, 100), min_size=1, max_size=5)


@given(st.dictionaries(st.sampled_from("abcde"), st.tuples(scores, scores), min_size=1))
def test_improvement_and_its_opposite_come_to_one(both):
    a = {game: pair[0] for game, pair in both.items()}
    b = {game: pair[1] for game, pair in both.items()}
    forth = probability_of_improvement(a, b, resamples=20)
    back = probability_of_improvement(b, a, resamples=20)
    assert forth.value + back.value == pytest.approx(1)
    low, high = forth.interval
    assert math.isnan(low) or 0 <= low <= high <= 1


@given(st.dictionaries(st.sampled_from("abcde"), scores, min_size=1))
def test_aggregates_lie_among_the_scores(found):
    everything = [score for values in found.values() for score in values]
    for function in (median, mean, iqm):
        value = aggregate(found, function, resamples=20).value
        assert min(everything) - 1e-9 <= value <= max(everything) + 1e-9
    gap = aggregate(found, optimality_gap, resamples=20).value
    assert gap >= 0
    assert (gap == 0) == (min(everything) >= 1)


def test_the_papers_improvement():
    assert improvement(3.0, 2.0) == 0.5
    assert improvement(-10.0, -20.0) == 0.5  # of |s_B|
    assert improvement(-30.0, -20.0) == -0.5
    assert improvement(5.0, 0.0) is None


def test_wins_and_losses_within_one_per_cent():
    found = improvements(
        {"a": 110.0, "b": 100.5, "c": 90.0, "d": 5.0, "e": 1.0, "f": 101.0},
        {"a": 100.0, "b": 100.0, "c": 100.0, "d": 0.0, "f": 100.0, "g": 3.0},
    )
    assert (found.wins, found.losses, found.even) == (1, 1, 2)
    assert found.left_out == ("d",)
    assert found.by_game == pytest.approx({"a": 0.1, "b": 0.005, "c": -0.1, "f": 0.01})
    assert found.mean == pytest.approx(0.015 / 4)
    assert found.median == pytest.approx(0.0075)
    assert math.isnan(improvements({"a": 1.0}, {"a": 0.0}).mean)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: aggregate({}), "at least one game"),
        (lambda: relative({"a": [1.0]}, {"b": [1.0]}), "same games.* a, b"),
        (lambda: relative({"a": [1.0]}, {"a": [1.0, -1.0]}), "mean of zero"),
        (lambda: aggregate({"a": []}), "scores\\['a'\\]"),
        (lambda: aggregate({"a": [math.nan]}), "NaN"),
        (lambda: aggregate(THREE, level=1.0), "level"),
        (lambda: aggregate(THREE, resamples=0), "resamples"),
        (lambda: probability_of_improvement({"a": [1.0]}, {"b": [1.0]}), "differ in a, b"),
    ],
)
def test_bad_input_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()
