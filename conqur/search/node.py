"""Nodes of the search tree, and what is known of the tree at a moment (Sec. 3.3)."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Integer


class Kind(StrEnum):
    """How a node came to be."""

    ROOT = "root"
    EXPANSION = "expansion"
    DIVE = "dive"


@dataclass(frozen=True, eq=False)
class Node:
    """n: a regressor, and the assignment behind the labels that it was trained with.

    Scores are losses: lower is better.

    Attributes:
        id: counts nodes in the order in which they are made.
        parent: its parent's id; None for the root.
        level: k, the level that made it; −1 for the root.
        kind: how it came to be.
        assigned_how: where its newest assignment comes from: "max", "boltzmann", ...
        score: after it was trained; NaN for a root.
        calibrated: the score with what was added since, for leaves that were not trained.
        reference: the calibrated score of its ancestor at the last selection.
        bellman: the Bellman error in its score.
        penalty: the consistency penalty C_θ in its score.
        weights: θ, the target θ⁻ and the optimizer's state, of one node.
        history: σ, the ancestors' assignments with its own: for each level the actions assigned in
            that level's batch, or None where the node's ancestors were not trained.
    """

    id: int
    parent: int | None
    level: int
    kind: Kind
    assigned_how: str
    score: float
    calibrated: float
    reference: float
    bellman: float
    penalty: float
    weights: Any
    history: tuple[Integer[np.ndarray, " n"] | None, ...]


@dataclass(frozen=True, eq=False)
class Tree:
    """The search at a moment, between two levels.

    Attributes:
        level: k, the next level.
        pool: P, the candidate leaves, with the frontier among them.
        frontier: F, the leaves that the last level trained.
        next_id: of the next node.
    """

    level: int
    pool: tuple[Node, ...]
    frontier: tuple[Node, ...]
    next_id: int

    @classmethod
    def planted(cls, roots: Iterable[Node]) -> "Tree":
        """P = F = {n₀}, or several roots."""
        nodes = tuple(roots)
        return cls(0, nodes, nodes, len(nodes))

    def after(self, pool: tuple[Node, ...], frontier: tuple[Node, ...]) -> "Tree":
        """The tree after a level that made this frontier."""
        return Tree(self.level + 1, pool, frontier, self.next_id + len(frontier))


class Birth(NamedTuple):
    """A child that is to be made.

    Attributes:
        parent: its parent.
        kind: whether its assignment is sampled or greedy.
        sibling: which of its parent's children it is.
    """

    parent: Node
    kind: Kind
    sibling: int


def expand(parents: Iterable[Node], each: int) -> tuple[Birth, ...]:
    """Births of c children of every parent, with sampled assignments."""
    return tuple(Birth(parent, Kind.EXPANSION, j) for parent in parents for j in range(each))


def dive(parents: Iterable[Node]) -> tuple[Birth, ...]:
    """Births of one child of every parent, with the greedy assignment."""
    return tuple(Birth(parent, Kind.DIVE, 0) for parent in parents)


def top(nodes: Iterable[Node], count: int) -> tuple[Node, ...]:
    """The best of the nodes by calibrated score, best first; of equals, the one made first.

    Nodes without a score are last: roots, and those whose regression diverged.
    """
    return tuple(sorted(nodes, key=_rank)[:count])


def without(nodes: Iterable[Node], gone: Iterable[Node]) -> tuple[Node, ...]:
    """The nodes that are not among those gone."""
    ids = {node.id for node in gone}
    return tuple(node for node in nodes if node.id not in ids)


def calibrate(
    pool: tuple[Node, ...], frontier: tuple[Node, ...], factor: float
) -> tuple[Node, ...]:
    """The pool with what its untrained leaves were spared added to their scores.

    Δ is the mean over the frontier of the change in score since the last selection; leaves that
    were not trained since then get `factor`·Δ, as if they had been.
    """
    changes = [node.score - node.reference for node in frontier]
    # The root has no score, and a node that diverged must not spoil the others'.
    known = [change for change in changes if math.isfinite(change)]
    spared = factor * sum(known) / len(known) if known else 0.0
    trained = {node.id for node in frontier}
    return tuple(
        node if node.id in trained else replace(node, calibrated=node.calibrated + spared)
        for node in pool
    )


def evict(pool: tuple[Node, ...], frontier: tuple[Node, ...], size: int) -> tuple[Node, ...]:
    """P: the frontier, and the best of the other leaves as far as there is room for m."""
    room = max(0, size - len(frontier))
    return (*frontier, *top(without(pool, frontier), room))


def _rank(node: Node) -> tuple[float, int]:
    return (node.calibrated if math.isfinite(node.calibrated) else math.inf, node.id)
