import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conqur import tabular
from conqur.exact import LinearPolicies, search, tree_size, tree_size_bound
from conqur.exact.depth_first import consistent_assignments


def search_all(problem, seed=0, batches=2, size=40, **settings):
    mdp, features = problem
    return search(
        [tabular.sample_batch(mdp, seed + k, size) for k in range(batches)],
        features,
        lambda theta: mdp.value(tabular.greedy_policy(features, theta)),
        discount=mdp.discount,
        **settings,
    )


@settings(max_examples=30)
@given(st.integers(0, 1_000_000), st.integers(2, 4), st.integers(2, 3), st.integers(1, 3))
def test_finds_the_best_realizable_policy(seed, num_states, num_actions, num_features):
    problem = tabular.random_mdp(seed, num_states, num_actions, num_features)
    mdp, features = problem
    policies = tabular.greedy_policies(features)
    result = search_all(problem, start_states=range(num_states))
    best = max(mdp.value(policy) for policy in policies)
    np.testing.assert_allclose(result.score, best, atol=1e-9)
    # With every state committed the leaves are the realizable policies, each once.
    assert set(result.leaves) == set(policies)


def test_regressors_keep_their_commitments_however_large_the_rewards():
    """The solver is as exact as labels are large; a larger margin, and not a witness, helps it."""
    mdp, features = tabular.random_mdp(16, 4, 2, 2)
    policies = tabular.greedy_policies(features)
    best = max(mdp.value(policy) for policy in policies)
    for scale in (1.0, 1e6, 1e9):
        large = replace(mdp, rewards=mdp.rewards * scale)
        result = search_all((large, features), start_states=range(4))
        assert result.score == pytest.approx(scale * best)
        witness = LinearPolicies(features).witness(result.commitments)
        assert not np.array_equal(result.theta, witness)  # which would know nothing of labels


def test_the_four_state_example():
    result = search_all(tabular.four_state(), size=200, start_states=[0])
    assert result.score == 0.5
    assert result.commitments == (0, 0, 1, 1)
    mdp, features = tabular.four_state()
    batches = [tabular.sample_batch(mdp, k, 200) for k in range(2)]
    assert tree_size(batches, features, start_states=[0]) == result.nodes
    assert result.nodes == 13  # the root, six assignments, and each of them once more
    assert sorted(result.leaves.values()) == [0.0, 0.0, 0.0, 0.3, 0.3, 0.5]


def test_labels_follow_the_assignment_not_the_maximum():
    """By hand: one transition s → s' with reward 1; every leaf's label is 1 + γ Q(s', σ(s'))."""
    features = np.zeros((2, 2, 2))
    features[0, 0], features[1, 0], features[1, 1] = (1.0, 0.0), (1.0, 0.0), (0.0, 1.0)
    batch = tabular.Batch([0], [0], [1.0], [1], [False])
    labels = {}

    def train(inputs, targets, commitments):
        labels[commitments] = targets.tolist()
        return np.array([2.0, 10.0])

    search([batch], features, lambda theta: 0.0, discount=0.5, theta=[2.0, 10.0], train=train)
    assert labels == {(-1, 0): [1.0 + 0.5 * 2.0], (-1, 1): [1.0 + 0.5 * 10.0]}


def test_labels_of_the_second_level_come_from_the_first_level_s_regressor():
    """By hand: the first level trains θ = (3, 7), whatever the root was."""
    features = np.zeros((2, 2, 2))
    features[0, 0], features[1, 0], features[1, 1] = (1.0, 0.0), (1.0, 0.0), (0.0, 1.0)
    batch = tabular.Batch([0], [0], [1.0], [1], [False])
    seen = []

    def train(inputs, targets, commitments):
        seen.append((commitments[1], targets.tolist()))
        return np.array([3.0, 7.0])

    search([batch] * 2, features, lambda t: 0.0, discount=0.5, theta=[2.0, 10.0], train=train)
    # Depth first: root → action 0 → its child; root → action 1 → its child.
    assert seen == [(0, [2.0]), (0, [1 + 3 / 2]), (1, [6.0]), (1, [1 + 7 / 2])]


