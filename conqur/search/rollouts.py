"""Playing with nodes: all of them beside one another, on common starts, with one body pass a step.

Returns spread far wider over starts than nodes differ, so nodes are only ever compared on the same
starts, by the differences.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float, Int

from conqur.environments.interface import VectorEnvironment
from conqur.environments.jax_env import HostedJax
from conqur.evaluation import Evaluation, evaluate
from conqur.policies import Policies
from conqur.search.approximator import Approximator
from conqur.search.saving import digest

MOST_COPIES = 256
"""Copies of the environment that are played at once."""
COMPILED_ON_CPU, COMPILED = 64, 1024
"""The same of games that compile, which play without a pause: a CPU is busy with few of them; on
accelerators a step of many takes about as long."""
LARGEST = 1e15
"""Weights beyond this make values that 32 bits do not hold."""


class Round(NamedTuple):
    """What was played in a round of successive halving.

    Attributes:
        scores: of every regressor that was not out yet, episode by episode.
        frames: of the game, in all.
    """

    scores: Sequence[Sequence[float]]
    frames: int


class Standing(NamedTuple):
    """What one of many regressors scored before it was out."""

    mean: float
    episodes: int


class Players(Policies):
    """K nodes as one function for `conqur.evaluation.evaluate`."""

    approximator: Approximator
    thetas: Any
    """With an axis K."""

    @classmethod
    def of(cls, approximator: Approximator, thetas: Sequence[Any]) -> "Players":
        """Nodes, by their regressors."""
        axes = approximator.node_axes(thetas[0])
        stacked = jax.tree.map(lambda axis, *leaves: np.stack(leaves, axis), axes, *thetas)
        return cls(approximator, jax.device_put(stacked))

    def __call__(self, observations: Array) -> Float[Array, "K E A"]:
        """Q-values of observations [K, E, ...]: node k answers for [k]."""
        policies, copies = observations.shape[:2]
        rows = observations.reshape(policies * copies, *observations.shape[2:])
        features = self.approximator.embed(rows)
        features = features.reshape(policies, copies, *features.shape[1:])
        axes = self.approximator.node_axes(self.thetas)
        return jax.vmap(self.approximator.predict, (axes, 0))(self.thetas, features)

    def some(self, places: Int[np.ndarray, " J"]) -> "Players":
        """Those in these places."""
        axes = self.approximator.node_axes(self.thetas)
        thetas = jax.tree.map(lambda axis, leaf: leaf.take(places, axis), axes, self.thetas)
        return Players(self.approximator, thetas)


class Rollouts:
    """Plays episodes with any number of regressors.

    Attributes:
        frames: of the game, in all that was played so far.
        watch: told now and then how much of what is being played is done, from 0 to 1.
    """

    def __init__(
        self,
        approximator: Approximator,
        make: Callable[[int], VectorEnvironment],
        *,
        frame_skip: int,
        epsilon: float = 0.001,
    ) -> None:
        """Play in an environment.

        Args:
            approximator: shared by all regressors.
            make: so many copies of the environment.
            frame_skip: frames of the game in a step.
            epsilon: the probability of a random action.
        """
        self._approximator, self._make = approximator, make
        self._frame_skip, self._epsilon = frame_skip, epsilon
        self._environment_now: VectorEnvironment | None = None
        self.frames = 0
        self.watch: Callable[[float], None] = lambda done: None

    def play(
        self,
        thetas: Sequence[Any],
        *,
        episodes: int,
        seed: int,
    ) -> list[Evaluation]:
        """What each regressor scores, all on the same starts.

        Those that are the same, as all copies of a checkpoint, play once.

        Args:
            thetas: the regressors.
            episodes: how many each plays.
            seed: of the starts.
        """
        names = [digest(theta) for theta in thetas]
        different = dict(zip(names, thetas, strict=True))
        played = self._play(list(different.values()), episodes, seed)
        by_name = dict(zip(different, played, strict=True))
        return [by_name[name] for name in names]

    def gains(self, root: Any, thetas: Sequence[Any], *, episodes: int, seed: int) -> list[float]:
        """By how much each regressor scores more than the root on the same starts, on average.

        One that diverged gains −∞.
        """
        whole = [theta for theta in thetas if is_finite(theta)]
        first, *others = self.play([root, *whole], episodes=episodes, seed=seed)
        found = iter(others)
        return [next(found).mean - first.mean if is_finite(t) else -math.inf for t in thetas]

    def best_of(
        self,
        thetas: Sequence[Any],
        *,
        episodes: int,
        seed: int,
        budget: int | None = None,
        before: Sequence[Round] = (),
        keep: Callable[[Sequence[Round]], None] = lambda rounds: None,
    ) -> tuple[int, list[Standing]]:
        """Which regressor is best, with few episodes, and what each scored: successive halving.

        All play; the better half plays twice as many, on fresh starts, and so on until one is
        left. Those that are out are not played again; scores are over all starts so far, which
        those that are left have in common.

        Args:
            thetas: the regressors.
            episodes: how many each plays in the first round.
            seed: of the starts; every round has others.
            budget: the most episodes of a regressor in a round.
            before: the first rounds, if they were played before.
            keep: told all rounds so far after each that is played.
        """
        alive = list(range(len(thetas)))
        scores: list[list[float]] = [[] for _ in thetas]
        rounds: list[Round] = []
        schedule = _schedule(len(thetas), episodes, budget)
        total, done, watch = sum(n * e for n, e in schedule), 0, self.watch
        for turn, (left, each) in enumerate(schedule):
            if turn < len(before) and [len(own) for own in before[turn].scores] == [each] * left:
                self.frames += before[turn].frames
                rounds.append(before[turn])
            else:
                before, frames = (), self.frames
                self.watch = _part_of(watch, done / total, left * each / total)
                try:
                    played = self.play([thetas[i] for i in alive], episodes=each, seed=seed + turn)
                finally:
                    self.watch = watch
                scored = [evaluation.scores for evaluation in played]
                rounds.append(Round(scored, self.frames - frames))
                keep(tuple(rounds))
            for i, own in zip(alive, rounds[-1].scores, strict=True):
                scores[i] += own
            alive.sort(key=lambda i: (-float(np.mean(scores[i])), i))
            alive = alive[: max(1, left // 2)]
            done += left * each
        means = [float(np.mean(found)) if found else math.nan for found in scores]
        return alive[0], [Standing(m, len(s)) for m, s in zip(means, scores, strict=True)]

    def close(self) -> None:
        """Release the environments."""
        if self._environment_now is not None:
            self._environment_now.close()
            self._environment_now = None

    def _play(self, thetas: Sequence[Any], episodes: int, seed: int) -> list[Evaluation]:
        at_once, copies = self._seats(len(thetas), episodes)
        environment = self._environment(at_once * copies)
        found: list[Evaluation] = []
        for first in range(0, len(thetas), at_once):
            part = list(thetas[first : first + at_once])
            padded = [*part, *[part[0]] * (at_once - len(part))]
            part_of = _part_of(self.watch, first / len(thetas), at_once / len(thetas))
            found += evaluate(
                Players.of(self._approximator, padded),
                environment,
                policies=at_once,
                episodes=episodes,
                frame_skip=self._frame_skip,
                epsilon=self._epsilon,
                seed=seed,
                on_progress=part_of,
            )[: len(part)]
        self.frames += sum(evaluation.frames for evaluation in found)
        return found

    def _environment(self, copies: int) -> VectorEnvironment:
        """So many copies; copies that were made stay for what is played next where that can be."""
        if self._environment_now is None or not self._environment_now.resize(copies):
            self.close()
            self._environment_now = self._make(copies)
        return self._environment_now

    def _seats(self, thetas: int, episodes: int) -> tuple[int, int]:
        """How many regressors are played at once, and in how many copies of the game each."""
        if self._environment_now is None:
            self._environment_now = self._make(1)
        if isinstance(self._environment_now, HostedJax):
            most = COMPILED_ON_CPU if jax.default_backend() == "cpu" else COMPILED
            at_once = _rounded(_even_parts(thetas, most))
            return at_once, min(episodes, most // at_once)
        copies = min(episodes, MOST_COPIES)
        return _even_parts(thetas, max(1, MOST_COPIES // copies)), copies


def is_finite(theta: Any) -> bool:
    """Whether a regressor gives values that are numbers: one that diverged does not."""
    return all(bool((np.abs(leaf) < LARGEST).all()) for leaf in jax.tree.leaves(theta))


def _even_parts(count: int, most: int) -> int:
    """The size of parts, as even as it goes: what is missing in the last one is played, too."""
    return -(-count // -(-count // most))


def _rounded(count: int) -> int:
    """Up to the next of 1, 2, …, 8, 10, …, 16, 20, …: each number has its own compiled program."""
    step = max(1, 2 ** (count - 1).bit_length() // 8)
    return -(-count // step) * step


def _schedule(regressors: int, episodes: int, budget: int | None) -> list[tuple[int, int]]:
    """Of successive halving: how many regressors play in each round, and how many episodes."""
    schedule = []
    while regressors > 1:
        schedule.append((regressors, episodes))
        regressors = max(1, regressors // 2)
        episodes = min(2 * episodes, budget or 2 * episodes)
    return schedule


def _part_of(
    on_progress: Callable[[float], None], begin: float, share: float
) -> Callable[[float], None]:
    """Progress of a part of all that is played."""
    return lambda done: on_progress(min(1.0, begin + done * share))
