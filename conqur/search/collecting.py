"""Batches played by a node: the body runs once for every state.

What a state is embedded to at the moment it is acted in goes into the batch, as state and, one
step earlier, as successor; no observation is kept or seen again. Games go on from one level to the
next. Environments come in groups that take turns: while the actions of one group are worked out,
the others' games go on.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from conqur.dqn import epsilon_greedy
from conqur.environments.interface import Spec, Step, Transitions, VectorEnvironment, push
from conqur.environments.journal import Journal
from conqur.search.approximator import Approximator
from conqur.search.batches import Batch, Batches, check_features
from conqur.search.saving import pick

MANY = 32
"""From so many environments on there are two groups. Fewer leave cores without work in turns."""

_KEY = 1
"""What random numbers are for, beside those of `conqur.search.growing`."""


def in_groups(
    make: Callable[[int], VectorEnvironment], num_envs: int, *, seed: int
) -> list[Journal]:
    """Environments for a `Collector`, in groups of equal size.

    Args:
        make: so many copies of an environment.
        num_envs: copies in all.
        seed: of the environments.
    """
    groups = 2 if num_envs >= MANY and num_envs % 2 == 0 else 1
    return [Journal(make(num_envs // groups), (own,)) for own in group_seeds(seed, groups)]


def group_seeds(seed: int, groups: int) -> tuple[int, ...]:
    """The seeds of groups of environments."""
    return tuple(int(own) for own in np.random.SeedSequence(seed).generate_state(groups))


def exploration_key(seed: int) -> Key[Array, ""]:
    """The key of ε-greedy exploration."""
    return jax.random.fold_in(jax.random.key(seed), _KEY)


def most_rows(transitions: int, copies: int) -> int:
    """Steps that a batch may take: every other one is a transition, however short episodes are."""
    return 2 * -(-transitions // copies) + 2


class Collector(Batches):
    """Collects batches from environments of the host.

    Attributes:
        spec: of the environment.
    """

    spec: Spec

    def __init__(
        self,
        approximator: Approximator,
        environments: Sequence[Journal],
        *,
        transitions: int,
        epsilon: float,
        clip_rewards: bool,
        seed: int,
    ) -> None:
        """Collect with groups of copies of an environment.

        Args:
            approximator: embeds and predicts.
            environments: G groups that take turns, each of E copies.
            transitions: n, in a batch.
            epsilon: of ε-greedy exploration.
            clip_rewards: to [−1, 1].
            seed: of exploration.
        """
        self.spec = environments[0].spec
        self._approximator = approximator
        self._transitions, self._epsilon, self._clip = transitions, epsilon, clip_rewards
        self._key = exploration_key(seed)
        self._groups = [_Group(i, journal) for i, journal in enumerate(environments)]
        copies = environments[0].environment.num_envs
        example = jax.eval_shape(approximator.embed, self._groups[0].observations)
        self.example = jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
            example.shape[1:], example.dtype
        )
        rows = most_rows(transitions, copies * len(self._groups)) + 1
        self._features = jnp.zeros((rows, len(self._groups), *example.shape), example.dtype)
        for group in self._groups:
            self._see(group, group.journal.begin(), group.first, None)
        check_features(self._features[0])

    def collect(self, theta: Any) -> Batch:
        """D_k, with the ε-greedy policy of θ."""
        policy = (theta, self._key, np.float32(self._epsilon))
        for group in self._groups:
            self._features, actions = _carried(
                (self._approximator, policy), self._features, group.counters()
            )
            group.begin(actions)
            group.send()
        count = 0
        while any(group.under_way for group in self._groups):
            for group in self._groups:
                if not group.under_way:
                    continue
                step = group.receive()
                self._see(group, step.frame, step.reset, policy)
                count += group.record(step)
                if count < self._transitions:
                    group.send()
        return self._batch()

    def _see(self, group: "_Group", frames: Any, reset: Any, policy: Any) -> None:
        """Embed the newest frames, once and for all, and have the next actions worked out."""
        group.observations, self._features, group.actions = _seen(
            (self._approximator, self.spec, policy),
            group.observations,
            self._features,
            (frames, np.array(reset), group.counters()),
        )

    def _batch(self) -> Batch:
        """The groups' transitions, from the first steps on as many as were asked for."""
        size, groups = self._transitions, self._groups
        found = zip(*(group.found() for group in groups), strict=True)
        rows, indices, copies, *seen = (np.concatenate(values) for values in found)
        order = np.argsort(rows, kind="stable")[:size]
        actions, rewards, terminal, initial = (values[order] for values in seen)
        states, successors = _taken(self._features, rows[order], indices[order], copies[order])
        rewards = np.clip(rewards, -1, 1) if self._clip else rewards
        transitions = Transitions(
            states,
            jnp.asarray(actions, jnp.int32),
            jnp.asarray(rewards, jnp.float32),
            successors,
            jnp.asarray(terminal, bool),
        )
        returns = tuple(value for group in groups for value in group.returns)
        steps = sum(group.row * group.copies for group in groups)
        return Batch(transitions, jnp.asarray(initial), returns, steps)

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as arrays."""
        return {
            str(group.index): group.state()
            | {"features": np.asarray(self._features[group.row, group.index])}
            for group in self._groups
        }

    def restore(self, state: dict[str, Any]) -> bool:
        """Go back to where `state` was taken; whether the environments came along."""
        same = True
        for group in self._groups:
            saved = pick(state, f"{group.index}/")
            self._features = self._features.at[0, group.index].set(saved["features"])
            same = group.restore(saved) and same
        return same

    def close(self) -> None:
        """Release the environments."""
        for group in self._groups:
            group.journal.close()


class _Group:
    """Some environments, where they are, and what they gave in this level.

    Attributes:
        index: of the group.
        journal: the environments.
        observations: the newest ones.
        actions: the next ones.
        under_way: whether a step was sent that is not yet received.
        row: steps of this level.
        time: steps since the beginning.
        first: where the newest frames are the first ones of their episodes.
        returns: of the episodes that ended in this level.
    """

    def __init__(self, index: int, journal: Journal) -> None:
        spec, self.copies = journal.spec, journal.environment.num_envs
        self.index, self.journal = index, journal
        self.observations = jnp.zeros((self.copies, *spec.observation_shape), spec.frame_dtype)
        self.actions: Any = None
        self.under_way = False
        self.row = self.time = 0
        self.first = np.ones(self.copies, bool)
        self.returns: list[float] = []
        self._running = np.zeros(self.copies)
        self._found: list[tuple[np.ndarray, ...]] = []

    def begin(self, actions: Any) -> None:
        """A new level."""
        self.actions, self.row = actions, 0
        self.returns, self._found = [], []

    def counters(self) -> Int[np.ndarray, " 3"]:
        """Where the newest frames belong: row, group and time."""
        return np.array([self.row, self.index, self.time], np.int32)

    def send(self) -> None:
        """Start a step."""
        self._sent = np.asarray(self.actions)
        self.journal.send(self._sent)
        self.under_way = True

    def receive(self) -> Step:
        """Wait for it."""
        step = self.journal.receive()
        self.under_way = False
        self.row, self.time = self.row + 1, self.time + 1
        return step

    def record(self, step: Step) -> int:
        """Keep what is a transition; how many there are."""
        reset = np.array(step.reset)
        kept = np.flatnonzero(~reset)
        seen = (self._sent, step.reward, step.terminal, self.first)
        self._found.append((kept, *(np.array(values)[kept] for values in seen)))
        self.first = reset
        self._count_returns(step)
        return len(kept)

    def found(self) -> tuple[np.ndarray, ...]:
        """The level's transitions: row, group, copy, action, reward, terminal, initial."""
        rows = np.repeat(np.arange(self.row), [len(values[0]) for values in self._found])
        seen = (np.concatenate(values) for values in zip(*self._found, strict=True))
        return rows, np.full(len(rows), self.index), *seen

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as arrays."""
        return {
            "journal": self.journal.state(),
            "observations": np.asarray(self.observations),
            "running": self._running.copy(),
            "first": self.first.copy(),
            "time": np.int64(self.time),
        }

    def restore(self, state: dict[str, Any]) -> bool:
        """Go back to where `state` was taken; whether the environments came along."""
        self.observations = jnp.asarray(state["observations"])
        self._running, self.first = np.array(state["running"]), np.array(state["first"])
        self.time, self.row = int(state["time"]), 0
        return self.journal.restore(pick(state, "journal/"))

    def _count_returns(self, step: Step) -> None:
        if self.journal.cut:  # the games under way have no score
            self._running[:] = 0.0
            return
        self._running += step.reward
        over = np.array(step.game_over)
        self.returns.extend(self._running[over].tolist())
        self._running[over] = 0.0


@eqx.filter_jit(donate="all-except-first")
def _seen(
    shared: Any, observations: Array, features: Array, newest: Any
) -> tuple[Array, Array, Any]:
    approximator, spec, policy = shared
    frames, reset, counters = newest
    observations = push(spec, observations, frames, reset)
    embedded = approximator.embed(observations)
    actions = _chosen(approximator, policy, embedded, counters)
    return observations, _with(features, embedded, counters[0], counters[1]), actions


@eqx.filter_jit(donate="all-except-first")
def _carried(shared: Any, features: Array, counters: Any) -> tuple[Array, Any]:
    """A group's last row of a level as the first one of the next, and what to do there."""
    approximator, policy = shared
    embedded = features[counters[0], counters[1]]
    actions = _chosen(approximator, policy, embedded, counters)
    return _with(features, embedded, 0, counters[1]), actions


def _with(features: Array, embedded: Array, row: Any, group: Any) -> Array:
    rest = (0,) * embedded.ndim
    return jax.lax.dynamic_update_slice(features, embedded[None, None], (row, group, *rest))


def _chosen(approximator: Approximator, policy: Any, embedded: Array, counters: Any) -> Any:
    """ε-greedy actions; None without a policy."""
    if policy is None:
        return None
    theta, key, epsilon = policy
    key = jax.random.fold_in(jax.random.fold_in(key, counters[1]), counters[2])
    return epsilon_greedy(key, approximator.predict(theta, embedded), epsilon)


@eqx.filter_jit
def _taken(features: Array, rows: Any, groups: Any, copies: Any) -> tuple[Array, Array]:
    """Features of states and, a row later, of successors."""
    return features[rows, groups, copies], features[rows + 1, groups, copies]
