"""The search tree as a picture: levels from left to right, lineages as lines, scores as colours."""

import json
import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from conqur.report.charts import number, signed
from conqur.report.tuned_run import Node, Played, TunedRun

MOST = 6_000
"""Nodes that are drawn."""
SHADES = 9
"""Colours of scores."""
ROW, LEFT, TOP = 13, 14, 18
"""Pixels between nodes of a level, and margins."""
NARROW, WIDE = 8, 64
"""Pixels between levels, at least and at most."""
WIDTH = 870
"""Pixels that a tree takes if its levels fit."""


class Place(NamedTuple):
    """Where a node is drawn, in pixels."""

    x: float
    y: float


def drawn_nodes(run: TunedRun) -> list[Node]:
    """The nodes to draw: all, or the lineages of those that are left and the best of the others."""
    if len(run.nodes) <= MOST:
        return list(run.nodes.values())
    wanted = {ancestor.id for ancestor in run.lineage(-1 if run.chosen is None else run.chosen)}
    left = [node for node in run.nodes.values() if node.status in ("frontier", "pool")]
    others = [node for node in run.nodes.values() if node.status not in ("frontier", "pool")]
    for node in sorted(left, key=_by_score) + sorted(others, key=_by_score):
        wanted |= {ancestor.id for ancestor in run.lineage(node.id)}
        if len(wanted) >= MOST:
            break
    return [node for node in run.nodes.values() if node.id in wanted][: 2 * MOST]


def places(nodes: Sequence[Node]) -> dict[int, Place]:
    """Where nodes are drawn: those of a level below one another, in the order of their parents."""
    levels = _by_level(nodes)
    first, step = min(levels), _step(nodes)
    tallest = max(len(row) for row in levels.values())
    found: dict[int, Place] = {}
    for level in sorted(levels):
        row = sorted(levels[level], key=lambda n: (_above(found, n), n.id))
        gap = ROW * tallest / len(row)
        for i, node in enumerate(row):
            found[node.id] = Place(LEFT + step * (level - first), TOP + gap * (i + 0.5))
    return found


def shades(nodes: Sequence[Node]) -> dict[int, int]:
    """The colour of each node's score among those of its level, 0 the best.

    Levels have batches of their own, so that scores of different levels say little. Nodes without
    a score have no colour.
    """
    found: dict[int, int] = {}
    for row in _by_level(nodes).values():
        scores = sorted(node.score for node in row if node.score is not None)
        last = max(1, len(scores) - 1)
        found |= {  # equal scores are of one colour
            node.id: (SHADES - 1) * bisect_left(scores, node.score) // last
            for node in row
            if node.score is not None
        }
    return found


def search_tree(run: TunedRun) -> str:
    """The tree as SVG. `run_page.js` makes it answer to the mouse and to keys."""
    nodes = drawn_nodes(run)
    at, colour = places(nodes), shades(nodes)
    narrow = min(1.0, _step(nodes) / 14)
    width = max(place.x for place in at.values()) + LEFT
    height = max(place.y for place in at.values()) + ROW
    body = [_levels(nodes, at), *_edges(nodes, at), '<path id="lineage" class="lineage" d=""/>']
    for node in nodes:
        x, y = at[node.id]
        shade = f"c{colour[node.id]}" if node.id in colour else "unscored"
        css = f"{shade} {escape(node.status)}{' chosen' * (node.id == run.chosen)}"
        radius = narrow * {"frontier": 5.0, "pool": 4.5, "evicted": 2.5}.get(node.status, 3.5)
        radius = 7.0 if node.id == run.chosen else 6.0 if node.parent is None else radius
        body.append(
            f'<circle id="n{node.id}" class="{css}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:.3g}"/>'
        )
    return (
        f'<svg id="tree" class="tree" role="img" tabindex="0" width="{width:.0f}" '
        f'height="{height:.0f}" aria-label="Search tree: {len(nodes)} nodes">{"".join(body)}</svg>'
    )


