"""How often leaves that wait in the pool are taken for the best of all nodes, in finished searches.

    python experiments/waiting.py RUN... --output FILE

A node's score is its loss on the newest batch when it was trained. In Algorithm 2 the best of all
nodes collects the next batch, and the best in the end is what the search itself would choose; some
of these were last scored on an older batch. The search is gone through again with the scores in a
run's `tree.jsonl`; nothing is trained or played.
"""

import argparse
import csv
import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from conqur.report.lines import read_rows
from conqur.runs.files import read_json
from conqur.search.algorithms import World, beam_search
from conqur.search.node import Birth, Kind, Node, Tree, calibrate, top


class Row(NamedTuple):
    """What became of a search.

    Attributes:
        run: the run's folder.
        levels: how many it had after the first.
        collected: in how many of these a leaf that waited collected the batch.
        credited: in how many of those it was ranked by more than its own score, as selections add
            to the scores of leaves that wait.
        longest: in how many in a row the same one did.
        selections: how often leaves to be expanded were chosen while some waited.
        returns: how often some of those that waited were.
        trained: how many levels the nodes in the end and their ancestors were trained in, on
            average.
        chosen: the node that the search ranks first in the end.
        waits: how many levels before the last one it was scored.
        calibrated: the node that is first if leaves that wait are calibrated before.
        within: the standard deviation of scores of a level's nodes; the median over levels.
        between: the change of their mean from one level to the next; the same.
    """

    run: str
    levels: int
    collected: int
    credited: int
    longest: int
    selections: int
    returns: int
    trained: float
    chosen: int
    waits: int
    calibrated: int
    within: float
    between: float


class Told(World):
    """A world in which children are what a run's tree says they were."""

    def __init__(self, rows: Sequence[dict[str, Any]]) -> None:
        self.levels: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in rows:
            self.levels[row["level"]].append(row)
        self.parents = {row["id"]: row["parent"] for row in rows}
        self.collectors: list[Node] = []
        self.returned: list[bool] = []
        """Of selections: whether they chose leaves that had waited, where some had."""

    def collect(self, node: Node, level: int) -> None:
        self.collectors.append(node)

    def train(self, births: Sequence[Birth], tree: Tree, data: Any) -> tuple[Node, ...]:
        rows = self.levels[tree.level + 1]
        if [birth.parent.id for birth in births] != [row["parent"] for row in rows]:
            raise ValueError(
                f"level {tree.level + 1} has other nodes: it is no search of this kind"
            )
        if births[0].kind is Kind.EXPANSION and len(tree.pool) > len(tree.frontier):
            self.returned.append(any(birth.parent.level + 1 < tree.level for birth in births))
        return tuple(_node(row, birth.parent) for row, birth in zip(rows, births, strict=True))

    def trained(self, node: Node) -> int:
        """In how many levels the node and its ancestors were trained."""
        levels, parent = 0, self.parents[node.id]
        while parent is not None:
            levels, parent = levels + 1, self.parents[parent]
        return levels


def main(runs: Sequence[Path], output: Path) -> None:
    rows = [waiting(run) for run in runs]
    with output.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(rows)


def waiting(run: Path) -> Row:
    config, rows = read_json(run / "config.json"), read_rows(run / "tree.jsonl", dict)
    world, (root, *_) = Told(rows), rows
    trees = [Tree.planted([_node(root, None)])]
    for tree in beam_search(
        trees[0],
        world,
        levels=config["levels"],
        frontier_size=config["nodes"],
        splitting_factor=config["splitting_factor"],
        expanded=config["expanded"],
        pool_size=config["pool"],
        dive_levels=config["dive_levels"],
        calibration=config["calibration"],
        backtracking=config["backtracking"],
    ):
        trees.append(tree)
    last = trees[-1]
    waited = [
        node.id if node.level + 1 < tree.level else None
        for node, tree in zip(world.collectors[1:], trees[1:], strict=False)
    ]
    credited = [
        id is not None and node.calibrated != node.score
        for id, node in zip(waited, world.collectors[1:], strict=True)
    ]
    (chosen,), (calibrated,) = (
        top(pool, 1)
        for pool in (last.pool, calibrate(last.pool, last.frontier, config["calibration"]))
    )
    # Diverged nodes have none.
    known = ([n.score for n in tree.frontier if math.isfinite(n.score)] for tree in trees[1:])
    scores = [own for own in known if own]
    means = [statistics.mean(own) for own in scores]
    return Row(
        run=run.name,
        levels=len(waited),
        collected=sum(node is not None for node in waited),
        credited=sum(credited),
        longest=_longest(waited),
        selections=len(world.returned),
        returns=sum(world.returned),
        trained=statistics.mean(map(world.trained, last.frontier)),
        chosen=chosen.id,
        waits=last.level - 1 - chosen.level,
        calibrated=calibrated.id,
        within=statistics.median(statistics.pstdev(own) for own in scores),
        between=statistics.median(
            abs(after - before) for before, after in itertools.pairwise(means)
        ),
    )


def _node(row: dict[str, Any], parent: Node | None) -> Node:
    kind, score = Kind(row["kind"]), math.nan if row["score"] is None else row["score"]
    reference = math.nan
    if parent is not None:
        reference = parent.calibrated if kind is Kind.EXPANSION else parent.reference
    return Node(
        id=row["id"],
        parent=row["parent"],
        level=row["level"] - 1,
        kind=kind,
        assigned_how=row["assigned_how"],
        score=score,
        calibrated=score,
        reference=reference,
        bellman=math.nan,
        penalty=math.nan,
        weights=None,
        history=(),
    )


def _longest(waited: Sequence[int | None]) -> int:
    longest, now, before = 0, 0, None
    for node in waited:
        now = 0 if node is None else now + 1 if node == before else 1
        longest, before = max(longest, now), node
    return longest


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--output", required=True, type=Path, metavar="FILE")
    given = parser.parse_args()
    main(given.runs, given.output)
