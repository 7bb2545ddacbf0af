import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import conqur
from conqur import exact


def test_successors_leave_out_terminal_ones():
    states = np.array([4, 5, 6, 5])
    terminal = np.array([False, True, False, False])
    assert conqur.successors(states, terminal).tolist() == [4, 6, 5]


def test_q_labels_by_hand():
    labels = conqur.q_labels(
        np.array([1.0, 2.0, 3.0]),
        np.array([False, True, False]),
        np.array([[10.0, 20.0], [30.0, 40.0], [50.0, 60.0]]),
        np.array([0, 1, 1]),
        discount=0.5,
    )
    assert labels.tolist() == [6.0, 2.0, 33.0]  # 1 + 10/2, 2 (ended), 3 + 60/2


def test_terminal_labels_ignore_even_infinite_values():
    labels = conqur.q_labels(
        np.array([2.0]), np.array([1.0]), np.array([[np.inf, 0.0]]), np.array([0]), discount=0.9
    )
    assert labels.tolist() == [2.0]


def test_n_step_labels_have_a_discount_each():
    labels = conqur.q_labels(
        np.array([1, 2]),
        np.array([False, False]),
        np.array([[10.0], [20.0]]),
        np.array([0, 0]),
        discount=np.array([0.5, 0.25]),
    )
    assert labels.tolist() == [6.0, 7.0]


def test_integer_q_values_are_sampled_like_any_other():
    drawn = conqur.boltzmann_assignment(
        jax.random.key(0), np.tile([[0, 1]], (4000, 1)), temperature=0.5
    )
    np.testing.assert_allclose(drawn.mean(), 1 / (1 + np.exp(-2)), atol=0.02)
    assert conqur.adaptive_temperature([[1, 2]]).tolist() == [1.0]


def test_half_precision_prefers_no_action():
    q_values = jnp.zeros((90_000, 18), jnp.bfloat16)
    drawn = conqur.boltzmann_assignment(jax.random.key(0), q_values)
    np.testing.assert_allclose(np.bincount(drawn) / 5000, 1.0, atol=0.06)


def test_double_q_labels_choose_by_one_and_value_by_the_other():
    chooser = np.array([[0.0, 1.0]])
    valuer = np.array([[5.0, 3.0]])
    assigned = conqur.greedy_assignment(chooser)
    labels = conqur.q_labels(np.zeros(1), np.array([False]), valuer, assigned, discount=1.0)
    assert labels.tolist() == [3.0]


def test_greedy_assignment_takes_the_first_among_equals():
    assert conqur.greedy_assignment(np.array([[1.0, 3.0, 3.0], [2.0, 1.0, 0.0]])).tolist() == [1, 0]


def test_boltzmann_frequencies():
    q_values = jnp.tile(jnp.array([0.0, 1.0, 2.0]), (200_000, 1))
    drawn = conqur.boltzmann_assignment(jax.random.key(0), q_values, temperature=0.5)
    frequencies = np.bincount(drawn, minlength=3) / len(drawn)
    weights = np.exp([0.0, 2.0, 4.0])
    np.testing.assert_allclose(frequencies, weights / weights.sum(), atol=0.004)


def test_boltzmann_goes_from_greedy_to_uniform_with_temperature():
    q_values = jax.random.normal(jax.random.key(1), (1000, 4)) * 100
    cold = conqur.boltzmann_assignment(jax.random.key(0), q_values, temperature=1e-6)
    np.testing.assert_array_equal(cold, conqur.greedy_assignment(q_values))
    hot = conqur.boltzmann_assignment(jax.random.key(0), q_values, temperature=1e9)
    assert (np.bincount(hot, minlength=4) > 200).all()


def test_boltzmann_children_with_their_own_keys_differ():
    q_values = jnp.zeros((100, 4))
    first = conqur.boltzmann_assignment(jax.random.key(0), q_values)
    again = conqur.boltzmann_assignment(jax.random.key(0), q_values)
    second = conqur.boltzmann_assignment(jax.random.key(1), q_values)
    assert (first == again).all()
    assert (first != second).any()


def test_boltzmann_takes_a_temperature_for_each_state_and_compiles():
    q_values = jnp.array([[0.0, 1.0], [0.0, 1.0]])
    temperature = jnp.array([1e-6, 1e6])
    draw = jax.jit(lambda key: conqur.boltzmann_assignment(key, q_values, temperature=temperature))
    drawn = np.array([draw(jax.random.key(seed)) for seed in range(200)])
    assert (drawn[:, 0] == 1).all()
    assert 50 < drawn[:, 1].sum() < 150


