"""Q-learning with a linear approximator, Q_θ(s, a) = θ·φ(s, a), with and without the penalty."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from conqur import _checks
from conqur.assignment import greedy_assignment, q_labels
from conqur.consistency import ConsistencyBuffer, Population
from conqur.exact.fit import fit_penalised
from conqur.exact.linear import greedy_policy
from conqur.mdp import MDP, Batch, check_mdp, check_sequence
from conqur.regression import penalised_update


@dataclass(frozen=True, eq=False)
class QLearning:
    """What linear Q-learning arrived at.

    Attributes:
        theta: the last regressor, [d].
        policy: its greedy policy, [S].
        thetas: regressors along the way, [K, d]: up to 100 of them, equally far apart, the first
            and the last included (online), or one for every batch (fitted).
    """

    theta: Float[np.ndarray, " d"]
    policy: Int[np.ndarray, " S"]
    thetas: Float[np.ndarray, "K d"]


def q_learning(
    mdp: Any,
    features: Any,
    *,
    seed: int = 0,
    steps: int = 100_000,
    epsilon: float = 1.0,
    learning_rate: float = 0.5,
    rate_halfway: float = 100,
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
        buffer_size: how many of the newest pairs the consistency buffer holds. A step costs time
            in proportion; a buffer that forgets soon holds θ to little.
        population: how they count (a batch is one transition); all the same if not given.
        episode_steps: an episode is cut after so many steps, and a new one begins.
    """
    check_mdp(mdp)
    features = _checks.real_array("features", features, ("S", "A", "d"))
    _checks.shape("features", features, (mdp.num_states, mdp.num_actions, features.shape[2]))
    _checks.number("epsilon", epsilon, at_least=0, at_most=1)
    _checks.number("learning_rate", learning_rate, above=0)
    _checks.number("rate_halfway", rate_halfway, above=0)
    _checks.number("penalty_weight", penalty_weight, at_least=0)
    for name, value in {
        "seed": seed,
        "steps": steps,
        "buffer_size": buffer_size,
        "episode_steps": episode_steps,
    }.items():
        _checks.count(name, value, at_least=int(name != "seed"))
    thetas = _online(
        jax.random.key(seed),
        jnp.asarray(_initial_theta(theta, features.shape[2]), jnp.float32),
        ConsistencyBuffer.empty(buffer_size, jnp.array(0), population=population),
        _simulator(mdp, features),
        _Settings(epsilon, learning_rate, rate_halfway, penalty_weight, episode_steps),
        margin=margin,
        steps=steps,
    )
    if not bool(jnp.isfinite(thetas[-1]).all()):
        raise ValueError("learning_rate is too high for these features: Q-learning diverged")
    kept = np.asarray(thetas, np.float64)[np.unique(np.linspace(0, steps - 1, 100).astype(int))]
    return QLearning(kept[-1], greedy_policy(features, kept[-1]), kept)


