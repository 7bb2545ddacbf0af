"""Training from a fixed data set."""

import jax

from conqur.config import TrainConfig
from conqur.environments.data import FixedData
from conqur.training.tally import Tally
from conqur.training.trainer import Member, Trainer


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
