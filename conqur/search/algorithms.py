"""The searches: the modified beam search with backtracking (Algorithm 2), and others.

They are loops over levels that only decide which nodes have children. Everything else (data,
assignments, regression, scores) is done by a `World`. Each yields the tree after every level, and
can begin in the middle, from any tree that it yielded.
"""

import abc
import math
from collections.abc import Iterator, Sequence
from typing import Any

from conqur.search.node import (
    Birth,
    Node,
    Tree,
    calibrate,
    dive,
    evict,
    expand,
    top,
    without,
)


class World(abc.ABC):
    """What the searches need: batches of transitions, and children with trained regressors."""

    @abc.abstractmethod
    def collect(self, node: Node, level: int) -> Any:
        """D_k, collected with the ε-greedy policy of a node's regressor."""

    @abc.abstractmethod
    def train(self, births: Sequence[Birth], tree: Tree, data: Any) -> tuple[Node, ...]:
        """The children to be born: assigned, trained on D_k and scored, all at once.

        Children of an expansion have sampled assignments; that of a dive has the greedy one.
        """


def beam_search(
    tree: Tree,
    world: World,
    *,
    levels: int,
    frontier_size: int,
    splitting_factor: int,
    expanded: int,
    pool_size: int,
    dive_levels: int,
    calibration: float = 2.5,
    backtracking: bool = True,
) -> Iterator[Tree]:
    """Algorithm 2: expand the ℓ best leaves into c children each, then dive; backtrack.

    Every (d + 1)-th level is an expansion, and so is every level before the frontier is full; then
    all of the frontier is expanded.

    Args:
        tree: where to begin.
        world: gives data and trained children.
        levels: T.
        frontier_size: F, the most nodes that are trained in a level.
        splitting_factor: c.
        expanded: ℓ.
        pool_size: m, the most leaves that are kept.
        dive_levels: d.
        calibration: this times Δ is added to the scores of leaves that were not trained.
        backtracking: whether leaves that left the frontier may be expanded later.
    """
    for k in range(tree.level, levels):
        pool, frontier = tree.pool, tree.frontier
        filling = len(frontier) < len(frontier) * splitting_factor <= frontier_size

        data = world.collect(top(pool, 1)[0], k)  # D_k

        if filling or k % (dive_levels + 1) == 0:  # an expansion level
            pool = calibrate(pool, frontier, calibration) if backtracking else frontier
            parents = frontier if filling else top(pool, expanded)
            children = world.train(expand(parents, splitting_factor), tree, data)
        else:  # a dive level
            parents = frontier
            children = world.train(dive(parents), tree, data)

        pool = evict((*without(pool, parents), *children), children, pool_size)
        tree = tree.after(pool, children)
        yield tree


def best_first_search(
    tree: Tree, world: World, *, levels: int, splitting_factor: int, pool_size: int
) -> Iterator[Tree]:
    """In every level expand the best leaf of all, wherever it is.

    Args:
        tree: where to begin.
        world: gives data and trained children.
        levels: T.
        splitting_factor: c.
        pool_size: m, the most leaves that are kept.
    """
    for k in range(tree.level, levels):
        best = top(tree.pool, 1)
        data = world.collect(best[0], k)
        children = world.train(expand(best, splitting_factor), tree, data)
        pool = evict((*without(tree.pool, best), *children), children, pool_size)
        tree = tree.after(pool, children)
        yield tree


def depth_first_search(
    tree: Tree, world: World, *, levels: int, splitting_factor: int, pool_size: int
) -> Iterator[Tree]:
    """Algorithm 1 with sampled children: follow the best child down, and back where it got worse.

    A child that scores worse than its parent did is a dead end; then the search goes back to the
    deepest leaf that is none, and on from the best of all if there is no such leaf.

    Args:
        tree: where to begin.
        world: gives data and trained children.
        levels: T.
        splitting_factor: c.
        pool_size: m, the most leaves that are kept.
    """
    for k in range(tree.level, levels):
        alive = [node for node in tree.pool if not _dead_end(node)]
        deepest = max((node.level for node in alive), default=0)
        parent = top([node for node in alive if node.level == deepest] or tree.pool, 1)
        data = world.collect(parent[0], k)
        children = world.train(expand(parent, splitting_factor), tree, data)
        pool = evict((*without(tree.pool, parent), *children), children, pool_size)
        tree = tree.after(pool, children)
        yield tree


def local_search(tree: Tree, world: World, *, levels: int, splitting_factor: int) -> Iterator[Tree]:
    """Keep one node: the best of its children, one of which is a dive's.

    Args:
        tree: where to begin.
        world: gives data and trained children.
        levels: T.
        splitting_factor: c, with the dive's child.
    """
    for k in range(tree.level, levels):
        here = top(tree.frontier, 1)
        data = world.collect(here[0], k)
        births = (*dive(here), *expand(here, splitting_factor - 1))
        children = world.train(births, tree, data)
        tree = tree.after(children, children)
        yield tree


def independent_search(tree: Tree, world: World, *, levels: int) -> Iterator[Tree]:
    """Nodes that go on side by side: from copies of one regressor, the paper's multi-DQN baseline.

    Args:
        tree: where to begin, with as many roots as there shall be nodes.
        world: gives data and trained children.
        levels: T.
    """
    for k in range(tree.level, levels):
        data = world.collect(top(tree.pool, 1)[0], k)
        children = world.train(dive(tree.frontier), tree, data)
        tree = tree.after(children, children)
        yield tree


def _dead_end(node: Node) -> bool:
    """Whether a child scores worse than its parent did, or has no score because it diverged."""
    return node.parent is not None and (math.isnan(node.score) or node.score > node.reference)
