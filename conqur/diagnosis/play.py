"""What heads promise and what their greedy policies earn, in the same states."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from conqur.environments.interface import VectorEnvironment
from conqur.evaluation.acting import act, checked_actions, episode_seeds

CUT = 0.05
"""The most that what follows a cut may weigh in a return."""
MOST_STEPS = 2_000
"""Of an episode; then it is cut."""

REPORT_EVERY = 250
"""Steps between two announcements."""


@dataclass(frozen=True, eq=False)
class Worth:
    """What one head promises and earns in the states it visits.

    Where an episode was cut, what would have followed is taken to be worth what the head says it
    is. That hides overestimation there, so states where it would weigh more than `CUT` are left
    out; in the others at most that share of it is hidden.

    Attributes:
        promises: the Q-labels r + γ max Q(s', ·) that the head gives: each episode's part in
            their mean over states, so that the mean of the parts is that mean.
        earnings: the same of the discounted rewards that it went on to get from there.
        scores: undiscounted and unclipped, of each episode; the same starts for all heads.
        cut: episodes that were cut, by a time limit or after `MOST_STEPS`.
    """

    promises: tuple[float, ...]
    earnings: tuple[float, ...]
    scores: tuple[float, ...]
    cut: int

    @property
    def promised(self) -> float:
        """The mean label; NaN if no state can be counted."""
        return _mean(self.promises)

    @property
    def earned(self) -> float:
        """The mean return; NaN if no state can be counted."""
        return _mean(self.earnings)

    @property
    def excess(self) -> float:
        """`promised` − `earned`."""
        return self.promised - self.earned

    @property
    def score(self) -> float:
        """The mean score."""
        return _mean(self.scores)


class Record(NamedTuple):
    """Episodes of N copies of an environment, step by step."""

    rewards: Float[np.ndarray, "T N"]
    terminal: Bool[np.ndarray, "T N"]
    over: Bool[np.ndarray, "T N"]
    reset: Bool[np.ndarray, "T N"]
    """Steps that only begin anew after a lost life, and belong to no life."""
    best: Float[np.ndarray, "T1 N"]
    """max Q(s, ·), one more than there are steps."""


def play(
    q: Any,
    environment: VectorEnvironment,
    *,
    policies: int,
    discount: float,
    clip_rewards: bool,
    seed: int,
    epsilon: float = 0.001,
    most_steps: int = MOST_STEPS,
    announce: Callable[[str], None] = lambda words: None,
) -> tuple[Worth, ...]:
    """Play with heads, one episode in every copy of the environment, on common starts.

    Args:
        q: of all policies, see `conqur.evaluation.evaluate`.
        environment: with as many copies for each policy as there shall be episodes.
        policies: K.
        discount: γ.
        clip_rewards: to [−1, 1], as labels are made.
        seed: of the starts.
        epsilon: the probability of a random action.
        most_steps: then an episode is cut.
        announce: told now and then how far it is.
    """
    record = _recorded(q, environment, policies, seed, epsilon, most_steps, announce)
    episodes = [episode(record, i) for i in range(environment.num_envs)]
    copies = environment.num_envs // policies
    return tuple(
        worth(episodes[first : first + copies], discount=discount, clip_rewards=clip_rewards)
        for first in range(0, environment.num_envs, copies)
    )


class Episode(NamedTuple):
    """One episode of T steps; `best` is one longer than the rest.

    Steps before the last are terminal where something is the end of a game for those who learn,
    as the loss of a life is.
    """

    rewards: Float[np.ndarray, " T"]
    terminal: Bool[np.ndarray, " T"]
    best: Float[np.ndarray, " T1"]
    cut: bool
    score: float
    """With what was earned while beginning anew after a lost life."""


def episode(record: Record, i: int) -> Episode:
    """The first episode of a copy."""
    over = np.flatnonzero(record.over[:, i])
    length = int(over[0]) + 1 if len(over) else len(record.over)
    counted = np.flatnonzero(~record.reset[:length, i])
    terminal = record.terminal[counted, i]
    # What is best after a terminal step, at the end of a life, does not count.
    best = record.best[np.append(counted, length), i]
    cut = not (len(over) and terminal[-1])
    score = float(record.rewards[:length, i].sum())
    return Episode(record.rewards[counted, i], terminal, best, cut, score)


def worth(episodes: list[Episode], *, discount: float, clip_rewards: bool) -> Worth:
    """What episodes of one head come to."""
    sums = []
    for one in episodes:
        rewards = np.clip(one.rewards, -1, 1) if clip_rewards else one.rewards
        settled = int(np.flatnonzero(one.terminal)[-1]) + 1 if one.terminal.any() else 0
        usable = max(settled, len(rewards) - horizon(discount))
        labels = rewards + discount * one.best[1:] * ~one.terminal
        found = returns(rewards, one.terminal, discount, beyond=one.best[-1])
        sums.append((labels[:usable].sum(), found[:usable].sum(), usable))
    promised, earned, states = np.array([each for each in sums if each[2]]).reshape(-1, 3).T
    return Worth(
        promises=_parts(promised, states),
        earnings=_parts(earned, states),
        scores=tuple(one.score for one in episodes),
        cut=sum(one.cut for one in episodes),
    )


def returns(
    rewards: Float[np.ndarray, " T"],
    terminal: Bool[np.ndarray, " T"],
    discount: float,
    *,
    beyond: float,
) -> Float[np.ndarray, " T"]:
    """The discounted return from every step on; `beyond` follows the last, if it was a cut."""
    found = np.append(np.zeros(len(rewards)), beyond)
    for t in reversed(range(len(rewards))):
        found[t] = rewards[t] + discount * found[t + 1] * (not terminal[t])
    return found[:-1]


def horizon(discount: float) -> int:
    """After how many steps what follows weighs no more than `CUT`."""
    if discount >= 1:
        return 2**31
    return 1 if discount <= CUT else math.ceil(math.log(CUT) / math.log(discount))


def _recorded(
    q: Any,
    environment: VectorEnvironment,
    policies: int,
    seed: int,
    epsilon: float,
    most_steps: int,
    announce: Callable[[str], None],
) -> Record:
    spec, count = environment.spec, environment.num_envs
    copies = count // policies
    seeds, keys = episode_seeds(seed, range(copies))
    keys = jnp.broadcast_to(keys, (policies, copies))
    frames, reset = environment.reset(seeds * policies), np.ones(count, bool)
    observations = jnp.zeros((policies, copies, *spec.observation_shape), spec.frame_dtype)
    rows: list[Any] = []
    best: list[Any] = []
    done = np.zeros(count, bool)
    for time in range(most_steps + 1):
        if time % REPORT_EVERY == 0:
            announce(f"playing, step {time} of {most_steps} at most")
        observations, chosen, q_values = act(
            q, spec, observations, frames, reset, keys, np.int32(time), np.float32(epsilon)
        )
        best.append(np.asarray(q_values, np.float64).max(axis=-1).ravel())
        if done.all() or time == most_steps:
            break
        step = environment.step(checked_actions(chosen))
        frames, reset = step.frame, step.reset
        row = (step.reward, step.terminal, step.game_over, step.reset)
        rows.append(tuple(np.array(values) for values in row))
        done |= step.game_over
        environment.rest(done)
    rewards, terminal, over, new = (np.stack(values) for values in zip(*rows, strict=True))
    return Record(rewards.astype(np.float64), terminal, over, new, np.stack(best))


def _parts(sums: Float[np.ndarray, " E"], states: Float[np.ndarray, " E"]) -> tuple[float, ...]:
    """Each episode's part in a mean over states, Σ sums / Σ states: their mean is that mean.

    They spread as much as the ratio varies with the episodes that are drawn.
    """
    if not len(states):
        return ()
    ratio = sums.sum() / states.sum()
    return tuple((ratio + (sums - ratio * states) / states.mean()).tolist())


def _mean(values: Any) -> float:
    return float(np.mean(values)) if len(values) else math.nan
