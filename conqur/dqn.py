"""DQN(λ) and DDQN(λ): deep Q-learning with the consistency penalty (Sec. 4.1, App. C).

With λ = 0 these are DQN and Double DQN. The penalty needs an assignment σ that the network being
trained can fall out with. In DQN(λ) it is the target network's choice on the current batch. In
DDQN(λ) the labels' choices are the trained network's own, of this very moment, and penalising them
would be a penalty of zero; there the choices of recent batches are kept, a short consistency
buffer, and penalised as the network moves on.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, Key

from conqur.assignment import greedy_assignment, q_labels
from conqur.consistency import ConsistencyBuffer, penalty
from conqur.environments.interface import Transitions
from conqur.regression import annealed_penalty_weight, penalised_loss
from conqur.regressor import Regressor

Pairs = tuple[Array, Int[Array, " B"], Float[Array, " B"]]
"""Pairs (s', σ(s')) to be consistent with, and how much each counts."""

COMMITTED_BATCHES = 32
"""How many batches of choices DDQN(λ) remembers."""


class Agent(eqx.Module):
    """What learning changes."""

    theta: Regressor
    """θ."""
    target: Regressor
    """θ⁻, a copy of θ made every so many updates."""
    optimizer_state: Any
    commitments: ConsistencyBuffer | None
    """Recent choices of DDQN(λ); DQN(λ) has none."""
    drawn: Pairs | None
    """Those of them that the next update penalises."""
    updates: Int[Array, ""]
    """t, gradient steps so far."""


class Diagnostics(NamedTuple):
    """What a network is like on a sample of states.

    Attributes:
        q_mean: mean of max_a Q_θ(s, a).
        q_max: the largest of them.
        action_gap: mean of the best action's lead over the second best.
        penalty: C_θ, the mean consistency penalty of the choices behind the labels.
        inconsistent: the fraction of those choices with a penalty above zero.
        churn: the fraction of states whose greedy action is not that of the target network.
    """

    q_mean: Float[Array, ""]
    q_max: Float[Array, ""]
    action_gap: Float[Array, ""]
    penalty: Float[Array, ""]
    inconsistent: Float[Array, ""]
    churn: Float[Array, ""]


@dataclass(frozen=True)
class DQN:
    """DQN(λ), and DDQN(λ) if `double`.

    Attributes:
        optimizer: steps from gradients.
        double: σ is the choice of θ where DQN has that of θ⁻.
        batch_size: B.
        discount: γ.
        huber: where the error turns from half its square into its size; None: squared.
        clip_rewards: to [−1, 1].
        target_every: updates between copies of θ to θ⁻.
        halfway: updates after which half of λ is reached.
        penalised: whether any λ is above zero; if not, the penalty is not computed.
    """

    optimizer: optax.GradientTransformation
    double: bool
    batch_size: int
    discount: float
    huber: float | None
    clip_rewards: bool
    target_every: int
    halfway: float
    penalised: bool

    def begin(self, theta: Regressor, observation: Array) -> Agent:
        """An agent that has learned nothing yet."""
        capacity = COMMITTED_BATCHES * self.batch_size
        commitments = ConsistencyBuffer.empty(capacity, observation) if self.double else None
        return Agent(
            theta=theta,
            target=jax.tree.map(jnp.copy, theta),
            optimizer_state=self.optimizer.init(theta),
            commitments=commitments,
            drawn=self._draw(commitments, jax.random.key(0)),  # there is nothing to draw yet
            updates=jnp.zeros((), jnp.int32),
        )

    def update(
        self, agent: Agent, batch: Transitions, key: Key[Array, ""], *, penalty_weight: Any
    ) -> tuple[Agent, Float[Array, ""]]:
        """One gradient step on a batch; the agent after it, and the loss before it.

        Args:
            agent: before the step.
            batch: D.
            key: for the choices that are drawn from those committed, for the next update.
            penalty_weight: λ, where the annealed weight ends.
        """
        assigned, labels = self.labels(agent, batch)
        pairs = agent.drawn or _of_batch(batch, assigned)
        weight = annealed_penalty_weight(penalty_weight, agent.updates, halfway=self.halfway)
        objective = eqx.filter_value_and_grad(self.loss)
        loss, gradient = objective(agent.theta, batch, labels, pairs, weight)
        step, optimizer_state = self.optimizer.update(gradient, agent.optimizer_state)
        theta = eqx.apply_updates(agent.theta, step)
        updates = agent.updates + 1
        copy = updates % self.target_every == 0
        commitments = agent.commitments
        if commitments is not None:
            commitments = commitments.add(batch.successors, assigned, terminal=batch.terminal)
        after = Agent(
            theta=theta,
            target=jax.tree.map(lambda new, old: jnp.where(copy, new, old), theta, agent.target),
            optimizer_state=optimizer_state,
            commitments=commitments,
            # Drawn where it reads what was just written: see `CompiledTrainer`.
            drawn=self._draw(commitments, key),
            updates=updates,
        )
        return after, loss

    def labels(
        self, agent: Agent, batch: Transitions
    ) -> tuple[Int[Array, " B"], Float[Array, " B"]]:
        """The assignment σ of the successors, and the Q-labels r + γ Q_θ⁻(s', σ(s'))."""
        values = agent.target(batch.successors)
        assigned = greedy_assignment(agent.theta(batch.successors) if self.double else values)
        rewards = jnp.clip(batch.rewards, -1, 1) if self.clip_rewards else batch.rewards
        labels = q_labels(rewards, batch.terminal, values, assigned, discount=self.discount)
        return assigned, labels

    def loss(
        self,
        theta: Regressor,
        batch: Transitions,
        labels: Float[Array, " B"],
        pairs: Pairs,
        penalty_weight: Float[Array, ""],
    ) -> Float[Array, ""]:
        """L_θ: Bellman error + λ_t C_θ."""
        successors, assigned, pair_weights = pairs
        states = batch.states
        if self.penalised:  # one pass for both
            states = jnp.concatenate([states, successors])
        q_values = theta(states)
        return penalised_loss(
            q_values[: self.batch_size],
            batch.actions,
            labels,
            q_values[-self.batch_size :],
            assigned,
            penalty_weight=penalty_weight if self.penalised else 0.0,
            huber=self.huber,
            pair_weights=pair_weights,
        )

    def diagnose(self, agent: Agent, batch: Transitions, key: Key[Array, ""]) -> Diagnostics:
        """What the network is like on a batch of any size."""
        q_values = agent.theta(batch.states)
        best = jax.lax.top_k(q_values, min(2, q_values.shape[-1]))[0]
        assigned, _ = self.labels(agent, batch)
        pairs = self._draw(agent.commitments, key) or _of_batch(batch, assigned)
        successors, assigned, weights = pairs
        penalties = penalty(agent.theta(successors), assigned)
        total = jnp.maximum(jnp.sum(weights), 1.0)
        changed = greedy_assignment(q_values) != greedy_assignment(agent.target(batch.states))
        return Diagnostics(
            q_mean=jnp.mean(best[:, 0]),
            q_max=jnp.max(best),
            action_gap=jnp.mean(best[:, 0] - best[:, -1]),
            penalty=jnp.sum(weights * penalties) / total,
            inconsistent=jnp.sum(weights * (penalties > 0)) / total,
            churn=jnp.mean(changed, dtype=jnp.float32),
        )

    def _draw(self, commitments: ConsistencyBuffer | None, key: Key[Array, ""]) -> Pairs | None:
        return None if commitments is None else commitments.sample(key, self.batch_size)


def _of_batch(batch: Transitions, assigned: Int[Array, " B"]) -> Pairs:
    return batch.successors, assigned, 1.0 - batch.terminal


class Moments(NamedTuple):
    """Moving averages of every gradient and of its square."""

    mean: Any
    square: Any


def centred_rmsprop(learning_rate: Any, *, epsilon: float = 1e-5) -> optax.GradientTransformation:
    """RMSProp as TF1 computes it: centred, decay 0.95, ε inside the root, mean square from one."""
    decay = 0.95

    def init(theta: Any) -> Moments:
        return Moments(jax.tree.map(jnp.zeros_like, theta), jax.tree.map(jnp.ones_like, theta))

    def step(gradient: Array, mean: Array, square: Array) -> Array:
        # Of gradients that hardly change, rounding can make the difference negative.
        variance = jnp.maximum(square - mean**2, 0.0)
        return -learning_rate * gradient * jax.lax.rsqrt(variance + epsilon)

    def update(gradients: Any, before: Moments, theta: Any = None) -> tuple[Any, Moments]:
        mean = jax.tree.map(lambda g, m: decay * m + (1 - decay) * g, gradients, before.mean)
        square = jax.tree.map(lambda g, s: decay * s + (1 - decay) * g**2, gradients, before.square)
        return jax.tree.map(step, gradients, mean, square), Moments(mean, square)

    return optax.GradientTransformation(init, update)


def adam(learning_rate: float, *, epsilon: float = 1e-8) -> optax.GradientTransformation:
    """Adam."""
    return optax.adam(learning_rate, eps=epsilon)


def epsilon_at(step: Any, *, begin: int, steps: int, final: float) -> Any:
    """ε of ε-greedy: 1 until step `begin`, then down to `final` in a straight line of `steps`."""
    done = jnp.clip((step - begin) / max(steps, 1), 0.0, 1.0)
    return 1.0 + (final - 1.0) * done


def epsilon_greedy(
    key: Key[Array, ""], q_values: Float[Array, "N A"], epsilon: Any
) -> Int[Array, " N"]:
    """The greedy actions, but with probability ε uniformly random ones."""
    explore_key, action_key = jax.random.split(key)
    explore = jax.random.uniform(explore_key, q_values.shape[:-1]) < epsilon
    random = jax.random.randint(action_key, q_values.shape[:-1], 0, q_values.shape[-1])
    return jnp.where(explore, random, greedy_assignment(q_values))
