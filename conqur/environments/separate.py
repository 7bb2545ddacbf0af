"""Copies of an environment that are apart: one that is done with is left standing."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Int

from conqur.environments.interface import Step, VectorEnvironment


class Separate(VectorEnvironment):
    """N copies that may rest: one that does is not stepped until the next `reset`.

    Its frame stays as it was, its reward is 0, and nothing ends or begins in it.
    """

    def __init__(self, make: Callable[[], VectorEnvironment], num_envs: int) -> None:
        """Make the copies.

        Args:
            make: a single one.
            num_envs: N.
        """
        self._make = make
        self._copies: list[VectorEnvironment] = []
        self._awake = np.ones(num_envs, bool)
        self._last: Step
        self.resize(num_envs)
        self.spec = self._copies[0].spec

    def resize(self, num_envs: int) -> bool:
        """Be so many from the next `reset` on; those that are not needed wait until they are."""
        missing = num_envs - len(self._copies)
        self._copies += [self._make() for _ in range(missing)]
        self.num_envs = num_envs
        return True

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Begin new episodes everywhere: all are awake."""
        copies = self._copies[: self.num_envs]
        frames = np.concatenate([c.reset([seed]) for c, seed in zip(copies, seeds, strict=True)])
        nothing = np.zeros(self.num_envs, bool)
        self._awake = ~nothing
        self._last = Step(frames, np.zeros(self.num_envs, np.float32), nothing, nothing, ~nothing)
        return frames

    def rest(self, resting: Bool[np.ndarray, " N"]) -> None:
        """Leave copies standing that are not needed."""
        self._awake = ~resting

    def send(self, actions: Int[np.ndarray, " N"]) -> None:
        """Start a step in all copies that are awake."""
        for i in np.flatnonzero(self._awake):
            self._copies[i].send(actions[i : i + 1])

    def receive(self) -> Step:
        """Wait for all of them."""
        frames, *others = (np.array(values) for values in self._last)
        for values in others:
            values[:] = 0
        for i in np.flatnonzero(self._awake):
            for values, new in zip((frames, *others), self._copies[i].receive(), strict=True):
                values[i] = new[0]
        self._last = Step(frames, *others)
        return self._last

    def close(self) -> None:
        """Release all copies."""
        for copy in self._copies:
            copy.close()
