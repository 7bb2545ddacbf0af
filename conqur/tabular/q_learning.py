"""Q-learning with a linear approximator, Q_θ(s, a) = θ·φ(s, a), with and without the penalty."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from conqur import _checks
from conqur.assignment import greedy_assignment, q_labels
from conqur.consistency import ConsistencyBuffer, Population
from conqur.exact.fit import fit_penalised
from conqur.exact.linear import greedy_policy
from conqur.mdp import MDP, Batch
from conqur.regression import penalised_update


@dataclass(frozen=True)
class QLearning:
    """What linear Q-learning arrived at."""

    theta: Float[np.ndarray, " d"]
    """The last regressor."""
    policy: Int[np.ndarray, " S"]
    """Its greedy policy."""
    thetas: Float[np.ndarray, "K d"]
    """Regressors along the way: 100 of them (online), or one for every batch (fitted)."""


def q_learning(
    mdp: MDP,
    features: Any,
    *,
    seed: int = 0,
    steps: int = 100_000,
    epsilon: float = 1.0,
    learning_rate: float = 0.5,
    rate_halfway: int = 1_000,
    theta: Any = None,
    penalty_weight: float = 0.0,
    margin: float = 0.0,
    buffer_size: int = 64,
    population: Population | None = None,
    episode_steps: int = 100,
) -> QLearning:
    """Online linear Q-learning, acting in the MDP; the whole run is one compiled loop.

    Args:
        mdp: where to act.
        features: φ, [S, A, d].
        seed: of the random key.
        steps: how many transitions, each with one update.
        epsilon: the behaviour takes a random action so often, else the greedy one; 1 is uniform.
        learning_rate: α at the first step.
        rate_halfway: the step at which α has halved: α_t = α / (1 + t/`rate_halfway`).
        theta: where θ starts, [d]; zero if not given.
        penalty_weight: λ; 0 is plain Q-learning.
        margin: the hinge margin of the penalty, in units of Q.
        buffer_size: how many of the newest pairs the consistency buffer holds.
        population: how they count (a batch is one transition); all the same if not given.
        episode_steps: an episode is cut after so many steps, and a new one begins.
    """
    features = _fitting_features(mdp, features)
    if not 0 <= epsilon <= 1:
        raise ValueError(f"epsilon must lie between 0 and 1, got {epsilon}")
    for name, value in (
        ("learning_rate", learning_rate),
        ("rate_halfway", rate_halfway),
        ("steps", steps),
        ("episode_steps", episode_steps),
    ):
        _checks.positive(name, value)
    _checks.non_negative("penalty_weight", penalty_weight)
    start = _initial_theta(theta, features.shape[2])
    buffer = ConsistencyBuffer.empty(buffer_size, jnp.array(0), population=population)
    run = _online_run(
        mdp,
        features,
        epsilon=epsilon,
        learning_rate=learning_rate,
        rate_halfway=rate_halfway,
        penalty_weight=penalty_weight,
        margin=margin,
        episode_steps=episode_steps,
    )
    thetas = np.asarray(
        run(jax.random.key(seed), jnp.asarray(start, jnp.float32), buffer, steps), np.float64
    )
    return QLearning(thetas[-1], greedy_policy(features, thetas[-1]), thetas[_hundred(steps)])


def fitted_q_iteration(
    batches: Sequence[Batch],
    features: Any,
    *,
    discount: float,
    theta: Any = None,
    penalty_weight: float = 0.0,
    margin: float = 0.0,
    population: Population | None = None,
    assign: Callable[[Batch, Float[np.ndarray, "B A"]], Any] | None = None,
) -> QLearning:
    """Batch Q-learning: θ_k is the exact minimiser of the penalised loss on D_k, labelled by θ_k−1.

    Args:
        batches: D_1 … D_T.
        features: φ, [S, A, d].
        discount: γ.
        theta: θ_0, [d]; zero if not given.
        penalty_weight: λ; 0 is plain fitted Q-iteration.
        margin: the hinge margin of the penalty, in units of Q.
        population: which assignments the penalty is taken over; all so far if not given.
        assign: σ_k, from a batch and the Q-values of its successors; the max assignment if not
            given.
    """
    features = _checks.real_array("features", features, ("S", "A", "d"))
    _checks.discount(discount)
    if not batches:
        raise ValueError("batches must hold at least one batch")
    thetas = [_initial_theta(theta, features.shape[2])]
    capacity = sum(len(batch.state) for batch in batches)
    buffer = ConsistencyBuffer.empty(capacity, jnp.array(0), population=population)
    for batch in batches:
        batch.check_fits(*features.shape[:2])
        q_values = features[batch.successor] @ thetas[-1]
        assigned = np.asarray(assign(batch, q_values) if assign else greedy_assignment(q_values))
        labels = q_labels(batch.reward, batch.terminal, q_values, assigned, discount=discount)
        buffer = buffer.add(batch.successor, assigned, terminal=batch.terminal)
        inputs = features[batch.state, batch.action]
        thetas.append(_fit(inputs, labels, features, buffer, penalty_weight, margin))
    return QLearning(thetas[-1], greedy_policy(features, thetas[-1]), np.stack(thetas[1:]))


def _online_run(
    mdp: MDP,
    features: np.ndarray,
    *,
    epsilon: float,
    learning_rate: float,
    rate_halfway: int,
    penalty_weight: float,
    margin: float,
    episode_steps: int,
) -> Callable[..., Float[Array, "T d"]]:
    """The compiled loop over transitions, from a key, θ, a buffer and a number of steps."""
    transitions, rewards = jnp.asarray(mdp.transitions), jnp.asarray(mdp.rewards)
    phi = jnp.asarray(features)
    # A last column for "the episode ends", and a categorical over start states.
    ended = 1 - transitions.sum(axis=-1, keepdims=True)
    next_logits = jnp.log(jnp.clip(jnp.concatenate([transitions, ended], axis=-1), min=0))
    start_logits = jnp.log(jnp.asarray(mdp.start))

    def q(theta: Array, states: Array) -> Array:
        return phi[states] @ theta

    def step(carry: Any, inputs: Any) -> Any:
        theta, buffer, state, age = carry
        t, key = inputs
        start_key, explore_key, action_key, next_key = jax.random.split(key, 4)
        state = jnp.where(age == 0, jax.random.categorical(start_key, start_logits), state)
        explores = jax.random.bernoulli(explore_key, epsilon)
        random_action = jax.random.randint(action_key, (), 0, mdp.num_actions)
        action = jnp.where(explores, random_action, greedy_assignment(q(theta, state)))
        successor = jax.random.categorical(next_key, next_logits[state, action])
        terminal = successor == mdp.num_states
        successor = jnp.where(terminal, 0, successor)

        values = q(theta, successor[None])
        assigned = greedy_assignment(values)
        labels = q_labels(
            rewards[state, action][None], terminal[None], values, assigned, discount=mdp.discount
        )
        buffer = buffer.add(successor[None], assigned, terminal=terminal[None])
        theta = penalised_update(
            q,
            theta,
            state[None],
            action[None],
            labels,
            buffer,
            learning_rate=learning_rate / (1 + t / rate_halfway),
            penalty_weight=penalty_weight,
            margin=margin,
        )
        age = jnp.where(terminal | (age + 1 == episode_steps), 0, age + 1)
        return (theta, buffer, successor, age), theta

    def run(key: Array, theta: Array, buffer: ConsistencyBuffer, steps: int) -> Array:
        times = jnp.arange(steps)
        keys = jax.vmap(lambda t: jax.random.fold_in(key, t))(times)
        carry = theta, buffer, jnp.array(0), jnp.array(0)
        return jax.lax.scan(step, carry, (times, keys))[1]

    return jax.jit(run, static_argnums=3)


def _fit(
    inputs: np.ndarray,
    labels: np.ndarray,
    features: np.ndarray,
    buffer: ConsistencyBuffer,
    penalty_weight: float,
    margin: float,
) -> Float[np.ndarray, " d"]:
    """θ_k: least squares, or the penalised fit with equal pairs of the buffer counted together."""
    weights = np.asarray(buffer.weights(), np.float64)
    if penalty_weight == 0 or not weights.any():
        return np.linalg.lstsq(inputs, labels, rcond=None)[0]
    table = np.zeros(features.shape[:2])
    np.add.at(table, (np.asarray(buffer.successors), np.asarray(buffer.assigned)), weights)
    states, actions = np.nonzero(table)
    return fit_penalised(
        inputs,
        labels,
        features[states],
        actions,
        weights=table[states, actions],
        penalty_weight=penalty_weight,
        margin=margin,
    )


def _fitting_features(mdp: MDP, features: Any) -> Float[np.ndarray, "S A d"]:
    features = _checks.real_array("features", features, ("S", "A", "d"))
    _checks.shape("features", features, (mdp.num_states, mdp.num_actions, features.shape[2]))
    return features


def _initial_theta(theta: Any, size: int) -> Float[np.ndarray, " d"]:
    theta = np.zeros(size) if theta is None else _checks.real_array("theta", theta, ("d",))
    _checks.shape("theta", theta, (size,))
    return theta


def _hundred(steps: int) -> Int[np.ndarray, " K"]:
    return np.unique(np.linspace(0, steps - 1, 100).astype(int))
