"""DQN(λ) for those who train with Stable-Baselines3: its DQN, with the consistency penalty.

`ConsistentDQN` takes everything that DQN takes, and files, callbacks and policies are those of DQN:
each of the two loads what the other has saved.
"""

from collections import deque
from typing import Any

import numpy as np

from conqur import _checks
from conqur.consistency import penalty
from conqur.regression import annealed_penalty_weight

try:
    import torch
    from stable_baselines3 import DQN
except ModuleNotFoundError:
    raise ModuleNotFoundError(
        "conqur.sb3 needs stable-baselines3: pip install stable-baselines3"
    ) from None

__all__ = ["ConsistentDQN"]


class ConsistentDQN(DQN):
    """DQN(λ): Stable-Baselines3's DQN, and λ_t C_θ added to its loss (Sec. 4.1).

    The penalty holds the network to the action choices behind its labels, those of the target
    network at the next observations of a batch. With λ = 0 it is DQN, to the last bit.

    Logged beside what DQN logs: `train/consistency_penalty`, C_θ (also if λ = 0), and
    `train/penalty_weight`, λ_t. `train/loss` is without the penalty, as in DQN.

    Args:
        *args: as of DQN: the policy, the environment and so on.
        penalty_weight: λ.
        anneal_halfway: gradient steps after which half of λ is reached, so that poor early choices
            bind little; None: λ from the beginning. The paper has 2·10⁶, for Atari games.
        committed_batches: how many batches' choices are remembered; each gradient step penalises
            those of one of them, all ages in turn. With 1, as in the paper, it is the batch that
            is being learned from. Like the replay buffer, they are not saved with the model.
        over_actions: "sum", as in the paper, or "mean" of a pair's penalty over the actions.
        **kwargs: as of DQN.
    """

    def __init__(
        self,
        *args: Any,
        penalty_weight: float = 0.5,
        anneal_halfway: float | None = 2e4,
        committed_batches: int = 1,
        over_actions: str = "sum",
        **kwargs: Any,
    ) -> None:
        self.penalty_weight = penalty_weight
        self.anneal_halfway = anneal_halfway
        self.committed_batches = committed_batches
        self.over_actions = over_actions
        super().__init__(*args, **kwargs)

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Take gradient steps, each on a minibatch of the replay buffer."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        taken = [self._gradient_step(batch_size) for _ in range(gradient_steps)]
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean([error for error, _ in taken]))
        self.logger.record("train/consistency_penalty", np.mean([cost for _, cost in taken]))
        self.logger.record("train/penalty_weight", self._weight())

    def _gradient_step(self, batch_size: int) -> tuple[float, float]:
        """The Bellman error and the penalty, as they were before the step."""
        assert self.replay_buffer is not None
        batch = self.replay_buffer.sample(batch_size, env=self._vec_normalize_env)
        discounts = self.gamma if batch.discounts is None else batch.discounts
        with torch.no_grad():
            future, assigned = self.q_net_target(batch.next_observations).max(dim=1, keepdim=True)
            labels = batch.rewards + (1 - batch.dones) * discounts * future
        q_values = self.q_net(batch.observations).gather(1, batch.actions.long())
        error = torch.nn.functional.smooth_l1_loss(q_values, labels)
        self._commitments.append((batch.next_observations, assigned[:, 0], batch.dones[:, 0]))
        inconsistency = self._inconsistency()
        loss = error + self._weight() * inconsistency if self.penalty_weight else error
        self.policy.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
        self.policy.optimizer.step()
        self._n_updates += 1
        return error.item(), inconsistency.item()

    def _inconsistency(self) -> torch.Tensor:
        """C_θ, of one of the batches that are remembered; terminal s' do not count."""
        # In turn, not at random: drawing random numbers would change those that DQN draws.
        turn = self._n_updates % len(self._commitments)
        successors, assigned, terminal = self._commitments[turn]
        # The policy that acts is meant: no dropout, and nothing for batch normalisation to learn.
        self.q_net.set_training_mode(False)
        with torch.set_grad_enabled(self.penalty_weight > 0):
            penalties = penalty(self.q_net(successors), assigned, over_actions=self.over_actions)
        self.q_net.set_training_mode(True)
        alive = 1 - terminal
        return (alive * penalties).sum() / alive.sum().clamp(min=1)

    def _weight(self) -> float:
        """λ_t."""
        if self.anneal_halfway is None:
            return self.penalty_weight
        return annealed_penalty_weight(
            self.penalty_weight, self._n_updates, halfway=self.anneal_halfway
        )

    def _setup_model(self) -> None:
        _checks.number("penalty_weight", self.penalty_weight, at_least=0)
        if self.anneal_halfway is not None:
            _checks.number("anneal_halfway", self.anneal_halfway, above=0)
        _checks.count("committed_batches", self.committed_batches)
        if self.over_actions not in ("sum", "mean"):
            raise ValueError(f"over_actions must be 'sum' or 'mean', got {self.over_actions!r}")
        super()._setup_model()
        self._commitments: deque[tuple[Any, torch.Tensor, torch.Tensor]] = deque(
            maxlen=self.committed_batches
        )

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_commitments"]
