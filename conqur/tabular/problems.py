"""Problems small enough for exact answers."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from conqur import _checks
from conqur.mdp import MDP


class Problem(NamedTuple):
    """An MDP and the features that decide which greedy policies are realizable."""

    mdp: MDP
    features: Float[np.ndarray, "S A d"]


def four_state() -> Problem:
    """The appendix's example of delusional bias (Lu, Schuurmans & Boutilier 2018).

    Action a2 leads s1 → s2 → s3 → s4 → end; a1 ends, except that from s1 it reaches s4 one time in
    ten. The features make "a2 at both s2 and s3" impossible, so 0.5 is the best realizable value,
    although 2 is optimal and Q-learning arrives at 0.3.
    """
    transitions = np.zeros((4, 2, 4))
    transitions[0, 0, 3] = 0.1
    transitions[0, 1, 1] = transitions[1, 1, 2] = transitions[2, 1, 3] = 1.0
    rewards = np.zeros((4, 2))
    rewards[0, 0], rewards[3, 1] = 0.3, 2.0
    features = np.zeros((4, 2, 2))
    features[0, 0] = features[3, 0] = 0.0, 1.0
    features[0, 1] = features[1, 1] = 0.8, 0.0
    features[2, 1] = features[3, 1] = -1.0, 0.0
    return Problem(MDP(transitions, rewards, np.eye(4)[0], discount=1.0), features)


def random_mdp(
    seed: int,
    num_states: int,
    num_actions: int,
    num_features: int,
    *,
    discount: float = 0.9,
    branching: int = 2,
    end_probability: float = 0.1,
) -> Problem:
    """A random MDP with Gaussian rewards and features, started anywhere with equal probability.

    Args:
        seed: of the random generator.
        num_states: S.
        num_actions: A.
        num_features: d.
        discount: γ.
        branching: how many successors a state-action pair has (fewer where there are fewer states).
        end_probability: the probability of ending at every step.
    """
    for name, value in {
        "num_states": num_states,
        "num_actions": num_actions,
        "num_features": num_features,
        "branching": branching,
    }.items():
        _checks.count(name, value)
    _checks.number("end_probability", end_probability, at_least=0, at_most=1)
    rng = np.random.default_rng(_checks.count("seed", seed, at_least=0))
    transitions = np.zeros((num_states, num_actions, num_states))
    for row in transitions.reshape(-1, num_states):
        reached = rng.choice(num_states, min(branching, num_states), replace=False)
        row[reached] = (1 - end_probability) * rng.dirichlet(np.ones(len(reached)))
    rewards = rng.normal(size=(num_states, num_actions))
    features = rng.normal(size=(num_states, num_actions, num_features))
    start = np.full(num_states, 1 / num_states)
    return Problem(MDP(transitions, rewards, start, discount), features)


def grid_world(
    seed: int, size: int = 4, num_features: int = 4, *, discount: float = 0.95, slip: float = 0.0
) -> Problem:
    """A square grid with random features, after the grid worlds of Lu et al. (2018).

    The agent starts in the upper left corner and moves up, right, down or left; a step against a
    wall stays. Stepping onto the lower right corner pays 1 and ends the episode.

    Args:
        seed: of the random features.
        size: the grid's side, in cells; the goal is no state, so S = size² − 1.
        num_features: d.
        discount: γ.
        slip: the probability that a step goes in a random direction instead.
    """
    _checks.count("size", size, at_least=2)
    _checks.count("num_features", num_features)
    _checks.number("slip", slip, at_least=0, at_most=1)
    rng = np.random.default_rng(_checks.count("seed", seed, at_least=0))
    goal = size * size - 1
    step = np.zeros((goal + 1, 4, goal + 1))
    for state in range(goal):
        row, column = divmod(state, size)
        for action, (down, right) in enumerate(((-1, 0), (0, 1), (1, 0), (0, -1))):
            target = np.clip([row + down, column + right], 0, size - 1)
            step[state, action, target[0] * size + target[1]] = 1.0
    step = (1 - slip) * step + slip * step.mean(axis=1, keepdims=True)
    features = rng.normal(size=(goal, 4, num_features))
    mdp = MDP(step[:goal, :, :goal], step[:goal, :, goal], np.eye(goal)[0], discount)
    return Problem(mdp, features)
