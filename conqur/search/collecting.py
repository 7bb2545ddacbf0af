"""Batches of transitions for the search, as features: the body runs once for every state.

A `Collector` plays ε-greedily with one node's regressor. What a state is embedded to at the moment
it is acted in goes into the batch, as state and, one step earlier, as successor; no observation is
kept or seen again. Games go on from one level to the next.
"""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from conqur.dqn import epsilon_greedy
from conqur.environments.data import FixedData
from conqur.environments.interface import Spec, Transitions, push
from conqur.environments.journal import Journal
from conqur.search.approximator import Approximator
from conqur.search.saving import pick


class Batch(NamedTuple):
    """D_k.

    Attributes:
        transitions: with features as states and successors, [n, ...].
        initial: whether s is the first state of an episode, [n].
        returns: of the episodes that ended meanwhile.
        steps: of all environments that it took.
    """

    transitions: Transitions
    initial: Bool[Array, " n"]
    returns: tuple[float, ...]
    steps: int


class Batches(abc.ABC):
    """Where the batches D_k come from.

    Attributes:
        example: the shape and dtype of φ(s).
    """

    example: jax.ShapeDtypeStruct

    @abc.abstractmethod
    def collect(self, theta: Any) -> Batch:
        """D_k, with the ε-greedy policy of θ."""

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as arrays."""
        return {}

    def restore(self, state: dict[str, Any]) -> bool:
        """Go back to where `state` was taken; whether the environments came along."""
        return True

    def close(self) -> None:  # noqa: B027 (most have nothing to release)
        """Release what it holds."""


class Collector(Batches):
    """Collects batches from environments of the host.

    Attributes:
        spec: of the environment.
    """

    spec: Spec

    def __init__(
        self,
        approximator: Approximator,
        environment: Journal,
        *,
        transitions: int,
        epsilon: float,
        clip_rewards: bool,
        seed: int,
    ) -> None:
        """Collect with copies of an environment.

        Args:
            approximator: embeds and predicts.
            environment: N copies.
            transitions: n, in a batch.
            epsilon: of ε-greedy exploration.
            clip_rewards: to [−1, 1].
            seed: of exploration.
        """
        self.spec = environment.spec
        self._approximator, self._environment = approximator, environment
        self._transitions, self._epsilon, self._clip = transitions, epsilon, clip_rewards
        self._key = jax.random.key(seed)
        self._num_envs = environment.environment.num_envs
        # Every other step at least is a transition, however short the episodes are.
        self._rows = 2 * -(-transitions // self._num_envs) + 2
        self._time = 0
        self._row = 0
        self._running = np.zeros(self._num_envs)
        self._first = np.ones(self._num_envs, bool)
        frames = environment.begin()
        shape = (self._num_envs, *self.spec.observation_shape)
        observations = jnp.zeros(shape, self.spec.frame_dtype)
        example = jax.eval_shape(approximator.embed, observations)
        self.example = jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
            example.shape[1:], example.dtype
        )
        features = jnp.zeros((self._rows, *example.shape), example.dtype)
        self._observations, self._features, _ = _see(
            (approximator, self.spec, None),
            observations,
            features,
            (frames, self._first, np.int32(0), np.int32(0)),
        )
        if not np.isfinite(np.asarray(self._features[0], np.float32)).all():
            raise ValueError("the network's features hold NaN or infinity: it cannot be tuned")

    def collect(self, theta: Any) -> Batch:
        """D_k, with the ε-greedy policy of θ."""
        self._features = _carried(self._features, np.int32(self._row))
        self._row = count = 0
        policy = (theta, self._key, np.float32(self._epsilon))
        actions = _choose(self._approximator, policy, self._features[0], np.int32(self._time))
        found = _Found([], [], [])
        while count < self._transitions:
            actions, new = self._step(policy, actions, found)
            count += new
        return self._batch(found)

    def _step(self, policy: Any, actions: Any, found: "_Found") -> tuple[Any, int]:
        """One step of all environments; the next actions, and how many transitions it gave."""
        chosen = np.asarray(actions)
        self._environment.send(chosen)
        step = self._environment.receive()
        reset = np.array(step.reset)
        self._observations, self._features, actions = _see(
            (self._approximator, self.spec, policy),
            self._observations,
            self._features,
            (step.frame, reset, np.int32(self._row + 1), np.int32(self._time + 1)),
        )
        kept = np.flatnonzero(~reset)
        found.places.append(self._row * self._num_envs + kept)
        seen = (chosen, step.reward, step.terminal, self._first)
        found.seen.append(tuple(np.array(values)[kept] for values in seen))
        self._count_returns(step, found)
        self._first, self._row, self._time = reset, self._row + 1, self._time + 1
        return actions, len(kept)

    def _count_returns(self, step: Any, found: "_Found") -> None:
        if self._environment.cut:  # the games under way have no score
            self._running[:] = 0.0
            return
        self._running += step.reward
        over = np.array(step.game_over)
        found.returns.extend(self._running[over].tolist())
        self._running[over] = 0.0

    def _batch(self, found: "_Found") -> Batch:
        size = self._transitions
        places = np.concatenate(found.places)[:size]
        actions, rewards, terminal, initial = (
            np.concatenate(values)[:size] for values in zip(*found.seen, strict=True)
        )
        states, successors = _taken(self._features, places, places + self._num_envs)
        rewards = np.clip(rewards, -1, 1) if self._clip else rewards
        transitions = Transitions(
            states,
            jnp.asarray(actions, jnp.int32),
            jnp.asarray(rewards, jnp.float32),
            successors,
            jnp.asarray(terminal, bool),
        )
        return Batch(transitions, jnp.asarray(initial), tuple(found.returns), self._row)

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as arrays."""
        return {
            "journal": self._environment.state(),
            "features": np.asarray(self._features[self._row]),
            "observations": np.asarray(self._observations),
            "running": self._running.copy(),
            "first": self._first.copy(),
            "time": np.int64(self._time),
        }

    def restore(self, state: dict[str, Any]) -> bool:
        """Go back to where `state` was taken; whether the environments came along."""
        self._features = self._features.at[0].set(state["features"])
        self._observations = jnp.asarray(state["observations"])
        self._running, self._first = np.array(state["running"]), np.array(state["first"])
        self._time, self._row = int(state["time"]), 0
        return self._environment.restore(pick(state, "journal/"))

    def close(self) -> None:
        """Release the environments."""
        self._environment.close()


