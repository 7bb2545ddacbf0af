"""Rounds of episodes: all copies of an environment begin together, step by step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from conqur.environments.interface import VectorEnvironment
from conqur.evaluation.acting import act, checked_actions, episode_seeds
from conqur.evaluation.episodes import Budget, Play
from conqur.policies import Policies

REPORT_EVERY = 100
"""Steps between two reports of progress."""
FEW, FEW_PICTURES = 16, 4
"""So many games are not worth another compiled program for fewer. For networks that see pictures it
pays sooner: on a CPU, from 16 games to 4, after about a thousand steps of Nature's."""


def play_round(
    q: Callable[[Any], Any],
    environment: VectorEnvironment,
    earlier: Play,
    budget: Budget,
    epsilon: float,
    seed: int,
    on_progress: Callable[[float], None],
) -> Play:
    """Play the next E episodes of each policy, and add them to the earlier ones."""
    spec = environment.spec
    policies, first = earlier.lengths.shape
    copies = environment.num_envs // policies
    seeds, keys = episode_seeds(seed, range(first, first + copies))
    frames, reset = environment.reset(seeds * policies), np.ones(environment.num_envs, bool)
    few = FEW if len(spec.observation_shape) == 1 else FEW_PICTURES
    table = _Table(
        q=q,
        copies=np.arange(environment.num_envs).reshape(policies, copies),
        observations=jnp.zeros((policies, copies, *spec.observation_shape), spec.frame_dtype),
        keys=jnp.broadcast_to(keys, (policies, copies)),
    )
    now = Play.nothing(policies, copies)
    play = earlier.followed_by(now)
    actions = np.zeros(environment.num_envs, np.int32)
    time = 0
    while (going_on := budget.pending(play)[:, first:]).any():
        environment.rest(np.ravel(~going_on))
        table = table.smaller(going_on, few)
        everything = table.copies.size == environment.num_envs
        seen = slice(None) if everything else np.ravel(table.copies)
        observations, chosen, _ = act(
            table.q,
            spec,
            table.observations,
            frames[seen],
            reset[seen],
            table.keys,
            np.int32(time),
            np.float32(epsilon),
        )
        table = table._replace(observations=observations)
        actions[seen] = checked_actions(chosen)
        step = environment.step(actions)
        frames, reset = step.frame, step.reset
        now = now.after(step.reward[None], step.game_over[None])
        play = earlier.followed_by(now)
        if time % REPORT_EVERY == 0:
            on_progress(float(budget.progress(play).mean()))
        time += 1
    return play


class _Table(NamedTuple):
    """The games that are looked at: as many of every policy that has some."""

    q: Callable[[Any], Any]
    """The policies that have some."""
    copies: Int[np.ndarray, "K E"]
    """Their places in the environment."""
    observations: Array
    """[K, E, *observation_shape]."""
    keys: Key[Array, "K E"]

    def smaller(self, going_on: Bool[np.ndarray, "P C"], few: int) -> "_Table":
        """A quarter of the policies if there is room for all that go on, as often as there is.

        The same for every policy's games. Policies can only be left out of `Policies`.

        Args:
            going_on: which of all copies have to go on.
            few: with so many games the table stays as it is.
        """
        wanted = np.ravel(going_on)[self.copies]
        if wanted.size <= few:
            return self
        rows = _quarter(wanted.any(axis=1))
        if isinstance(self.q, Policies) and len(rows) < len(wanted):
            return self.of(self.q.some(rows), rows).smaller(going_on, few)
        games = wanted.shape[1]
        quarter = -(-games // 4)
        if quarter < games and wanted.sum(axis=1).max() <= quarter:
            kept = np.argsort(~wanted, axis=1, kind="stable")[:, :quarter]
            table = self.of(self.q, np.arange(len(wanted))[:, None], kept)
            return table.smaller(going_on, few)
        return self

    def of(self, q: Callable[[Any], Any], *places: Int[np.ndarray, "..."]) -> "_Table":
        """Only some of the games, of the policies in `q`."""
        return _Table(q, self.copies[places], self.observations[places], self.keys[places])


def _quarter(wanted: Bool[np.ndarray, " K"]) -> Int[np.ndarray, " J"]:
    """The places of a quarter with all that are wanted; of all where that has no room."""
    quarter = -(-len(wanted) // 4)
    if wanted.sum() > quarter:
        return np.arange(len(wanted))
    return np.sort(np.argsort(~wanted, kind="stable")[:quarter])
