"""Copies of an environment in small groups, of which those that are done with are left standing."""

from collections.abc import Callable, Sequence

import numpy as np
from jaxtyping import Bool, Int

from conqur.environments.interface import Step, VectorEnvironment


class Grouped(VectorEnvironment):
    """N copies that may rest: a group in which all do is not stepped until the next `reset`.

    Its frames stay as they were, its rewards are 0, and nothing ends or begins in it.
    """

    def __init__(self, make: Callable[[int], VectorEnvironment], num_envs: int, size: int) -> None:
        """Make the groups.

        Args:
            make: so many copies of the environment.
            num_envs: N.
            size: of a group; the last may be smaller.
        """
        firsts = range(0, num_envs, size)
        self._parts = [slice(first, min(first + size, num_envs)) for first in firsts]
        self._groups = [make(part.stop - part.start) for part in self._parts]
        self._awake = [True] * len(self._groups)
        self._last: Step
        self.num_envs, self.spec = num_envs, self._groups[0].spec

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Begin new episodes everywhere: all are awake."""
        self._awake = [True] * len(self._groups)
        parts = zip(self._groups, self._parts, strict=True)
        frames = np.concatenate([group.reset(seeds[part]) for group, part in parts])
        nothing = np.zeros(self.num_envs, bool)
        self._last = Step(frames, np.zeros(self.num_envs, np.float32), nothing, nothing, ~nothing)
        return frames

    def rest(self, resting: Bool[np.ndarray, " N"]) -> None:
        """Leave groups standing of which no copy is needed."""
        self._awake = [not resting[part].all() for part in self._parts]

    def send(self, actions: Int[np.ndarray, " N"]) -> None:
        """Start a step in all groups that are awake."""
        for group, part, awake in zip(self._groups, self._parts, self._awake, strict=True):
            if awake:
                group.send(actions[part])

    def receive(self) -> Step:
        """Wait for all of them."""
        frames, *others = (np.array(values) for values in self._last)
        for values in others:
            values[:] = 0
        for group, part, awake in zip(self._groups, self._parts, self._awake, strict=True):
            if awake:
                for values, new in zip((frames, *others), group.receive(), strict=True):
                    values[part] = new
        self._last = Step(frames, *others)
        return self._last

    def close(self) -> None:
        """Release all groups."""
        for group in self._groups:
            group.close()
