import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from conqur import tabular
from conqur.exact import pcql, pcvi


def realizable_by_lp(features, policy):
    """Whether θ·(φ(s, π(s)) − φ(s, a)) ≥ 1 has a solution: the cone's own margin costs nothing."""
    rows = [
        features[s, a] - features[s, b]
        for s, a in enumerate(policy)
        for b in range(features.shape[1])
        if b != a
    ]
    bounds = [(None, None)] * features.shape[2]
    zero = np.zeros(features.shape[2])
    return linprog(zero, -np.array(rows), -np.ones(len(rows)), bounds=bounds).status == 0


def brute_force(mdp, features):
    """The best value over all policies that an LP calls realizable; shares no code with PCVI."""
    policies = itertools.product(range(mdp.num_actions), repeat=mdp.num_states)
    return max(mdp.value(p) for p in policies if realizable_by_lp(features, p))


@st.composite
def small_problems(draw):
    states, actions = draw(st.sampled_from([(2, 2), (3, 2), (4, 2), (5, 2), (2, 3), (3, 3)]))
    return dict(
        seed=draw(st.integers(0, 1_000_000)),
        num_states=states,
        num_actions=actions,
        num_features=draw(st.integers(1, 3)),
        discount=draw(st.sampled_from([0.0, 0.5, 0.9])),
        branching=draw(st.integers(1, 3)),
        end_probability=draw(st.sampled_from([0.0, 0.1, 0.9])),
    )


@settings(max_examples=20)
@given(small_problems())
def test_pcvi_equals_brute_force(problem):
    mdp, features = tabular.random_mdp(**problem)
    best = brute_force(mdp, features)
    result = pcvi(mdp, features)
    np.testing.assert_allclose(result.value, best, atol=1e-7)
    np.testing.assert_allclose(mdp.value(result.policy), best, atol=1e-7)
    assert (tabular.greedy_policy(features, result.theta) == result.policy).all()


@settings(max_examples=15)
@given(st.integers(0, 1_000_000))
def test_pcvi_equals_brute_force_on_degenerate_features(seed):
    """Small integer features: parallel rows, ties, actions that never win."""
    rng = np.random.default_rng(seed)
    features = rng.integers(-1, 2, size=(3, 2, 2)).astype(float)
    assume((features[:, 0] != features[:, 1]).any(axis=1).all())
    mdp, _ = tabular.random_mdp(seed, 3, 2, 1)
    np.testing.assert_allclose(pcvi(mdp, features).value, brute_force(mdp, features), atol=1e-7)


@settings(max_examples=20)
@given(st.integers(0, 1_000_000))
def test_pcql_converges_to_the_best_realizable_value(seed):
    mdp, features = tabular.random_mdp(
        seed, 2, 2, 2, discount=0.5, branching=1, end_probability=0.0
    )
    # Deterministic transitions: what is left of the error decays with the visits.
    result = pcql(mdp, features, seed=seed, steps=400, episode_steps=4, rate_decay=0.6)
    best = brute_force(mdp, features)
    np.testing.assert_allclose(result.value, best, atol=0.05)
    assert mdp.value(result.policy) > best - 0.1
    assert set(result.cells) == set(pcvi(mdp, features).cells)


@settings(max_examples=2)
@given(st.integers(0, 1_000_000))
def test_pcql_converges_on_stochastic_transitions(seed):
    mdp, features = tabular.random_mdp(seed, 3, 2, 2, discount=0.5, end_probability=0.2)
    result = pcql(mdp, features, seed=seed, steps=10_000)
    best = pcvi(mdp, features).value
    np.testing.assert_allclose(result.value, best, atol=0.15)
    assert mdp.value(result.policy) > best - 0.1


def test_the_four_state_example():
    """The notes' numbers: three sweeps, eleven cells, value 0.5."""
    mdp, features = tabular.four_state()
    result = pcvi(mdp, features)
    assert result.value == 0.5
    assert result.policy.tolist() == [0, 0, 1, 1]
    assert result.sweeps == 3
    assert result.cell_counts[-1] == 11
    free = -1
    assert result.cells == {
        (0, free, free, 0): 0.3,
        (0, free, free, 1): 0.5,
        (1, 0, free, free): 0.0,
        (1, 1, 0, free): 0.0,
    }


def test_pcql_on_the_four_state_example():
    mdp, features = tabular.four_state()
    result = pcql(mdp, features)
    assert result.policy.tolist() == [0, 0, 1, 1]
    np.testing.assert_allclose(result.value, 0.5, atol=0.03)
    assert set(result.cells) == set(pcvi(mdp, features).cells)


def test_grid_worlds_with_random_features():
    """PCVI against the best of all realizable policies, found by enumeration."""
    for seed in range(2):
        mdp, features = tabular.grid_world(seed, 3, 2, slip=0.2)
        best = max(mdp.value(policy) for policy in tabular.greedy_policies(features))
        np.testing.assert_allclose(pcvi(mdp, features).value, best, atol=1e-8)


def test_limits_are_said():
    mdp, features = tabular.grid_world(0, 3, 2)
    with pytest.raises(ValueError, match="max_cells is 3, but"):
        pcvi(mdp, features, max_cells=3)
    with pytest.raises(ValueError, match="max_sweeps is 2, but values still change"):
        pcvi(mdp, features, max_sweeps=2)


def test_refuses_bad_input():
    mdp, features = tabular.four_state()
    for solve in (pcvi, pcql):
        with pytest.raises(ValueError, match="features must have shape"):
            solve(mdp, features[:3])
        with pytest.raises(ValueError, match="features holds NaN"):
            solve(mdp, features * np.nan)
    for bad in (dict(tolerance=np.inf), dict(max_sweeps=2.5), dict(max_cells=0)):
        with pytest.raises(ValueError, match="|".join(bad)):
            pcvi(mdp, features, **bad)
    with pytest.raises(ValueError, match="mdp must be an MDP"):
        pcvi(tabular.four_state(), features)
    tied = np.array([[[0.0], [0.0], [1.0]], [[0.0], [0.0], [-1.0]]])  # strict alone, not together
    both = tabular.MDP(np.full((2, 3, 2), 0.3), np.zeros((2, 3)), [0.5, 0.5], 0.9)
    with pytest.raises(ValueError, match="features let no θ be strictly greedy in all"):
        pcvi(both, tied)
    with pytest.raises(ValueError, match="rate_decay must be a number"):
        pcql(mdp, features, rate_decay=0.5)
    with pytest.raises(ValueError, match="steps must be"):
        pcql(mdp, features, steps=0)
    with pytest.raises(ValueError, match="behaviour must have shape"):
        pcql(mdp, features, behaviour=np.ones((2, 2)))
