"""The demo's page: one HTML file, without scripts or anything to load, that explains the results.

The words are in `page.html`; every number they need is computed here.
"""

from collections.abc import Sequence
from html import escape
from importlib import resources
from math import isqrt
from string import Template
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from conqur import __version__, report
from conqur.demo.experiment import Demo, Example, Method
from conqur.exact import LinearPolicies, PolicyConsistent
from conqur.exact.information_sets import Cell
from conqur.report import Bar, Reference, Series, number, words
from conqur.tabular import MDP, Problem, greedy_policy

COLOURS = {
    "q_learning": "var(--vermillion)",
    "penalised": "var(--orange)",
    "algorithm_1": "var(--blue)",
    "pcvi": "var(--green)",
    "pcql": "var(--purple)",
}
FROM_INFORMATION_SETS = {"pcvi", "pcql"}
"""The methods whose progress is their own estimate and whose θ is only a witness."""
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
FREE = LinearPolicies.FREE
SAME = 1e-9
"""Values closer than this are the same."""


def render(demo: Demo, command: str) -> str:
    """The whole page.

    Args:
        demo: the measurements.
        command: what the reader may type to make the page again.
    """
    page = resources.files("conqur.demo").joinpath("page.html").read_text(encoding="utf-8")
    common = {"style": report.style(), "command": escape(command), "version": escape(__version__)}
    return Template(page).substitute(
        common
        | _problem_slots(demo.four_state.problem)
        | _four_state_slots(demo.four_state)
        | _starts_slots(demo)
        | {f"grid_{key}": slot for key, slot in _result_slots(demo.grid_world).items()}
        | _grid_slots(demo.grid_world)
    )


def _problem_slots(problem: Problem) -> dict[str, str]:
    """What the picture of the four states needs: f11 is φ(s₁, a₁), r11 its reward, and so on."""
    mdp, features = problem
    pairs = [(s, a) for s in range(mdp.num_states) for a in range(mdp.num_actions)]
    return {
        **{f"f{s + 1}{a + 1}": _vector(features[s, a], 2) for s, a in pairs},
        **{f"r{s + 1}{a + 1}": number(mdp.rewards[s, a]) for s, a in pairs},
        "p_s4": number(mdp.transitions[0, 0, 3]),
        "p_end": number(1 - mdp.transitions[0, 0].sum()),
    }


def _result_slots(example: Example) -> dict[str, str]:
    """What is said about both examples."""
    mdp, features = example.problem
    return {
        "best": number(example.best_realizable),
        "unconstrained": number(example.unconstrained),
        "discount": number(mdp.discount),
        "d": str(features.shape[2]),
        "num_policies": f"{mdp.num_actions**mdp.num_states:,}",
        "num_realizable": f"{len(example.policies):,}",
        "verdict": _verdict(example),
        "method_table": _method_table(example),
        "legend": report.legend(_references(example)),
        "progress": _progress(example),
        "cell_chart": _cell_chart(example.information_sets),
    }


def _four_state_slots(example: Example) -> dict[str, str]:
    found = example.information_sets
    best = max(example.policies, key=lambda policy: example.policies[policy][1])
    bars = [_bar(method) for method in example.methods]
    return _result_slots(example) | {
        "headline": report.bar_chart(
            bars, title="The value each method reached", references=_references(example)
        ),
        "best_policy": _code(best),
        "policy_table": _policy_table(example),
        "planes": _planes(example),
        "sweeps": number(found.sweeps),
        "num_cells": number(len(found.cells)),
        "pcvi_value": number(found.value),
        "pcvi_theta": _vector(found.theta),
        "cell_table": _cell_table(found.cells),
        "wavering": _wavering(example),
    }


def _starts_slots(demo: Demo) -> dict[str, str]:
    counts = {"Without the penalty": demo.plain_successes, "With it": demo.penalised_successes}
    colours = COLOURS["q_learning"], COLOURS["penalised"]
    bars = [
        Bar(name, count, colour, f"{count} of {demo.starts}")
        for (name, count), colour in zip(counts.items(), colours, strict=True)
    ]
    title = f"Successes among {demo.starts} random starts"
    return {
        "starts": str(demo.starts),
        "plain_successes": str(demo.plain_successes),
        "penalised_successes": str(demo.penalised_successes),
        "starts_chart": report.bar_chart(bars, title=title, high=demo.starts),
    }


