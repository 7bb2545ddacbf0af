"""Training a level's regressors, all nodes at once.

What a gradient step does is written for one node and vmapped over N nodes within the loop over
steps, so that the nodes' weights stay where they lie: for linear heads that share minibatches a
step of all nodes is one product.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, Key, UInt8

from conqur.consistency import ConsistencyBuffer
from conqur.dqn import Moments, centred_rmsprop
from conqur.environments.interface import Transitions
from conqur.regression import bellman_error, penalised_loss
from conqur.search.approximator import Approximator
from conqur.search.assigning import Assignment
from conqur.search.scoring import Scores, pairs_of, scores_of


class Weights(NamedTuple):
    """What a node's regression changes.

    Attributes:
        theta: θ.
        target: θ⁻, which values and assignments come from.
        moments: the optimizer's state.
    """

    theta: Any
    target: Any
    moments: Moments


@dataclass(frozen=True)
class Regression:
    """How regressors are trained in a level. Numbers that may be in units of the action gap are.

    Attributes:
        updates: gradient steps.
        batch_size: B, transitions in a step.
        pairs: of the consistency buffer in a step.
        scored_pairs: of the consistency buffer that a score looks at.
        discount: γ.
        learning_rate: α.
        penalty_weight: λ.
        margin: the hinge margin of the penalty.
        over_actions: "mean" or "sum", of a pair's penalty.
        proximal: weight of ½‖θ − θ₀‖², which keeps regressors near the root's.
        own_minibatches: each node draws its own transitions and pairs; else all take the same.
        refit: "sgd", or "lbfgs": that many quasi-Newton steps on the whole batch instead.
        gap_units: learning rate, margin and penalty weight are in units of the action gap, so that
            the scale of Q-values makes less difference (RMSProp's ε still has one).
    """

    updates: int
    batch_size: int
    pairs: int
    scored_pairs: int
    discount: float
    learning_rate: float
    penalty_weight: float
    margin: float
    over_actions: str
    proximal: float
    own_minibatches: bool
    refit: str
    gap_units: bool

    @property
    def penalised(self) -> bool:
        """Whether the penalty is part of the loss."""
        return self.penalty_weight > 0


def begin(theta: Any) -> Weights:
    """The weights of a root."""
    return Weights(theta, theta, centred_rmsprop(1.0).init(theta))


def axes_of(approximator: Approximator, theta: Any) -> Weights:
    """Where the axis N is in many nodes' weights."""
    axes = approximator.node_axes(theta)
    return Weights(axes, axes, Moments(axes, axes))


def stack(approximator: Approximator, weights: Sequence[Weights]) -> Weights:
    """Many nodes' weights as one."""
    axes = axes_of(approximator, weights[0].theta)
    return jax.tree.map(lambda axis, *leaves: np.stack(leaves, axis), axes, *weights)


def unstack(approximator: Approximator, stacked: Weights, count: int) -> list[Weights]:
    """The inverse of `stack`."""
    axes = axes_of(approximator, stacked.theta)
    first = jax.tree.map(lambda axis, leaf: np.moveaxis(leaf, axis, 0), axes, stacked)
    return [jax.tree.map(lambda leaf, i=i: leaf[i].copy(), first) for i in range(count)]


class _Own(NamedTuple):
    """What a node has of its own in a level.

    Attributes:
        labels: of D_k.
        committed: the assignments of its lineage, where the buffer has their states.
        gap: the action gap.
    """

    labels: Float[Array, " n"]
    committed: UInt8[Array, " C"]
    gap: Float[Array, ""]


@eqx.filter_jit
def refine(
    approximator: Approximator,
    weights: Weights,
    parents: Any,
    root: Any,
    batch: Transitions,
    initial: Bool[Array, " n"],
    assignment: Assignment,
    buffer: ConsistencyBuffer,
    key: Key[Array, ""],
    ids: Int[Array, " N"],
    how: Regression,
) -> tuple[Weights, Scores]:
    """Train N nodes on D_k and their consistency buffers, and score them.

    Args:
        approximator: shared.
        weights: of N nodes.
        parents: θ of the nodes' parents.
        root: θ₀, for the proximal term.
        batch: D_k, as features.
        initial: whether s is the first state of an episode.
        assignment: of N nodes on D_k.
        buffer: with the assignments of N nodes, those on D_k among them.
        key: of the level.
        ids: of the nodes; what is a node's own is drawn from them.
        how: the settings.
    """
    order_key, pair_key, score_key = jax.random.split(key, 3)
    axes = axes_of(approximator, weights.theta)
    own = _Own(assignment.labels, buffer.assigned, assignment.gap)
    own_axes = _Own(0, 1, 0)  # type: ignore[arg-type]
    scored, drawn = buffer.draw(score_key, how.scored_pairs)

    def objective(theta: Any, own: _Own, rows: Any, places: Any) -> Float[Array, ""]:
        states = jnp.take(batch.states, rows, axis=0)
        unit = _unit(own.gap, how)
        if how.penalised:
            pairs, assigned, counts = pairs_of(buffer, own.committed, places, drawn)
            q_values = approximator.predict(theta, jnp.concatenate([states, pairs]))
            loss = penalised_loss(
                q_values[: len(rows)],
                batch.actions[rows],
                own.labels[rows],
                q_values[len(rows) :],
                assigned,
                penalty_weight=how.penalty_weight * unit,
                margin=how.margin * unit,
                over_actions=how.over_actions,
                pair_weights=counts,
            )
        else:
            q_values = approximator.predict(theta, states)
            loss = bellman_error(q_values, batch.actions[rows], own.labels[rows])
        return loss + how.proximal * _half_distance(theta, root) if how.proximal else loss

    def update(theta: Any, moments: Any, own: _Own, rows: Any, places: Any) -> Any:
        rate: Any = how.learning_rate
        if how.gap_units:
            rate = rate * _unit(own.gap, how) / approximator.steepness(batch.states)
        loss, gradient = jax.value_and_grad(objective)(theta, own, rows, places)
        step, moments = centred_rmsprop(rate).update(gradient, moments)
        return optax.apply_updates(theta, step), moments, loss

    def quasi_newton(theta: Any, own: _Own) -> tuple[Any, Float[Array, " U"]]:
        everything = jnp.arange(len(batch.actions))
        return _quasi_newton(lambda t: objective(t, own, everything, scored), theta, how.updates)

    def score(parent: Any, after: Weights, own: _Own, loss: Float[Array, ""]) -> Scores:
        return scores_of(
            approximator,
            after.theta,
            after.target,
            parent,
            batch,
            initial,
            pairs_of(buffer, own.committed, scored, drawn),
            training_loss=loss,
            discount=how.discount,
            penalty_weight=how.penalty_weight * _unit(own.gap, how),
            margin=how.margin * _unit(own.gap, how),
            over_actions=how.over_actions,
        )

    if how.refit == "lbfgs":
        theta, losses = jax.vmap(quasi_newton, (axes.theta, own_axes), (axes.theta, 1))(
            weights.theta, own
        )
        moments = weights.moments
    else:
        drawn_axis = 0 if how.own_minibatches else None
        in_axes = (axes.theta, axes.moments, own_axes, drawn_axis, drawn_axis)
        all_update = jax.vmap(update, in_axes, (axes.theta, axes.moments, 0))

        def step(carried: tuple[Any, Any], given: tuple[Any, Any]) -> tuple[Any, Any]:
            theta, moments, loss = all_update(*carried, own, *given)
            return (theta, moments), loss

        def draw_rows(key: Key[Array, ""]) -> Int[Array, "U B"]:
            return jax.random.randint(key, (how.updates, how.batch_size), 0, len(batch.actions))

        def draw_pairs(key: Key[Array, ""]) -> Int[Array, "U P"]:
            places, _ = buffer.draw(key, how.updates * how.pairs)
            return places.reshape(how.updates, how.pairs)

        rows, places = (
            _of_all(draw, key, ids if how.own_minibatches else None)
            for draw, key in ((draw_rows, order_key), (draw_pairs, pair_key))
        )
        (theta, moments), losses = jax.lax.scan(
            step, (weights.theta, weights.moments), (rows, places)
        )
    after = Weights(theta, weights.target, moments)
    loss = jnp.mean(losses, axis=0) if how.updates else jnp.full(len(ids), jnp.nan)
    return after, jax.vmap(score, (axes.theta, axes, own_axes, 0))(parents, after, own, loss)


def _unit(gap: Float[Array, ""], how: Regression) -> Any:
    """What learning rate, margin and penalty weight are in units of."""
    return jnp.maximum(gap, 1e-12) if how.gap_units else 1.0


def _of_all(draw: Any, key: Key[Array, ""], ids: Int[Array, " N"] | None) -> Int[Array, "U *N D"]:
    """What each gradient step takes: the same for all nodes, or drawn for each."""
    if ids is None:
        return draw(key)
    return jax.vmap(lambda own: draw(jax.random.fold_in(key, own)), out_axes=1)(ids)


def _half_distance(theta: Any, root: Any) -> Float[Array, ""]:
    squares = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), theta, root)
    return 0.5 * jax.tree.reduce(jnp.add, squares)


def _quasi_newton(objective: Any, theta: Any, steps: int) -> tuple[Any, Float[Array, " U"]]:
    """L-BFGS from θ: its last point, or θ itself if that is better."""
    optimizer = optax.lbfgs()
    value_and_grad = optax.value_and_grad_from_state(objective)

    def step(carried: Any, _: None) -> tuple[Any, Float[Array, ""]]:
        theta, state = carried
        value, gradient = value_and_grad(theta, state=state)
        change, state = optimizer.update(
            gradient, state, theta, value=value, grad=gradient, value_fn=objective
        )
        return (optax.apply_updates(theta, change), state), value

    (found, _), values = jax.lax.scan(step, (theta, optimizer.init(theta)), length=steps)
    better = objective(found) < objective(theta)
    return jax.tree.map(lambda new, old: jnp.where(better, new, old), found, theta), values
