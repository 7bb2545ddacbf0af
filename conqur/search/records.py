"""What a tuning run knows beside its tree: every node there was, evaluations, the best so far."""

import json
import math
from typing import Any

import numpy as np

from conqur.evaluation import Evaluation
from conqur.runs import flatten, unflatten
from conqur.search.node import Node, Tree
from conqur.search.saving import digest, pick
from conqur.statistics import paired_difference

CHAMPIONS = 4
"""How many of the best evaluated nodes are remembered to the end."""


class Records:
    """What a run knows beside the tree: every node there was, evaluations, the best so far.

    Attributes:
        nodes: a record of every node, by its id.
        evaluations: of nodes, in order.
        champions: the best of the evaluated nodes, best first, as (θ, evaluation).
        frames: of the game, in collecting.
        played_frames: of the game, in rollouts.
        seconds: so far.
    """

    def __init__(self, saved: dict[str, Any], champions: tuple[Any, ...] = ()) -> None:
        self.nodes: dict[int, dict[str, Any]] = {n["id"]: n for n in saved.get("nodes", [])}
        self.evaluations: list[dict[str, Any]] = saved.get("evaluations", [])
        self.champions = list(zip(champions, saved.get("champions", []), strict=True))
        self.frames: int = saved.get("frames", 0)
        self.played_frames: int = saved.get("played_frames", 0)
        self.seconds: float = saved.get("seconds", 0.0)

    def to_json(self) -> dict[str, Any]:
        """All but the champions' regressors."""
        return {
            "nodes": list(self.nodes.values()),
            "evaluations": self.evaluations,
            "champions": [evaluation for _, evaluation in self.champions],
            "frames": self.frames,
            "played_frames": self.played_frames,
            "seconds": self.seconds,
        }

    def to_arrays(self) -> dict[str, np.ndarray]:
        """As the arrays of a checkpoint."""
        arrays = {"records": np.frombuffer(json.dumps(self.to_json()).encode(), np.uint8)}
        for i, (theta, _) in enumerate(self.champions):
            arrays |= {f"champions/{i}/{name}": array for name, array in flatten(theta).items()}
        return arrays

    def after(self, tree: Tree) -> None:
        """Note the nodes of a tree."""
        for node in tree.pool:
            self.nodes[node.id] = _record(node)

    def evaluated(self, node: Node, row: dict[str, Any]) -> None:
        """Note an evaluation. Of equal regressors, as all are at first, one may be a champion."""
        self.evaluations.append(row)
        ranked = sorted(
            [*self.champions, (node.weights.theta, row)],
            key=lambda champion: (-champion[1]["gain"], champion[1]["node"]),
        )
        different: dict[str, tuple[Any, dict[str, Any]]] = {}
        for champion in ranked:
            different.setdefault(digest(champion[0]), champion)
        self.champions = list(different.values())[:CHAMPIONS]

    def tree_lines(self, tree: Tree) -> bytes:
        """`tree.jsonl`: one line for each node there was."""
        frontier = {node.id for node in tree.frontier}
        pool = {node.id for node in tree.pool}
        parents = {record["parent"] for record in self.nodes.values()}
        lines = []
        for number, record in sorted(self.nodes.items()):
            status = "evicted"
            if number in parents:
                status = "expanded"
            if number in pool:
                status = "frontier" if number in frontier else "pool"
            lines.append(record | {"status": status})
        return json_lines(lines)


def records_from_arrays(arrays: dict[str, np.ndarray], root: Any) -> Records:
    """The inverse of `Records.to_arrays`; `root` shows what a regressor looks like."""
    saved = json.loads(arrays["records"].tobytes())
    champions = tuple(
        unflatten(root, pick(arrays, f"champions/{i}/")) for i in range(len(saved["champions"]))
    )
    return Records(saved, champions)


def level_row(tree: Tree, found: dict[str, Any]) -> dict[str, Any]:
    """What a level was like, for the log."""
    scores = [node.score for node in tree.frontier if math.isfinite(node.score)]
    returns = found["returns"]
    numbers = {name: value for name, value in found.items() if name != "returns"}
    return numbers | {
        "kind": tree.frontier[0].kind,
        "nodes": len(tree.frontier),
        "pool": len(tree.pool),
        "best_score": min(scores, default=None),
        "mean_score": float(np.mean(scores)) if scores else None,
        "episodes": len(returns),
        "return": float(np.mean(returns)) if returns else None,
    }


def against(evaluation: Evaluation, root: Evaluation) -> dict[str, Any]:
    """A node's scores, and by how much they are above the checkpoint's on the same starts."""
    gain = paired_difference(evaluation.scores, root.scores)
    return {
        "mean": evaluation.mean,
        "interval": [finite(bound) for bound in evaluation.interval],
        "gain": gain.mean,
        "gain_interval": [finite(bound) for bound in gain.interval],
        "checkpoint": root.mean,
        "episodes": len(evaluation.scores),
        "frames": evaluation.frames,
    }


def _record(node: Node) -> dict[str, Any]:
    return {
        "id": node.id,
        "parent": node.parent,
        "level": node.level + 1,  # as in the log: 1 is the first, 0 the checkpoint
        "kind": node.kind,
        "score": finite(node.score),
        "calibrated": finite(node.calibrated),
        "assigned_how": node.assigned_how,
        "penalty": finite(node.penalty),
        "bellman": finite(node.bellman),
    }


def json_lines(rows: list[dict[str, Any]]) -> bytes:
    """One JSON object a line."""
    return "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows).encode()


def finite(value: float) -> float | None:
    """A number as JSON can hold it."""
    return float(value) if math.isfinite(value) else None
