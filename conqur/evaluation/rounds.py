"""Rounds of episodes: all copies of an environment begin together, step by step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from conqur.environments.interface import VectorEnvironment
from conqur.evaluation.acting import act, checked_actions, episode_seeds
from conqur.evaluation.episodes import Budget, Play

REPORT_EVERY = 100
"""Steps between two reports of progress."""
FEW = 16
"""So many games are not worth another compiled program for fewer."""


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
    table = _Table(
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
        table = table.smaller(going_on)
        everything = table.copies.size == environment.num_envs
        seen = slice(None) if everything else np.ravel(table.copies)
        observations, chosen, _ = act(
            q,
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
    """The games that are looked at: as many of every policy."""

    copies: Int[np.ndarray, "K E"]
    """Their places in the environment."""
    observations: Array
    """[K, E, *observation_shape]."""
    keys: Key[Array, "K E"]

    def smaller(self, going_on: Bool[np.ndarray, "K C"]) -> "_Table":
        """A quarter of it, if all games that go on have room there.

        Args:
            going_on: which of all copies have to go on.
        """
        policies, size = self.copies.shape
        wanted = np.ravel(going_on)[self.copies]
        quarter = -(-size // 4)
        full = wanted.sum(axis=1).max() > quarter
        if full or quarter == size or policies * size <= FEW:
            return self
        kept = np.argsort(~wanted, axis=1, kind="stable")[:, :quarter]
        places = (np.arange(policies)[:, None], kept)
        return _Table(self.copies[places], self.observations[places], self.keys[places])
