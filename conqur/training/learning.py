"""What one member does in a step, whatever kind its environments are of."""

from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, Key

from conqur.config import TrainConfig
from conqur.dqn import DQN, Agent, epsilon_at, epsilon_greedy
from conqur.environments.interface import Transitions
from conqur.replay import Replay
from conqur.training.tally import Tally

ACT, DRAW, LEARN, LOOK, ENVIRONMENT, WEIGHTS = range(6)
"""What a random number is for."""

DIAGNOSED_STATES = 256


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
            key_for(seed, ACT, time), agent.theta(replay.observations(time)), epsilon
        )

    def draw(self, replay: Any, seed: Int[Array, ""], time: Int[Array, ""]) -> Transitions:
        """Minibatches for the updates that are due at once."""
        size = self.config.updates_at_once * self.config.batch_size
        return replay.sample(key_for(seed, DRAW, time), size, time)

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
        key = key_for(seed, LEARN, agent.updates)

        def update(agent: Agent, given: tuple[Any, Any]) -> tuple[Agent, Float[Array, ""]]:
            batch, key = given
            return self.algorithm.update(agent, batch, key, penalty_weight=penalty_weight)

        agent, losses = jax.lax.scan(update, agent, (batches, jax.random.split(key, updates)))
        return agent, tally.learned(losses)

    def look(
        self, agent: Agent, replay: Any, tally: Tally, seed: Int[Array, ""], time: Int[Array, ""]
    ) -> Tally:
        """See what the network is like on states of the replay."""
        draw_key, key = jax.random.split(key_for(seed, LOOK, time))
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


def key_for(seed: Int[Array, ""], purpose: int, time: Any) -> Key[Array, ""]:
    """The random numbers of a member for one purpose at a time."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), purpose), time)