class _Found(NamedTuple):
    """What the steps of a level gave."""

    places: list[Any]
    seen: list[Any]
    returns: list[float]


@eqx.filter_jit(donate="all-except-first")
def _see(
    shared: Any, observations: Array, features: Array, newest: Any
) -> tuple[Array, Array, Any]:
    """Embed the newest frames, once and for all, and choose what to do there."""
    approximator, spec, policy = shared
    frames, reset, row, time = newest
    observations = push(spec, observations, frames, reset)
    embedded = approximator.embed(observations)
    features = jax.lax.dynamic_update_index_in_dim(features, embedded, row, 0)
    return observations, features, _chosen(approximator, policy, embedded, time)


@eqx.filter_jit
def _choose(approximator: Approximator, policy: Any, embedded: Array, time: Any) -> Any:
    return _chosen(approximator, policy, embedded, time)


def _chosen(approximator: Approximator, policy: Any, embedded: Array, time: Any) -> Any:
    """ε-greedy actions; None without a policy."""
    if policy is None:
        return None
    theta, key, epsilon = policy
    q_values = approximator.predict(theta, embedded)
    return epsilon_greedy(jax.random.fold_in(key, time), q_values, epsilon)


@eqx.filter_jit(donate="all")
def _carried(features: Array, row: Any) -> Array:
    """With the last row of a level as the first one of the next."""
    return features.at[0].set(features[row])


@eqx.filter_jit
def _taken(features: Array, states: Any, successors: Any) -> tuple[Array, Array]:
    rows = features.reshape(-1, *features.shape[2:])
    return rows[states], rows[successors]


class DataCollector(Batches):
    """Gives batches of a fixed data set, embedded once and drawn without repetition.

    Attributes:
        spec: what the data's environment looked like.
    """

    spec: Spec

    def __init__(
        self, approximator: Approximator, data: FixedData, name: str, *, transitions: int, seed: int
    ) -> None:
        """Draw batches from a data set.

        Args:
            approximator: embeds.
            data: the data set.
            name: of it.
            transitions: n, in a batch; at most as many as there are.
            seed: of the drawing.
        """
        self.spec = data.spec(name)
        embed = jax.jit(approximator.embed)
        parts = range(0, len(data), 1024)
        self._features, self._successors = (
            jnp.concatenate([embed(values[i : i + 1024]) for i in parts])
            for values in (data.observations, data.next_observations)
        )
        self.example = jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
            self._features.shape[1:], self._features.dtype
        )
        self._data, self._size = data, transitions
        self._key, self._level = jax.random.key(seed), 0

    def collect(self, theta: Any) -> Batch:
        """D_k: as many transitions, without repetition."""
        key = jax.random.fold_in(self._key, self._level)
        rows = jax.random.permutation(key, len(self._data))[: self._size]
        self._level += 1
        data = self._data
        transitions = Transitions(
            self._features[rows],
            data.actions[rows],
            data.rewards[rows],
            self._successors[rows],
            data.terminals[rows],
        )
        return Batch(transitions, jnp.zeros(self._size, bool), (), 0)

    def state(self) -> dict[str, Any]:
        """What `restore` needs."""
        return {"level": np.int64(self._level)}

    def restore(self, state: dict[str, Any]) -> bool:
        """Go back to where `state` was taken."""
        self._level = int(state["level"])
        return True
