"""A tuning run's story, read from its folder: nothing is locked or written, nothing is trusted."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from conqur.runs import RunError
from conqur.runs.files import Damaged, file_size, read_json
from conqur.runs.layout import CONFIG, LOG, MANIFEST
from conqur.search.config import TuneConfig
from conqur.tuning_run import EVALUATIONS, SUMMARY, TREE

LARGEST = 256 << 20
"""Bytes of a file that is read."""


class Node(NamedTuple):
    """A line of `tree.jsonl`; numbers that are not known are None."""

    id: int
    parent: int | None
    level: int
    kind: str
    status: str
    assigned_how: str
    score: float | None
    calibrated: float | None
    penalty: float | None
    bellman: float | None


class Played(NamedTuple):
    """A line of `evaluations.jsonl`: a node played beside the checkpoint, on the same starts."""

    node: int
    level: int
    mean: float
    interval: tuple[float | None, float | None]
    gain: float
    gain_interval: tuple[float | None, float | None]
    checkpoint: float
    episodes: int


@dataclass(frozen=True, eq=False)
class TunedRun:
    """What there is to tell of a run.

    Attributes:
        folder: where it is.
        config: its settings.
        manifest: what it was made with.
        nodes: all that there were, by id.
        played: evaluations, in order.
        levels: rows of the log.
        summary: what came of it; None if it is not at its end.
    """

    folder: Path
    config: TuneConfig
    manifest: dict[str, Any]
    nodes: dict[int, Node]
    played: tuple[Played, ...]
    levels: tuple[dict[str, Any], ...]
    summary: dict[str, Any] | None

    @property
    def by_rollouts(self) -> bool:
        """Whether scores are gains on the checkpoint, with the sign turned."""
        return self.config.scoring == "rollouts"

    @property
    def chosen(self) -> int | None:
        """The node that was found best in the end, by rollouts or else by its score."""
        summary = self.summary or {}
        number = (summary.get("chosen") or summary.get("chosen_by_score") or {}).get("node")
        return number if number in self.nodes else None

    @property
    def level(self) -> int:
        """How many levels of the tree are known; the log may be ahead of it."""
        return max(node.level for node in self.nodes.values()) + 1

    def for_people(self, score: float | None) -> float | None:
        """A score as people read it: gains on the checkpoint are stored with the sign turned."""
        return -score if score is not None and self.by_rollouts else score

    def lineage(self, number: int) -> list[Node]:
        """A node and its ancestors, the root first."""
        found: list[Node] = []
        at: int | None = number
        while at is not None and at in self.nodes:
            found.append(self.nodes[at])
            at = self.nodes[at].parent
        return found[::-1]


def read_tuned(folder: Path) -> TunedRun:
    """Read a run, whether it is at its end or not.

    Args:
        folder: of the run.

    Raises:
        RunError: if it is no tuning run or its files are not what a run writes.
    """
    try:
        settings = read_json(folder / CONFIG)
        if "algorithm" in settings:
            raise ValueError(
                "it is a training run, whose curves `python -m conqur.report.learning` draws"
            )
        config = TuneConfig.from_json(settings)
    except (Damaged, ValueError) as error:
        raise RunError(f"{folder} cannot be reported on: {error}") from None
    try:
        nodes = [_node(row) for row in _rows(folder / TREE)]
        played = tuple(_played(row) for row in _rows(folder / EVALUATIONS))
        levels = tuple(_level(row) for row in _rows(folder / LOG))
        manifest = read_json(folder / MANIFEST) if (folder / MANIFEST).exists() else {}
        summary = _summary(read_json(folder / SUMMARY)) if (folder / SUMMARY).exists() else None
    except (Damaged, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder} is damaged, or no run of this version: {error}") from None
    if not nodes:
        raise RunError(
            f"{folder} has no {TREE} yet: it is written with the run's first checkpoint, after "
            "some minutes"
        )
    known = {node.id: node for node in nodes}
    levels = tuple(row for row in levels if row["step"] <= max(node.level for node in nodes) + 1)
    for node in nodes:
        parent = known.get(-1 if node.parent is None else node.parent)
        if parent is not None and parent.level >= node.level:
            raise RunError(f"{folder} is damaged: node {node.id} is not below its parent")
    return TunedRun(folder, config, manifest, known, played, levels, summary)


def _rows(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; the last may have been cut off, and none be there."""
    if not path.exists():
        return []
    if file_size(path) > LARGEST:
        raise Damaged(f"{path.name} is too large to be true")
    rows = []
    lines = path.read_text("utf-8", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            if number == len(lines):
                break
            raise Damaged(f"line {number} of {path.name} is no JSON") from None
        if not isinstance(row, dict):
            raise Damaged(f"line {number} of {path.name} is no JSON object")
        rows.append(row)
    return rows


def _node(row: dict[str, Any]) -> Node:
    numbers = (_number(row[name]) for name in ("score", "calibrated", "penalty", "bellman"))
    kind, status, how = (str(row[name]) for name in ("kind", "status", "assigned_how"))
    parent = None if row["parent"] is None else int(row["parent"])
    return Node(int(row["id"]), parent, int(row["level"]), kind, status, how, *numbers)


def _played(row: dict[str, Any]) -> Played:
    return Played(
        int(row["node"]),
        int(row["level"]),
        float(row["mean"]),
        _pair(row["interval"]),
        float(row["gain"]),
        _pair(row["gain_interval"]),
        float(row["checkpoint"]),
        int(row["episodes"]),
    )


def _level(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the log with its numbers, those that are known."""
    known = {n: v for n, v in row.items() if isinstance(v, int | float) and math.isfinite(v)}
    return known | {"step": int(row["step"])}


def _summary(found: dict[str, Any]) -> dict[str, Any]:
    """What came of a run, if all that is told of it is there."""
    if found.get("candidates") == 0:
        return found
    int(found["chosen_by_score"]["node"])
    if "chosen" in found:
        for name in ("checkpoint", "chosen", "chosen_by_score"):
            float(found[name]["mean"])
            _pair(found[name]["interval"])
        for name in ("chosen", "chosen_by_score"):
            float(found[name]["gain"])
            _pair(found[name]["gain_interval"])
        int(found["chosen"]["episodes"])
        str(found["handed_back"])
    return found | {"frames": int(found["frames"])}


def _pair(values: Any) -> tuple[float | None, float | None]:
    low, high = values
    return _number(low), _number(high)


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
