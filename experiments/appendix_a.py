"""Appendix A of the paper: where every method ends in the four-state example.

    python experiments/appendix_a.py --output results/appendix_a       minutes on two cores

Online Q-learning is begun in a lattice of regressors, for several discounts and behaviours: how
many end with which policy? So are batch regression, plain and penalised, with the assignments of
all batches in the buffer or only the newest; Algorithm 1, PCVI and PCQL have no start. Writes

- `ends.csv`: every run, with the policy it ended with and that policy's exact value;
- `methods.csv`: methods that have no start, with what is best for a greedy policy and for any;
- `basins.svg`: where runs with discount 1 begin, coloured by the value of where they end.
"""

import argparse
import pathlib
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from conqur import exact, tabular
from conqur.consistency import Everything, Window
from conqur.mdp import MDP
from conqur.suite.tables import as_csv

DISCOUNTS = (1.0, 0.95, 0.9, 0.8)
EPSILONS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.05)
WEIGHTS = (1.0, 10.0, 100.0)
MARGIN = 0.01
STEPS = 20_000
BATCHES, BATCH_SIZE = 20, 1_000
REACH = 3.0
"""Starts are in [−3, 3]²; the paper's θ* is (−2, 0.5)."""


class End(NamedTuple):
    """A run: where it began, and with what it ended."""

    discount: float
    method: str
    setting: str
    start_1: float
    start_2: float
    theta_1: float
    theta_2: float
    policy: str
    value: float
    best_realizable: float


class Answer(NamedTuple):
    """What a method without a start arrived at."""

    discount: float
    method: str
    policy: str
    value: float


def with_discount(mdp: MDP, discount: float) -> MDP:
    return MDP(mdp.transitions, mdp.rewards, mdp.start, discount)


def code(policy: Sequence[int]) -> str:
    """The paper's actions at s1 to s4: 1122 is a1 a1 a2 a2."""
    return "".join(str(action + 1) for action in policy)


def starts(side: int) -> np.ndarray:
    along = np.linspace(-REACH, REACH, side)
    return np.array([(x, y) for y in along for x in along])


def methods(mdp: MDP, features: np.ndarray) -> Iterator[tuple[str, str, Any]]:
    """Names and settings of what has a start, and what runs it: from a start and its number."""
    for epsilon in EPSILONS:
        run = partial(tabular.q_learning, mdp, features, epsilon=epsilon, steps=STEPS)
        # Small steps: large ones forget where they began.
        slow = partial(run, learning_rate=0.1, rate_halfway=1_000)
        yield (
            "Q-learning",
            f"ε = {epsilon:g}",
            lambda theta, i, slow=slow: slow(theta=theta, seed=i),
        )
    batches = [tabular.sample_batch(mdp, k, BATCH_SIZE, episode_steps=60) for k in range(BATCHES)]
    fit = partial(tabular.fitted_q_iteration, batches, features, discount=mdp.discount)
    yield "regression", "", lambda theta, i: fit(theta=theta)
    for weight in WEIGHTS:
        for words, population in (("all", Everything()), ("newest", Window(1))):
            yield (
                "penalised regression",
                f"λ = {weight:g}, {words}",
                lambda theta, i, weight=weight, population=population: fit(
                    theta=theta, penalty_weight=weight, margin=MARGIN, population=population
                ),
            )


def answers(mdp: MDP, features: np.ndarray) -> Iterator[Answer]:
    """Methods without a start, the best greedy policy, and the best of all."""
    realizable = tabular.greedy_policies(features)
    best = max(realizable, key=lambda policy: mdp.value(np.array(policy)))
    search = exact.search(
        [tabular.sample_batch(mdp, k, 500, episode_steps=60) for k in range(2)],
        features,
        lambda theta: mdp.value(tabular.greedy_policy(features, theta)),
        discount=mdp.discount,
        start_states=np.flatnonzero(mdp.start),
    )
    found = {
        "best greedy policy": best,
        "best of all policies": mdp.optimal_policy(),
        "Algorithm 1": tabular.greedy_policy(features, search.theta),
        "PCVI": exact.pcvi(mdp, features).policy,
        "PCQL": exact.pcql(mdp, features, steps=50_000, episode_steps=60).policy,
    }
    for name, policy in found.items():
        yield Answer(mdp.discount, name, code(policy), mdp.value(np.array(policy)))


