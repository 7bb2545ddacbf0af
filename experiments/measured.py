"""What the studies in results/ say, in numbers: gains and leads with their intervals."""

import csv
import functools
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from conqur.report.exhibits import Exhibit, Gain
from conqur.report.search_exhibits import lead
from conqur.report.search_settings import Arm, settings_of, with_diverged
from conqur.report.study_page import study_exhibits
from conqur.statistics import student_interval
from conqur.suite.results import Results, read_results
from conqur.suite.tables import Tuned

RESULTS = Path(__file__).parent.parent / "results"
WEIGHTS = ("1", "10", "100", "1,000")
GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
"""Of MinAtar."""


@functools.cache
def study(name: str) -> tuple[Results, Mapping[str, Exhibit]]:
    """What was measured, and the exhibits of it."""
    results = read_results(RESULTS / "studies" / name)
    return results, {exhibit.key: exhibit for exhibit in study_exhibits(results)}


def arms_of(results: Results) -> dict[str, list[Tuned]]:
    """The runs of a study, by what its pages call their arms."""
    arms: dict[str, list[Tuned]] = defaultdict(list)
    for row in results.rows:
        arms[str(Arm(row.algorithm, row.penalty_weight))].append(row)
    return dict(arms)


def runs(results: Results, algorithm: str, weight: float = 0.0, nodes: int = 16) -> list[Tuned]:
    """Those of one arm."""
    arm = (algorithm, weight, nodes)
    return [row for row in results.rows if (row.algorithm, row.penalty_weight, row.nodes) == arm]


def both(results: Results, nodes: int) -> dict[str, list[Tuned]]:
    """Runs of ConQUR and of multi-DQN, of games in which two networks or more have both."""
    arms = {"conqur": runs(results, "conqur", 10.0, nodes)}
    arms["multi-dqn"] = runs(results, "multi-dqn", nodes=nodes)
    networks = set.intersection(*({row.network for row in rows} for rows in arms.values()))
    games = [row.game for row in arms["conqur"] if row.network in networks]
    return {
        name: [row for row in rows if row.network in networks and games.count(row.game) > 1]
        for name, rows in arms.items()
    }


def own_game(rows: Iterable[Tuned], name: str) -> list[Tuned]:
    """Those of a game of MinAtar."""
    return [row for row in rows if row.game == f"MinAtar/{name}"]


def by_own_score(row: Tuned) -> Tuned:
    """A run as if the node that it ranks first itself had been chosen in the end."""
    assert row.gain_by_score is not None
    return row._replace(gain=row.gain_by_score)


def chosen_by(rows: Iterable[Tuned], by: str) -> list[Tuned]:
    """Runs whose gain is that of the node that rollouts chose, or that the loss did."""
    return list(rows) if by == "play" else [by_own_score(row) for row in rows]


def all_nodes(results: Results, rows: Iterable[Tuned]) -> list[Tuned]:
    """Runs whose gain is the mean of all nodes in the last evaluation: nothing was chosen."""
    scores: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for node in results.nodes:
        scores[node[:7]].append(node.score - node.checkpoint)
    return [row._replace(gain=statistics.mean(scores[row[:7]])) for row in rows]


def against(ours: Iterable[Tuned], theirs: Iterable[Tuned]) -> Gain:
    """By how much runs gain more than others on the same networks, in parts of the checkpoint."""
    rows = [
        row._replace(algorithm=name, preset="", nodes=0, penalty_weight=0.0)
        for name, own in (("ours", ours), ("theirs", theirs))
        for row in own
    ]
    (setting,) = settings_of(with_diverged(rows), (), ())
    found = lead(setting, Arm("ours", 0.0), Arm("theirs", 0.0))
    assert found is not None
    return found


def gain(rows: Iterable[Tuned]) -> Gain:
    """On the checkpoint."""
    rows = list(rows)
    return against(rows, [row._replace(gain=0.0) for row in rows])


def lead_of(name: str) -> dict[str, Gain]:
    """Of an arm of the study of searches on multi-DQN, by who chose."""
    arms = arms_of(study("minatar_search")[0])
    pair = arms[name], arms["multi-DQN"]
    return {by: against(*(chosen_by(rows, by) for rows in pair)) for by in ("play", "loss")}


def lead_with(arms: Mapping[str, list[Tuned]]) -> Gain:
    """Of ConQUR on multi-DQN."""
    return against(arms["conqur"], arms["multi-dqn"])


