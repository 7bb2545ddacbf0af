"""Copies of an environment that are apart: one that is done with is left standing."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jaxtyping import Bool, Int

from conqur import _checks
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
        self._awake = np.zeros(0, bool)
        self._last: Step
        self.resize(num_envs)
        self.spec = self._copies[0].spec

    def resize(self, num_envs: int) -> bool:
        """Be so many from the next `reset` on; those that are not needed wait until they are."""
        missing = _checks.count("num_envs", num_envs) - len(self._copies)
        self._copies += [self._make() for _ in range(missing)]
        self.num_envs = num_envs
        return True

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Begin new episodes everywhere: all are awake."""
        seeds = _checks.index_array("seeds", seeds, self.num_envs).tolist()
        copies = self._copies[: self.num_envs]
        # In threads: an emulator takes 0.07 s to begin with another seed.
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            firsts = threads.map(_begin, copies, [[seed] for seed in seeds])
            frames = np.concatenate(list(firsts))
        nothing = np.zeros(self.num_envs, bool)
        self._awake = ~nothing
        self._last = Step(frames, np.zeros(self.num_envs, np.float32), nothing, nothing, ~nothing)
        return frames

    def rest(self, resting: Bool[np.ndarray, " N"]) -> None:
        """Leave copies standing that are not needed."""
        self._awake = ~resting

    def send(self, actions: Int[np.ndarray, " N"]) -> None:
        """Start a step in all copies that are awake."""
        if len(self._awake) != self.num_envs:
            raise ValueError(f"{self.spec.name} has to be reset before its first step")
        actions = _checks.action_array(
            "actions", actions, length=self.num_envs, num_actions=len(self.spec.actions)
        )
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
        """Release all copies, those that wait included."""
        for copy in self._copies:
            copy.close()


def _begin(copy: VectorEnvironment, seeds: Sequence[int]) -> np.ndarray:
    return copy.reset(seeds)
