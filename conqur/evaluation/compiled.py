"""Play of games that compile: inside of a program, and without a pause."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from conqur.environments.interface import JaxEnvironment
from conqur.environments.jax_env import HostedJax, begin_games, step_games
from conqur.evaluation.acting import act, checked_actions, episode_seeds
from conqur.evaluation.episodes import Budget, Play

AT_ONCE = 32
"""Steps in one dispatch; the next episode of a copy begins after it."""


def play_compiled(
    q: Callable[[Any], Any],
    environment: HostedJax,
    policies: int,
    budget: Budget,
    epsilon: float,
    seed: int,
    on_progress: Callable[[float], None],
) -> Play:
    """Play the episodes of games that compile: a copy begins its policy's next one after another.

    What is over is played on until the end of its dispatch, and not counted.
    """
    game = environment.environment
    shape = (policies, environment.num_envs // policies)
    numbers = np.tile(np.arange(shape[1]), (policies, 1))
    begun = [shape[1]] * policies
    play = Play.nothing(*shape)
    keys = _keys(seed, numbers)
    games = _begin(game, keys)
    while budget.pending(play).any():
        games, (chosen, rewards, game_over) = _many_steps(q, game, keys, games, np.float32(epsilon))
        checked_actions(chosen)
        now = play.of(numbers).after(np.asarray(rewards), np.asarray(game_over))
        play.put(numbers, now)
        fresh = np.zeros(shape, bool)
        for policy, copy in np.argwhere(now.over).tolist():
            if budget.goes_on(policy, begun[policy], play):
                numbers[policy, copy] = begun[policy]
                begun[policy] += 1
                fresh[policy, copy] = True
        if fresh.any():
            play = play.followed_by(Play.nothing(policies, max(begun) - play.scores.shape[1]))
            keys = _keys(seed, numbers)
            games = _where(np.ravel(fresh), _begin(game, keys), games)
        on_progress(float(budget.progress(play).mean()))
    return play


class _Games(NamedTuple):
    """The games that are played inside of a program, one in each copy."""

    observations: Array
    """[N, *observation_shape], before the newest frames."""
    episodes: Any
    frames: Array
    reset: Bool[Array, " N"]
    time: Int[Array, " N"]
    """How many steps each has had."""


class _Keys(NamedTuple):
    """Of the episodes that are played: of ε-greedy play, and of the games."""

    acting: Key[Array, "K E"]
    playing: Key[Array, " N"]


def _keys(seed: int, numbers: Int[np.ndarray, "K E"]) -> _Keys:
    different, places = np.unique(numbers, return_inverse=True)
    seeds, acting = episode_seeds(seed, different.tolist())
    playing = jax.vmap(jax.random.key)(np.array(seeds, np.uint32))
    return _Keys(acting[places.reshape(numbers.shape)], playing[np.ravel(places)])


@eqx.filter_jit
def _begin(environment: JaxEnvironment[Any], keys: _Keys) -> _Games:
    """New episodes, by their keys."""
    copies, spec = keys.playing.shape[0], environment.spec
    episodes, frames = begin_games(environment, keys.playing)
    return _Games(
        observations=jnp.zeros((copies, *spec.observation_shape), spec.frame_dtype),
        episodes=episodes,
        frames=frames,
        reset=jnp.ones(copies, bool),
        time=jnp.zeros(copies, jnp.int32),
    )


@jax.jit
@jax.vmap
def _where(fresh: Bool[Array, ""], new: _Games, old: _Games) -> _Games:
    return jax.tree.map(partial(jnp.where, fresh), new, old)


@eqx.filter_jit
def _many_steps(
    q: Callable[[Any], Any],
    environment: JaxEnvironment[Any],
    keys: _Keys,
    games: _Games,
    epsilon: Any,
) -> tuple[_Games, tuple[Int[Array, "T N"], Float[Array, "T N"], Bool[Array, "T N"]]]:
    """`AT_ONCE` steps of all games: where they are then; actions, rewards, games over."""
    rows, spec = keys.acting.shape, environment.spec

    def step(games: _Games, nothing: None) -> Any:
        before = games.observations.reshape(*rows, *spec.observation_shape)
        time = games.time.reshape(rows)
        seen, actions, _ = act(
            q, spec, before, games.frames, games.reset, keys.acting, time, epsilon
        )
        now = games.time + 1
        episodes, found = step_games(environment, keys.playing, now, games.episodes, actions)
        observations = seen.reshape(games.observations.shape)
        games = _Games(observations, episodes, found.frame, found.reset, now)
        return games, (actions, found.reward, found.game_over)

    return jax.lax.scan(step, games, length=AT_ONCE)
