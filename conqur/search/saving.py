"""The search at a moment as the arrays of a checkpoint, and back."""

import hashlib
import json
from dataclasses import fields, replace
from typing import Any

import jax
import numpy as np

from conqur.runs import flatten, unflatten
from conqur.search.node import Kind, Node, Tree

ABOUT = tuple(f.name for f in fields(Node) if f.name not in ("weights", "history"))
"""What is known of a node beside its arrays."""


def digest(weights: Any) -> str:
    """What weights, a tree of arrays and numbers, are known by."""
    leaves = jax.tree.leaves(jax.device_get(weights))
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()


def tree_to_arrays(tree: Tree) -> dict[str, np.ndarray]:
    """All nodes of the pool; what lineages share is there once."""
    shared: dict[int, int] = {}
    rows: list[np.ndarray] = []

    def number(assigned: np.ndarray | None) -> int:
        if assigned is None:
            return -1
        if id(assigned) not in shared:
            shared[id(assigned)] = len(rows)
            rows.append(assigned)
        return shared[id(assigned)]

    about = [
        {name: getattr(node, name) for name in ABOUT}
        | {"history": [number(assigned) for assigned in node.history]}
        for node in tree.pool
    ]
    record = {
        "level": tree.level,
        "next_id": tree.next_id,
        "nodes": about,
        "frontier": [node.id for node in tree.frontier],
    }
    arrays = {"tree": np.frombuffer(json.dumps(record).encode(), np.uint8)}
    arrays["history"] = np.stack(rows) if rows else np.zeros((0, 0), np.uint8)
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *(n.weights for n in tree.pool))
    return arrays | {f"weights/{name}": array for name, array in flatten(stacked).items()}


def tree_from_arrays(arrays: dict[str, np.ndarray], root: Node) -> Tree:
    """The inverse of `tree_to_arrays`.

    Args:
        arrays: as it gave them, perhaps with others.
        root: of such a tree; its weights show what the arrays belong to.
    """
    record = json.loads(arrays["tree"].tobytes())
    rows = list(arrays["history"])
    saved = record["nodes"]
    template = jax.tree.map(lambda leaf: np.stack([leaf] * len(saved)), root.weights)
    stacked = unflatten(template, pick(arrays, "weights/"))
    nodes = []
    for i, about in enumerate(saved):
        history = tuple(None if j < 0 else rows[j] for j in about.pop("history"))
        weights = jax.tree.map(lambda leaf, i=i: leaf[i], stacked)
        about["kind"] = Kind(about["kind"])
        nodes.append(replace(root, **about, weights=weights, history=history))
    by_id = {node.id: node for node in nodes}
    frontier = tuple(by_id[i] for i in record["frontier"])
    return Tree(record["level"], tuple(nodes), frontier, record["next_id"])


def pick(arrays: dict[str, Any], prefix: str) -> dict[str, Any]:
    """The arrays whose names begin with a prefix, without it."""
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
