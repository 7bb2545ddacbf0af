"""The demo's page: one HTML file, without scripts or anything to load, that explains the results.

The words are in `page.html`; every number they need is computed here.
"""

from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template

import numpy as np
from jaxtyping import Float

from conqur import __version__, report
from conqur.demo.experiment import Demo, Example, Method
from conqur.demo.pictures import (
    COLOURS,
    FROM_INFORMATION_SETS,
    SAME,
    capital,
    code,
    colour,
    grid_size,
    planes,
    world,
)
from conqur.exact import LinearPolicies, PolicyConsistent
from conqur.exact.information_sets import Cell
from conqur.report import Bar, Reference, Series, number
from conqur.tabular import Problem, greedy_policy

SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")
FREE = LinearPolicies.FREE


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
    return _result_slots(example) | {
        "headline": report.bar_chart(
            _bars(example), title="The value each method reached", references=_references(example)
        ),
        "best_policy": code(best),
        "policy_table": _policy_table(example),
        "planes": planes(example),
        "sweeps": number(found.sweeps),
        "num_cells": number(len(found.cells)),
        "pcvi_value": number(found.value),
        "pcvi_theta": _vector(found.theta),
        "cell_table": _cell_table(found.cells),
        "wavering": _wavering(example),
    }


def _starts_slots(demo: Demo) -> dict[str, str]:
    result = demo.random_starts
    counts = {"Without the penalty": result.plain, "With it": result.penalised}
    colours = COLOURS["regression"], COLOURS["penalised"]
    bars = [
        Bar(name, count, colour, f"{count} of {result.starts}")
        for (name, count), colour in zip(counts.items(), colours, strict=True)
    ]
    title = f"Successes among {result.starts} random starts"
    return {
        "starts": str(result.starts),
        "begun": str(result.begun),
        "plain_successes": str(result.plain),
        "penalised_successes": str(result.penalised),
        "penalised_found": str(result.penalised_found),
        "starts_chart": report.bar_chart(bars, title=title, high=result.starts),
    }


def _grid_slots(example: Example) -> dict[str, str]:
    mdp, features = example.problem
    worlds = [
        ("The unconstrained optimal policy", mdp.optimal_policy()),
        ("The best realizable policy", example.information_sets.policy),
        *(
            (f"{capital(method.name)}'s policy", greedy_policy(features, method.theta))
            for method in example.methods
            if method.key == "q_learning"
        ),
    ]
    values = [value for _, value in example.policies.values()]
    return {
        "grid_size": str(grid_size(mdp)),
        "worlds": "".join(world(mdp, name, policy) for name, policy in worlds),
        "grid_histogram": report.histogram(
            values,
            _bars(example),
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
            below.append(f"{escape(method.name)} ({_value(method, example)})")
    parts = [
        (below, "end", "ends", "below the best realizable value"),
        (above, "reach", "reaches", "it" if below else "the best realizable value"),
    ]
    sentences = (
        f"{_listed(names)} {singular if len(names) == 1 else plural} {what}"
        for names, plural, singular, what in parts
        if names
    )
    return capital("; ".join(sentences)) + "."


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
            f'<tr><th scope="row"><span class="dot" style="background:{colour(method)}"></span>'
            f"{capital(escape(method.name))}<small>{escape(method.setting)}</small></th>"
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
        rows.append(_valued_row(code(policy), middle, value, _is_best(value, example)))
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
            [Series(method.name, method.progress, colour(method))],
            title=f"Progress of {method.name}",
            x_label=f"× {method.unit}" if method.unit[:1].isdigit() else method.unit,
            y_label="own estimate"
            if method.key in FROM_INFORMATION_SETS
            else "value of the policy",
            references=references,
            y_range=(min([0.0, *seen]), high),
        )
        panels.append(f"<div><h3>{capital(escape(method.name))}</h3>{chart}</div>")
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


def _references(example: Example) -> list[Reference]:
    return [
        Reference("best realizable", example.best_realizable),
        Reference("unconstrained optimum", example.unconstrained),
    ]


def _bars(example: Example) -> list[Bar]:
    return [
        Bar(capital(method.name), method.value, colour(method), _value(method, example))
        for method in example.methods
    ]


def _value(method: Method, example: Example) -> str:
    """A method's value with as many decimals as the others' need."""
    decimals = (number(other.value).partition(".")[2] for other in example.methods)
    return f"{method.value:.{max(map(len, decimals))}f}".replace("-", "−")


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
