"""A tuning run's story, read from its folder: nothing is locked or written, nothing is trusted."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from conqur.report.lines import (
    Interval,
    finite,
    is_there,
    number_or_none,
    pair,
    read_rows,
    whole,
)
from conqur.runs import RunError
from conqur.runs.files import Damaged, read_json
from conqur.runs.layout import CONFIG, LOG, MANIFEST
from conqur.search.config import HUGE, TuneConfig
from conqur.tuning_run import EVALUATIONS, SUMMARY, TREE


class Node(NamedTuple):
    """A line of `tree.jsonl`; numbers that are not known are None. The checkpoint is level 0."""

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
    """A node that was played beside the checkpoint, on the same starts, or the checkpoint itself.

    `level` is that after which it was; of the checkpoint, gains are 0.
    """

    node: int
    level: int
    mean: float
    interval: Interval
    gain: float
    gain_interval: Interval
    checkpoint: float
    episodes: int


class Candidate(NamedTuple):
    """A node that was played again to choose one, until the better half went on without it."""

    node: int
    mean: float
    episodes: int


class Summary(NamedTuple):
    """What came of a run; `checkpoint`, `chosen` and `by_score` are None if nothing was played.

    `by_score` is also None if the nodes of the last level diverged; `played_again` is empty of
    older runs.
    """

    candidates: int | None
    frames: int
    seconds: float
    by_score_node: int | None
    checkpoint: Played | None
    chosen: Played | None
    by_score: Played | None
    best: Played | None
    played_again: tuple[Candidate, ...]
    kept_checkpoint: bool


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
    summary: Summary | None

    @property
    def by_rollouts(self) -> bool:
        """Whether scores are gains on the checkpoint, with the sign turned."""
        return self.config.scoring == "rollouts"

    @property
    def chosen(self) -> int | None:
        """The node that was found best in the end, by rollouts or else by its score."""
        if self.summary is None:
            return None
        found, scored = self.summary.chosen, self.summary.by_score_node
        number = scored if found is None else found.node
        return number if number in self.nodes else None

    @property
    def command(self) -> str:
        """What was typed to start it, which names the network; empty if that is not known."""
        typed = self.manifest.get("command")
        return typed if isinstance(typed, str) else ""

    @property
    def level(self) -> int:
        """How many levels of the tree are known; the log may be ahead of it."""
        return max(node.level for node in self.nodes.values())

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
        nodes = read_rows(folder / TREE, _node)
        played = tuple(read_rows(folder / EVALUATIONS, _played))
        rows = read_rows(folder / LOG, _level)
        levels = {row["step"]: row for row in rows}  # of a run that was resumed, the newest
        manifest = read_json(folder / MANIFEST) if is_there(folder / MANIFEST) else {}
        summary = None
        if is_there(folder / SUMMARY):
            summary = summary_of(read_json(folder / SUMMARY))
    except (Damaged, OSError) as error:
        raise RunError(f"{folder} is damaged, or no run of this version: {error}") from None
    if not nodes:
        raise RunError(
            f"{folder} has no {TREE} yet: it is written with the run's first checkpoint, after "
            "some minutes"
        )
    known = {node.id: node for node in nodes}
    if len(known) < len(nodes):
        raise RunError(f"{folder} is damaged: two nodes have the same number")
    for node in nodes:
        parent = None if node.parent is None else known.get(node.parent)
        if parent is not None and parent.level >= node.level:
            raise RunError(f"{folder} is damaged: node {node.id} is not below its parent")
    last = max(node.level for node in nodes)
    reached = tuple(row for step, row in sorted(levels.items()) if step <= last)
    return TunedRun(folder, config, manifest, known, played, reached, summary)


def summary_of(found: dict[str, Any]) -> Summary:
    """A run's summary, as far as it is told of.

    Raises:
        Damaged: if something in it cannot be.
    """
    try:
        chosen: Any = found.get("chosen")
        by_score: Any = found.get("chosen_by_score") or {}
        played = chosen is not None
        if played:
            about = found["checkpoint"] | {"episodes": whole(chosen["episodes"])}
            still = {"gain": 0.0, "gain_interval": [0.0, 0.0], "checkpoint": about["mean"]}
        best = found.get("best_of_evaluations")
        return Summary(
            candidates=None if "candidates" not in found else whole(found["candidates"]),
            frames=whole(found["frames"]) + whole(found.get("played_frames", 0)),
            seconds=finite(found.get("seconds", 0.0)),
            by_score_node=None if "node" not in by_score else whole(by_score["node"]),
            checkpoint=_played({"node": 0, "level": 0} | about | still) if played else None,
            chosen=_played(chosen | {"level": 0}) if played else None,
            by_score=_played(by_score | {"level": 0}) if played and by_score else None,
            best=_played(best) if best else None,
            played_again=tuple(_candidate(row) for row in found.get("played_again") or ()),
            kept_checkpoint=found["handed_back"] == "checkpoint",
        )
    except KeyError as error:
        raise Damaged(f"the summary has no {error.args[0]}") from None
    except (TypeError, ValueError, AttributeError) as error:
        raise Damaged(f"its summary: {error}") from None


def read_played(path: Path) -> list[Played]:
    """The evaluations of a run, in order; none if there is no such file."""
    return read_rows(path, _played)


def _node(row: dict[str, Any]) -> Node:
    numbers = (number_or_none(row[name]) for name in ("score", "calibrated", "penalty", "bellman"))
    kind, status, how = (str(row[name]) for name in ("kind", "status", "assigned_how"))
    parent = None if row["parent"] is None else whole(row["parent"])
    return Node(whole(row["id"]), parent, whole(row["level"]), kind, status, how, *numbers)


def _candidate(row: dict[str, Any]) -> Candidate:
    return Candidate(whole(row["node"]), finite(row["mean"]), whole(row["episodes"]))


def _played(row: dict[str, Any]) -> Played:
    return Played(
        whole(row["node"]),
        whole(row["level"]),
        finite(row["mean"]),
        pair(row["interval"]),
        finite(row["gain"]),
        pair(row["gain_interval"]),
        finite(row["checkpoint"]),
        whole(row["episodes"]),
    )


def _level(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the log with its numbers, those that are known."""
    numbers = {n: v for n, v in row.items() if type(v) in (int, float) and abs(v) < HUGE}
    return numbers | {"step": whole(row["step"])}
