"""Action assignments σ: which action counts as the best one at a successor state (Sec. 3.1, 3.4).

A Q-label bootstraps from Q(s', σ(s')) where Q-learning takes max_a' Q(s', a'). An assignment is an
integer array with one action for every row of an array of Q-values; the same state may stand in
several rows, with different actions (a multi-assignment).
"""

from collections.abc import Callable
from typing import Any

import array_api_compat
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from conqur import _checks

Oracle = Callable[[Int[np.ndarray, " K"], Int[np.ndarray, " K"]], bool]
"""Are these actions, chosen at these rows, jointly Θ-consistent (with all earlier commitments)?"""


def successors(states: Any, terminal: Any) -> Any:
    """χ(D): the successor states of a batch, without those that ended an episode.

    How many that are depends on the data, so this is not for compiled loops; there
    `ConsistencyBuffer.add` leaves them out.

    Args:
        states: the s' of the batch, [B, ...].
        terminal: whether the episode ended there, [B].
    """
    states, terminal = _checks.as_array("states", states), _checks.flags("terminal", terminal)
    if states.ndim == 0:
        raise ValueError("states must have shape [B, ...], got []")
    _checks.shape("terminal", terminal, (states.shape[0],))
    return states[~terminal]


def q_labels(
    reward: Any, terminal: Any, successor_q_values: Any, assigned: Any, *, discount: Any
) -> Any:
    """The Q-labels r + γ Q(s', σ(s')), without bootstrapping where the episode ended.

    Max labels: assign `greedy_assignment(successor_q_values)`. Double Q-learning: assign with one
    regressor and pass the Q-values of the other. Arrays of NumPy, JAX or torch.

    Args:
        reward: r, [B].
        terminal: whether s' ended the episode, [B] of booleans or of 0 and 1.
        successor_q_values: Q(s', ·) of the regressor that gives the values, [B, A].
        assigned: σ(s'), [B].
        discount: γ, one number or one for each row ([B], as n-step labels need it).
    """
    values = _checks.q_values("successor_q_values", successor_q_values)
    assigned = _checks.assigned("assigned", assigned, values)
    reward, terminal = _checks.floating("reward", reward), _checks.flags("terminal", terminal)
    _checks.same_library("reward", reward, values)
    _checks.same_library("terminal", terminal, values)
    _checks.shape("reward", reward, tuple(assigned.shape))
    _checks.shape("terminal", terminal, tuple(assigned.shape))
    _checks.discount(discount, tuple(assigned.shape))
    xp = array_api_compat.array_namespace(values)
    assigned_values = xp.take_along_axis(values, assigned[..., None], axis=-1)[..., 0]
    bootstrap = xp.where(terminal, xp.zeros_like(assigned_values), assigned_values)
    return reward + discount * bootstrap


def greedy_assignment(q_values: Any) -> Any:
    """The max assignment σ(s) = argmax_a Q(s, a) (the first one among equals), [..., A] → [...]."""
    q_values = _checks.q_values("q_values", q_values)
    return array_api_compat.array_namespace(q_values).argmax(q_values, axis=-1)


def boltzmann_assignment(
    key: Key[Array, ""], q_values: Any, *, temperature: Any = 1.0
) -> Int[Array, "..."]:
    """An assignment drawn with probability ∝ exp(Q(s, a)/τ), independently for every state.

    Args:
        key: a JAX random key; give every child of a node its own.
        q_values: Q(s, ·), [..., A].
        temperature: τ, one number or one for each state ([...]; see `adaptive_temperature`).
    """
    q_values = _precise(q_values)
    return jax.random.categorical(key, _boltzmann_logits(q_values, temperature))


