"""How policies act: ε-greedily, with the random numbers of the episode."""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from conqur.environments.interface import Spec, push


@eqx.filter_jit
def act(
    q: Callable[[Any], Any],
    spec: Spec,
    observations: Array,
    frames: Any,
    reset: Any,
    keys: Key[Array, "K E"],
    time: Any,
    epsilon: Any,
) -> tuple[Array, Int[Array, " N"], Float[Array, "K E A"]]:
    """See the newest frames and choose: one dispatch for K policies in E environments each.

    Args:
        q: from observations [K, E, *observation_shape] to Q-values [K, E, A].
        spec: of the environment.
        observations: before the step, [K, E, *observation_shape].
        frames: the newest, [N, ...] with N = K·E.
        reset: where a new episode began, [N].
        keys: of the episodes.
        time: how many times each of them acted before, one number or [K, E].
        epsilon: the probability of a random action.

    Returns:
        The observations, the actions (−1 where a Q-value is NaN) and the Q-values.
    """
    rows = observations.shape[:2]
    frames = jnp.reshape(frames, (*rows, *spec.frame_shape))
    observations = push(spec, observations, frames, jnp.reshape(reset, rows))
    q_values = q(observations)
    wanted = (*rows, len(spec.actions))
    if q_values.shape != wanted:
        raise ValueError(
            f"q must give Q-values of shape {list(wanted)}, one for each of the "
            f"{wanted[-1]} actions of {spec.name}, got {list(q_values.shape)}"
        )
    options = (0, 0, None, None)
    explorations = jax.vmap(jax.vmap(_exploration, options), options)
    explore, at_random = explorations(keys, jnp.broadcast_to(time, rows), epsilon, wanted[-1])
    actions = jnp.where(explore, at_random, jnp.argmax(q_values, axis=-1))
    actions = jnp.where(jnp.isnan(q_values).any(axis=-1), -1, actions)
    return observations, jnp.ravel(actions), q_values


def checked_actions(chosen: Int[Array, "*T N"]) -> Int[np.ndarray, "*T N"]:
    """The actions of `act` on the host, if all Q-values behind them were numbers."""
    actions = np.array(chosen)
    if (actions < 0).any():
        raise ValueError("q gave NaN: the network's weights or its observations hold some")
    return actions


def episode_seeds(seed: int, numbers: Sequence[int]) -> tuple[list[int], Key[Array, " E"]]:
    """The environment's seeds of episodes, by their numbers, and the keys of ε-greedy play."""
    draws = [np.random.SeedSequence((seed, number)).generate_state(2) for number in numbers]
    seeds, words = np.transpose(draws)
    return [int(word >> 1) for word in seeds], jax.vmap(jax.random.key)(words)  # 31 bits suit all


def _exploration(
    key: Key[Array, ""], time: Any, epsilon: Any, num_actions: int
) -> tuple[Bool[Array, ""], Int[Array, ""]]:
    """Whether to act at random at that time of an episode, and how."""
    whether, which = jax.random.split(jax.random.fold_in(key, time))
    return jax.random.uniform(whether) < epsilon, jax.random.randint(which, (), 0, num_actions)