def _grid_slots(example: Example) -> dict[str, str]:
    mdp, features = example.problem
    worlds = [
        ("The unconstrained optimal policy", mdp.optimal_policy()),
        ("The best realizable policy", example.information_sets.policy),
        *(
            (f"{_capital(method.name)}'s policy", greedy_policy(features, method.theta))
            for method in example.methods
            if method.key == "q_learning"
        ),
    ]
    values = [value for _, value in example.policies.values()]
    return {
        "grid_size": str(_grid_size(mdp)),
        "worlds": "".join(_world(mdp, name, policy) for name, policy in worlds),
        "grid_histogram": report.histogram(
            values,
            [_bar(method) for method in example.methods],
            title="The values of all realizable policies",
            unit="policies",
        ),
    }


def _verdict(example: Example) -> str:
    """Which methods reached the best realizable value and which did not."""
    above, below = [], []
    for method in example.methods:
        if _is_best(method.value, example):
            above.append(escape(method.name))
        else:
            below.append(f"{escape(method.name)} ({number(method.value)})")
    parts = [
        (below, "end", "ends", "below the best realizable value"),
        (above, "reach", "reaches", "it" if below else "the best realizable value"),
    ]
    sentences = (
        f"{_listed(names)} {singular if len(names) == 1 else plural} {what}"
        for names, plural, singular, what in parts
        if names
    )
    return _capital("; ".join(sentences)) + "."


def _wavering(example: Example) -> str:
    """How often Q-learning's policy was the best one, since the end of its line may mislead."""
    return " ".join(
        f"Of the {len(method.progress)} policies of {escape(method.name)} shown here, "
        f"{sum(_is_best(value, example) for value in method.progress)} were worth as much as the "
        "best realizable one, but its updates hold it to none of them."
        for method in example.methods
        if method.key == "q_learning"
    )


def _method_table(example: Example) -> str:
    rows = []
    for method in example.methods:
        promised = "none" if method.promised is None else _fixed(method.promised)
        shortfall = max(0.0, example.best_realizable - method.value)
        numbers = promised, _fixed(method.value), _fixed(shortfall)
        rows.append(
            f'<tr><th scope="row"><span class="dot" style="background:{_colour(method)}"></span>'
            f"{_capital(escape(method.name))}<small>{escape(method.setting)}</small></th>"
            + "".join(f'<td class="num">{text}</td>' for text in numbers)
            + "</tr>"
        )
    head = ["Method", "Promised", "Value", "Shortfall"]
    return report.table(head, rows, "methods", numeric=3)


def _policy_table(example: Example) -> str:
    rows = []
    for policy, (theta, value) in example.policies.items():
        actions = "".join(f"<td>{_sub('a', action)}</td>" for action in policy)
        middle = f'{actions}<td class="num">{_vector(theta, 2)}</td>'
        rows.append(_valued_row(_code(policy), middle, value, _is_best(value, example)))
    states = [_sub("s", state) for state in range(example.problem.mdp.num_states)]
    return report.table(["Policy", *states, "Witness θ", "Value"], rows, "lists", numeric=2)


def _cell_table(cells: dict[Cell, float]) -> str:
    best = max(cells.values())
    rows = []
    for cell, value in cells.items():
        kept = [f"{_sub('s', s)} ↦ {_sub('a', a)}" for s, a in enumerate(cell) if a != FREE]
        free = [_sub("s", s) for s, a in enumerate(cell) if a == FREE]
        middle = f'<td class="free">{", ".join(free) or "none"}</td>'
        rows.append(_valued_row(", ".join(kept) or "all θ", middle, value, value == best))
    return report.table(["Commitments", "Free", "Value"], rows, "lists", numeric=1)


def _valued_row(name: str, middle: str, value: float, best: bool) -> str:
    return (
        f'<tr{" class=best" * best}><th scope="row">{name}</th>{middle}'
        f'<td class="num">{"best " * best}{_fixed(value)}</td></tr>'
    )


def _progress(example: Example) -> str:
    """One small chart for each method, on the same scale."""
    references = _references(example)
    seen = [value for method in example.methods for value in method.progress]
    high = max([*seen, *(reference.value for reference in references)])
    panels = []
    for method in example.methods:
        chart = report.line_chart(
            [Series(method.name, method.progress, _colour(method))],
            title=f"Progress of {method.name}",
            x_label=f"× {method.unit}" if method.unit[:1].isdigit() else method.unit,
            y_label="own estimate"
            if method.key in FROM_INFORMATION_SETS
            else "value of the policy",
            references=references,
            y_range=(min([0.0, *seen]), high),
        )
        panels.append(f"<div><h3>{_capital(escape(method.name))}</h3>{chart}</div>")
    return "".join(panels)


def _cell_chart(found: PolicyConsistent) -> str:
    """The number of PCVI's cells after each sweep, until a little after its last change."""
    changes = np.flatnonzero(np.diff(found.cell_counts))
    shown = found.cell_counts[: (int(changes[-1]) if len(changes) else 0) + 6]
    return report.line_chart(
        [Series("PCVI", shown, COLOURS["pcvi"])],
        title="Information sets after each sweep",
        x_label="sweep",
        y_label="information sets",
    )


