"""What a level's nodes commit themselves to: assignments on D_k, and the labels they give.

Functions are for one node and vmapped over N nodes, on a batch that the nodes share.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key, UInt8

from conqur.assignment import (
    adaptive_temperature,
    boltzmann_assignment,
    greedy_assignment,
    q_labels,
)
from conqur.environments.interface import Transitions
from conqur.search.approximator import Approximator

ROWS_AT_ONCE = 2048
"""Of a batch; more would only need more memory."""


class Assignment(NamedTuple):
    """A node's assignment on a batch.

    Attributes:
        assigned: σ(s'), [n].
        labels: the Q-labels it gives, [n].
        greedy: the share of choices that are the greedy ones.
        entropy: of the distribution the choices were drawn from, mean over states; 0 for max.
        gap: the action gap: the best action's lead over the second best, mean over states.
    """

    assigned: UInt8[Array, " n"]
    labels: Float[Array, " n"]
    greedy: Float[Array, ""]
    entropy: Float[Array, ""]
    gap: Float[Array, ""]


@eqx.filter_jit
def assign(
    approximator: Approximator,
    targets: Any,
    batch: Transitions,
    keys: Key[Array, " N"],
    sampled: Bool[Array, " N"] | None,
    *,
    temperature: float,
    adapt: bool,
    gap_units: bool,
    discount: float,
) -> Assignment:
    """Assignments and labels of N nodes on D_k, from their targets.

    Args:
        approximator: shared.
        targets: θ⁻ of N nodes.
        batch: D_k, as features.
        keys: one for each node.
        sampled: which nodes draw from the Boltzmann distribution; the others, or if None all, have
            the greedy assignment.
        temperature: τ of the Boltzmann distribution.
        adapt: whether τ is adapted to each state as in the paper.
        gap_units: τ is in units of the action gap.
        discount: γ.
    """

    def one(target: Any, key: Key[Array, ""], draws: Any) -> Assignment:
        q_values = predict(approximator, target, batch.successors)
        gap = action_gap(q_values)
        greedy = greedy_assignment(q_values)
        assigned, entropy = greedy, jnp.zeros(())
        if sampled is not None:
            taus = temperatures(q_values, temperature, adapt=adapt, gap_units=gap_units)
            drawn = boltzmann_assignment(key, q_values, temperature=taus)
            assigned = jnp.where(draws, drawn, greedy)
            probabilities = jax.nn.softmax(q_values / taus[:, None])
            entropies = jnp.sum(jax.scipy.special.entr(probabilities), axis=-1)
            entropy = jnp.where(draws, jnp.mean(entropies), 0.0)
        labels = q_labels(batch.rewards, batch.terminal, q_values, assigned, discount=discount)
        share = jnp.mean(assigned == greedy)
        return Assignment(assigned.astype(jnp.uint8), labels, share, entropy, gap)

    axes = approximator.node_axes(targets)
    in_axes = (axes, 0, None if sampled is None else 0)
    return jax.vmap(one, in_axes=in_axes)(targets, keys, sampled)


def temperatures(
    q_values: Float[Array, "n A"], temperature: float, *, adapt: bool, gap_units: bool
) -> Float[Array, " n"]:
    """τ of the Boltzmann distribution in every state.

    Args:
        q_values: of the states.
        temperature: τ, or where it begins.
        adapt: whether it is adapted to each state as in the paper.
        gap_units: it is in units of the action gap.
    """
    unit = jnp.maximum(action_gap(q_values), 1e-12) if gap_units else jnp.ones(())
    if adapt:
        return adaptive_temperature(q_values / unit, temperature) * unit
    return jnp.full(q_values.shape[:-1], temperature * unit)


@eqx.filter_jit
def labels_of(
    approximator: Approximator,
    targets: Any,
    batch: Transitions,
    assigned: UInt8[Array, "N n"],
    *,
    discount: float,
) -> Assignment:
    """The same for assignments that are given."""

    def one(target: Any, assigned: UInt8[Array, " n"]) -> Assignment:
        q_values = predict(approximator, target, batch.successors)
        chosen = assigned.astype(jnp.int32)
        labels = q_labels(batch.rewards, batch.terminal, q_values, chosen, discount=discount)
        greedy = jnp.mean(chosen == greedy_assignment(q_values))
        return Assignment(assigned, labels, greedy, jnp.zeros(()), action_gap(q_values))

    axes = approximator.node_axes(targets)
    return jax.vmap(one, in_axes=(axes, 0))(targets, assigned)


def predict(approximator: Approximator, theta: Any, features: Array) -> Float[Array, "n A"]:
    """Q_θ of any number of states, some at a time."""

    def some(rows: Array) -> Float[Array, "b A"]:
        return approximator.predict(theta, rows)

    whole, rest = divmod(len(features), ROWS_AT_ONCE)
    if whole == 0:
        return some(features)
    cut = whole * ROWS_AT_ONCE
    parts = features[:cut].reshape(whole, ROWS_AT_ONCE, *features.shape[1:])
    q_values = jax.lax.map(some, parts)
    q_values = q_values.reshape(cut, q_values.shape[-1])
    return jnp.concatenate([q_values, some(features[cut:])]) if rest else q_values


def action_gap(q_values: Float[Array, "n A"]) -> Float[Array, ""]:
    """The best action's lead over the second best, mean over states."""
    best = jax.lax.top_k(q_values, min(2, q_values.shape[-1]))[0]
    return jnp.mean(best[:, 0] - best[:, -1])
