"""Batches of transitions, as features, and where they come from without playing: data sets."""

import abc
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from conqur.environments.data import FixedData
from conqur.environments.interface import Spec, Transitions
from conqur.search.approximator import Approximator

_KEY = 2
"""What random numbers are for, beside those of `conqur.search.growing`."""


class Batch(NamedTuple):
    """D_k.

    Attributes:
        transitions: with features as states and successors, [n, ...].
        initial: whether s is the first state of an episode, [n].
        returns: of the episodes that ended meanwhile.
        steps: of environments, all together, that it took.
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


def check_features(features: Any) -> None:
    """Refuse a network whose features, of the first states or of a data set, are no numbers."""
    if not np.isfinite(np.asarray(features, np.float32)).all():
        raise ValueError("the network's features hold NaN or infinity: it cannot be tuned")


class DataCollector(Batches):
    """Gives batches of a fixed data set, embedded once and drawn without repetition.

    Attributes:
        spec: what the data's environment looked like.
    """

    spec: Spec

    def __init__(
        self,
        approximator: Approximator,
        data: FixedData,
        name: str,
        *,
        transitions: int,
        clip_rewards: bool,
        seed: int,
    ) -> None:
        """Draw batches from a data set.

        Args:
            approximator: embeds.
            data: the data set.
            name: of it.
            transitions: n, in a batch; at most as many as there are.
            clip_rewards: to [−1, 1], for learning.
            seed: of the drawing.
        """
        self.spec = data.spec(name)
        embed = eqx.filter_jit(approximator.embed)
        parts = range(0, len(data), 1024)
        self._features, self._successors = (
            jnp.concatenate([embed(values[i : i + 1024]) for i in parts])
            for values in (data.observations, data.next_observations)
        )
        check_features(self._features)
        check_features(self._successors)
        self.example = jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
            self._features.shape[1:], self._features.dtype
        )
        self._data, self._size = data, transitions
        self._rewards = jnp.clip(data.rewards, -1, 1) if clip_rewards else data.rewards
        self._key, self._level = jax.random.fold_in(jax.random.key(seed), _KEY), 0

    def collect(self, theta: Any) -> Batch:
        """D_k: as many transitions, without repetition."""
        key = jax.random.fold_in(self._key, self._level)
        rows = jax.random.permutation(key, len(self._data))[: self._size]
        self._level += 1
        data = self._data
        transitions = Transitions(
            self._features[rows],
            data.actions[rows],
            self._rewards[rows],
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
