"""What a level does to its nodes' regressors, all at once: assign, label, refine, score.

All functions are for one node and vmapped over N nodes, on a batch that the nodes share. The
nodes' weights lie so that, for linear heads, a gradient step of all nodes is one product.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int, Key, UInt8

from conqur.assignment import (
    adaptive_temperature,
    boltzmann_assignment,
    greedy_assignment,
    q_labels,
)
from conqur.consistency import ConsistencyBuffer, penalty
from conqur.dqn import Moments, centred_rmsprop
from conqur.environments.interface import Transitions
from conqur.regression import bellman_error, penalised_loss
from conqur.search.approximator import Approximator

NO_ACTION = 255
"""In the place of an action: the node committed itself to none in that batch."""

ROWS_AT_ONCE = 2048
"""Of a batch; more would only need more memory."""


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


class Scores(NamedTuple):
    """What a node's regressor is like after a level.

    Attributes:
        loss: Bellman error + λ C_θ.
        bellman: mean squared Bellman error with max labels on all of D_k.
        penalty: C_θ, mean over pairs of the consistency buffer.
        training_loss: mean of the loss while training.
        label: mean Q-label of the max assignment.
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
        own_order: each node has its own minibatches.
        refit: "sgd", or "lbfgs": that many quasi-Newton steps on the whole batch instead.
        gap_units: learning rate, margin and penalty weight are in units of the action gap, so that
            the scale of Q-values makes no difference.
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
    own_order: bool
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


