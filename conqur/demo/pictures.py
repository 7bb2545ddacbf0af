"""The demo's own pictures: the plane of θ and the grid world, as inline SVG."""

from collections.abc import Sequence
from html import escape
from math import isqrt
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from conqur.demo.experiment import Example, Method
from conqur.exact.information_sets import Cell
from conqur.report import number, words
from conqur.tabular import MDP, greedy_policy

COLOURS = {
    "q_learning": "var(--vermillion)",
    "regression": "var(--muted)",
    "penalised": "var(--orange)",
    "algorithm_1": "var(--blue)",
    "pcvi": "var(--green)",
    "pcql": "var(--purple)",
}
FROM_INFORMATION_SETS = {"pcvi", "pcql"}
"""The methods whose progress is their own estimate and whose θ is only a witness."""
SAME = 1e-9
"""Values closer than this are the same."""


class _View(NamedTuple):
    """A square part of the θ-plane, drawn 320 pixels wide."""

    centre: Float[np.ndarray, "2"]
    half: float

    def pixel(self, theta: Float[np.ndarray, "2"]) -> tuple[float, float]:
        """Where θ is drawn; the second axis points up."""
        x, y = (theta - self.centre) / self.half
        return 160 * (1 + float(x)), 160 * (1 - float(y))


def planes(example: Example) -> str:
    """The θ-plane, and a close-up of where the regressions ended, for that is close together."""
    methods = example.methods
    view = _View(np.zeros(2), 1.15 * max(float(np.abs(m.path).max()) for m in methods))
    fitted = [method for method in methods if method.key not in FROM_INFORMATION_SETS]
    if len(fitted) < 2:
        return _plane(example, view, methods)
    thetas = np.stack([method.theta for method in fitted])
    centre = (thetas.min(axis=0) + thetas.max(axis=0)) / 2
    close = _View(centre, 1.6 * max(float(np.abs(thetas - centre).max()), 1e-6))
    left, top = view.pixel(centre + close.half * np.array([-1, 1]))
    side = 320 * close.half / view.half
    box = f'x="{left:.1f}" y="{top:.1f}" width="{side:.1f}" height="{side:.1f}"'
    frame = f'<rect class="window" {box}/>' + words(
        left + side + 6, top + side / 2 + 4, "close-up", css="halo name"
    )
    others = [method for method in methods if method.key in FROM_INFORMATION_SETS]
    return _plane(example, view, others, _starts(methods, view) + frame) + _plane(
        example, close, fitted
    )


def _starts(methods: Sequence[Method], view: _View) -> str:
    """Where the regressions that have a way began."""
    starts = {tuple(method.path[0].tolist()) for method in methods if len(method.path) > 1}
    marks = []
    for start in sorted(starts):
        x, y = view.pixel(np.array(start))
        anchor, dx = ("end", -8) if x > 160 else ("start", 8)
        marks.append(f'<circle class="start" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
        marks.append(words(x + dx, y - 6, "start θ*", anchor, "halo name"))
    return "".join(marks)


def _ways(methods: Sequence[Method], view: _View) -> str:
    """The ways of the regressions through the plane."""
    lines = []
    for method in methods:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(view.pixel, method.path))
        lines.append(f'<polyline class="way" style="stroke:{colour(method)}" points="{points}"/>')
    return "".join(lines)


def _plane(example: Example, view: _View, methods: Sequence[Method], extra: str = "") -> str:
    """The cones of the realizable policies in one view, and where methods ended."""
    features = example.problem.features
    differences = (features[:, :, None] - features[:, None]).reshape(-1, 2)
    normals = differences[np.abs(differences).max(axis=1) > SAME]
    turns = np.arctan2(normals[:, 0], -normals[:, 1])  # a boundary is at right angles to it
    edges = np.unique(np.round(turns, 9))  # both directions occur: φ − φ' and φ' − φ
    body = []
    for start, end in zip(edges, np.append(edges[1:], edges[0] + 2 * np.pi), strict=True):
        angles = np.linspace(start, end, 5)
        rim = 100 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        corners = [view.pixel(theta) for theta in (np.zeros(2), *rim)]
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in corners)
        strength = 0.14 + 0.6 * _worth(example, rim[2]) / (example.best_realizable or 1.0)
        body.append(f'<polygon class="sector" points="{points}" fill-opacity="{strength:.2f}"/>')
    body += [_ways(example.methods, view), _cone_labels(example, view), extra]
    names: list[_Name] = []
    for name, method in _grouped(methods):
        x, y = view.pixel(method.theta)
        body.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" style="fill:{colour(method)}"/>')
        names.append(_placed(x, y, name, names))
    body += [words(name.x, name.y, name.text, name.anchor, "halo name") for name in names]
    low, high = view.centre - view.half, view.centre + view.half
    spans = (f"θ{i} from {number(low[k])} to {number(high[k])}" for k, i in enumerate("₁₂"))
    return (
        '<svg class="plane" viewBox="0 0 320 344" role="img" aria-label="The cones of the '
        f'realizable policies"><svg width="320" height="320">{"".join(body)}</svg>'
        f"{words(160, 338, ', '.join(spans), 'middle')}</svg>"
    )


