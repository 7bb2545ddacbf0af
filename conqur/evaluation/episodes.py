"""Episodes by their numbers, and which of them count."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from conqur import _checks

PATIENCE = 27_000
"""The most steps of an episode, where no time limit ends it before: the paper's 108,000 frames."""


class Play(NamedTuple):
    """The episodes of K policies by their numbers, so far."""

    scores: Float[np.ndarray, "K I"]
    lengths: Int[np.ndarray, "K I"]
    finished: Bool[np.ndarray, "K I"]

    @classmethod
    def nothing(cls, policies: int, episodes: int = 0) -> "Play":
        """Episodes of which no step was played."""
        shape = (policies, episodes)
        return cls(np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, bool))

    @property
    def over(self) -> Bool[np.ndarray, "K I"]:
        """Which came to their end or were broken off."""
        return self.finished | (self.lengths >= PATIENCE)

    def after(
        self, rewards: Float[np.ndarray, "T N"], game_over: Bool[np.ndarray, "T N"]
    ) -> "Play":
        """After T steps, of which those after a game's end do not count."""
        rewards, game_over = (x.reshape(-1, *self.scores.shape) for x in (rewards, game_over))
        ended = np.logical_or.accumulate(game_over, axis=0)
        earlier = np.concatenate([np.zeros_like(ended[:1]), ended[:-1]])
        times = self.lengths + np.arange(len(rewards)).reshape(-1, 1, 1)
        counts = ~(self.finished | earlier) & (times < PATIENCE)
        return Play(
            scores=self.scores + np.where(counts, rewards, 0.0).sum(axis=0, dtype=np.float64),
            lengths=self.lengths + counts.sum(axis=0),
            finished=self.finished | (game_over & counts).any(axis=0),
        )

    def of(self, numbers: Int[np.ndarray, "K E"]) -> "Play":
        """Some episodes of each policy."""
        return Play(*(np.take_along_axis(values, numbers, axis=1) for values in self))

    def put(self, numbers: Int[np.ndarray, "K E"], some: "Play") -> None:
        """Write down some episodes of each policy."""
        for values, others in zip(self, some, strict=True):
            np.put_along_axis(values, numbers, others, axis=1)

    def followed_by(self, later: "Play") -> "Play":
        """These episodes and later ones."""
        return Play(*(np.concatenate(both, axis=1) for both in zip(self, later, strict=True)))


class Budget(NamedTuple):
    """How many episodes and how many steps a policy plays; infinity where it does not matter."""

    episodes: float
    steps: float

    @classmethod
    def of(cls, episodes: int | None, frames: int | None, frame_skip: int) -> "Budget":
        """From what `evaluate` is told."""
        _checks.count("frame_skip", frame_skip)
        if episodes is None and frames is None:
            raise ValueError("episodes or frames must say how much to play")
        return cls(
            episodes=math.inf if episodes is None else _checks.count("episodes", episodes),
            steps=math.inf if frames is None else _checks.count("frames", frames) / frame_skip,
        )

    def needed(self, play: Play) -> Bool[np.ndarray, "K I"]:
        """Which episodes count: they do if those before them left something of the budget."""
        steps_before = np.cumsum(play.lengths, axis=1) - play.lengths
        return (np.arange(play.lengths.shape[1]) < self.episodes) & (steps_before < self.steps)

    def pending(self, play: Play) -> Bool[np.ndarray, "K I"]:
        """Which episodes have to go on."""
        return self.needed(play) & ~play.over

    def goes_on(self, policy: int, number: int, play: Play) -> bool:
        """Whether a policy plays an episode after those it began, its first `number`."""
        return number < self.episodes and int(play.lengths[policy].sum()) < self.steps

    def progress(self, play: Play) -> Float[np.ndarray, " K"]:
        """How much of the budget each policy used."""
        episodes = (self.needed(play) & play.over).sum(axis=1) / self.episodes
        steps = play.lengths.sum(axis=1) / self.steps
        return np.minimum(1.0, np.maximum(episodes, steps))

    def spent(self, play: Play) -> bool:
        """Whether all policies used their budget."""
        return bool((self.progress(play) == 1).all())
