"""Batches of environments that compile: a level's play is one program.

What `conqur.search.collecting` does step by step, for one group of environments, with the same
random numbers, without the host.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from conqur.dqn import epsilon_greedy
from conqur.environments.interface import JaxEnvironment, Spec, Transitions, VectorEnvironment, push
from conqur.environments.jax_env import HostedJax, step_games
from conqur.environments.journal import Journal
from conqur.runs import flatten, unflatten
from conqur.runs.tree import key_data, like_key
from conqur.search.approximator import Approximator
from conqur.search.batches import Batch, Batches, check_features
from conqur.search.collecting import (
    Collector,
    exploration_key,
    group_seeds,
    in_groups,
    most_rows,
)


def collector(
    approximator: Approximator,
    make: Callable[[int], VectorEnvironment],
    num_envs: int,
    *,
    transitions: int,
    epsilon: float,
    clip_rewards: bool,
    seed: int,
) -> Batches:
    """What collects batches from copies of an environment: a program if the environment compiles.

    Args:
        approximator: embeds and predicts.
        make: so many copies of the environment.
        num_envs: copies in all.
        transitions: n, in a batch.
        epsilon: of ε-greedy exploration.
        clip_rewards: to [−1, 1].
        seed: of the environments and of exploration.
    """
    settings: dict[str, Any] = {
        "transitions": transitions,
        "epsilon": epsilon,
        "clip_rewards": clip_rewards,
        "seed": seed,
    }
    one = make(1)
    one.close()
    if isinstance(one, HostedJax):
        return CompiledCollector(approximator, one.environment, num_envs, **settings)
    return Collector(approximator, in_groups(make, num_envs, seed=seed), **settings)


class Games(NamedTuple):
    """E games under way.

    Attributes:
        episodes: their states.
        observations: the newest ones, [E, ...].
        features: φ of those, [E, ...].
        first: where they are the first ones of their episodes, [E].
        time: steps since the beginning.
    """

    episodes: Any
    observations: Array
    features: Array
    first: Bool[Array, " E"]
    time: Int[Array, ""]


class Rows(NamedTuple):
    """What R steps of E games gave; features have a row more, that of the last successors."""

    features: Float[Array, "R_and_1 E *features"]
    actions: Int[Array, "R E"]
    rewards: Float[Array, "R E"]
    terminal: Bool[Array, "R E"]
    initial: Bool[Array, "R E"]
    valid: Bool[Array, "R E"]
    game_over: Bool[Array, "R E"]


class CompiledCollector(Batches):
    """Collects batches from copies of a `JaxEnvironment`.

    Attributes:
        spec: of the environment.
    """

    spec: Spec

    def __init__(
        self,
        approximator: Approximator,
        environment: JaxEnvironment[Any],
        num_envs: int,
        *,
        transitions: int,
        epsilon: float,
        clip_rewards: bool,
        seed: int,
    ) -> None:
        """Collect with copies of an environment; the arguments are those of `collector`."""
        self.spec = environment.spec
        self._approximator, self._environment = approximator, environment
        self._transitions, self._epsilon, self._clip = transitions, epsilon, clip_rewards
        self._key = exploration_key(seed)
        hosted = HostedJax(environment, num_envs)
        frames = Journal(hosted, group_seeds(seed, 1)).begin()
        self._keys, episodes = hosted.under_way()
        observations = jnp.zeros((num_envs, *self.spec.observation_shape), self.spec.frame_dtype)
        first = jnp.ones(num_envs, bool)
        observations = push(self.spec, observations, jnp.asarray(frames), first)
        features = eqx.filter_jit(approximator.embed)(observations)
        check_features(features)
        self.example = jax.ShapeDtypeStruct(  # type: ignore[no-untyped-call]
            features.shape[1:], features.dtype
        )
        self._games = Games(episodes, observations, features, first, jnp.zeros((), jnp.int32))
        self._running = np.zeros(num_envs)

    def collect(self, theta: Any) -> Batch:
        """D_k, with the ε-greedy policy of θ."""
        world = (self._approximator, self._environment, self._keys)
        policy = (theta, self._key, np.float32(self._epsilon))
        self._games, transitions, initial, rewards, game_over, count = _level(
            world, policy, self._games, self._transitions
        )
        if self._clip:
            transitions = transitions._replace(rewards=jnp.clip(transitions.rewards, -1, 1))
        rows = int(count)
        returns = self._returns(np.asarray(rewards)[:rows], np.asarray(game_over)[:rows])
        return Batch(transitions, initial, returns, rows * len(self._running))

    def _returns(self, rewards: np.ndarray, game_over: np.ndarray) -> tuple[float, ...]:
        """Of the episodes that ended in these rows."""
        found: list[float] = []
        for reward, over in zip(rewards, game_over, strict=True):
            self._running += reward
            found.extend(self._running[over].tolist())
            self._running[over] = 0.0
        return tuple(found)

    def state(self) -> dict[str, Any]:
        """What `restore` needs, as arrays."""
        games = self._games._replace(episodes=jax.tree.map(key_data, self._games.episodes))
        return flatten(games._asdict()) | {"running": self._running.copy()}

    def restore(self, state: dict[str, Any]) -> bool:
        """Go back to where `state` was taken."""
        self._running = np.array(state["running"])
        saved = {name: values for name, values in state.items() if name != "running"}
        plain = self._games._replace(episodes=jax.tree.map(key_data, self._games.episodes))
        games = Games(**unflatten(plain._asdict(), saved))
        episodes = jax.tree.map(like_key, self._games.episodes, games.episodes)
        self._games = games._replace(episodes=episodes)
        return True


@eqx.filter_jit
def _level(
    world: tuple[Approximator, JaxEnvironment[Any], Key[Array, " E"]],
    policy: tuple[Any, Key[Array, ""], Any],
    games: Games,
    size: int,
) -> tuple[Games, Transitions, Bool[Array, " n"], Array, Array, Int[Array, ""]]:
    """Play until there are `size` transitions, and take these, from the first steps on."""
    copies = games.first.shape[0]
    rows = most_rows(size, copies)

    def blank(dtype: Any) -> Array:
        return jnp.zeros((rows, copies), dtype)

    features = jnp.zeros((rows + 1, *games.features.shape), games.features.dtype)
    seen = Rows(
        features.at[0].set(games.features),
        *(blank(dtype) for dtype in (jnp.int32, jnp.float32, bool, bool, bool, bool)),
    )

    def unfinished(carried: Any) -> Any:
        row, count, _, _ = carried
        return (count < size) & (row < rows)

    def step(carried: Any) -> Any:
        row, count, games, seen = carried
        games, *values = _step(world, policy, games)
        seen = Rows(
            seen.features.at[row + 1].set(games.features),
            *(kept.at[row].set(new) for kept, new in zip(seen[1:], values, strict=True)),
        )
        return row + 1, count + jnp.sum(seen.valid[row]), games, seen

    zero = jnp.zeros((), jnp.int32)
    row, _, games, seen = jax.lax.while_loop(unfinished, step, (zero, zero, games, seen))
    at, copy = jnp.nonzero(seen.valid, size=size)
    states, successors = seen.features[at, copy], seen.features[at + 1, copy]
    actions, rewards, terminal, initial = (
        values[at, copy] for values in (seen.actions, seen.rewards, seen.terminal, seen.initial)
    )
    transitions = Transitions(states, actions, rewards, successors, terminal)
    return games, transitions, initial, seen.rewards, seen.game_over, row


def _step(world: Any, policy: Any, games: Games) -> tuple[Any, ...]:
    """One step: the games after it, and what goes into `Rows`."""
    approximator, environment, keys = world
    theta, key, epsilon = policy
    key = jax.random.fold_in(jax.random.fold_in(key, 0), games.time)
    actions = epsilon_greedy(key, approximator.predict(theta, games.features), epsilon)
    time = games.time + 1
    episodes, found = step_games(environment, keys, time, games.episodes, actions)
    observations = push(environment.spec, games.observations, found.frame, found.reset)
    after = Games(episodes, observations, approximator.embed(observations), found.reset, time)
    values = (actions, found.reward, found.terminal, games.first, ~found.reset, found.game_over)
    return after, *values
