"""Algorithm 1: depth-first search over all consistent assignments, and the size of its tree."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import comb
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from conqur import _checks
from conqur.assignment import q_labels, successors
from conqur.exact.fit import fit_consistent
from conqur.exact.information_sets import Cell
from conqur.exact.linear import LinearPolicies, strictly_greedy
from conqur.mdp import Batch, check_sequence

Theta = Float[np.ndarray, " d"]
Train = Callable[[Float[np.ndarray, "B d"], Float[np.ndarray, " B"], Cell], Theta]
"""From inputs φ(s, a), their Q-labels and the node's commitments to its regressor."""


@dataclass(frozen=True, eq=False)
class Search:
    """What Algorithm 1 found.

    Attributes:
        theta: the regressor of the best leaf, [d].
        commitments: its assignment, an action or `LinearPolicies.FREE` for every state.
        score: its score.
        nodes: the number of nodes of the search tree, the root included.
        leaves: the assignments of all leaves and their scores.
    """

    theta: Theta
    commitments: Cell
    score: float
    nodes: int
    leaves: dict[Cell, float]


@dataclass(frozen=True)
class _Node:
    theta: Theta
    commitments: Cell


def search(
    batches: Any,
    features: Any,
    score: Callable[[Theta], float],
    *,
    discount: float,
    theta: Any = None,
    start_states: Any = (),
    prune_dominated: bool = False,
    train: Train | None = None,
    margin: float = 1e-3,
) -> Search:
    """Algorithm 1, ConQUR's generic search: try every assignment that stays consistent.

    Args:
        batches: D_1 … D_T.
        features: φ, [S, A, d].
        score: how good a leaf's regressor is (higher is better): the exact value of its greedy
            policy, a mean of rollouts, …
        discount: γ.
        theta: θ_0, which labels the first batch, [d]; zero if not given.
        start_states: states where episodes start. Like successor states they get an assignment, for
            the choice at the start is part of what a leaf promises.
        prune_dominated: skip assignments whose labels are nowhere higher, and somewhere lower, than
            those of another one. (Not safe in general: later batches may rule the better one out.)
        train: how a node gets its regressor; if not given, the least-squares fit to its labels
            that keeps its commitments by `margin` (or a mere witness where that fit fails).
        margin: in units of Q, above zero.
    """
    _checks.number("margin", margin, above=0)
    policies = LinearPolicies(features)
    _checks.number("discount", discount, at_least=0, at_most=1)
    _check_batches(batches, policies)
    starts = _checks.state_array(
        "start_states", start_states, length=len(start_states), num_states=policies.num_states
    )
    theta = np.zeros(policies.num_features) if theta is None else theta
    theta = _checks.real_array("theta", theta, ("d",))
    _checks.shape("theta", theta, (policies.num_features,))
    trained = _constrained_fit(policies, margin) if train is None else train
    free = (LinearPolicies.FREE,) * policies.num_states
    nodes = 1
    leaves: dict[Cell, tuple[float, Theta]] = {}

    def visit(node: _Node, level: int) -> None:
        nonlocal nodes
        if level == len(batches):
            leaves[node.commitments] = score(node.theta), node.theta
            return
        batch = batches[level]
        q_values = policies.features @ node.theta
        states = _assigned_states(batch, starts)
        children = list(consistent_assignments(policies, node.commitments, states))
        if prune_dominated:
            children = _undominated(children, q_values, states)
        for commitments in children:
            nodes += 1
            labels = _labels(batch, q_values, commitments, discount)
            inputs = policies.features[batch.state, batch.action]
            visit(_Node(trained(inputs, labels, commitments), commitments), level + 1)

    visit(_Node(theta, free), 0)
    if not leaves:
        raise ValueError("features let no θ be strictly greedy in all these states together")
    best = max(leaves, key=lambda leaf: leaves[leaf][0])
    return Search(
        theta=leaves[best][1],
        commitments=best,
        score=leaves[best][0],
        nodes=nodes,
        leaves={leaf: value for leaf, (value, _) in leaves.items()},
    )