def test_a_later_batch_only_branches_where_states_are_new():
    features = tabular.random_mdp(0, 3, 2, 3).features
    first = tabular.Batch([0], [0], [0.0], [1], [False])
    second = tabular.Batch([0, 1], [0, 1], [0.0, 0.0], [1, 2], [False, False])
    # Three independent features: all assignments are consistent. 1 root, 2, then 2 · 2.
    assert tree_size([first, second], features) == 1 + 2 + 4
    assert tree_size([first, first, first], features) == 1 + 2 + 2 + 2
    ended = tabular.Batch([0], [0], [0.0], [1], [True])
    assert tree_size([ended], features) == 2  # nothing to assign: a single child


@settings(max_examples=25)
@given(st.integers(0, 1_000_000))
def test_pruning_keeps_only_undominated_assignments(seed):
    """For one batch: against the definition, assignment by assignment."""
    mdp, features = tabular.random_mdp(seed, 3, 2, 2)
    theta = np.random.default_rng(seed).normal(size=2)
    batch = tabular.sample_batch(mdp, seed, 30)
    arguments = dict(discount=0.9, theta=theta)
    every = search([batch], features, lambda _: 0.0, **arguments).leaves
    pruned = search([batch], features, lambda _: 0.0, prune_dominated=True, **arguments).leaves
    states = np.unique(batch.successor[~batch.terminal])
    q_values = features @ theta

    def dominates(one, other):
        gaps = [q_values[s, one[s]] - q_values[s, other[s]] for s in states]
        return all(g >= 0 for g in gaps) and any(g > 0 for g in gaps)

    expected = {c for c in every if not any(dominates(other, c) for other in every)}
    assert set(pruned) == expected


@settings(max_examples=25)
@given(st.integers(0, 1_000_000), st.integers(1, 3), st.integers(2, 3), st.integers(1, 2))
def test_the_real_tree_is_within_the_theorem(seed, num_states, num_actions, num_features):
    mdp, features = tabular.random_mdp(seed, num_states, num_actions, num_features)
    batches = [tabular.sample_batch(mdp, seed + k, 10) for k in range(2)]
    nodes = tree_size(batches, features)
    assert nodes - 1 <= 2 * tree_size_bound(num_states, num_actions, num_features)
    # An independent count: distinct consistent assignments of each level's states so far.
    policies = list(tabular.greedy_policies(features))
    seen, count = set(), 1
    for batch in batches:
        seen |= set(batch.successor[~batch.terminal].tolist())
        count += len({tuple(p[s] for s in sorted(seen)) for p in policies})
    assert nodes == count


def test_bound_by_hand():
    assert tree_size_bound(4, 2, 2) == 4 * 2 * (1 * 4) ** 2
    assert tree_size_bound(3, 4, 1) == 3 * 4 * (6 * 3)


def test_assignments_are_all_and_only_the_consistent_ones():
    features = tabular.four_state().features
    policies = LinearPolicies(features)
    found = set(consistent_assignments(policies, (-1,) * 4, np.arange(4)))
    every = itertools.product(range(2), repeat=4)
    assert found == {p for p in every if policies.witness(p) is not None}
    assert len(found) == 6


def test_refuses_bad_input():
    mdp, features = tabular.four_state()
    batch = tabular.sample_batch(mdp, 0, 10)

    def score(theta):
        return 0.0

    with pytest.raises(ValueError, match="batches must hold at least one"):
        search([], features, score, discount=1.0)
    with pytest.raises(ValueError, match="state holds state 3, but there are 3"):
        search([tabular.Batch([3], [0], [0.0], [0], [False])], features[:3], score, discount=1.0)
    with pytest.raises(ValueError, match="start_states holds state 4"):
        search([batch], features, score, discount=1.0, start_states=[4])
    with pytest.raises(ValueError, match="discount must be a number"):
        search([batch], features, score, discount=2.0)
    with pytest.raises(ValueError, match="theta must have shape"):
        search([batch], features, score, discount=1.0, theta=[1.0])
    with pytest.raises(ValueError, match="margin must be a number above 0"):
        search([batch], features, score, discount=1.0, margin=0)
    with pytest.raises(ValueError, match="num_states must be a whole number of at least 1"):
        tree_size_bound(0, 2, 2)