class _View(NamedTuple):
    """A square part of the θ-plane, drawn 320 pixels wide."""

    centre: Float[np.ndarray, "2"]
    half: float

    def pixel(self, theta: Float[np.ndarray, "2"]) -> tuple[float, float]:
        """Where θ is drawn; the second axis points up."""
        x, y = (theta - self.centre) / self.half
        return 160 * (1 + float(x)), 160 * (1 - float(y))


def _planes(example: Example) -> str:
    """The θ-plane, and a close-up of where the regressions ended, for that is close together."""
    methods = example.methods
    view = _View(np.zeros(2), 1.9 * max(float(np.linalg.norm(m.theta)) for m in methods))
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
    return _plane(example, view, others, frame) + _plane(example, close, fitted)


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
    body += [_cone_labels(example, view), extra]
    for names, method in _grouped(methods):
        x, y = view.pixel(method.theta)
        anchor, dx = ("end", -9) if x > 160 else ("start", 9)
        body.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" style="fill:{_colour(method)}"/>'
            f"{words(x + dx, y + 4, names, anchor, 'halo name')}"
        )
    low, high = view.centre - view.half, view.centre + view.half
    spans = (f"θ{i} from {number(low[k])} to {number(high[k])}" for k, i in enumerate("₁₂"))
    return (
        '<svg class="plane" viewBox="0 0 320 344" role="img" aria-label="The cones of the '
        f'realizable policies"><svg width="320" height="320">{"".join(body)}</svg>'
        f"{words(160, 338, ', '.join(spans), 'middle')}</svg>"
    )


def _cone_labels(example: Example, view: _View) -> str:
    """Each policy in the middle of the part of the view's edge that belongs to it."""
    angles = np.linspace(0, 2 * np.pi, 360, endpoint=False)
    around = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    around /= np.abs(around).max(axis=1, keepdims=True)
    thetas = view.centre + 0.82 * view.half * around
    greedy = (greedy_policy(example.problem.features, theta) for theta in thetas)
    codes = np.array([_code(tuple(policy.tolist())) for policy in greedy])
    labels = []
    for code in np.unique(codes):
        mine = codes == code
        directions = around[mine] / np.linalg.norm(around[mine], axis=1, keepdims=True)
        theta = thetas[mine][np.argmax(directions @ directions.mean(axis=0))]
        x, y = view.pixel(theta)
        labels.append(words(x, y - 3, str(code), "middle", "code"))
        labels.append(words(x, y + 12, number(_worth(example, theta)), "middle", "worth"))
    return "".join(labels)


def _worth(example: Example, theta: Float[np.ndarray, "2"]) -> float:
    return example.problem.mdp.value(greedy_policy(example.problem.features, theta))


def _grouped(methods: Sequence[Method]) -> list[tuple[str, Method]]:
    """Methods that ended at the same θ, with their names joined."""
    groups: dict[tuple[float, ...], list[Method]] = {}
    for method in methods:
        groups.setdefault(tuple(np.round(method.theta, 9).tolist()), []).append(method)
    return [(_capital(", ".join(m.name for m in group)), group[0]) for group in groups.values()]


def _world(mdp: MDP, name: str, policy: Int[np.ndarray, " S"]) -> str:
    """The grid with an arrow in every cell."""
    size, side = _grid_size(mdp), 80
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


def _grid_size(mdp: MDP) -> int:
    return isqrt(mdp.num_states + 1)


def _references(example: Example) -> list[Reference]:
    return [
        Reference("best realizable", example.best_realizable),
        Reference("unconstrained optimum", example.unconstrained),
    ]


def _bar(method: Method) -> Bar:
    return Bar(_capital(method.name), method.value, _colour(method))


def _colour(method: Method) -> str:
    return COLOURS.get(method.key, "var(--muted)")


def _code(policy: Cell) -> str:
    """A policy as its actions in a row, counted from one: 1122."""
    return "".join(str(action + 1) for action in policy)


def _sub(letter: str, index: int) -> str:
    """A state or an action, counted from one: s₁."""
    return letter + str(index + 1).translate(SUBSCRIPTS)


def _vector(vector: Float[np.ndarray, " d"], decimals: int = 3) -> str:
    return f"({', '.join(number(part, decimals) for part in vector)})"


def _fixed(value: float) -> str:
    """A number for a column of numbers."""
    return f"{value:.3f}".replace("-", "−")


def _listed(words: Sequence[str]) -> str:
    return " and ".join(part for part in (", ".join(words[:-1]), words[-1]) if part)


def _is_best(value: float, example: Example) -> bool:
    return value >= example.best_realizable - SAME


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
