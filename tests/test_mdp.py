import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from conqur.mdp import MDP, Batch, sample_batch
from conqur.tabular import random_mdp


def two_states(discount=0.5):
    """Action 0 moves 0 → 1 → end with rewards 1 and 2; action 1 ends at once with reward 0."""
    transitions = np.zeros((2, 2, 2))
    transitions[0, 0, 1] = 1.0
    return MDP(transitions, [[1.0, 0.0], [2.0, 0.0]], [1.0, 0.0], discount)


def test_values_by_hand():
    mdp = two_states()
    assert mdp.state_values([0, 0]).tolist() == [2.0, 2.0]  # 1 + ½ · 2
    assert mdp.value([0, 1]) == 1.0
    assert mdp.value([1, 0]) == 0.0
    assert mdp.optimal_policy().tolist() == [0, 0]


@given(st.integers(0, 10_000))
def test_values_match_value_iteration(seed):
    """An independent computation: iterate the Bellman equation of a random policy, and of max."""
    mdp, _ = random_mdp(seed, 4, 3, 1)
    policy = np.random.default_rng(seed).integers(0, 3, 4)
    values, optimal = np.zeros(4), np.zeros(4)
    for _ in range(400):
        q_values = mdp.rewards + mdp.discount * mdp.transitions @ values
        values = q_values[np.arange(4), policy]
        optimal = (mdp.rewards + mdp.discount * mdp.transitions @ optimal).max(axis=1)
    np.testing.assert_allclose(mdp.state_values(policy), values, atol=1e-9)
    np.testing.assert_allclose(mdp.value(mdp.optimal_policy()), mdp.start @ optimal, atol=1e-9)


def test_samples_follow_the_dynamics():
    mdp, _ = random_mdp(3, 3, 2, 1)
    batch = sample_batch(mdp, 0, 60_000)
    for state in range(3):
        for action in range(2):
            here = (batch.state == state) & (batch.action == action)
            successors = batch.successor[here & ~batch.terminal]
            frequencies = np.bincount(successors, minlength=3) / here.sum()
            np.testing.assert_allclose(frequencies, mdp.transitions[state, action], atol=0.02)
            np.testing.assert_allclose(batch.terminal[here].mean(), 0.1, atol=0.02)
            assert (batch.reward[here] == mdp.rewards[state, action]).all()


def test_samples_are_connected_and_start_where_episodes_start():
    mdp = two_states()
    batch = sample_batch(mdp, 0, 200, behaviour=[[1.0, 0.0], [1.0, 0.0]])
    assert batch.state.tolist() == [0, 1] * 100
    assert batch.terminal.tolist() == [False, True] * 100
    cut = sample_batch(mdp, 0, 50, behaviour=[[1.0, 0.0], [1.0, 0.0]], episode_steps=1)
    assert cut.state.tolist() == [0] * 50
    assert not cut.terminal.any()  # being cut is not ending


GOOD = {
    "transitions": np.full((2, 1, 2), 0.4),
    "rewards": np.zeros((2, 1)),
    "start": np.array([0.5, 0.5]),
    "discount": 0.9,
}


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("transitions", np.full((2, 1, 3), 0.1), "transitions must have shape"),
        ("transitions", np.full((2, 2), 0.1), "transitions must have shape"),
        ("transitions", np.full((2, 1, 2), 0.6), "transitions must sum to at most one"),
        ("transitions", np.full((2, 1, 2), -0.1), "transitions holds a negative probability"),
        ("transitions", np.full((2, 1, 2), np.nan), "transitions holds NaN"),
        ("transitions", np.zeros((0, 1, 0)), "transitions must have shape"),
        ("transitions", "abc", "transitions must be an array of real numbers"),
        ("rewards", np.zeros((2, 2)), "rewards must have shape"),
        ("rewards", np.full((2, 1), np.inf), "rewards holds NaN or infinite"),
        ("start", np.zeros(2), "start must sum to one"),
        ("start", np.ones(2), "start must sum to at most one"),
        ("start", np.ones(3) / 3, "start must have shape"),
        ("discount", -0.1, "discount must be a number"),
        ("discount", float("nan"), "discount must be a number"),
    ],
)
def test_mdp_refuses_bad_input(argument, value, message):
    with pytest.raises(ValueError, match=message):
        MDP(**(GOOD | {argument: value}))


def test_single_precision_probabilities_are_welcome():
    rng = np.random.default_rng(0)
    transitions = rng.dirichlet(np.ones(7), size=(7, 3)).astype(np.float32)
    mdp = MDP(transitions, np.ones((7, 3)), np.full(7, 1 / 7, np.float32), 0.999999)
    np.testing.assert_allclose(mdp.value([0] * 7), 1e6, rtol=1e-6)  # nothing leaks away


def test_without_discount_every_policy_has_to_end():
    transitions = np.zeros((3, 2, 3))
    transitions[0, 0, 1] = transitions[1, 0, 0] = 1.0  # 0 and 1 can go round for ever
    transitions[2, 0, 2] = 0.99  # 2 leaves in the end
    arguments = (transitions, np.zeros((3, 2)), np.eye(3)[0])
    with pytest.raises(ValueError, match=r"discount must be below 1 .* states \[0, 1\]"):
        MDP(*arguments, discount=1.0)
    MDP(*arguments, discount=0.999)
    transitions[1, 0, 0] = 0.5
    assert MDP(*arguments, discount=1.0).value([0, 0, 0]) == 0.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(behaviour=np.zeros((2, 2))), "behaviour must sum to one"),
        (dict(behaviour=np.full((2, 2), 0.1)), "behaviour must sum to one"),
        (dict(episode_steps=0), "episode_steps must be a whole number"),
        (dict(size=0), "size must be a whole number"),
        (dict(size=2.5), "size must be a whole number"),
        (dict(seed=-1), "seed must be a whole number of at least 0"),
    ],
)
def test_sampling_refuses_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        sample_batch(**(dict(mdp=two_states(), seed=0, size=5) | settings))


@pytest.mark.parametrize(
    ("policy", "message"),
    [([0], "policy must have shape"), ([0, 2], "policy holds action 2"), ([0.0, 1.0], "integers")],
)
def test_values_refuse_bad_policies(policy, message):
    with pytest.raises(ValueError, match=message):
        two_states().value(policy)


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("state", np.array([0, -1]), "state holds -1"),
        ("action", np.array([0.0, 1.0]), "action must hold integers"),
        ("successor", np.array([0]), "successor must have shape"),
        ("reward", np.array([0.0, np.nan]), "reward holds NaN"),
        ("terminal", np.array([0, 1]), "terminal must hold booleans"),
        ("reward", np.zeros(0), "reward must have shape"),
    ],
)
def test_batch_refuses_bad_input(argument, value, message):
    good = {
        "state": np.array([0, 1]),
        "action": np.array([0, 1]),
        "reward": np.zeros(2),
        "successor": np.array([1, 0]),
        "terminal": np.array([False, True]),
    }
    Batch(**good)
    with pytest.raises(ValueError, match=message):
        Batch(**(good | {argument: value}))