@eqx.filter_jit
def assign(
    approximator: Approximator,
    weights: Weights,
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
        weights: of N nodes.
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
            unit = jnp.maximum(gap, 1e-12) if gap_units else 1.0
            taus = jnp.full(greedy.shape, temperature * unit)
            if adapt:
                taus = adaptive_temperature(q_values / unit, temperature) * unit
            drawn = boltzmann_assignment(key, q_values, temperature=taus)
            assigned = jnp.where(draws, drawn, greedy)
            probabilities = jax.nn.softmax(q_values / taus[:, None])
            entropies = jnp.sum(jax.scipy.special.entr(probabilities), axis=-1)
            entropy = jnp.where(draws, jnp.mean(entropies), 0.0)
        labels = q_labels(batch.rewards, batch.terminal, q_values, assigned, discount=discount)
        share = jnp.mean(assigned == greedy)
        return Assignment(assigned.astype(jnp.uint8), labels, share, entropy, gap)

    axes = approximator.node_axes(weights.target)
    in_axes = (axes, 0, None if sampled is None else 0)
    return jax.vmap(one, in_axes=in_axes)(weights.target, keys, sampled)


@eqx.filter_jit
def labels_of(
    approximator: Approximator,
    weights: Weights,
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

    axes = approximator.node_axes(weights.target)
    return jax.vmap(one, in_axes=(axes, 0))(weights.target, assigned)


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
    steps, size = how.updates, how.batch_size
    rows = len(batch.actions)
    if how.own_order:
        keys = jax.vmap(jax.random.fold_in, (None, 0))(order_key, ids)
        order = jax.vmap(lambda k: jax.random.randint(k, (steps, size), 0, rows))(keys)
    else:
        order = jax.random.randint(order_key, (steps, size), 0, rows)
    places = buffer.draw(pair_key, steps * how.pairs)[0].reshape(steps, how.pairs)
    scored = buffer.draw(score_key, how.scored_pairs)[0]

    def one(
        weights: Weights,
        parent: Any,
        order: Int[Array, "U B"],
        labels: Float[Array, " n"],
        committed: UInt8[Array, " C"],
        gap: Float[Array, ""],
    ) -> tuple[Weights, Scores]:
        unit: Any = 1.0
        rate: Any = how.learning_rate
        if how.gap_units:
            unit = jnp.maximum(gap, 1e-12)
            rate = how.learning_rate * unit / approximator.steepness(batch.states)
        optimizer = centred_rmsprop(rate)

        def objective(theta: Any, rows: Any, places: Any) -> Float[Array, ""]:
            states = jnp.take(batch.states, rows, axis=0)
            nearness = how.proximal * _half_distance(theta, root)
            if not how.penalised:
                q_values = approximator.predict(theta, states)
                return bellman_error(q_values, batch.actions[rows], labels[rows]) + nearness
            pairs, assigned, counts = _pairs(buffer, committed, places)
            q_values = approximator.predict(theta, jnp.concatenate([states, pairs]))
            loss = penalised_loss(
                q_values[: len(rows)],
                batch.actions[rows],
                labels[rows],
                q_values[len(rows) :],
                assigned,
                penalty_weight=how.penalty_weight * unit,
                margin=how.margin * unit,
                over_actions=how.over_actions,
                pair_weights=counts,
            )
            return loss + nearness

        def update(carried: Any, given: Any) -> tuple[Any, Float[Array, ""]]:
            theta, moments = carried
            loss, gradient = jax.value_and_grad(objective)(theta, *given)
            step, moments = optimizer.update(gradient, moments)
            return (optax.apply_updates(theta, step), moments), loss

        def whole(theta: Any) -> Float[Array, ""]:
            return objective(theta, jnp.arange(rows), scored)

        if how.refit == "lbfgs":
            theta, losses = _quasi_newton(whole, weights.theta, steps)
            moments = weights.moments
        else:
            carried = weights.theta, weights.moments
            (theta, moments), losses = jax.lax.scan(update, carried, (order, places))
        after = Weights(theta, weights.target, moments)
        loss = jnp.mean(losses) if steps else jnp.asarray(jnp.nan)
        return after, _scores(
            approximator, parent, after, batch, initial, buffer, committed, scored, loss, how, unit
        )

    axes = axes_of(approximator, weights.theta)
    in_axes = (axes, axes.theta, 0 if how.own_order else None, 0, 1, 0)
    return jax.vmap(one, in_axes=in_axes, out_axes=(axes, 0))(
        weights, parents, order, assignment.labels, buffer.assigned, assignment.gap
    )


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


def _pairs(
    buffer: ConsistencyBuffer, committed: UInt8[Array, " C"], places: Int[Array, " P"]
) -> tuple[Array, Int[Array, " P"], Float[Array, " P"]]:
    """s', σ(s') and whether they count."""
    assigned = committed[places].astype(jnp.int32)
    counts = (assigned != NO_ACTION) & (buffer.born[places] >= 0)
    successors = jnp.take(buffer.successors, places, axis=0)
    if jnp.issubdtype(successors.dtype, jnp.floating):  # kept in half the precision
        successors = successors.astype(jnp.float32)
    return successors, jnp.where(counts, assigned, 0), counts.astype(jnp.float32)


def _scores(
    approximator: Approximator,
    parent: Any,
    after: Weights,
    batch: Transitions,
    initial: Bool[Array, " n"],
    buffer: ConsistencyBuffer,
    committed: UInt8[Array, " C"],
    scored: Int[Array, " P"],
    training_loss: Float[Array, ""],
    how: Regression,
    unit: Any,
) -> Scores:
    values = predict(approximator, after.target, batch.successors)
    best = greedy_assignment(values)
    labels = q_labels(batch.rewards, batch.terminal, values, best, discount=how.discount)
    q_values = predict(approximator, after.theta, batch.states)
    old = predict(approximator, parent, batch.states)
    successors, assigned, counts = _pairs(buffer, committed, scored)
    penalties = penalty(
        predict(approximator, after.theta, successors),
        assigned,
        margin=how.margin * unit,
        over_actions=how.over_actions,
    )
    total = jnp.maximum(jnp.sum(counts), 1.0)
    bellman = bellman_error(q_values, batch.actions, labels)
    inconsistency = jnp.sum(counts * penalties) / total
    return Scores(
        loss=bellman + how.penalty_weight * unit * inconsistency,
        bellman=bellman,
        penalty=inconsistency,
        training_loss=training_loss,
        label=jnp.mean(labels),
        initial_label=jnp.sum(labels * initial) / jnp.sum(initial),
        churn=jnp.mean(greedy_assignment(q_values) != greedy_assignment(old)),
        inconsistent=jnp.sum(counts * (penalties > 0)) / total,
    )


def _half_distance(theta: Any, root: Any) -> Float[Array, ""]:
    squares = jax.tree.map(lambda a, b: jnp.sum((a - b) ** 2), theta, root)
    return 0.5 * jax.tree.reduce(jnp.add, squares)


def _quasi_newton(objective: Any, theta: Any, steps: int) -> tuple[Any, Float[Array, " U"]]:
    """L-BFGS from θ: the best point it found."""
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