def fitted_q_iteration(
    batches: Any,
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
    _checks.number("discount", discount, at_least=0, at_most=1)
    check_sequence(batches)
    thetas = [_initial_theta(theta, features.shape[2])]
    capacity = sum(len(batch.state) for batch in batches)
    buffer = ConsistencyBuffer.empty(capacity, jnp.array(0), population=population)
    for batch in batches:
        batch.check_fits(*features.shape[:2])
        if not np.abs(thetas[-1]).max() < 1e50:
            raise ValueError(
                f"θ grew beyond all bounds after {len(thetas) - 1} of {len(batches)} batches: "
                "fitted Q-iteration diverges here"
            )
        q_values = features[batch.successor] @ thetas[-1]
        assigned = np.asarray(assign(batch, q_values) if assign else greedy_assignment(q_values))
        labels = q_labels(batch.reward, batch.terminal, q_values, assigned, discount=discount)
        buffer = buffer.add(batch.successor, assigned, terminal=batch.terminal)
        inputs = features[batch.state, batch.action]
        thetas.append(_fit(inputs, labels, features, buffer, penalty_weight, margin))
    return QLearning(thetas[-1], greedy_policy(features, thetas[-1]), np.stack(thetas[1:]))


class _Simulator(NamedTuple):
    """An MDP that can be sampled, and its features."""

    next_logits: Float[Array, "S A S+1"]
    """log P(s' | s, a), and in the last column the log of the probability of ending."""
    start_logits: Float[Array, " S"]
    rewards: Float[Array, "S A"]
    discount: Float[Array, ""]
    features: Float[Array, "S A d"]


class _Settings(NamedTuple):
    epsilon: float
    learning_rate: float
    rate_halfway: float
    penalty_weight: float
    episode_steps: int


def _simulator(mdp: MDP, features: Float[np.ndarray, "S A d"]) -> _Simulator:
    ending = np.clip(1 - mdp.transitions.sum(axis=-1, keepdims=True), 0, 1)
    with np.errstate(divide="ignore"):
        next_logits = np.log(np.concatenate([mdp.transitions, ending], axis=-1))
        start_logits = np.log(mdp.start)
    arrays = (next_logits, start_logits, mdp.rewards, mdp.discount, features)
    return _Simulator(*(jnp.asarray(array, jnp.float32) for array in arrays))


@partial(jax.jit, static_argnames=("margin", "steps"))
def _online(
    key: Key[Array, ""],
    theta: Float[Array, " d"],
    buffer: ConsistencyBuffer,
    simulator: _Simulator,
    settings: _Settings,
    *,
    margin: float,
    steps: int,
) -> Float[Array, "T d"]:
    """θ after each of `steps` transitions."""
    num_states, num_actions = simulator.rewards.shape

    def q(theta: Float[Array, " d"], states: Int[Array, "*B"]) -> Float[Array, "*B A"]:
        return simulator.features[states] @ theta

    def act(
        key: Key[Array, ""], theta: Float[Array, " d"], state: Int[Array, ""]
    ) -> Int[Array, ""]:
        explore_key, action_key = jax.random.split(key)
        explores = jax.random.bernoulli(explore_key, settings.epsilon)
        random_action = jax.random.randint(action_key, (), 0, num_actions)
        return jnp.where(explores, random_action, greedy_assignment(q(theta, state)))

    def step(carry: Any, t: Int[Array, ""]) -> Any:
        theta, buffer, state, age = carry
        start_key, act_key, next_key = jax.random.split(jax.random.fold_in(key, t), 3)
        fresh = jax.random.categorical(start_key, simulator.start_logits)
        state = jnp.where(age == 0, fresh, state)
        action = act(act_key, theta, state)
        reached = jax.random.categorical(next_key, simulator.next_logits[state, action])
        terminal = reached == num_states
        successor = jnp.where(terminal, 0, reached)[None]

        q_values = q(theta, successor)
        assigned = greedy_assignment(q_values)
        reward = simulator.rewards[state, action][None]
        labels = q_labels(reward, terminal[None], q_values, assigned, discount=simulator.discount)
        buffer = buffer.add(successor, assigned, terminal=terminal[None])
        theta = penalised_update(
            q,
            theta,
            state[None],
            action[None],
            labels,
            buffer,
            learning_rate=settings.learning_rate / (1 + t / settings.rate_halfway),
            penalty_weight=settings.penalty_weight,
            margin=margin,
        )
        age = jnp.where(terminal | (age + 1 == settings.episode_steps), 0, age + 1)
        return (theta, buffer, successor[0], age), theta

    carry = theta, buffer, jnp.array(0), jnp.array(0)
    return jax.lax.scan(step, carry, jnp.arange(steps))[1]


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


def _initial_theta(theta: Any, size: int) -> Float[np.ndarray, " d"]:
    theta = np.zeros(size) if theta is None else _checks.real_array("theta", theta, ("d",))
    _checks.shape("theta", theta, (size,))
    return theta
