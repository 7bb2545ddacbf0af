"""What the paper says, and what was found here: the table in results/README.md.

    python experiments/claims.py          prints it, from the files in results/

The verdicts are ours; every number is read.
"""

import csv
import json
from pathlib import Path
from typing import Any, NamedTuple

from conqur.report.exhibits import Estimate, Exhibit
from conqur.report.study_page import study_exhibits
from conqur.suite.results import read_results

RESULTS = Path(__file__).parent.parent / "results"
GAMES = 5


class Claim(NamedTuple):
    """A line of the table."""

    said: str
    where: str
    verdict: str
    found: str


def claims() -> list[Claim]:
    return [*_exact(), *_penalty(), *_search(), *_cost()]


def _exact() -> list[Claim]:
    with (RESULTS / "appendix_a/ends.csv").open() as file:
        ends = [row for row in csv.DictReader(file) if row["discount"] == "1.0"]
    plain = {
        setting: [row["value"] for row in ends if row["setting"] == setting]
        for setting in ("ε = 1", "ε = 0.2")
    }
    uniform, greedier = (values.count("0.3") for values in plain.values())
    starts = len(plain["ε = 1"])
    limit = _csv("exactness/limit.csv")
    apart = max(float(r["apart"]) for r in limit if 10 <= float(r["penalty_weight"]) <= 1000)
    unions = _csv("exactness/unions.csv")
    kept = [100 * float(row["broken_at_least"]) for row in unions]
    return [
        Claim(
            "Q-learning leaves the best greedy policy, worth 0.5, for a compromise worth 0.3",
            "App. A",
            "partly",
            f"from {uniform} of {starts} starts with ε = 1, from {greedier} with ε = 0.2",
        ),
        Claim(
            "with λ → ∞ the penalty becomes exact consistency",
            "Sec. 4.2",
            "reproduced",
            f"from λ = 10 on the fits agree ({len({r['game'] for r in limit})} games, largest "
            f"difference {apart:.0e})",
        ),
        Claim(
            "training backs up choices that no last layer makes together",
            "Sec. 4.2",
            "reproduced",
            f"proved for all {len(unions)} searches: {min(kept):.1f} to {max(kept):.1f} % of the "
            "choices cannot be kept",
        ),
    ]


def _penalty() -> list[Claim]:
    shown = _exhibits("minatar_penalty")
    table = shown["weights"]
    column = table.head.index("IQM")
    iqm = {row[:2]: row[column] for row in table.rows}
    half = [f"{name} {_told(iqm[name, '0.5'])}" for name in ("DQN", "DDQN")]
    best = shown["best-weight"]
    lead = best.head.index("improvement, %")
    wins = {
        name: sum(row[lead].value > 0 for row in best.rows if row[1] == name)
        for name in ("DQN", "DDQN")
    }
    two = [f"{name} {_told(iqm[name, '2'])}" for name in ("DQN", "DDQN")]
    return [
        Claim(
            "λ = 0.5 works well across all games, without search",
            "Sec. 4.1",
            "not",
            f"in parts of λ = 0: {', '.join(half)}",
        ),
        Claim(
            "the best λ beats λ = 0 in 16 of 19 games in DQN, in 17 in DDQN",
            "Sec. 4.1",
            "not in DQN, partly in DDQN",
            f"in {wins['DQN']} and {wins['DDQN']} of {GAMES} games, chosen as in the paper",
        ),
        Claim(
            "large weights degrade training (Space Invaders)",
            "Sec. 4.1",
            "reproduced",
            f"λ = 2, in parts of λ = 0: {', '.join(two)}",
        ),
    ]


def _search() -> list[Claim]:
    shown = _exhibits("minatar_search")
    table = shown["algorithms"]
    arms = {row[0]: dict(zip(table.head, row, strict=True)) for row in table.rows}
    weights = ("1", "10", "100", "1,000")
    ours = {weight: arms[f"ConQUR, λ = {weight}"] for weight in weights}
    over = shown["over-multi-dqn"]
    wins = [row[0] for row in over.rows if row[1].value > 1]
    loss = {
        row[0]: dict(zip(shown["scores-by-loss"].head, row, strict=True))
        for row in shown["scores-by-loss"].rows
    }
    space = loss["MinAtar/SpaceInvaders"]
    ranks = shown["ranks"].rows
    behind = [row[-1] for row in ranks]
    without = arms["search without penalty"]
    return [
        Claim(
            "tuning the last layer by the search improves trained networks",
            "Sec. 4.2",
            "partly",
            "in parts of the checkpoint: "
            + ", ".join(f"λ = {weight} {_told(arm['IQM'])}" for weight, arm in ours.items()),
        ),
        Claim(
            "the search with λ = 10 beats multi-DQN: by more than 1 % in 35 of 59 games",
            "Sec. 4.2",
            "not",
            f"lead {_told(ours['10']['lead on multi-DQN'])} checkpoints; it wins in {len(wins)} of "
            f"{GAMES} games ({', '.join(name.partition('/')[2] for name in wins)})",
        ),
        Claim(
            "consistency is what helps, not more training of the last layer",
            "Sec. 4.2",
            "only in Space Invaders",
            f"without penalty {_told(without['IQM'])} over all games, multi-DQN "
            f"{_told(arms['multi-DQN']['IQM'])}; in Space Invaders, by the node that the loss "
            f"ranks first, {space['ConQUR, λ = 10'].value:.0f} points with λ = 10, "
            f"{space['search without penalty'].value:.0f} without",
        ),
        Claim(
            "λ = 10 is best; larger weights over-commit",
            "Sec. 4.2",
            "partly",
            "λ = 1 is best, and larger ones are worse: leads on multi-DQN "
            + ", ".join(f"{arm['lead on multi-DQN'].value:+.2f}" for arm in ours.values()),
        ),
        Claim(
            "nodes of every rank are better than multi-DQN's",
            "Fig. 3",
            "not",
            f"λ = 10 is behind in all {len(ranks)} ranks, by {_least(behind):.2f} to "
            f"{_most(behind):.2f} checkpoints",
        ),
    ]


def _cost() -> list[Claim]:
    cpu, gpu = (
        json.loads((RESULTS / f"search/speed_{name}.json").read_text()) for name in ("cpu", "gpu")
    )
    ratios = [found["levels"]["sixteen_by_one"] for found in (cpu, gpu)]
    return [
        Claim(
            "frozen features make the search cheap",
            "Sec. 4.2",
            "reproduced",
            f"a level with 16 nodes takes {ratios[0]:.2f} times as long as with one on a CPU, "
            f"{ratios[1]:.2f} times on an H200",
        ),
    ]


def _exhibits(study: str) -> dict[str, Exhibit]:
    results = read_results(RESULTS / "studies" / study)
    return {exhibit.key: exhibit for exhibit in study_exhibits(results)}


def _csv(name: str) -> list[dict[str, str]]:
    with (RESULTS / name).open() as file:
        return list(csv.DictReader(file))


def _told(cell: Any) -> str:
    value, low, high = cell
    sign = "+" if not isinstance(cell, Estimate) else ""
    return f"{value:{sign}.2f} ({low:{sign}.2f} to {high:{sign}.2f})"


def _least(cells: list[Any]) -> float:
    return min(-float(cell.value) for cell in cells)


def _most(cells: list[Any]) -> float:
    return max(-float(cell.value) for cell in cells)


def table() -> str:
    lines = ["| the paper says | in | here | found |", "|---|---|---|---|"]
    lines += [f"| {' | '.join(claim)} |" for claim in claims()]
    return "\n".join(lines).replace("-0.", "−0.")


if __name__ == "__main__":
    print(table())