def adaptive_temperature(q_values: Any, temperature: float = 1.0) -> Float[Array, "..."]:
    """The temperature τ of the paper's table of hyperparameters, one for each state.

    Starting at `temperature`, τ is multiplied by 1.5 while the best action has a probability above
    0.98, and divided by 4 while that probability is below 1/A + 0.02. States whose best actions
    tie so often that no temperature lifts it that far end at a τ near zero (uniform over the best).

    Args:
        q_values: Q(s, ·), [..., A].
        temperature: where τ starts.
    """
    q_values = _precise(q_values)
    _checks.number("temperature", temperature, above=0)
    low = 1 / q_values.shape[-1] + 0.02

    def adapt(tau: Float[Array, "..."]) -> Float[Array, "..."]:
        top = jnp.max(jax.nn.softmax(_boltzmann_logits(q_values, tau)), axis=-1)
        factor = jnp.where(top > 0.98, 1.5, jnp.where(top < low, 0.25, 1.0))
        return jnp.clip(tau * factor, 1e-12, 1e12)

    def step(carry: tuple[Any, Any]) -> tuple[Any, Any]:
        _, tau = carry
        return tau, adapt(tau)

    # Neither rule undoes the other (for A ≥ 2), and the clipping ends both.
    start = jnp.full(q_values.shape[:-1], temperature, q_values.dtype)
    unequal = lambda carry: jnp.any(carry[0] != carry[1])  # noqa: E731
    return jax.lax.while_loop(unequal, step, (start, adapt(start)))[1]


def strict_assignment(
    key: Key[Array, ""], q_values: Any, oracle: Oracle, *, temperature: Any = 1.0
) -> Int[np.ndarray, " S"]:
    """A Boltzmann assignment that is Θ-consistent: rejection sampling without replacement.

    The states are visited in a new random order. Each takes the first of its actions, drawn without
    replacement with probability ∝ exp(Q(s, a)/τ), that `oracle` accepts together with the choices
    made so far. One always is, as long as the oracle is exact, what was committed before is
    consistent, and no two actions of a state have the same features.

    Args:
        key: a JAX random key; give every child of a node its own (it decides the permutation).
        q_values: Q(s, ·), [S, A].
        oracle: the exact test, such as `conqur.exact.LinearPolicies(features).oracle()`.
        temperature: τ, one number or one for each state.
    """
    q_values = _precise(q_values)
    if q_values.ndim != 2:
        raise ValueError(f"q_values must have shape [S, A], got {list(q_values.shape)}")
    order_key, action_key = jax.random.split(key)
    order = np.asarray(jax.random.permutation(order_key, q_values.shape[0]))
    logits = _boltzmann_logits(q_values, temperature)
    # Sorting logits perturbed by Gumbel noise draws all actions without replacement.
    perturbed = logits + jax.random.gumbel(action_key, logits.shape)
    preferences = np.asarray(jnp.argsort(-perturbed, axis=-1))

    assigned = np.zeros(len(order), dtype=np.int64)
    for i, state in enumerate(order):
        for action in preferences[state]:
            assigned[state] = action
            if oracle(order[: i + 1], assigned[order[: i + 1]]):
                break
        else:
            raise ValueError(
                f"oracle accepts no action at row {state}: "
                "what was committed before is not consistent"
            )
    return assigned


def _precise(q_values: Any) -> Float[Array, "*S A"]:
    """Q-values with at least 32 bits: noise of fewer prefers some actions to others."""
    q_values = jnp.asarray(_checks.q_values("q_values", q_values))
    return q_values.astype(jnp.promote_types(q_values.dtype, jnp.float32))


def _boltzmann_logits(q_values: Float[Array, "*S A"], temperature: Any) -> Float[Array, "*S A"]:
    """Q/τ with the best action at 0, so that no temperature makes it overflow."""
    _checks.all_positive("temperature", _checks.floating("temperature", temperature))
    temperature = jnp.asarray(temperature, q_values.dtype)
    if temperature.ndim:
        _checks.shape("temperature", temperature, q_values.shape[:-1])
    advantage = q_values - jnp.max(q_values, axis=-1, keepdims=True)
    return advantage / jnp.broadcast_to(temperature, q_values.shape[:-1])[..., None]