class _Name(NamedTuple):
    """A point's name, and where it is written."""

    x: float
    y: float
    text: str
    anchor: str

    @property
    def span(self) -> tuple[float, float]:
        """About from where to where it goes."""
        width = 7.5 * len(self.text)
        left = self.x - width * {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor]
        return left, left + width

    def meets(self, other: "_Name") -> bool:
        """Whether they are in each other's way."""
        (left, right), (start, end) = self.span, other.span
        return left < end and start < right and abs(self.y - other.y) < 15


def _placed(x: float, y: float, text: str, others: Sequence[_Name]) -> _Name:
    """The name of a point: beside it, or else below or above it, where no other name is."""
    sides = [_Name(x - 9, y + 4, text, "end"), _Name(x + 9, y + 4, text, "start")]
    if x <= 160:
        sides.reverse()
    around = [_Name(x, y + 20, text, "middle"), _Name(x, y - 12, text, "middle")]
    for name in (*sides, *around):
        inside = name.span[0] >= 0 and name.span[1] <= 320
        if inside and not any(name.meets(other) for other in others):
            return name
    return sides[0]


def _cone_labels(example: Example, view: _View) -> str:
    """Each policy in the middle of the part of the view's edge that belongs to it."""
    angles = np.linspace(0, 2 * np.pi, 360, endpoint=False)
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    around /= np.abs(around).max(axis=1, keepdims=True)
    thetas = view.centre + 0.82 * view.half * around
    greedy = (greedy_policy(example.problem.features, theta) for theta in thetas)
    codes = np.array([code(tuple(policy.tolist())) for policy in greedy])
    labels = []
    for name in np.unique(codes):
        mine = codes == name
        directions = around[mine] / np.linalg.norm(around[mine], axis=1, keepdims=True)
        theta = thetas[mine][np.argmax(directions @ directions.mean(axis=0))]
        x, y = view.pixel(theta)
        labels.append(words(x, y - 3, str(name), "middle", "code"))
        labels.append(words(x, y + 12, number(_worth(example, theta)), "middle", "worth"))
    return "".join(labels)


def _worth(example: Example, theta: Float[np.ndarray, "2"]) -> float:
    return example.problem.mdp.value(greedy_policy(example.problem.features, theta))


def _grouped(methods: Sequence[Method]) -> list[tuple[str, Method]]:
    """Methods that ended at the same θ, with their names joined."""
    groups: dict[tuple[float, ...], list[Method]] = {}
    for method in methods:
        groups.setdefault(tuple(np.round(method.theta, 9).tolist()), []).append(method)
    return [(capital(", ".join(m.name for m in group)), group[0]) for group in groups.values()]


def world(mdp: MDP, name: str, policy: Int[np.ndarray, " S"]) -> str:
    """The grid with an arrow in every cell."""
    size, side = grid_size(mdp), 80
    visited = _visited(mdp, policy)
    body = []
    for state in range(size * size):
        y, x = (side * part + 1 for part in divmod(state, size))
        css = "cell goal" if state == mdp.num_states else "cell"
        body.append(f'<rect class="{css}" x="{x}" y="{y}" width="{side}" height="{side}"/>')
        if state == mdp.num_states:
            body.append(words(x + side / 2, y + side / 2 + 4, "goal", "middle", "goal-text"))
            continue
        if state in visited:
            body.append(f'<rect class="visited" x="{x}" y="{y}" width="{side}" height="{side}"/>')
        turn = f"translate({x + side / 2} {y + side / 2}) rotate({90 * int(policy[state])})"
        body.append(f'<path transform="{turn}" d="M0 15V-13M-6 -7 0 -14 6 -7"/>')
        if mdp.start[state] > 0:
            body.append(words(x + 6, y + 16, "start"))
    extent = size * side + 2
    return (
        f"<div><h3>{escape(name)} <small>value {number(mdp.value(policy))}</small></h3>"
        f'<svg class="world" viewBox="0 0 {extent} {extent}" role="img" '
        f'aria-label="{escape(name)}, cell by cell">{"".join(body)}</svg></div>'
    )


def _visited(mdp: MDP, policy: Int[np.ndarray, " S"]) -> set[int]:
    """The states on the way from the start if the likeliest successor is always reached."""
    visited: set[int] = set()
    state = int(np.argmax(mdp.start))
    while state not in visited and state < mdp.num_states:
        visited.add(state)
        row = mdp.transitions[state, policy[state]]
        state = int(np.argmax(np.append(row, 1 - row.sum())))
    return visited


def grid_size(mdp: MDP) -> int:
    """The grid's side; the goal is no state."""
    return isqrt(mdp.num_states + 1)


def colour(method: Method) -> str:
    """The colour of a method in all pictures."""
    return COLOURS.get(method.key, "var(--muted)")


def code(policy: Cell) -> str:
    """A policy as its actions in a row, counted from one: 1122."""
    return "".join(str(action + 1) for action in policy)


def capital(words: str) -> str:
    """The words with a capital first letter."""
    return words[:1].upper() + words[1:]
