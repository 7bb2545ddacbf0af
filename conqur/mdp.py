"""Finite Markov decision processes with known dynamics, and exact values of their policies."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from conqur import _checks


@dataclass(frozen=True, eq=False, init=False)
class MDP:
    """A finite MDP. What a row of transitions lacks to one is the probability of ending."""

    transitions: Float[np.ndarray, "S A S"]
    """P(s' | s, a)."""
    rewards: Float[np.ndarray, "S A"]
    """R(s, a)."""
    start: Float[np.ndarray, " S"]
    """p₀(s), the probability of starting there."""
    discount: float
    """γ."""

    def __init__(self, transitions: Any, rewards: Any, start: Any, discount: float) -> None:
        """Take P [S, A, S], R [S, A], p₀ [S] and γ, and refuse what is no MDP."""
        transitions = _checks.real_array("transitions", transitions, ("S", "A", "S"))
        rewards = _checks.real_array("rewards", rewards, ("S", "A"))
        start = _checks.real_array("start", start, ("S",))
        num_states, num_actions, _ = transitions.shape
        _checks.shape("transitions", transitions, (num_states, num_actions, num_states))
        _checks.shape("rewards", rewards, (num_states, num_actions))
        _checks.shape("start", start, (num_states,))
        _check_probabilities("transitions", transitions)
        _check_probabilities("start", start)
        if abs(start.sum() - 1) > 1e-9:
            raise ValueError(f"start must sum to one, got {start.sum():.6g}")
        _checks.discount(discount)
        if discount == 1 and (endless := _endless_states(transitions)).size:
            raise ValueError(
                "discount must be below 1 unless every policy ends: "
                f"some policy stays among states {endless.tolist()} for ever"
            )
        object.__setattr__(self, "transitions", transitions)
        object.__setattr__(self, "rewards", rewards)
        object.__setattr__(self, "start", start)
        object.__setattr__(self, "discount", float(discount))

    @property
    def num_states(self) -> int:
        """S."""
        return self.rewards.shape[0]

    @property
    def num_actions(self) -> int:
        """A."""
        return self.rewards.shape[1]

    def state_values(self, policy: Any) -> Float[np.ndarray, " S"]:
        """V^π(s): the exact value of every state under a deterministic policy [S]."""
        policy = _checks.action_array(
            "policy", policy, length=self.num_states, num_actions=self.num_actions
        )
        index = np.arange(self.num_states)
        system = np.eye(self.num_states) - self.discount * self.transitions[index, policy]
        return np.linalg.solve(system, self.rewards[index, policy])

    def value(self, policy: Any) -> float:
        """The exact expected return of a deterministic policy [S] from the start."""
        return float(self.start @ self.state_values(policy))

    def optimal_policy(self) -> Int[np.ndarray, " S"]:
        """An optimal policy among all policies, representable or not (policy iteration)."""
        policy = np.zeros(self.num_states, dtype=np.int64)
        while True:
            values = self.state_values(policy)
            q_values = self.rewards + self.discount * self.transitions @ values
            index = np.arange(self.num_states)
            gain = q_values.max(axis=1) - q_values[index, policy]
            better = gain > 1e-12 * (1 + np.abs(values))  # or equal values would swap for ever
            if not better.any():
                return policy
            policy = np.where(better, q_values.argmax(axis=1), policy)


@dataclass(frozen=True, eq=False, init=False)
class Batch:
    """D: transitions (s, a, r, s') between numbered states."""

    state: Int[np.ndarray, " B"]
    action: Int[np.ndarray, " B"]
    reward: Float[np.ndarray, " B"]
    successor: Int[np.ndarray, " B"]
    """s'; any state where `terminal`."""
    terminal: np.ndarray
    """Whether the episode ended instead of reaching s', [B] of booleans."""

    def __init__(self, state: Any, action: Any, reward: Any, successor: Any, terminal: Any) -> None:
        """Take five arrays [B], and refuse what are no transitions."""
        reward = _checks.real_array("reward", reward, ("B",))
        terminal = np.asarray(terminal)
        if terminal.dtype != np.bool_:
            raise ValueError(f"terminal must hold booleans, got {terminal.dtype}")
        _checks.shape("terminal", terminal, reward.shape)
        object.__setattr__(self, "state", _checks.index_array("state", state, len(reward)))
        object.__setattr__(self, "action", _checks.index_array("action", action, len(reward)))
        object.__setattr__(self, "reward", reward)
        object.__setattr__(
            self, "successor", _checks.index_array("successor", successor, len(reward))
        )
        object.__setattr__(self, "terminal", terminal)

    def check_fits(self, num_states: int, num_actions: int) -> None:
        """Refuse a batch with states or actions that a problem does not have."""
        size = len(self.reward)
        _checks.state_array("state", self.state, length=size, num_states=num_states)
        _checks.state_array("successor", self.successor, length=size, num_states=num_states)
        _checks.action_array("action", self.action, length=size, num_actions=num_actions)


def sample_batch(
    mdp: MDP, seed: int, size: int, *, behaviour: Any = None, episode_steps: int | None = None
) -> Batch:
    """Collect transitions by acting in the MDP, a new episode starting where one ended.

    Args:
        mdp: where to act.
        seed: of the random generator.
        size: how many transitions.
        behaviour: the probabilities of the actions in each state, [S, A]; uniform if not given.
        episode_steps: an episode is cut after so many steps (which ends nothing); None: never.
    """
    rng = np.random.default_rng(seed)
    num_states, num_actions = mdp.num_states, mdp.num_actions
    if behaviour is None:
        behaviour = np.full((num_states, num_actions), 1 / num_actions)
    behaviour = _checks.real_array("behaviour", behaviour, ("S", "A"))
    _checks.shape("behaviour", behaviour, (num_states, num_actions))
    _check_probabilities("behaviour", behaviour)
    action_sums = behaviour.cumsum(axis=-1) / behaviour.sum(axis=-1, keepdims=True)
    next_sums, start_sums = mdp.transitions.cumsum(axis=-1), mdp.start.cumsum() / mdp.start.sum()

    draws = rng.random((size, 3))
    rows = np.zeros((size, 4), dtype=np.int64)
    state, steps = -1, 0
    for i, (start_draw, action_draw, next_draw) in enumerate(draws):
        if state < 0:
            state, steps = int(np.searchsorted(start_sums, start_draw, side="right")), 0
        action = int(np.searchsorted(action_sums[state], action_draw, side="right"))
        successor = int(np.searchsorted(next_sums[state, action], next_draw, side="right"))
        ended = successor == num_states
        rows[i] = state, action, 0 if ended else successor, ended
        steps += 1
        cut = episode_steps is not None and steps >= episode_steps
        state = -1 if ended or cut else successor
    states, actions, next_states, terminal = rows.T
    return Batch(states, actions, mdp.rewards[states, actions], next_states, terminal == 1)


def _check_probabilities(name: str, array: np.ndarray) -> None:
    if (array < 0).any():
        raise ValueError(f"{name} holds a negative probability, {array.min():.6g}")
    total = array.sum(axis=-1).max()
    if total > 1 + 1e-9:
        raise ValueError(f"{name} must sum to at most one, but a row sums to {total:.6g}")


def _endless_states(transitions: Float[np.ndarray, "S A S"]) -> Int[np.ndarray, " E"]:
    """States among which some policy can stay for ever: the largest set that can keep itself."""
    inside = np.ones(len(transitions), dtype=bool)
    while True:
        stays = (transitions[:, :, inside].sum(axis=-1) > 1 - 1e-9).any(axis=1)
        if (kept := inside & stays).sum() == inside.sum():
            return np.flatnonzero(inside)
        inside = kept
