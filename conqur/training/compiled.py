"""Training in environments written in JAX."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from conqur.config import TrainConfig
from conqur.environments.interface import JaxEnvironment, Transitions
from conqur.training.learning import ENVIRONMENT, key_for
from conqur.training.trainer import Member, Trainer

LONGEST = 1_000
"""Steps that a compiled program takes at most before the host is heard again."""


class CompiledTrainer(Trainer):
    """For JAX environments: acting, learning and the games are one compiled program."""

    stride = LONGEST

    def __init__(self, config: TrainConfig, environment: JaxEnvironment[Any]) -> None:
        super().__init__(config, environment.spec)
        self.environment = environment
        self._advance = jax.jit(self._advance_all, donate_argnums=0)

    def begin(self) -> Member:
        """All members before the first step."""
        return jax.jit(jax.vmap(self._begin))(self.seeds)

    def step(self, members: Member, time: int, end: int) -> Member:
        """Act and learn from `time` to `end`, in the same program however far that is."""
        members = self._advance(members, jnp.int32(time), jnp.int32(end))
        members.agent.updates.block_until_ready()
        return members

    def _begin(self, seed: Int[Array, ""]) -> Member:
        keys = jax.random.split(key_for(seed, ENVIRONMENT, 0), self.config.num_envs)
        episodes, frames = jax.vmap(self.environment.reset)(keys)
        # They may be constants, and then the compiler would compute the whole replay.
        frames = jax.lax.optimization_barrier(frames)  # type: ignore[no-untyped-call]
        return self.initial_member(seed, frames, episodes)

    def _advance_all(self, members: Member, begin: Int[Array, ""], end: Int[Array, ""]) -> Member:
        step = jax.vmap(self._step_one, in_axes=(0, 0, 0, 0, None))
        draw = jax.vmap(self.learning.draw, in_axes=(0, 0, None))

        def body(
            time: Int[Array, ""], carried: tuple[Member, Transitions]
        ) -> tuple[Member, Transitions]:
            members = step(*carried, self.seeds, self.weights, time)
            # Drawn where it reads what was just written: reads and writes that do not wait for
            # each other make the compiler copy the whole replay.
            return members, draw(members.replay, self.seeds, time + 1)

        drawn = draw(members.replay, self.seeds, begin)
        return jax.lax.fori_loop(begin, end, body, (members, drawn))[0]

    def _step_one(
        self,
        member: Member,
        drawn: Transitions,
        seed: Int[Array, ""],
        penalty_weight: Float[Array, ""],
        time: Int[Array, ""],
    ) -> Member:
        learning, replay = self.learning, member.replay
        actions = learning.act(member.agent, replay, seed, time)
        agent, tally = jax.lax.cond(
            learning.due(time),
            lambda agent, tally: learning.learn(agent, drawn, tally, seed, penalty_weight),
            lambda agent, tally: (agent, tally),
            member.agent,
            member.tally,
        )
        keys = jax.random.split(key_for(seed, ENVIRONMENT, time + 1), self.config.num_envs)
        episodes, answer = jax.vmap(self.environment.step)(keys, member.episodes, actions)
        return Member(agent, replay.add(time, actions, answer), tally.absorbed(answer), episodes)