def random_children() -> dict[str, Gain]:
    """By how much random children kept by rollouts gain more than others on the same networks."""
    results = study("minatar_random")[0]
    ours = runs(results, "random-rollouts", nodes=8)
    networks = {row.network for row in ours}
    scoring, nodes, tuned = (study(f"minatar_{name}")[0] for name in ("scoring", "nodes", "tuned"))
    arms = {
        "ConQUR by rollouts, λ = 10": runs(scoring, "rollouts", 10.0, 8),
        "the same without penalty": runs(results, "rollouts", nodes=8),
        "ConQUR by loss, λ = 10": runs(scoring, "conqur", 10.0, 8),
        "multi-DQN": runs(nodes, "multi-dqn", nodes=8),
        "the preset `tuned`": tuned.rows,
    }
    return {
        name: against(ours, (row for row in rows if row.network in networks))
        for name, rows in arms.items()
    }


def gains_apart() -> dict[tuple[str, str], Gain]:
    """Of the study that has penalty and search apart, on the checkpoint, by who chose."""
    arms = arms_of(study("minatar_no_search")[0])
    return {
        (name, by): gain(chosen_by(arms[name], by))
        for name in sorted(arms)
        for by in ("play", "loss")
    }


ATARI = {"multi-dqn": "multi-DQN", "no-penalty": "without penalty", "conqur": "λ = 10"}
"""The arms of the study on Atari networks, and what its tables call them."""


def on_atari(name: str = "atari_search") -> dict[tuple[str, int], dict[str, Tuned]]:
    """The runs of a study on Atari networks, by game, seed and algorithm."""
    found: dict[tuple[str, int], dict[str, Tuned]] = defaultdict(dict)
    for row in study(name)[0].rows:
        found[row.network.removeprefix("bundled:"), row.seed][row.algorithm] = row
    return dict(sorted(found.items()))


def atari_table(name: str) -> str:
    """The runs of a study on Atari networks, for results/search.md."""
    lines = []
    for (game, seed), own in on_atari(name).items():
        rows = [own.get(arm) for arm in ATARI]
        before = ", ".join(dict.fromkeys(f"{row.checkpoint:,.1f}" for row in rows if row))
        gains = ["" if row is None else in_points(row) for row in rows]
        best = ("–" if row is None else f"{row.best_evaluation:,.1f}" for row in rows)
        lines.append(f"| {game}, {seed} | {before} | {' | '.join(gains)} | {', '.join(best)} |")
    return with_minus("\n".join(lines))


def in_points(row: Tuned) -> str:
    """What a run gains, with the interval of its own episodes; 0 where it is the checkpoint's."""
    if not row.gain:
        return "0"
    return f"{row.gain:+,.1f} ({row.gain_low:,.1f} to {row.gain_high:,.1f})"


def of_seeds(game: str) -> dict[str, dict[int, Tuned]]:
    """The runs on one Atari network, by algorithm and seed."""
    runs = {seed: own for (name, seed), own in on_atari().items() if name == game}
    return {
        algorithm: {seed: own[algorithm] for seed, own in runs.items() if algorithm in own}
        for algorithm in ATARI
    }


def points(seeds: Mapping[int, Tuned], by: str = "play") -> str:
    """What runs gain in points, with Student's interval over seeds."""
    gains = student(row.gain for row in chosen_by(seeds.values(), by))
    return "{:+,.0f} ({:,.0f} to {:,.0f})".format(*gains)


def search_table() -> str:
    """The arms of the study of searches, for results/search.md."""
    results, _ = study("minatar_search")
    arms = arms_of(results)
    multi = arms["multi-DQN"]
    lines = [
        "| | runs | chosen by rollouts | better, worse | lead on multi-DQN | chosen by the loss | "
        "lead | all nodes, mean | lead |",
        f"|---|{'---:|' * 8}",
    ]
    order = ["multi-DQN", "search without penalty", *(f"ConQUR, λ = {w}" for w in WEIGHTS)]
    for name in [*order, *sorted(set(arms) - set(order), reverse=True)]:
        networks = {row.network for row in arms[name]}
        cells = [name, str(len(arms[name]))]
        for own, theirs in (
            (arms[name], multi),
            (chosen_by(arms[name], "loss"), chosen_by(multi, "loss")),
            (all_nodes(results, arms[name]), all_nodes(results, multi)),
        ):
            same = [row for row in theirs if row.network in networks]
            cells.append(told(tuple(1 + end for end in gain(own))))
            if own is arms[name]:
                better, worse = (sum(map(of, own)) for of in (_is_better, _is_worse))
                cells.append(f"{better}, {worse}")
            cells.append("–" if name == "multi-DQN" else told(against(own, same)))
        lines.append(f"| {' | '.join(cells)} |")
    return with_minus("\n".join(lines))


