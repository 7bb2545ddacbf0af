"""Finite Markov decision processes with known dynamics, and exact values of their policies."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from conqur import _checks


@dataclass(frozen=True, eq=False, init=False)
class MDP:
    """A finite MDP. What a row of transitions lacks to one is the probability of ending.

    Attributes:
        transitions: P(s' | s, a), [S, A, S].
        rewards: R(s, a), [S, A].
        start: p₀(s), the probability of starting there, [S].
        discount: γ.
    """

    transitions: Float[np.ndarray, "S A S"]
    rewards: Float[np.ndarray, "S A"]
    start: Float[np.ndarray, " S"]
    discount: float

    def __init__(self, transitions: Any, rewards: Any, start: Any, discount: float) -> None:
        """Take P [S, A, S], R [S, A], p₀ [S] and γ, and refuse what is no MDP."""
        single = np.asarray(transitions).dtype == np.float32
        transitions = _checks.real_array("transitions", transitions, ("S", "A", "S"))
        rewards = _checks.real_array("rewards", rewards, ("S", "A"))
        start = _checks.real_array("start", start, ("S",))
        num_states, num_actions, _ = transitions.shape
        _checks.shape("transitions", transitions, (num_states, num_actions, num_states))
        _checks.shape("rewards", rewards, (num_states, num_actions))
        _checks.shape("start", start, (num_states,))
        # What rounding takes from one or adds to it is no probability of ending.
        transitions = _probabilities("transitions", transitions, 1e-6 if single else 1e-9)
        start = _probabilities("start", start, 1e-6)
        if abs(start.sum() - 1) > 1e-9:
            raise ValueError(f"start must sum to one, got {start.sum():.6g}")
        _checks.number("discount", discount, at_least=0, at_most=1)
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
    """D: transitions (s, a, r, s') between numbered states.

    Attributes:
        state: s, [B].
        action: a, [B].
        reward: r, [B].
        successor: s', [B]; any state where `terminal`.
        terminal: whether the episode ended instead of reaching s', [B] of booleans.
    """

    state: Int[np.ndarray, " B"]
    action: Int[np.ndarray, " B"]
    reward: Float[np.ndarray, " B"]
    successor: Int[np.ndarray, " B"]
    terminal: np.ndarray

    def __init__(self, state: Any, action: Any, reward: Any, successor: Any, terminal: Any) -> None:
        """Take five arrays [B], and refuse what are no transitions."""
        reward = _checks.real_array("reward", reward, ("B",))
        terminal = np.asarray(_checks.as_array("terminal", terminal))
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


def check_mdp(mdp: Any) -> None:
    """Refuse anything but an `MDP`: a `Problem` is one with features."""
    if not isinstance(mdp, MDP):
        raise ValueError(f"mdp must be an MDP, got {type(mdp).__name__}")


def check_sequence(batches: Any) -> None:
    """Refuse anything but a sequence of at least one `Batch`."""
    if not isinstance(batches, Sequence) or not all(isinstance(b, Batch) for b in batches):
        raise ValueError("batches must be a list of Batch objects")
    if not batches:
        raise ValueError("batches must hold at least one batch")


def sample_batch(
    mdp: Any, seed: Any, size: Any, *, behaviour: Any = None, episode_steps: Any = None
) -> Batch:
    """Collect transitions by acting in the MDP, a new episode starting where one ended.

    Args:
        mdp: where to act.
        seed: of the random generator.
        size: how many transitions.
        behaviour: the probabilities of the actions in each state, [S, A]; uniform if not given.
        episode_steps: an episode is cut after so many steps (which ends nothing); None: never.
    """
    check_mdp(mdp)
    rng = np.random.default_rng(_checks.count("seed", seed, at_least=0))
    _checks.count("size", size)
    if episode_steps is not None:
        _checks.count("episode_steps", episode_steps)
    num_states, num_actions = mdp.num_states, mdp.num_actions
    if behaviour is None:
        behaviour = np.full((num_states, num_actions), 1 / num_actions)
    behaviour = _checks.real_array("behaviour", behaviour, ("S", "A"))
    _checks.shape("behaviour", behaviour, (num_states, num_actions))
    behaviour = _probabilities("behaviour", behaviour, 1e-6)
    if (behaviour.sum(axis=-1) < 1 - 1e-9).any():
        raise ValueError(f"behaviour must sum to one, but a row sums to {behaviour.sum(-1).min()}")
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


def _probabilities(name: str, array: np.ndarray, tolerance: float) -> np.ndarray:
    """The rows, those that sum to one up to the tolerance made to do so exactly."""
    if (array < 0).any():
        raise ValueError(f"{name} holds a negative probability, {array.min():.6g}")
    totals = array.sum(axis=-1, keepdims=True)
    if totals.max() > 1 + tolerance:
        raise ValueError(f"{name} must sum to at most one, but a row sums to {totals.max():.9g}")
    return array / np.where(np.abs(totals - 1) <= tolerance, totals, 1.0)


def _endless_states(transitions: Float[np.ndarray, "S A S"]) -> Int[np.ndarray, " E"]:
    """States among which some policy can stay for ever: the largest set that can keep itself."""
    inside = np.ones(len(transitions), dtype=bool)
    while True:
        stays = (transitions[:, :, inside].sum(axis=-1) > 1 - 1e-9).any(axis=1)
        if (kept := inside & stays).sum() == inside.sum():
            return np.flatnonzero(inside)
        inside = kept
