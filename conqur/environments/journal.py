"""Host environments that can be brought back to where they were.

Emulators cannot be saved, but they can be played again: given the seeds of their last reset and
the actions since, environments are determined. A journal keeps both. So that it stays short, all
environments are reset with new seeds every `EPOCH` steps, wherever they are; a run that was
interrupted and one that was not do so at the same steps.
"""

import zlib
from typing import Any

import numpy as np
from jaxtyping import Int

from conqur.environments.interface import Spec, Step, VectorEnvironment

EPOCH = 30_000
"""Steps of every environment between resets with new seeds: more than a game of Atari may take
(27,000), so that none is too long to ever come to its end."""


class Journal:
    """A `VectorEnvironment` with the actions it was given since its last reset.

    Attributes:
        spec: of the environment.
        cut: whether the last step reset everything at once: the games under way have no score.
    """

    spec: Spec
    cut: bool

    def __init__(self, environment: VectorEnvironment, seeds: tuple[int, ...]) -> None:
        """Keep a journal of an environment.

        Args:
            environment: N copies, as many for each seed.
            seeds: of the run's members; every copy's seeds are drawn from its member's.
        """
        self.environment = environment
        self.spec = environment.spec
        self._seeds = seeds
        self._epoch = 0
        self._actions: list[np.ndarray] = []
        self._frames = np.zeros(0)
        self._ends = False
        self.cut = False

    def begin(self) -> np.ndarray:
        """Reset everything; the first frames, [N, ...]."""
        self._actions = []
        self._ends = False
        each = self.environment.num_envs // len(self._seeds)
        streams = [np.random.SeedSequence([seed, self._epoch]) for seed in self._seeds]
        drawn = np.concatenate([stream.generate_state(each) for stream in streams])
        self._frames = self.environment.reset([int(seed) % 2**31 for seed in drawn])
        return self._frames

    def send(self, actions: Int[np.ndarray, " N"]) -> None:
        """Start a step."""
        self._ends = self._ends or len(self._actions) >= EPOCH
        if not self._ends:
            self._actions.append(actions)
            self.environment.send(actions)

    def receive(self) -> Step:
        """Wait for the step that was sent; every so often it resets everything."""
        self.cut = self._ends
        if self.cut:
            self._epoch += 1
            frames = self.begin()
            none = np.zeros(len(frames), bool)
            return Step(frames, np.zeros(len(frames), np.float32), none, none, ~none)
        step = self.environment.receive()
        self._frames = step.frame
        return step

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` needs, as arrays."""
        rows, width = len(self._actions), self.environment.num_envs
        actions = np.stack(self._actions) if rows else np.zeros((0, width))
        return {
            "epoch": np.array(self._epoch),
            "actions": actions.astype(np.int32),
            "checksum": np.array(_checksum(self._frames)),
            "ends": np.array(self._ends),
        }

    def restore(self, state: dict[str, Any]) -> bool:
        """Play everything again; whether the environments show what they showed then.

        If not, they are not deterministic: they begin new episodes in the next step.
        """
        self._epoch = int(state["epoch"])
        self.begin()
        for actions in state["actions"]:
            self.send(actions)
            self.receive()
        same = _checksum(self._frames) == int(state["checksum"])
        self._ends = bool(state["ends"]) or not same
        return same

    def close(self) -> None:
        """Release the environment."""
        self.environment.close()


def _checksum(frames: np.ndarray) -> int:
    return zlib.crc32(np.ascontiguousarray(frames).tobytes())
