"""Training all members of a run, but for the kind of environment."""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from conqur.config import TrainConfig
from conqur.dqn import DQN, Agent, adam, centred_rmsprop
from conqur.environments.interface import Spec
from conqur.regression import annealed_penalty_weight
from conqur.regressor import Architecture, Regressor, initial_regressor
from conqur.replay import Replay
from conqur.training.learning import WEIGHTS, Learning, key_for
from conqur.training.tally import Tally

UPDATES_BETWEEN = 389
"""About how many updates lie between two looks at the networks. Not a round number: the looks must
not fall in step with the target network's copies."""


class Member(eqx.Module):
    """Everything one member is at a moment; all members together have a leading axis M."""

    agent: Agent
    replay: Any
    tally: Tally
    episodes: Any
    """States of its environments, where these are JAX's own; None where the host has them."""


class Trainer(abc.ABC):
    """Trains all members of a run. `time` counts steps of all environments together.

    Attributes:
        config: the run's settings.
        architecture: of the networks.
        stride: by how many steps `advance` goes on at most.
        data_digest: of the data set that it learns from, see `FixedData.digest`.
    """

    config: TrainConfig
    architecture: Architecture
    stride: int
    data_digest: str = ""
    replay_axis: int | None = 0
    """The axis M of the replay; None where all members share it."""

    def __init__(self, config: TrainConfig, spec: Spec) -> None:
        self.config = config
        self.spec = spec
        self.architecture = Architecture(
            config.network, spec.observation_shape, len(spec.actions), config.hidden
        )
        self.learning = Learning(_algorithm(config), config)
        weights, seeds = zip(*config.members, strict=True)
        self.weights, self.seeds = jnp.asarray(weights, jnp.float32), jnp.asarray(seeds, jnp.int32)
        times = max(1, UPDATES_BETWEEN // config.updates_at_once)  # that updates are made
        times -= 1 - times % 2  # odd, or looks fall in step with targets of a power of two
        self.between_looks = times * config.steps_per_update
        self._look = jax.jit(
            jax.vmap(self.learning.look, in_axes=(0, self.replay_axis, 0, 0, None)),
            donate_argnums=2,
        )

    @abc.abstractmethod
    def begin(self) -> Member:
        """All members before the first step, with a leading axis M."""

    def shapes(self) -> Member:
        """What `begin` gives, with nothing but shapes and types in place of the arrays."""
        return jax.eval_shape(self.begin)

    def advance(self, members: Member, time: int, end: int) -> tuple[Member, int]:
        """Go on from `time` for a while, at most to `end`; the members then, and the time.

        What was passed in must not be used again.
        """
        look = time - time % self.between_looks + self.between_looks
        end = min(time + self.stride, look, end)
        members = self.step(members, time, end)
        if end < look or not self.begun(end):
            return members, end
        agent, replay = members.agent, self.replay_of(members)
        tally = self._look(agent, replay, members.tally, self.seeds, end)
        return Member(agent, members.replay, tally, members.episodes), end

    @abc.abstractmethod
    def step(self, members: Member, time: int, end: int) -> Member:
        """Act and learn from `time` to `end`."""

    def begun(self, time: int) -> bool:
        """Whether learning has begun."""
        return bool(self.learning.begun(time))

    def host_state(self) -> dict[str, np.ndarray]:
        """What is needed beside the members to go on exactly from here."""
        return {}

    def restore_host(self, state: dict[str, np.ndarray]) -> bool:
        """Bring the host's environments to where they were; whether that worked."""
        return True

    def close(self) -> None:  # noqa: B027 (most have nothing to release)
        """Release the environments."""

    def replay_of(self, members: Member) -> Any:
        """What the members learn from."""
        return members.replay

    def rows(self, members: Member, time: int) -> list[dict[str, Any]]:
        """The log's rows, one for each member."""
        tally = jax.device_get(members.tally)
        found = tally.found._asdict()
        updates = jax.device_get(members.agent.updates)
        rows = []
        for i, (weight, seed) in enumerate(self.config.members):
            rows.append(
                {
                    "step": time * self.config.num_envs,
                    "updates": int(updates[i]),
                    "penalty_weight": weight,
                    "annealed_weight": annealed_penalty_weight(
                        weight, int(updates[i]), halfway=self.config.anneal_halfway
                    ),
                    "seed": seed,
                    "episodes": int(tally.episodes[i]),
                    "return": _mean(tally.returns[i], tally.episodes[i]),
                    "loss": _mean(tally.loss[i], tally.updates[i]),
                    **{name: _mean(sums[i], tally.looks[i]) for name, sums in found.items()},
                    "epsilon": float(self.learning.epsilon(time)),
                }
            )
        return rows

    def initial_agent(self, seed: Int[Array, ""]) -> Agent:
        """An agent with a seed's random weights."""
        theta: Regressor = initial_regressor(key_for(seed, WEIGHTS, 0), self.architecture)
        observation = jnp.zeros(self.spec.observation_shape, self.spec.frame_dtype)
        return self.learning.algorithm.begin(theta, observation)

    def initial_member(self, seed: Int[Array, ""], frames: Array, episodes: Any = None) -> Member:
        """A member whose environments show their first frames, [N, ...]."""
        rows = self.config.replay_size // self.config.num_envs
        return Member(
            agent=self.initial_agent(seed),
            replay=Replay.begin(self.spec, frames, rows),
            tally=Tally.empty(self.config.num_envs),
            episodes=episodes,
        )


def _algorithm(config: TrainConfig) -> DQN:
    make = centred_rmsprop if config.optimizer == "rmsprop" else adam
    return DQN(
        optimizer=make(config.learning_rate, epsilon=config.optimizer_epsilon),
        double=config.algorithm == "ddqn",
        batch_size=config.batch_size,
        discount=config.discount,
        huber=1.0 if config.loss == "huber" else None,
        clip_rewards=config.clip_rewards,
        target_every=config.target_every,
        halfway=config.anneal_halfway,
        penalised=any(config.penalty_weights),
    )


def _mean(total: Any, count: Any) -> float | None:
    return float(total) / int(count) if count else None
