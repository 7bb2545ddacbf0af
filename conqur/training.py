"""Training loops: acting and learning, for many members at once.

A *member* is one network with its own seed, penalty weight λ, environments and replay; all members
of a run take the same steps together. In each step of all environments the members

    act     ε-greedily with θ,
    learn   on what is in the replay, in every `update_every`-th step,
    absorb  what the environments answered.

Learning does not wait for the answer, so that the accelerator learns while the host's emulators
run. Random numbers come from counters: a step's are the same whether or not the run was
interrupted before it.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key

from conqur.config import TrainConfig
from conqur.dqn import (
    DQN,
    Agent,
    Diagnostics,
    adam,
    centred_rmsprop,
    epsilon_at,
    epsilon_greedy,
)
from conqur.environments.data import FixedData
from conqur.environments.interface import JaxEnvironment, Spec, Step, Transitions
from conqur.environments.journal import Journal
from conqur.regression import annealed_penalty_weight
from conqur.regressor import Architecture, Regressor, initial_regressor
from conqur.replay import Replay

ACT, DRAW, LEARN, LOOK, ENVIRONMENT, WEIGHTS = range(6)
"""What a random number is for."""

UPDATES_BETWEEN = 389
"""About how many updates lie between two looks at the networks. Not a round number: the looks must
not fall in step with the target network's copies."""

LONGEST = 1_000
"""Steps that a compiled program takes at most before the host is heard again."""

DIAGNOSED_STATES = 256


class Tally(eqx.Module):
    """What happened since the last row of the log."""

    running: Float[Array, " N"]
    """The return so far of the games under way."""
    episodes: Int[Array, ""]
    returns: Float[Array, ""]
    """Sum over the games that ended."""
    updates: Int[Array, ""]
    loss: Float[Array, ""]
    """Sum over the updates."""
    looks: Int[Array, ""]
    found: Diagnostics
    """Sum over the looks at the network."""

    @classmethod
    def empty(cls, num_envs: int) -> "Tally":
        """Nothing happened yet."""
        zero = jnp.zeros((), jnp.float32)
        none = jnp.zeros((), jnp.int32)
        found = Diagnostics(*(zero for _ in Diagnostics._fields))
        return cls(jnp.zeros(num_envs, jnp.float32), none, zero, none, zero, none, found)

    def looked(self, found: Diagnostics) -> "Tally":
        """Count a look at the network."""
        return eqx.tree_at(
            lambda tally: (tally.looks, tally.found),
            self,
            (self.looks + 1, jax.tree.map(jnp.add, self.found, found)),
        )

    def learned(self, losses: Float[Array, " U"]) -> "Tally":
        """Count updates."""
        return eqx.tree_at(
            lambda tally: (tally.updates, tally.loss),
            self,
            (self.updates + losses.size, self.loss + jnp.sum(losses)),
        )

    def absorbed(self, step: Step, *, cut: Any = False) -> "Tally":
        """Count rewards and finished games; where `cut`, the games under way do not count.

        A lost life may begin a new episode (`reset`), but it is the game that has a score.
        """
        running = jnp.where(cut, 0.0, self.running) + step.reward
        over = step.game_over
        return eqx.tree_at(
            lambda tally: (tally.running, tally.episodes, tally.returns),
            self,
            (
                jnp.where(over, 0.0, running),
                self.episodes + jnp.sum(over),
                self.returns + jnp.sum(jnp.where(over, running, 0.0)),
            ),
        )

    def cleared(self) -> "Tally":
        """A new count; the games under way go on."""
        return eqx.tree_at(
            lambda tally: tally.running, Tally.empty(len(self.running)), self.running
        )


class Member(eqx.Module):
    """Everything one member is at a moment; all members together have a leading axis M."""

    agent: Agent
    replay: Any
    tally: Tally
    episodes: Any
    """States of its environments, where these are JAX's own; None where the host has them."""


