"""The numbers of the four-state example, and what the random problems promise."""

import itertools

import numpy as np
import pytest

from conqur import tabular


def name(policy):
    return "".join(str(action + 1) for action in policy)


def test_six_of_sixteen_policies_are_realizable():
    mdp, features = tabular.four_state()
    values = {name(p): mdp.value(p) for p in tabular.greedy_policies(features)}
    expected = {"1121": 0.3, "1122": 0.5, "1211": 0.3, "2122": 0.0, "2211": 0.0, "2212": 0.0}
    assert values.keys() == expected.keys()
    np.testing.assert_allclose(list(values.values()), [expected[k] for k in values])


def test_the_unconstrained_optimum_is_two():
    mdp, _ = tabular.four_state()
    assert name(mdp.optimal_policy()) == "2222"
    assert mdp.value([1, 1, 1, 1]) == 2.0
    assert max(mdp.value(p) for p in itertools.product(range(2), repeat=4)) == 2.0


def test_theta_star_is_a_witness_of_the_best_realizable_policy():
    _, features = tabular.four_state()
    assert name(tabular.greedy_policy(features, [-2.0, 0.5])) == "1122"


def test_random_mdps_are_repeatable_and_as_asked_for():
    one = tabular.random_mdp(7, 5, 3, 2, branching=2, end_probability=0.25)
    two = tabular.random_mdp(7, 5, 3, 2, branching=2, end_probability=0.25)
    np.testing.assert_array_equal(one.mdp.transitions, two.mdp.transitions)
    np.testing.assert_allclose(one.mdp.transitions.sum(axis=-1), 0.75)
    assert ((one.mdp.transitions > 0).sum(axis=-1) <= 2).all()
    assert one.features.shape == (5, 3, 2)


def test_grid_world_by_hand():
    mdp, features = tabular.grid_world(0, size=2, num_features=3, discount=0.5)
    # States: 0 upper left, 1 upper right, 2 lower left; the goal is lower right.
    assert features.shape == (3, 4, 3)
    up, right, down, left = range(4)
    assert mdp.transitions[0, right].tolist() == [0, 1, 0]
    assert mdp.transitions[0, up].tolist() == [1, 0, 0]
    assert mdp.transitions[1, down].sum() == 0
    assert mdp.rewards[1, down] == 1
    assert mdp.rewards[2, right] == 1
    assert mdp.rewards.sum() == 2
    assert mdp.value([right, down, left]) == 0.5


def test_slipping_spreads_over_all_directions():
    mdp, _ = tabular.grid_world(0, size=2, num_features=1, slip=0.4)
    # Right from 0: 0.6 on purpose and a tenth for each direction; up and left stay.
    np.testing.assert_allclose(mdp.transitions[0, 1], [0.2, 0.7, 0.1])
    np.testing.assert_allclose(mdp.rewards[1, 2], 0.7)


def test_refuses_bad_input():
    with pytest.raises(ValueError, match="size must be a whole number of at least 2"):
        tabular.grid_world(0, size=1)
    with pytest.raises(ValueError, match="slip must be a number"):
        tabular.grid_world(0, slip=1.5)
    with pytest.raises(ValueError, match="num_states must be"):
        tabular.random_mdp(0, 0, 2, 2)
    with pytest.raises(ValueError, match="end_probability must be a number"):
        tabular.random_mdp(0, 2, 2, 2, end_probability=1.5)
