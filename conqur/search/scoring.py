"""What a level's regressors are like after it: the scores that nodes are compared by."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt8

from conqur.assignment import greedy_assignment, q_labels
from conqur.consistency import ConsistencyBuffer, penalty
from conqur.environments.interface import Transitions
from conqur.regression import bellman_error
from conqur.search.approximator import Approximator
from conqur.search.assigning import predict

NO_ACTION = 255
"""In the place of an action: the node committed itself to none in that batch."""


class Scores(NamedTuple):
    """What a node's regressor is like after a level.

    Attributes:
        loss: Bellman error + λ C_θ.
        bellman: mean squared Bellman error with max labels on all of D_k.
        penalty: C_θ, mean over pairs of the consistency buffer.
        training_loss: mean of the loss while training.
        label: mean Q-label that the regressor itself gives, with the max assignment. (The target's
            would be the same for all children of a node.)
        initial_label: the same over first states of episodes; NaN if the batch has none.
        churn: the share of states of D_k whose greedy action is not the parent's.
        inconsistent: the share of pairs with a penalty above zero.
    """

    loss: Float[Array, ""]
    bellman: Float[Array, ""]
    penalty: Float[Array, ""]
    training_loss: Float[Array, ""]
    label: Float[Array, ""]
    initial_label: Float[Array, ""]
    churn: Float[Array, ""]
    inconsistent: Float[Array, ""]


SCORES: dict[str, Callable[[Scores], Any]] = {
    "loss": lambda scores: scores.loss,
    "training-loss": lambda scores: scores.training_loss,
    "bellman": lambda scores: scores.bellman,
    "label": lambda scores: -scores.label,
    "initial-label": lambda scores: -scores.initial_label,
}
"""How nodes are compared without playing. Lower is better."""


def scores_of(
    approximator: Approximator,
    theta: Any,
    target: Any,
    parent: Any,
    batch: Transitions,
    initial: Bool[Array, " n"],
    pairs: tuple[Array, Int[Array, " P"], Float[Array, " P"]],
    *,
    training_loss: Float[Array, ""],
    discount: float,
    penalty_weight: Any,
    margin: Any,
    over_actions: str,
) -> Scores:
    """A node's scores.

    Args:
        approximator: shared.
        theta: θ of the node.
        target: θ⁻, which gives the labels of the Bellman error.
        parent: θ of its parent.
        batch: D_k, as features.
        initial: whether s is the first state of an episode.
        pairs: as `pairs_of` gave them.
        training_loss: mean of the loss while training.
        discount: γ.
        penalty_weight: λ.
        margin: the hinge margin of the penalty.
        over_actions: "mean" or "sum", of a pair's penalty.
    """
    labels, own_labels = (
        _max_labels(predict(approximator, weights, batch.successors), batch, discount)
        for weights in (target, theta)
    )
    q_values = predict(approximator, theta, batch.states)
    old = predict(approximator, parent, batch.states)
    successors, assigned, counts = pairs
    penalties = penalty(
        predict(approximator, theta, successors),
        assigned,
        margin=margin,
        over_actions=over_actions,
    )
    total = jnp.maximum(jnp.sum(counts), 1.0)
    bellman = bellman_error(q_values, batch.actions, labels)
    inconsistency = jnp.sum(counts * penalties) / total
    return Scores(
        loss=bellman + penalty_weight * inconsistency,
        bellman=bellman,
        penalty=inconsistency,
        training_loss=training_loss,
        label=jnp.mean(own_labels),
        initial_label=jnp.sum(own_labels * initial) / jnp.sum(initial),
        churn=jnp.mean(greedy_assignment(q_values) != greedy_assignment(old)),
        inconsistent=jnp.sum(counts * (penalties > 0)) / total,
    )


def _max_labels(
    q_values: Float[Array, "n A"], batch: Transitions, discount: float
) -> Float[Array, " n"]:
    best = greedy_assignment(q_values)
    return q_labels(batch.rewards, batch.terminal, q_values, best, discount=discount)


def pairs_of(
    buffer: ConsistencyBuffer,
    committed: UInt8[Array, " C"],
    places: Int[Array, " P"],
    drawn: Bool[Array, ""],
) -> tuple[Array, Int[Array, " P"], Float[Array, " P"]]:
    """s', σ(s') and whether they count.

    Args:
        buffer: with the states.
        committed: a node's assignments, in the places of the states.
        places: of the pairs.
        drawn: whether there was anything to draw the places from.
    """
    assigned = committed[places].astype(jnp.int32)
    counts = (assigned != NO_ACTION) & (buffer.born[places] >= 0) & drawn
    successors = jnp.take(buffer.successors, places, axis=0)
    if jnp.issubdtype(successors.dtype, jnp.floating):  # kept in half the precision
        successors = successors.astype(jnp.float32)
    return successors, jnp.where(counts, assigned, 0), counts.astype(jnp.float32)
