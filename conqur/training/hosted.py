"""Training in environments of the host, such as Atari games."""

from typing import Any

import jax
import numpy as np

from conqur.config import TrainConfig
from conqur.environments.interface import Step
from conqur.environments.journal import Journal
from conqur.replay import Replay
from conqur.training.tally import Tally
from conqur.training.trainer import Member, Trainer


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
