"""Finite problems with linear approximators, where everything can be computed exactly."""

from conqur.exact.linear import greedy_policies, greedy_policy
from conqur.mdp import MDP, Batch, sample_batch
from conqur.tabular.linear_q_learning import QLearning, fitted_q_iteration, q_learning
from conqur.tabular.problems import Problem, four_state, grid_world, random_mdp

__all__ = [
    "MDP",
    "Batch",
    "Problem",
    "QLearning",
    "fitted_q_iteration",
    "four_state",
    "greedy_policies",
    "greedy_policy",
    "grid_world",
    "q_learning",
    "random_mdp",
    "sample_batch",
]