def test_adaptive_temperature_by_hand():
    # Gap 10: probabilities of the best action at τ = 1, 1.5, 2.25, 3.375 are 1/(1 + e^(−10/τ)) =
    # 0.99995, 0.9987, 0.9884, 0.9509. Gap 0.01: 0.5025, 0.51, 0.5398 at τ = 1, 1/4, 1/16.
    # Gap 1: 0.731 at once. Equal values stay below the threshold until the clipping.
    q_values = jnp.array([[0.0, 10.0], [0.01, 0.0], [0.0, 1.0], [3.0, 3.0]])
    adapted = conqur.adaptive_temperature(q_values)
    np.testing.assert_allclose(adapted, [3.375, 1 / 16, 1.0, 1e-12], rtol=1e-5)


@given(
    hnp.arrays(
        np.float32,
        st.sampled_from([(1, 6), (3, 2), (4, 4)]),  # each is compiled
        elements=st.floats(-100, 100, width=32),
    )
)
def test_adaptive_temperature_reaches_its_range_unless_the_best_tie(q_values):
    tau = np.asarray(conqur.adaptive_temperature(q_values), np.float64)
    logits = (q_values - q_values.max(axis=1, keepdims=True)) / tau[:, None]
    top = 1 / np.exp(logits.astype(np.float64)).sum(axis=1)
    runner_up = np.sort(q_values, axis=1)[:, -2]
    apart = q_values.max(axis=1) - runner_up > 1e-4
    assert (top < 0.981)[apart].all()
    assert (top > 1 / q_values.shape[1] + 0.019)[apart].all()


def two_states_that_cannot_both_take_action_1():
    """Features (1, 0) and (−1, 0) for action 1 against zero for action 0."""
    return exact.LinearPolicies(np.array([[[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [-1.0, 0.0]]]))


def test_strict_assignment_is_consistent_and_prefers_high_values():
    policies = two_states_that_cannot_both_take_action_1()
    q_values = np.array([[0.0, 5.0], [0.0, 5.0]])
    drawn = np.array(
        [
            conqur.strict_assignment(jax.random.key(k), q_values, policies.oracle())
            for k in range(60)
        ]
    )
    assert (drawn.sum(axis=1) == 1).all()  # exactly one of them gets action 1
    # ... and which one is decided by the permutation, a new one for every key.
    assert 10 < drawn[:, 0].sum() < 50


def test_strict_assignment_respects_earlier_commitments():
    policies = two_states_that_cannot_both_take_action_1()
    oracle = policies.oracle(states=[1, 1], committed=[(0, 1)])
    drawn = conqur.strict_assignment(jax.random.key(0), np.array([[0.0, 9.0]] * 2), oracle)
    assert drawn.tolist() == [0, 0]


def test_strict_assignment_without_replacement_matches_boltzmann_when_all_is_consistent():
    q_values = np.array([[0.0, 1.0, 2.0]])
    drawn = [
        conqur.strict_assignment(jax.random.key(k), q_values, lambda rows, actions: True)[0]
        for k in range(3000)
    ]
    weights = np.exp([0.0, 1.0, 2.0])
    np.testing.assert_allclose(np.bincount(drawn) / 3000, weights / weights.sum(), atol=0.03)


def test_strict_assignment_says_when_nothing_is_accepted():
    with pytest.raises(ValueError, match="oracle accepts no action at row"):
        conqur.strict_assignment(jax.random.key(0), np.zeros((2, 2)), lambda rows, actions: False)


GOOD = {
    "reward": np.zeros(2),
    "terminal": np.zeros(2, bool),
    "successor_q_values": np.zeros((2, 3)),
    "assigned": np.zeros(2, int),
    "discount": 0.9,
}


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("reward", np.zeros(3), "reward must have shape"),
        ("terminal", np.zeros((2, 1), bool), "terminal must have shape"),
        ("successor_q_values", np.full((2, 3), np.nan), "successor_q_values holds NaN"),
        ("successor_q_values", np.zeros((0, 3)), "successor_q_values must have shape"),
        ("assigned", np.array([0, 3]), "assigned holds action 3, but there are 3 actions"),
        ("assigned", np.array([0, -1]), "assigned holds action -1"),
        ("assigned", np.zeros(2), "assigned must hold integers"),
        ("reward", np.array([0.0, np.nan]), "reward holds NaN"),
        ("terminal", np.array([0.0, 0.5]), "terminal must hold booleans"),
        ("discount", np.array([0.9, 1.1]), "discount must lie between 0 and 1"),
        ("discount", None, "discount must be a number"),
        ("discount", 1.5, "discount must be a number"),
    ],
)
def test_q_labels_refuses_bad_input(argument, value, message):
    with pytest.raises(ValueError, match=message):
        conqur.q_labels(**(GOOD | {argument: value}))


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), np.ones(3)])
def test_boltzmann_refuses_bad_temperatures(temperature):
    with pytest.raises(ValueError, match="temperature"):
        conqur.boltzmann_assignment(jax.random.key(0), np.zeros((2, 2)), temperature=temperature)
