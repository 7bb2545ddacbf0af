"""Consistency-penalised regression: the loss, the online update, the annealed weight (Sec. 3.2).

Losses here are means, over the batch and over the pairs of the consistency buffer, so that a
penalty weight λ means the same for batches and buffers of any size.
"""

from collections.abc import Callable
from typing import Any

import array_api_compat
import equinox as eqx
import jax

from conqur import _checks
from conqur.consistency import ConsistencyBuffer, penalty


def bellman_error(q_values: Any, actions: Any, labels: Any, *, huber: float | None = None) -> Any:
    """The mean over the batch of [q − Q_θ(s, a)]², the squared Bellman error.

    Args:
        q_values: Q_θ(s, ·), [B, A].
        actions: a, integers, [B].
        labels: the Q-labels q, [B].
        huber: where the error turns from half its square into its size, as in DQN; None: squared.
    """
    q_values = _checks.q_values("q_values", q_values)
    actions = _checks.assigned("actions", actions, q_values)
    labels = _checks.floating("labels", labels)
    _checks.same_library("labels", labels, q_values)
    _checks.shape("labels", labels, tuple(actions.shape))
    xp = array_api_compat.array_namespace(q_values)
    error = labels - xp.take_along_axis(q_values, actions[..., None], axis=-1)[..., 0]
    if huber is None:
        return xp.mean(error**2)
    _checks.number("huber", huber, above=0)
    quadratic = xp.clip(xp.abs(error), max=huber)
    return xp.mean(quadratic**2 / 2 + huber * (xp.abs(error) - quadratic))


def penalised_loss(
    q_values: Any,
    actions: Any,
    labels: Any,
    buffer_q_values: Any,
    assigned: Any,
    *,
    penalty_weight: Any,
    margin: Any = 0.0,
    over_actions: str = "sum",
    huber: float | None = None,
    pair_weights: Any = None,
) -> Any:
    """L_θ(D, B): Bellman error + λ C_θ(B). Arrays of NumPy, JAX or torch.

    Args:
        q_values: Q_θ(s, ·) on the batch, [B, A].
        actions: a, integers, [B].
        labels: the Q-labels q, [B] (see `q_labels`).
        buffer_q_values: Q_θ(s', ·) on pairs of the consistency buffer, [M, A].
        assigned: σ(s') of those pairs, integers, [M].
        penalty_weight: λ.
        margin: the hinge margin of the penalty.
        over_actions: "sum", as in the paper, or "mean" of a pair's penalty over the actions.
        huber: where the error turns from half its square into its size, as in DQN; None: squared.
        pair_weights: how much each pair counts in the mean over pairs, [M]; None: all the same.
    """
    _checks.number("penalty_weight", penalty_weight, at_least=0)
    error = bellman_error(q_values, actions, labels, huber=huber)
    buffer_q_values = _checks.q_values("buffer_q_values", buffer_q_values)
    penalties = penalty(buffer_q_values, assigned, margin=margin, over_actions=over_actions)
    xp = array_api_compat.array_namespace(penalties)
    if pair_weights is None:
        return error + penalty_weight * xp.mean(penalties)
    pair_weights = _checks.floating("pair_weights", pair_weights)
    _checks.same_library("pair_weights", pair_weights, penalties)
    _checks.shape("pair_weights", pair_weights, tuple(penalties.shape))
    total = xp.sum(pair_weights)
    total = xp.where(total > 0, total, xp.ones_like(total))  # nothing drawn costs nothing
    return error + penalty_weight * xp.sum(pair_weights * penalties) / total


def penalised_update(
    q: Callable[[Any, Any], Any],
    theta: Any,
    states: Any,
    actions: Any,
    labels: Any,
    buffer: ConsistencyBuffer,
    *,
    learning_rate: Any,
    penalty_weight: Any,
    margin: float = 0.0,
    over_actions: str = "sum",
) -> Any:
    """The penalised Q-learning update θ ← θ + α [q − Q_θ(s, a)] ∇Q_θ(s, a) − αλ ∇C_θ(B).

    Over a batch the error term is a mean (the paper's is a sum). Like the classic update it
    descends half the squared error, so λ weighs twice as much here as in `penalised_loss`. (The
    paper prints a plus before the last term, which would climb the penalty.)

    Args:
        q: Q, from θ and states [B, ...] to Q-values [B, A].
        theta: θ, any pytree; what are no floating-point arrays in it stays as it is.
        states: s, [B, ...].
        actions: a, [B].
        labels: the Q-labels q, [B].
        buffer: B.
        learning_rate: α.
        penalty_weight: λ.
        margin: the hinge margin of the penalty.
        over_actions: "sum", as in the paper, or "mean" of a pair's penalty over the actions.
    """
    _checks.number("learning_rate", learning_rate, above=0)
    _checks.number("penalty_weight", penalty_weight, at_least=0)

    def objective(theta: Any) -> Any:
        error = bellman_error(q(theta, states), actions, labels)
        inconsistency = buffer.penalty(
            lambda successors: q(theta, successors), margin=margin, over_actions=over_actions
        )
        return error / 2 + penalty_weight * inconsistency

    gradient = eqx.filter_grad(objective)(theta)  # type: ignore[no-untyped-call]
    step = jax.tree.map(lambda g: (-learning_rate * g).astype(g.dtype), gradient)
    return eqx.apply_updates(theta, step)


def annealed_penalty_weight(final: Any, step: Any, *, halfway: float = 2e6) -> Any:
    """λ_t = λ t/(t + 2·10⁶): from zero towards λ, so that poor early choices bind little.

    Args:
        final: λ, where the weight ends.
        step: t, in gradient steps.
        halfway: the step at which half of λ is reached, in gradient steps.
    """
    _checks.number("halfway", halfway, above=0)
    _checks.number("step", step, at_least=0)
    _checks.number("final", final, at_least=0)
    return final * (step / (step + halfway))
