"""The runs of a study of searches, as its exhibits see them.

A game's networks, trained apart, are what numbers are averaged and drawn anew over; runs of one
network with several seeds are averaged before. Where every game has a single network, its seeds
take their place.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from conqur.report.charts import number
from conqur.suite.algorithms import ALGORITHMS, Algorithm
from conqur.suite.tables import RankedNode, Tuned, TunedPoint


class Arm(NamedTuple):
    """What is compared."""

    algorithm: str
    penalty_weight: float

    def __str__(self) -> str:
        about = ALGORITHMS.get(self.algorithm, Algorithm(self.algorithm, ()))
        weight = f", λ = {number(self.penalty_weight)}" if about.penalised else ""
        return about.title + weight


class Measure(NamedTuple):
    """A way to count: what a run scored, and what its checkpoint did."""

    score: Callable[[Tuned], float | None]
    checkpoint: Callable[[Tuned], float | None]


FRESH = Measure(lambda run: run.score, lambda run: run.checkpoint)
"""On starts that nothing was chosen by."""
BEST = Measure(lambda run: run.best_evaluation, lambda run: run.best_evaluation_checkpoint)
"""The best of all evaluations."""
BY_SCORE = Measure(lambda run: run.score_by_score, lambda run: run.checkpoint)
"""Of the node that the search itself found best, by its loss and without playing, on those."""


class Unit(NamedTuple):
    """What is averaged over: a network, or, where games have one network, a seed of its search."""

    game: str
    name: str


Values = dict[Unit, float]


class Setting(NamedTuple):
    """Runs that differ in nothing but their networks, arms and seeds."""

    name: str
    nodes: int
    runs: dict[Arm, list[Tuned]]
    points: Sequence[TunedPoint]
    ranked: Sequence[RankedNode]
    by_network: bool

    @property
    def games(self) -> list[str]:
        """All of them."""
        return list(dict.fromkeys(run.game for runs in self.runs.values() for run in runs))

    @property
    def units(self) -> str:
        """What they are, in the plural."""
        return "networks" if self.by_network else "seeds, of one network each,"

    def key(self, name: str) -> str:
        """What a file of the setting is called."""
        return f"{name}-{self.name}" if self.name else name

    def titled(self, title: str) -> str:
        """A title that tells the setting from others."""
        if not self.name:
            return title
        nodes = "" if self.name.endswith(f"{self.nodes}-nodes") else f", {self.nodes} nodes"
        return f"{title}: {self.name}{nodes}"

    def arm(self, algorithm: str, weight: float | None = None) -> Arm | None:
        """The first of that name, if there is one, with that λ if one has it."""
        own = [arm for arm in self.runs if arm.algorithm == algorithm]
        fitting = [arm for arm in own if arm.penalty_weight == weight]
        return next(iter(fitting or own), None)

    def values(self, arm: Arm | None, of: Callable[[Tuned], float | None]) -> Values:
        """By unit: means over what it was repeated with."""
        found: dict[Unit, list[float]] = {}
        for run in [] if arm is None else self.runs[arm]:
            value = of(run)
            if value is not None:
                found.setdefault(self._unit(run), []).append(value)
        return _means(found)

    def by_rank(self, arm: Arm, of: Callable[[RankedNode], float]) -> list[Values]:
        """Of the nodes of its last evaluations: the best, the second best, and so on."""
        found: dict[int, dict[Unit, list[float]]] = {}
        for node in self.ranked:
            if Arm(node.algorithm, node.penalty_weight) == arm:
                values = found.setdefault(node.rank, {})
                values.setdefault(self._unit(node), []).append(of(node))
        return [_means(found[rank]) for rank in sorted(found)]

    def _unit(self, run: Tuned | RankedNode) -> Unit:
        return Unit(run.game, run.network if self.by_network else f"{run.network} {run.seed}")

    def scores(self, arm: Arm | None, measure: Measure) -> Values:
        """By unit: what the checkpoint scores, and what the arm gained on it where it was run.

        The same checkpoint may score differently on another machine.
        """
        scores, own = (self.values(arm, of) for of in measure)
        before = self.before(measure)
        return {u: before[u] + score - own[u] for u, score in scores.items() if u in own}

    def checkpoints(self) -> dict[str, float]:
        """What a game's checkpoints score on fresh starts, on average."""
        before = by_game(self.before(FRESH))
        return {game: float(np.mean(values)) for game, values in before.items()}

    def before(self, measure: Measure) -> Values:
        """Of the checkpoints, from whichever run knows."""
        found: Values = {}
        for arm in self.runs:
            found = self.values(arm, measure.checkpoint) | found
        return found


def _means(found: dict[Unit, list[float]]) -> Values:
    return {unit: float(np.mean(values)) for unit, values in found.items()}


def of_game(values: Values, game: str) -> list[float]:
    """The values of one game."""
    return [value for unit, value in values.items() if unit.game == game]


def by_game(values: Values) -> dict[str, list[float]]:
    """The values of every game."""
    return {unit.game: of_game(values, unit.game) for unit in values}


def with_diverged(rows: Sequence[Tuned]) -> list[Tuned]:
    """Runs all of whose nodes diverged handed the checkpoint back: that is what they count as."""
    known = {(row.network, row.seed): row.checkpoint for row in rows if row.checkpoint is not None}
    filled = []
    for row in rows:
        if row.diverged:
            before = known.get((row.network, row.seed))
            row = row._replace(checkpoint=before, score=before, gain=0.0)
        filled.append(row)
    return filled


def settings_of(
    rows: Sequence[Tuned], points: Sequence[TunedPoint], ranked: Sequence[RankedNode]
) -> list[Setting]:
    """The refit, which has one node, belongs to the others of its preset."""
    names = dict.fromkeys((row.preset, row.nodes) for row in rows if row.algorithm != "refit")
    names = names or dict.fromkeys((row.preset, row.nodes) for row in rows)
    networks = {(row.game, row.network) for row in rows}
    settings = []
    for preset, nodes in names:
        runs: dict[Arm, list[Tuned]] = {}
        for row in rows:
            if row.preset == preset and (row.nodes == nodes or row.algorithm == "refit"):
                runs.setdefault(Arm(row.algorithm, row.penalty_weight), []).append(row)
        own = [
            point
            for point in points
            if point.preset == preset and (point.nodes == nodes or point.algorithm == "refit")
        ]
        last = [node for node in ranked if (node.preset, node.nodes) == (preset, nodes)]
        name = (preset or f"{nodes}-nodes") if len(names) > 1 else ""
        if [p for p, _ in names].count(preset) > 1:
            name = f"{preset}-{nodes}-nodes".strip("-")
        name = re.sub(r"[^\w-]+", "-", name)
        by_network = len(networks) > len({game for game, _ in networks})
        ordered = dict(sorted(runs.items(), key=lambda item: _order(item[0])))
        settings.append(Setting(name, nodes, ordered, own, last, by_network))
    return settings


def _order(arm: Arm) -> tuple[int, float]:
    names = list(ALGORITHMS)
    place = names.index(arm.algorithm) if arm.algorithm in names else len(names)
    return place, arm.penalty_weight
