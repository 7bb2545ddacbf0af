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
        """The node that was found best in the end."""
        number = ((self.summary or {}).get("chosen") or {}).get("node")
        return number if number in self.nodes else None

    def lineage(self, number: int) -> list[Node]:
        """A node and its ancestors, the root first."""
        found: list[Node] = []
        at: int | None = number
        while at is not None and at in self.nodes:
            found.append(self.nodes[at])
            at = self.nodes[at].parent
        return found[::-1]


def is_tuned(folder: Path) -> bool:
    """Whether a folder is that of a tuning run, as its settings say."""
    try:
        return "search" in read_json(folder / CONFIG)
    except Damaged:
        return False


def read_tuned(folder: Path) -> TunedRun:
    """Read a run, whether it is at its end or not.

    Args:
        folder: of the run.

    Raises:
        RunError: if it is no tuning run or its files are not what a run writes.
    """
    try:
        config = TuneConfig.from_json(read_json(folder / CONFIG))
    except (Damaged, ValueError) as error:
        raise RunError(f"{folder} cannot be reported on: {error}") from None
    if not (folder / TREE).exists():
        raise RunError(
            f"{folder} has no {TREE} yet: it is written with the run's first checkpoint, after "
            "some minutes"
        )
    try:
        nodes = [_node(row) for row in _rows(folder / TREE)]
        played = tuple(_played(row) for row in _rows(folder / EVALUATIONS))
        levels = tuple(_rows(folder / LOG))
        manifest = read_json(folder / MANIFEST) if (folder / MANIFEST).exists() else {}
        summary = read_json(folder / SUMMARY) if (folder / SUMMARY).exists() else None
    except (Damaged, KeyError, TypeError, ValueError) as error:
        raise RunError(f"{folder} is damaged, or no run of this version: {error}") from None
    known = {node.id: node for node in nodes}
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


def _pair(values: Any) -> tuple[float | None, float | None]:
    low, high = values
    return _number(low), _number(high)


def _number(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)