def _is_better(row: Tuned) -> bool:
    """Beyond the interval of the run's own episodes."""
    return row.gain_low is not None and row.gain_low > 0


def _is_worse(row: Tuned) -> bool:
    return row.gain_high is not None and row.gain_high < 0


def minibatch_arms() -> dict[str, dict[str, list[Tuned]]]:
    """Searches with minibatches of the nodes' own, and with shared ones, on the same networks."""
    own, shared = (arms_of(study(f"minatar_{name}")[0]) for name in ("minibatches", "no_search"))
    names = ("search without penalty", "ConQUR, λ = 1", "ConQUR, λ = 10")
    return {name: {"own": own[name], "shared": shared[name]} for name in names}


def minibatch_table() -> str:
    """The same, for results/search.md."""
    results, _ = study("minatar_minibatches")
    multi = arms_of(results)["multi-DQN"]
    kinds = {"own": results, "shared": study("minatar_no_search")[0]}
    lines = [
        "| | minibatches | chosen by rollouts | lead on multi-DQN | chosen by the loss | lead | "
        "all nodes, mean | spread of nodes |",
        f"|---|---|{'---:|' * 6}",
    ]
    arms = {"multi-DQN": {"own": multi}} | minibatch_arms()
    for name, kind, rows in ((n, k, r) for n, arm in arms.items() for k, r in arm.items()):
        cells = [name, kind]
        for by in ("play", "loss"):
            own = chosen_by(rows, by)
            cells.append(told(tuple(1 + end for end in gain(own))))
            lead = "–" if name == "multi-DQN" else told(against(own, chosen_by(multi, by)))
            cells.append(lead)
        cells.append(told(tuple(1 + end for end in gain(all_nodes(kinds[kind], rows)))))
        cells.append(f"{spread(kinds[kind], rows):.2f}")
        lines.append(f"| {' | '.join(cells)} |")
    return with_minus("\n".join(lines))


def spread(results: Results, rows: Iterable[Tuned]) -> float:
    """The standard deviation of nodes' scores in a search's last evaluation, in checkpoints.

    Its mean over networks, which are all alike many in their games.
    """
    rows, scores = list(rows), defaultdict(list)
    for node in results.nodes:
        scores[node[:7]].append(node.score)
    scale = {
        game: statistics.mean(row.checkpoint or 0.0 for row in rows if row.game == game)
        for game in {row.game for row in rows}
    }
    return statistics.mean(statistics.pstdev(scores[row[:7]]) / scale[row.game] for row in rows)


def apart_tables() -> tuple[str, str]:
    """The penalty and the search apart, for results/search.md: over all games, and by game."""
    arms, gains = arms_of(study("minatar_no_search")[0]), gains_apart()
    lines = ["| | chosen by rollouts | chosen by the loss |", "|---|---:|---:|"]
    for name in sorted(arms):
        cells = (told(gains[name, by]) for by in ("play", "loss"))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    by_game = [f"| chosen by the loss | checkpoint | {' | '.join(sorted(arms))} |"]
    by_game.append(f"|---|{'---:|' * (1 + len(arms))}")
    for game in sorted({row.game for rows in arms.values() for row in rows}):
        own = {name: [row for row in arms[name] if row.game == game] for name in sorted(arms)}
        before = statistics.mean(row.checkpoint or 0.0 for row in own["multi-DQN"])
        after = (
            statistics.mean(row.gain for row in chosen_by(rows, "loss")) for rows in own.values()
        )
        cells = (f"{score:.1f}" for score in (before, *(before + gain for gain in after)))
        by_game.append(f"| {game.removeprefix('MinAtar/')} | {' | '.join(cells)} |")
    return with_minus("\n".join(lines)), "\n".join(by_game)


def rows_of(name: str) -> list[dict[str, str]]:
    """Of a table in results/."""
    with (RESULTS / name).open() as file:
        return list(csv.DictReader(file))


def student(values: Iterable[float]) -> Gain:
    """Their mean, with Student's interval."""
    known = list(values)
    return Gain(statistics.mean(known), *student_interval(known))


def told(cell: Any) -> str:
    """A number and its interval."""
    value, low, high = cell
    sign = "+" if isinstance(cell, Gain) else ""
    return f"{value:{sign}.2f} ({low:{sign}.2f} to {high:{sign}.2f})"


def with_minus(text: str) -> str:
    """With minus signs before numbers where hyphens were."""
    return re.sub(r"(?<=[ (])-(?=[0-9])", "−", text)