class Learning(eqx.Module):
    """The parts of a step that are the same for all kinds of environments, for one member."""

    algorithm: DQN = eqx.field(static=True)
    config: TrainConfig = eqx.field(static=True)

    def act(
        self, agent: Agent, replay: Replay, seed: Int[Array, ""], time: Int[Array, ""]
    ) -> Int[Array, " N"]:
        """ε-greedy actions in all environments."""
        epsilon = self.epsilon(time)
        return epsilon_greedy(
            _key(seed, ACT, time), agent.theta(replay.observations(time)), epsilon
        )

    def draw(self, replay: Any, seed: Int[Array, ""], time: Int[Array, ""]) -> Transitions:
        """Minibatches for the updates that are due at once."""
        size = self.config.updates_at_once * self.config.batch_size
        return replay.sample(_key(seed, DRAW, time), size, time)

    def learn(
        self,
        agent: Agent,
        drawn: Transitions,
        tally: Tally,
        seed: Int[Array, ""],
        penalty_weight: Float[Array, ""],
    ) -> tuple[Agent, Tally]:
        """The updates that are due at once, on minibatches that were drawn for them."""
        updates, size = self.config.updates_at_once, self.config.batch_size
        batches = jax.tree.map(lambda x: x.reshape(updates, size, *x.shape[1:]), drawn)
        key = _key(seed, LEARN, agent.updates)

        def update(agent: Agent, given: tuple[Any, Any]) -> tuple[Agent, Float[Array, ""]]:
            batch, key = given
            return self.algorithm.update(agent, batch, key, penalty_weight=penalty_weight)

        agent, losses = jax.lax.scan(update, agent, (batches, jax.random.split(key, updates)))
        return agent, tally.learned(losses)

    def look(
        self, agent: Agent, replay: Any, tally: Tally, seed: Int[Array, ""], time: Int[Array, ""]
    ) -> Tally:
        """See what the network is like on states of the replay."""
        draw_key, key = jax.random.split(_key(seed, LOOK, time))
        batch = replay.sample(draw_key, DIAGNOSED_STATES, time)
        return tally.looked(self.algorithm.diagnose(agent, batch, key))

    def draw_and_learn(
        self,
        agent: Agent,
        replay: Any,
        tally: Tally,
        seed: Int[Array, ""],
        penalty_weight: Float[Array, ""],
        time: Int[Array, ""],
    ) -> tuple[Agent, Tally]:
        """Both at once."""
        return self.learn(agent, self.draw(replay, seed, time), tally, seed, penalty_weight)

    def epsilon(self, time: Any) -> Any:
        """ε at a time (a step of all environments)."""
        return epsilon_at(
            time * self.config.num_envs,
            begin=self.config.learning_starts,
            steps=self.config.epsilon_steps,
            final=self.config.epsilon_final,
        )

    def begun(self, time: Any) -> Any:
        """Whether there is enough to learn from."""
        return time * self.config.num_envs >= max(self.config.learning_starts, 1)

    def due(self, time: Any) -> Any:
        """Whether the network is updated at this time."""
        return self.begun(time) & (time % self.config.steps_per_update == 0)


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
        theta: Regressor = initial_regressor(_key(seed, WEIGHTS, 0), self.architecture)
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
        keys = jax.random.split(_key(seed, ENVIRONMENT, 0), self.config.num_envs)
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
        keys = jax.random.split(_key(seed, ENVIRONMENT, time + 1), self.config.num_envs)
        episodes, answer = jax.vmap(self.environment.step)(keys, member.episodes, actions)
        return Member(agent, replay.add(time, actions, answer), tally.absorbed(answer), episodes)