def consistent_assignments(
    policies: LinearPolicies, commitments: Cell, states: Int[np.ndarray, " K"]
) -> Iterator[Cell]:
    """Σ_{Θ,σ}: all ways to commit these states, too, that some θ can keep."""
    open_states = [s for s in states.tolist() if commitments[s] == LinearPolicies.FREE]
    if not open_states:
        yield commitments
        return
    state = open_states[0]
    for action in range(policies.num_actions):
        extended = (*commitments[:state], action, *commitments[state + 1 :])
        if policies.witness(extended) is not None:
            yield from consistent_assignments(policies, extended, states)


def tree_size(batches: Any, features: Any, *, start_states: Any = ()) -> int:
    """The number of nodes, the root included, that `search` visits on these batches."""
    policies = LinearPolicies(features)
    _check_batches(batches, policies)
    starts = _checks.state_array(
        "start_states", start_states, length=len(start_states), num_states=policies.num_states
    )
    level: list[Cell] = [(LinearPolicies.FREE,) * policies.num_states]
    nodes = 1
    for batch in batches:
        states = _assigned_states(batch, starts)
        level = [c for parent in level for c in consistent_assignments(policies, parent, states)]
        nodes += len(level)
    return nodes


def tree_size_bound(num_states: int, num_actions: int, vc_dimension: int) -> int:
    """The theorem's n m [m(m−1)/2 · n]^VCdim, for n states and m actions, without its constant.

    A linear approximator with d features has VC-dimension d.
    """
    _checks.count("num_states", num_states)
    _checks.count("num_actions", num_actions, at_least=2)
    _checks.count("vc_dimension", vc_dimension)
    return num_states * num_actions * (comb(num_actions, 2) * num_states) ** vc_dimension


def _assigned_states(batch: Batch, starts: Int[np.ndarray, " K"]) -> Int[np.ndarray, " K2"]:
    """χ(D), each state once, and the start states."""
    return np.unique(np.concatenate([successors(batch.successor, batch.terminal), starts]))


def _labels(
    batch: Batch, q_values: Float[np.ndarray, "S A"], commitments: Cell, discount: float
) -> Float[np.ndarray, " B"]:
    """r + γ Q(s', σ(s')) for the whole batch; terminal successors need no commitment."""
    assigned = np.where(batch.terminal, 0, np.array(commitments)[batch.successor])
    values = q_values[batch.successor]
    return np.asarray(q_labels(batch.reward, batch.terminal, values, assigned, discount=discount))


def _undominated(
    children: list[Cell], q_values: Float[np.ndarray, "S A"], states: Int[np.ndarray, " K"]
) -> list[Cell]:
    values = np.array([q_values[states, np.array(c)[states]] for c in children])
    at_least = (values[:, None] >= values[None]).all(axis=-1)  # [i, j]: i is nowhere below j
    higher = (values[:, None] > values[None]).any(axis=-1)
    dominated = np.asarray((at_least & higher).any(axis=0))
    return [child for child, out in zip(children, dominated, strict=True) if not out]


def _constrained_fit(policies: LinearPolicies, margin: float) -> Train:
    def train(
        inputs: Float[np.ndarray, "B d"], labels: Float[np.ndarray, " B"], commitments: Cell
    ) -> Theta:
        actions = np.array(commitments)
        states = np.flatnonzero(actions != LinearPolicies.FREE)
        if not states.size:
            return np.linalg.lstsq(inputs, labels, rcond=None)[0]
        features = policies.features[states]
        # The solver's tolerance grows with the labels: a fit may break what it was to keep by
        # little, and is then made again with a margin that grows with them, too.
        for least in dict.fromkeys((margin, margin * max(1.0, np.abs(labels).max()))):
            fit = fit_consistent(inputs, labels, features, actions[states], margin=least)
            if fit.theta is not None and strictly_greedy(features, actions[states], fit.theta):
                return fit.theta
        witness = policies.witness(commitments)
        assert witness is not None  # only consistent assignments become nodes
        return witness

    return train


def _check_batches(batches: Any, policies: LinearPolicies) -> None:
    check_sequence(batches)
    for batch in batches:
        batch.check_fits(policies.num_states, policies.num_actions)