def node_data(run: TunedRun) -> str:
    """What `run_page.js` tells of nodes: a JSON array of arrays of words, for a script element."""
    played = {row.node: row for row in run.played}
    rows = [
        [node.id, node.parent, *details(run, node, played).values()] for node in drawn_nodes(run)
    ]
    return json.dumps(rows, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def details(run: TunedRun, node: Node, played: Mapping[int, Played]) -> dict[str, str]:
    """What is told of a node, in words, by name; of labels and losses if there were any."""
    checkpoint = node.parent is None
    told = {
        "made": "the checkpoint" if checkpoint else f"level {node.level}, {node.kind}",
        "status": node.status,
    }
    score = "gain" if run.by_rollouts else "score"
    scores = {
        score: _written(run.for_people(node.score)),
        f"{score}, calibrated": _written(run.for_people(node.calibrated)),
    }
    learned = {"labels": node.assigned_how or "–"}
    losses = {"Bellman error": _written(node.bellman), "penalty": _written(node.penalty)}
    if not run.config.updates:
        learned, losses = {}, {}
    return told | learned | scores | losses | {"played": _score(run, node, played)}


def detail_names(run: TunedRun) -> list[str]:
    """The names of `details`, which are those of every node."""
    return list(details(run, next(iter(run.nodes.values())), {}))


def _score(run: TunedRun, node: Node, played: Mapping[int, Played]) -> str:
    """What a node scored, on fresh starts if it was among those that played there in the end."""
    summary = run.summary
    for found in (summary.chosen, summary.by_score) if summary else ():
        if found is not None and found.node == node.id:
            return f"{number(found.mean, 2)} ({signed(found.gain)}) on fresh starts"
    row = played.get(node.id)
    return "–" if row is None else f"{number(row.mean, 2)} ({signed(row.gain)})"


def _by_level(nodes: Sequence[Node]) -> dict[int, list[Node]]:
    levels: dict[int, list[Node]] = defaultdict(list)
    for node in nodes:
        levels[node.level].append(node)
    return levels


def _step(nodes: Sequence[Node]) -> float:
    """Pixels between levels."""
    levels = {node.level for node in nodes}
    return min(WIDE, max(NARROW, WIDTH / (max(levels) - min(levels) + 1)))


def _written(value: float | None) -> str:
    return "–" if value is None else f"{value or 0.0:.4g}".replace("-", "−")


def _above(found: Mapping[int, Place], node: Node) -> float:
    parent = found.get(-1 if node.parent is None else node.parent)
    return math.inf if parent is None else parent.y


def _by_score(node: Node) -> tuple[float, int]:
    return (math.inf if node.score is None else node.score, node.id)


def _levels(nodes: Sequence[Node], at: Mapping[int, Place]) -> str:
    """Numbers of levels along the top."""
    xs = {node.level: at[node.id].x for node in nodes}
    step = next((s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500) if len(xs) / s <= 20), 1000)
    return "".join(
        f'<text x="{x:.1f}" y="10" text-anchor="middle">{level}</text>'
        for level, x in sorted(xs.items())
        if level % step == 0
    )


def _edges(nodes: Sequence[Node], at: Mapping[int, Place]) -> list[str]:
    """From parents to children; those over several levels come back to leaves that waited."""
    known = {node.id: node for node in nodes}
    near: list[str] = []
    far: list[str] = []
    for node in nodes:
        if node.parent is None or node.parent not in known:
            continue
        (x0, y0), (x1, y1) = at[node.parent], at[node.id]
        middle = (x0 + x1) / 2
        bend = f"M{x0:.1f} {y0:.1f}C{middle:.1f} {y0:.1f} {middle:.1f} {y1:.1f} {x1:.1f} {y1:.1f}"
        (near if node.level == known[node.parent].level + 1 else far).append(bend)
    return [f'<path class="edge" d="{"".join(near)}"/>', f'<path class="back" d="{"".join(far)}"/>']
