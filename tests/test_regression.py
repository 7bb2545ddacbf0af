import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import approx_fprime

import conqur
from conqur import ConsistencyBuffer

Q_VALUES = np.array([[1.0, 2.0], [3.0, 5.0]])
ACTIONS = np.array([0, 1])
LABELS = np.array([3.0, 4.5])  # errors 2 and −0.5
BUFFER_Q_VALUES = np.array([[0.0, 1.0], [2.0, 0.0], [5.0, 0.0]])
ASSIGNED = np.array([0, 1, 0])  # penalties 1, 2 and 0


def test_bellman_error_by_hand():
    assert conqur.bellman_error(Q_VALUES, ACTIONS, LABELS) == (4.0 + 0.25) / 2


def test_huber_error_by_hand():
    # 2 − ½ beyond the threshold 1, ½ · 0.5² inside it; with threshold 3 both are half squares.
    assert conqur.bellman_error(Q_VALUES, ACTIONS, LABELS, huber=1.0) == (1.5 + 0.125) / 2
    assert conqur.bellman_error(Q_VALUES, ACTIONS, LABELS, huber=3.0) == (2.0 + 0.125) / 2


def test_penalised_loss_by_hand():
    def loss(**settings):
        return conqur.penalised_loss(
            Q_VALUES, ACTIONS, LABELS, BUFFER_Q_VALUES, ASSIGNED, **settings
        )

    assert loss(penalty_weight=0.0) == 2.125
    assert loss(penalty_weight=10.0) == 2.125 + 10.0
    assert loss(penalty_weight=10.0, over_actions="mean") == 2.125 + 5.0
    assert loss(penalty_weight=1.0, margin=1.0) == 2.125 + (2.0 + 3.0 + 0.0) / 3
    assert loss(penalty_weight=1.0, huber=1.0) == 0.8125 + 1.0


def test_penalised_loss_refuses_bad_input():
    good = dict(
        q_values=Q_VALUES,
        actions=ACTIONS,
        labels=LABELS,
        buffer_q_values=BUFFER_Q_VALUES,
        assigned=ASSIGNED,
        penalty_weight=1.0,
    )
    conqur.penalised_loss(**good)
    for argument, value, message in [
        ("labels", np.zeros(3), "labels must have shape"),
        ("labels", np.array([0.0, np.nan]), "labels holds NaN"),
        ("actions", np.array([0, 2]), "actions holds action 2"),
        ("buffer_q_values", np.zeros((0, 2)), "buffer_q_values must have shape"),
        ("assigned", np.zeros(2, int), "assigned must have shape"),
        ("penalty_weight", -1.0, "penalty_weight must be"),
        ("huber", 0.0, "huber must be"),
        ("over_actions", "median", "over_actions must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            conqur.penalised_loss(**(good | {argument: value}))


def linear_q(theta, states):
    return states @ theta


def test_penalised_update_by_hand():
    """Q(s, a) = s θ_a, θ = (1, 2), one transition (s = 2, a = 0) with label 5, B = {(1, 0)}."""
    theta = jnp.array([[1.0, 2.0]])
    buffer = ConsistencyBuffer.empty(3, jnp.zeros(1)).add(jnp.ones((1, 1)), jnp.array([0]))
    updated = conqur.penalised_update(
        linear_q,
        theta,
        jnp.array([[2.0]]),
        jnp.array([0]),
        jnp.array([5.0]),
        buffer,
        learning_rate=0.1,
        penalty_weight=4.0,
    )
    # θ_0: 1 + 0.1 · (5 − 2) · 2 + 0.1 · 4 · 1; θ_1: 2 − 0.1 · 4 · 1: the penalty is descended.
    np.testing.assert_allclose(updated, [[1 + 0.6 + 0.4, 2 - 0.4]], rtol=1e-6)


def test_penalised_update_follows_the_finite_difference_of_its_objective():
    rng = np.random.default_rng(0)
    states, theta = rng.normal(size=(5, 3)), rng.normal(size=(3, 4))
    actions, labels = rng.integers(0, 4, 5), rng.normal(size=5)
    successors, assigned = rng.normal(size=(6, 3)), rng.integers(0, 4, 6)

    def objective(flat):
        q_values = states @ flat.reshape(3, 4)
        error = np.mean((labels - q_values[np.arange(5), actions]) ** 2) / 2
        q_next = successors @ flat.reshape(3, 4)
        lead = q_next - q_next[np.arange(6), assigned][:, None]
        return error + 0.7 * np.mean(np.maximum(lead, 0).sum(axis=1))

    buffer = ConsistencyBuffer.empty(8, jnp.zeros(3))
    buffer = buffer.add(jnp.asarray(successors, jnp.float32), jnp.asarray(assigned))
    updated = conqur.penalised_update(
        linear_q,
        jnp.asarray(theta),
        jnp.asarray(states),
        jnp.asarray(actions),
        jnp.asarray(labels),
        buffer,
        learning_rate=1.0,
        penalty_weight=0.7,
    )
    gradient = approx_fprime(theta.ravel(), objective).reshape(3, 4)
    np.testing.assert_allclose(theta - np.asarray(updated), gradient, atol=1e-4)


def test_pair_weights_by_hand():
    def loss(pair_weights):
        return conqur.penalised_loss(
            Q_VALUES,
            ACTIONS,
            LABELS,
            BUFFER_Q_VALUES,
            ASSIGNED,
            penalty_weight=1.0,
            pair_weights=np.array(pair_weights),
        )

    assert loss([1.0, 3.0, 0.0]) == 2.125 + (1 * 1.0 + 3 * 2.0) / 4
    assert loss([0.0, 0.0, 0.0]) == 2.125  # nothing drawn from an empty buffer


def test_penalised_update_takes_networks_and_keeps_their_precision():
    network = eqx.nn.MLP(2, 3, 8, 1, key=jax.random.key(0))
    buffer = ConsistencyBuffer.empty(2, jnp.zeros(2)).add(jnp.ones((1, 2)), jnp.array([0]))

    def update(network):
        return conqur.penalised_update(
            lambda network, states: jax.vmap(network)(states),
            network,
            jnp.ones((4, 2)),
            jnp.zeros(4, int),
            jnp.ones(4),
            buffer,
            learning_rate=jnp.float32(0.1),
            penalty_weight=1.0,
        )

    before = float(jax.vmap(network)(jnp.ones((1, 2)))[0, 0])
    after = float(jax.vmap(update(network))(jnp.ones((1, 2)))[0, 0])
    assert abs(1 - after) < abs(1 - before)
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16) if eqx.is_array(x) else x, network)
    dtypes = {x.dtype for x in jax.tree.leaves(eqx.filter(update(half), eqx.is_array))}
    assert dtypes == {jnp.dtype(jnp.bfloat16)}


def test_annealed_penalty_weight():
    assert conqur.annealed_penalty_weight(100, 50_000_000) == pytest.approx(100 * 50 / 52)
    assert isinstance(conqur.annealed_penalty_weight(0.5, 10), float)  # so that torch takes it
    assert conqur.annealed_penalty_weight(0.5, 0) == 0.0
    np.testing.assert_allclose(conqur.annealed_penalty_weight(0.5, 2_000_000), 0.25)
    np.testing.assert_allclose(conqur.annealed_penalty_weight(2.0, 6_000_000), 1.5)
    traced = jax.jit(lambda t: conqur.annealed_penalty_weight(1.0, t, halfway=10.0))(30)
    np.testing.assert_allclose(traced, 0.75)
