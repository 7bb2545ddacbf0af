"""`evaluate`, and what it finds."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from conqur import _checks, statistics
from conqur.environments.interface import VectorEnvironment
from conqur.environments.jax_env import HostedJax
from conqur.evaluation.compiled import play_compiled
from conqur.evaluation.episodes import Budget, Play
from conqur.evaluation.rounds import play_round


@dataclass(frozen=True)
class Evaluation:
    """What one policy scored.

    Attributes:
        scores: the undiscounted, unclipped return of each episode, by the episode's number.
        lengths: the episodes' steps (decisions).
        frames: of the game, in all these episodes.
        finished: whether all of them came to their end; those that were broken off after `PATIENCE`
            steps count with what they had reached.
    """

    scores: tuple[float, ...]
    lengths: tuple[int, ...]
    frames: int
    finished: bool = True

    @property
    def mean(self) -> float:
        """The mean score."""
        return float(np.mean(self.scores))

    @property
    def median(self) -> float:
        """The median score."""
        return float(np.median(self.scores))

    @property
    def standard_error(self) -> float:
        """The standard error of the mean score; NaN for a single episode."""
        return statistics.standard_error(self.scores)

    @property
    def interval(self) -> tuple[float, float]:
        """The 95 % interval of the mean score, see `statistics.bootstrap_interval`."""
        return statistics.bootstrap_interval(self.scores)

    def to_json(self, *, human_normalised: float | None = None) -> dict[str, Any]:
        """As a JSON object, where null stands for what is not known.

        Args:
            human_normalised: the mean score on the scale of an Atari game's human score, if any.
        """
        return {
            "mean": self.mean,
            "median": self.median,
            "standard_error": _known(self.standard_error),
            "interval": [_known(bound) for bound in self.interval],
            "human_normalised": human_normalised,
            "frames": self.frames,
            "finished": self.finished,
            "episodes": list(self.scores),
            "lengths": list(self.lengths),
        }


def evaluate(
    q: Callable[[Any], Any],
    environment: VectorEnvironment,
    *,
    policies: int = 1,
    episodes: int | None = None,
    frames: int | None = None,
    frame_skip: int = 1,
    epsilon: float = 0.001,
    seed: int = 0,
    on_progress: Callable[[float], None] = lambda done: None,
) -> tuple[Evaluation, ...]:
    """Play `policies` ε-greedy policies beside one another; one `Evaluation` for each.

    Episodes are played in rounds: all copies begin together and those that are done rest until all
    are; where games compile, a copy that is done begins its policy's next episode. Which episodes
    count is a matter of their numbers, so none is counted because it was short. With `frames`, a
    policy plays its episodes 0, 1, 2, … until their frames come to that many, and the one that
    crosses the line is played to its end and counted, as in Dopamine: leaving it out would leave
    out the long ones. No-op starts and time limits are the environment's; without such a limit an
    episode is broken off after `PATIENCE` steps, and counted.

    Args:
        q: from observations [K, E, *observation_shape] to Q-values [K, E, A], in JAX: policy k
            answers for [k]. As an equinox module or a `jax.tree_util.Partial` with arrays as
            arguments it is compiled once for all calls; a plain function anew for each function.
            Of `conqur.policies.Policies`, most of those whose games are over are no longer
            asked.
        environment: of K·E copies, with any E; all are reset, and again between rounds. Where games
            compile, it is not touched: they are played inside of a program.
        policies: K.
        episodes: how many each policy plays.
        frames: how many each policy plays, if `episodes` do not end it before. At least one of the
            two has to be given; the paper's 500,000 are 125,000 steps of Atari games.
        frame_skip: how many frames of the game a step is: 4 in Atari games.
        epsilon: the probability of a random action.
        seed: of the episodes.
        on_progress: told now and then how much is done, from 0 to 1.
    """
    _checks.count("policies", policies)
    _checks.number("epsilon", epsilon, at_least=0, at_most=1)
    _checks.count("seed", seed, at_least=0)
    budget = Budget.of(episodes, frames, frame_skip)
    if environment.num_envs % policies:
        raise ValueError(
            f"environment has {environment.num_envs} copies, which {policies} policies cannot "
            f"share evenly: make it with a multiple of {policies}"
        )
    if isinstance(environment, HostedJax):
        play = play_compiled(q, environment, policies, budget, epsilon, seed, on_progress)
    else:
        play = Play.nothing(policies)
        while not budget.spent(play):
            play = play_round(q, environment, play, budget, epsilon, seed, on_progress)
    on_progress(1.0)
    return _evaluations(play, budget, frame_skip)


def _evaluations(play: Play, budget: Budget, frame_skip: int) -> tuple[Evaluation, ...]:
    evaluations = []
    for scores, lengths, needed, finished in zip(
        play.scores, play.lengths, budget.needed(play), play.finished, strict=True
    ):
        evaluations.append(
            Evaluation(
                scores=tuple(scores[needed].tolist()),
                lengths=tuple(lengths[needed].tolist()),
                frames=int(lengths[needed].sum()) * frame_skip,
                finished=bool(finished[needed].all()),
            )
        )
    return tuple(evaluations)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