class HostTrainer(Trainer):
    """For environments of the host, stepped while the accelerator learns."""

    stride = 1

    def __init__(self, config: TrainConfig, environment: Journal) -> None:
        super().__init__(config, environment.spec)
        self.environment = environment
        learning = self.learning
        self._act = jax.jit(jax.vmap(learning.act, in_axes=(0, 0, 0, None)))
        self._learn = jax.jit(
            jax.vmap(learning.draw_and_learn, (0,) * 5 + (None,)), donate_argnums=(0, 2)
        )
        self._absorb = jax.jit(
            jax.vmap(self._absorb_one, (0,) * 4 + (None, None)), donate_argnums=(0, 1)
        )

    def begin(self) -> Member:
        """All members before the first step."""
        frames = self._by_member(self.environment.begin())
        return jax.jit(jax.vmap(self.initial_member))(self.seeds, frames)

    def shapes(self) -> Member:
        """What `begin` gives; the environments stay as they are."""
        shape = len(self.seeds), self.config.num_envs, *self.spec.frame_shape
        frames = np.zeros(shape, self.spec.frame_dtype)
        return jax.eval_shape(jax.vmap(self.initial_member), self.seeds, frames)

    def step(self, members: Member, time: int, end: int) -> Member:
        """Act and learn from `time` to `end`."""
        for now in range(time, end):
            members = self._step(members, now)
        return members

    def _step(self, members: Member, time: int) -> Member:
        agent, replay, tally = members.agent, members.replay, members.tally
        actions = self._act(agent, replay, self.seeds, time)
        self.environment.send(np.asarray(actions).reshape(-1))
        if self.learning.due(time):
            agent, tally = self._learn(agent, replay, tally, self.seeds, self.weights, time)
        answer = jax.tree.map(self._by_member, self.environment.receive())
        cut = self.environment.cut
        replay, tally = self._absorb(replay, tally, actions, answer, cut, time)
        return Member(agent, replay, tally, None)

    def host_state(self) -> dict[str, np.ndarray]:
        """The environments' journal."""
        return self.environment.state()

    def restore_host(self, state: dict[str, np.ndarray]) -> bool:
        """Play the journal again."""
        return self.environment.restore(state)

    def close(self) -> None:
        """Release the environments."""
        self.environment.close()

    def _absorb_one(
        self, replay: Replay, tally: Tally, actions: Any, answer: Step, cut: Any, time: Any
    ) -> tuple[Replay, Tally]:
        return replay.add(time, actions, answer), tally.absorbed(answer, cut=cut)

    def _by_member(self, values: np.ndarray) -> np.ndarray:
        return values.reshape(len(self.seeds), self.config.num_envs, *values.shape[1:])


class DataTrainer(Trainer):
    """For a fixed data set, which all members share: there is nothing to act in."""

    stride = 1
    replay_axis = None

    def __init__(self, config: TrainConfig, data: FixedData) -> None:
        super().__init__(config, data.spec(config.environment))
        self.data = data
        self.data_digest = data.digest()
        axes = (0, None, 0, 0, 0, None)
        self._learn = jax.jit(jax.vmap(self.learning.draw_and_learn, axes), donate_argnums=(0, 2))

    def begin(self) -> Member:
        """All members before the first update."""
        agent = jax.jit(jax.vmap(self.initial_agent))(self.seeds)
        tally = jax.vmap(lambda _: Tally.empty(self.config.num_envs))(self.seeds)
        return Member(agent, None, tally, None)

    def step(self, members: Member, time: int, end: int) -> Member:
        """Make the updates that are due from `time` to `end`."""
        agent, tally = members.agent, members.tally
        for now in range(time, end):
            if now % self.config.steps_per_update == 0:
                agent, tally = self._learn(agent, self.data, tally, self.seeds, self.weights, now)
        agent.updates.block_until_ready()
        return Member(agent, None, tally, None)

    def begun(self, time: int) -> bool:
        """Always: there is nothing to wait for, so `learning_starts` does not matter."""
        return True

    def replay_of(self, members: Member) -> FixedData:
        """The data."""
        return self.data


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


def _key(seed: Int[Array, ""], purpose: int, time: Any) -> Key[Array, ""]:
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), purpose), time)