def ends(discount: float, side: int) -> Iterator[End]:
    problem, features = tabular.four_state()
    mdp = with_discount(problem, discount)
    best = max(mdp.value(np.array(policy)) for policy in tabular.greedy_policies(features))
    for method, setting, run in methods(mdp, features):
        print(f"discount {discount:g}: {method} {setting}", file=sys.stderr, flush=True)
        for i, start in enumerate(starts(side)):
            found = run(start, i)
            value = mdp.value(found.policy)
            policy = code(found.policy)
            yield End(discount, method, setting, *start, *found.theta, policy, value, best)


CELL, GAP, TOP, PER_ROW = 13, 26, 36, 4
PANELS = (
    ("Q-learning", "ε = 1"),
    ("Q-learning", "ε = 0.6"),
    ("Q-learning", "ε = 0.2"),
    ("Q-learning", "ε = 0.05"),
    ("regression", ""),
    ("penalised regression", "λ = 10, newest"),
    ("penalised regression", "λ = 1, all"),
    ("penalised regression", "λ = 10, all"),
)
COLOURS = {0.5: "#0072b2", 0.3: "#e69f00", 0.0: "#9a9a9a"}
"""Of the values that greedy policies of the example have; safe for the colour-blind."""


def picture(rows: Sequence[End], side: int) -> str:
    """One panel for each method: a square for each start, coloured by where it ended."""
    size = side * CELL
    parts = []
    for number, (method, setting) in enumerate(PANELS):
        left = number % PER_ROW * (size + GAP)
        top = TOP + number // PER_ROW * (size + GAP + TOP)
        parts.append(
            f'<text x="{left}" y="{top - 21}" class="name">{method}</text>'
            f'<text x="{left}" y="{top - 7}">{setting or "no penalty"}</text>'
        )
        own = [row for row in rows if (row.method, row.setting) == (method, setting)]
        for i, row in enumerate(own):
            x, y = left + i % side * CELL, top + size - CELL - i // side * CELL
            colour = COLOURS[round(row.value, 6)]
            parts.append(
                f'<rect x="{x}" y="{y}" width="{CELL - 1}" height="{CELL - 1}" fill="{colour}">'
                f"<title>{row.start_1:.2f}, {row.start_2:.2f}: {row.policy}</title></rect>"
            )
        parts.append(
            f'<text x="{left}" y="{top + size + 12}">−{REACH:g}</text>'
            f'<text x="{left + size}" y="{top + size + 12}" text-anchor="end">θ₁ = {REACH:g}</text>'
        )
    height = TOP + (len(PANELS) // PER_ROW) * (size + GAP + TOP)
    for i, (value, colour) in enumerate(COLOURS.items()):
        parts.append(
            f'<rect x="{i * 130}" y="{height}" width="{CELL - 1}" height="{CELL - 1}" '
            f'fill="{colour}"/><text x="{i * 130 + 20}" y="{height + 10}">ends at {value:g}</text>'
        )
    width = PER_ROW * (size + GAP) - GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-10 -5 {width + 20} {height + 25}" '
        f'width="{width + 20}" height="{height + 25}" font-family="sans-serif" font-size="11" '
        'role="img" aria-label="Where runs end, by where they begin">'
        "<style>svg { background: #fff } .name { font-weight: bold }</style>"
        f"{''.join(parts)}</svg>\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, required=True, help="a folder")
    parser.add_argument("--side", type=int, default=11, help="starts along a side (discount 1)")
    given = parser.parse_args()
    found: list[End] = []
    known: list[Answer] = []
    problem, features = tabular.four_state()
    for discount in DISCOUNTS:
        known += answers(with_discount(problem, discount), features)
        found += ends(discount, given.side if discount == 1 else -(-given.side // 2))
    given.output.mkdir(parents=True, exist_ok=True)
    (given.output / "ends.csv").write_text(as_csv(End, found), encoding="utf-8")
    (given.output / "methods.csv").write_text(as_csv(Answer, known), encoding="utf-8")
    exact_ones = [row for row in found if row.discount == 1]
    (given.output / "basins.svg").write_text(picture(exact_ones, given.side), encoding="utf-8")


if __name__ == "__main__":
    main()
