"""Exhibits of tuning by search (Sec. 4.2 and App. D of the paper)."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from conqur.aggregates import AGGREGATES, aggregate, improvements, probability_of_improvement
from conqur.report.charts import Bar, Reference, bar_chart, line_chart, number
from conqur.report.exhibits import (
    Cell,
    Exhibit,
    Figure,
    Gain,
    colour,
    estimate,
    per_cent,
    with_papers,
)
from conqur.report.paper_tables import (
    SCORING,
    SEARCH_8,
    SEARCH_16,
    not_measured,
    paper_name,
    paper_table,
)
from conqur.report.penalty_exhibits import (
    BLACK,
    EVEN,
    LOST,
    WON,
    as_estimate,
    margins,
    mean_line,
    won_and_lost,
)
from conqur.suite.tables import Tuned, TunedPoint

NAMES = {
    "conqur": "ConQUR",
    "multi-dqn": "multi-DQN",
    "no-penalty": "search without penalty",
    "random": "random children",
    "rollouts": "ConQUR by rollouts",
    "random-rollouts": "random children by rollouts",
    "refit": "large-batch refit",
}
"""Algorithms as people call them."""
PAPERS_WEIGHT = 10.0
"""The λ of the paper's Fig. 6 and 12."""
TABLES = {16: (SEARCH_16, "Tab. 4"), 8: (SEARCH_8, "Tab. 7")}


class Arm(NamedTuple):
    """What is compared."""

    algorithm: str
    penalty_weight: float

    def __str__(self) -> str:
        name = NAMES.get(self.algorithm, self.algorithm)
        penalised = self.algorithm in ("conqur", "rollouts")
        return f"{name}, λ = {number(self.penalty_weight)}" if penalised else name


Runs = dict[Arm, dict[str, list[Tuned]]]
"""By game."""


class Setting(NamedTuple):
    """Runs that differ in nothing but their networks, arms and seeds."""

    name: str
    nodes: int
    runs: Runs
    points: Sequence[TunedPoint]

    @property
    def games(self) -> list[str]:
        """All of them."""
        return list(dict.fromkeys(game for games in self.runs.values() for game in games))

    def key(self, name: str) -> str:
        """What a file of the setting is called."""
        return f"{name}-{self.name}" if self.name else name

    def titled(self, title: str) -> str:
        """A title that tells the setting from others."""
        return f"{title}: {self.name}, {self.nodes} nodes" if self.name else title


def search_exhibits(rows: Sequence[Tuned], points: Sequence[TunedPoint]) -> list[Exhibit]:
    """All that there is to show; an exhibit without anything in it is left out."""
    found = []
    for setting in _settings(rows, points):
        found += [
            _arms(setting),
            _scores(setting, "scores", "Scores on fresh starts", lambda run: run.score, _FRESH),
            _scores(
                setting,
                "best-evaluations",
                "Scores as the paper counts them",
                lambda run: run.best_evaluation,
                _BEST,
            ),
            _over_multi_dqn(setting),
            _over_checkpoint(setting),
            _weights(setting),
            _scoring(setting),
            _curves(setting),
        ]
    return [exhibit for exhibit in found if exhibit.rows or exhibit.figures]


_FRESH = (
    "Means over networks and seeds of the node that rollouts chose, on starts that nothing was "
    "chosen by, with Student's 95 % intervals."
)
_BEST = (
    "The best of all nodes in the best of all evaluations during the search: the highest of many "
    "noisy numbers, which is too good to be true for every algorithm alike, and for one with many "
    "evaluations the more. The checkpoint's is its score on the same starts."
)


def _settings(rows: Sequence[Tuned], points: Sequence[TunedPoint]) -> list[Setting]:
    names = dict.fromkeys((row.preset, row.nodes) for row in rows)
    settings = []
    for preset, nodes in names:
        runs: Runs = {}
        for row in rows:
            if (row.preset, row.nodes) == (preset, nodes):
                arm = runs.setdefault(Arm(row.algorithm, row.penalty_weight), {})
                arm.setdefault(row.game, []).append(row)
        own = [point for point in points if (point.preset, point.nodes) == (preset, nodes)]
        name = (preset or f"{nodes}-nodes") if len(names) > 1 else ""
        if [p for p, _ in names].count(preset) > 1:
            name = f"{preset}-{nodes}".strip("-")
        settings.append(Setting(name, nodes, dict(sorted(runs.items(), key=_order)), own))
    return settings


def _order(item: tuple[Arm, dict[str, list[Tuned]]]) -> tuple[int, float]:
    names = list(NAMES)
    algorithm, weight = item[0]
    return names.index(algorithm) if algorithm in names else len(names), weight


def _values(runs: Sequence[Tuned], of: Callable[[Tuned], float | None]) -> list[float]:
    return [value for run in runs if (value := of(run)) is not None]


def _means(games: dict[str, list[Tuned]], of: Callable[[Tuned], float | None]) -> dict[str, float]:
    """By game, where it is known."""
    known = {game: _values(runs, of) for game, runs in games.items()}
    return {game: float(np.mean(values)) for game, values in known.items() if values}


def _before(setting: Setting, of: Callable[[Tuned], float | None]) -> dict[str, list[float]]:
    """The checkpoints' scores by game, each network and seed once."""
    found: dict[str, dict[tuple[str, int], float]] = {}
    for games in setting.runs.values():
        for game, runs in games.items():
            for run in runs:
                value = of(run)
                if value is not None:
                    found.setdefault(game, {}).setdefault((run.network, run.seed), value)
    return {game: list(values.values()) for game, values in found.items()}


def _arms(setting: Setting) -> Exhibit:
    """Every algorithm over all games, in parts of the checkpoint."""
    before = {game: values for game, values in _before(setting, _checkpoint).items() if any(values)}
    rows: list[tuple[Cell, ...]] = []
    bars = []
    for i, (arm, games) in enumerate(setting.runs.items()):
        parts = {
            game: [
                1 + run.gain / abs(float(np.mean(before[game])))
                for run in runs
                if run.gain is not None
            ]
            for game, runs in games.items()
            if game in before and np.mean(before[game])
        }
        parts = {game: values for game, values in parts.items() if values}
        if not parts:
            continue
        numbers = {name: as_estimate(aggregate(parts, f)) for name, f in AGGREGATES.items()}
        all_runs = [run for runs in games.values() for run in runs]
        handed = sum(bool(run.handed_back_gain) for run in all_runs)
        won = _better(setting, arm)
        rows.append((str(arm), len(parts), len(all_runs), *numbers.values(), won, handed))
        found = numbers["IQM"]
        bars.append(Bar(str(arm), found.value, colour(i), number(found.value, 3), found.interval))
    chart = bar_chart(
        bars, title="IQM in parts of the checkpoint", references=[Reference("checkpoint", 1.0)]
    )
    return Exhibit(
        key=setting.key("algorithms"),
        title=setting.titled("Every algorithm, over all games"),
        paper="",
        words=(
            "Scores on fresh starts in parts of the mean score of the game's checkpoints: 1 is as "
            "good as not tuned. Bars are interquartile means; intervals at 95 % are by a bootstrap "
            "that draws the runs of each game anew. Better: how probable it is that a run scores "
            "more than one of multi-DQN. Handed back: in how many runs a tuned network was better "
            "than its checkpoint beyond chance, and not the checkpoint itself was handed back."
        ),
        head=("Algorithm", "games", "runs", *AGGREGATES, "better than multi-DQN", "handed back"),
        rows=tuple(rows),
        figures=(Figure("", chart),) if bars else (),
    )


def _checkpoint(run: Tuned) -> float | None:
    return run.checkpoint


def _score(run: Tuned) -> float | None:
    return run.score


def _better(setting: Setting, arm: Arm) -> Cell:
    """How probable it is that a run beats one of multi-DQN; nothing of multi-DQN itself."""
    other = next((a for a in setting.runs if a.algorithm == "multi-dqn"), None)
    if other is None or arm == other:
        return None
    both = [
        {game: _values(runs, _score) for game, runs in setting.runs[each].items()}
        for each in (arm, other)
    ]
    games = [game for game in both[0] if both[0][game] and both[1].get(game)]
    if not games:
        return None
    one, two = ({game: scores[game] for game in games} for scores in both)
    return as_estimate(probability_of_improvement(one, two))


def _scores(
    setting: Setting,
    key: str,
    title: str,
    of: Callable[[Tuned], float | None],
    words: str,
) -> Exhibit:
    """Scores by game and arm, beside the paper's."""
    best = key == "best-evaluations"
    before = _before(setting, (lambda run: run.best_evaluation_checkpoint) if best else _checkpoint)
    name, paper = TABLES.get(setting.nodes, ("", ""))
    rows = []
    for game in setting.games:
        cells = [estimate(_values(games.get(game, []), of)) for games in setting.runs.values()]
        if any(cell is not None for cell in cells):
            known = paper_table(name).get(paper_name(game) or "", {}) if name else {}
            papers = [known.get(column) for column in ("conqur", "multi_dqn", "checkpoint")]
            rows.append((game, estimate(before.get(game, [])), *cells, *papers))
    head = ("Game", "checkpoint", *(str(arm) for arm in setting.runs))
    theirs = ("paper, ConQUR", "paper, multi-DQN", "paper, checkpoint")
    return Exhibit(
        key=setting.key(key),
        title=setting.titled(title),
        paper=paper,
        words=words + (not_measured(name, set(setting.games)) if name else ""),
        **with_papers(head, theirs, rows),
    )


def _papers_arm(setting: Setting) -> Arm | None:
    """ConQUR with the λ of the paper's figures, or with the first there is."""
    own = [arm for arm in setting.runs if arm.algorithm == "conqur"]
    papers = [arm for arm in own if arm.penalty_weight == PAPERS_WEIGHT]
    return next(iter(papers or own), None)


def _over_multi_dqn(setting: Setting) -> Exhibit:
    arm = _papers_arm(setting)
    other = next((a for a in setting.runs if a.algorithm == "multi-dqn"), None)
    if arm is None or other is None:
        return Exhibit("", "", "", "")
    return _improvement(
        setting,
        key="over-multi-dqn",
        title=f"Improvement of {arm} over multi-DQN",
        paper="Fig. 6",
        columns=("conqur", "multi_dqn"),
        scores=lambda of: _means(setting.runs[arm], of),
        baselines=lambda of: _means(setting.runs[other], of),
    )


def _over_checkpoint(setting: Setting) -> Exhibit:
    arm = _papers_arm(setting)
    if arm is None:
        return Exhibit("", "", "", "")

    def before(of: Callable[[Tuned], float | None]) -> dict[str, float]:
        fresh = of is _score
        own = _checkpoint if fresh else (lambda run: run.best_evaluation_checkpoint)
        return _means(setting.runs[arm], own)

    return _improvement(
        setting,
        key="over-checkpoint",
        title=f"Improvement of {arm} over the checkpoint",
        paper="Fig. 12",
        columns=("conqur", "checkpoint"),
        scores=lambda of: _means(setting.runs[arm], of),
        baselines=before,
    )


Of = Callable[[Tuned], float | None]


def _improvement(
    setting: Setting,
    *,
    key: str,
    title: str,
    paper: str,
    columns: tuple[str, str],
    scores: Callable[[Of], dict[str, float]],
    baselines: Callable[[Of], dict[str, float]],
) -> Exhibit:
    """Improvements by game, on fresh starts and as the paper counts, beside the paper's own."""

    def best(run: Tuned) -> float | None:
        return run.best_evaluation

    fresh = improvements(scores(_score), baselines(_score))
    counted = improvements(scores(best), baselines(best))
    name = TABLES.get(setting.nodes, ("", ""))[0]
    rows = []
    for game in setting.games:
        known = paper_table(name).get(paper_name(game) or "", {}) if name else {}
        one, two = (known.get(column) for column in columns)
        papers = None if one is None or not two else (one - two) / abs(two)
        values = (fresh.by_game.get(game), counted.by_game.get(game), papers)
        if any(value is not None for value in values):
            rows.append((game, *(per_cent(value) for value in values)))
    words = f"(s − s_B)/|s_B| of mean scores, in per cent. On fresh starts: {won_and_lost(fresh)}"
    if counted.by_game:
        words += f" By the best of all evaluations: {won_and_lost(counted)}"
    return Exhibit(
        key=setting.key(key),
        title=setting.titled(title),
        paper=paper,
        words=words,
        **with_papers(("Game", "fresh starts, %", "best evaluations, %"), ("paper, %",), rows),
        figures=(margins("On fresh starts", fresh),) if fresh.by_game else (),
    )


def _weights(setting: Setting) -> Exhibit:
    """Gains of every λ, game by game; without a penalty the search is λ = 0."""
    arms = {
        0.0 if arm.algorithm == "no-penalty" else arm.penalty_weight: games
        for arm, games in setting.runs.items()
        if arm.algorithm in ("conqur", "no-penalty")
    }
    figures, rows = [], []
    for game in setting.games if len(arms) > 1 else []:
        bars = []
        for weight, games in sorted(arms.items()):
            found = estimate(_values(games.get(game, []), lambda run: run.gain), Gain)
            if found is not None:
                rows.append((game, number(weight), len(games[game]), found))
                tone = WON if found.value > 0 else LOST if found.value < 0 else EVEN
                text = number(found.value, 2)
                bars.append(Bar(f"λ = {number(weight)}", found.value, tone, text, found.interval))
        figures.append(Figure(game, bar_chart(bars, title=f"Gain on the checkpoint, {game}")))
    return Exhibit(
        key=setting.key("weights"),
        title=setting.titled("Effects of λ in the search"),
        paper="Fig. 5",
        words=(
            "By how much the node that rollouts chose scores more than the checkpoint, on fresh "
            "starts: means over runs with Student's 95 % intervals."
        ),
        head=("Game", "λ", "runs", "gain"),
        rows=tuple(rows),
        figures=tuple(figures),
        folded=True,
    )


def _scoring(setting: Setting) -> Exhibit:
    """Nodes ranked by rollouts and by their loss."""
    rows = []
    for arm, games in setting.runs.items():
        other = setting.runs.get(Arm("conqur", arm.penalty_weight), {})
        if arm.algorithm != "rollouts":
            continue
        for game in games:
            both = [estimate(_values(found.get(game, []), _score)) for found in (games, other)]
            known = paper_table(SCORING).get(paper_name(game) or "", {})
            papers = [known.get(column) for column in ("rollouts", "bellman_plus_penalty")]
            rows.append((game, number(arm.penalty_weight), *both, *papers))
    return Exhibit(
        key=setting.key("scoring"),
        title=setting.titled("Scoring by rollouts and by loss"),
        paper="Tab. 1",
        words=_FRESH + not_measured(SCORING, set(setting.games)),
        **with_papers(
            ("Game", "λ", "rollouts", "Bellman + penalty"),
            ("paper, rollouts", "paper, loss"),
            rows,
        ),
    )


def _curves(setting: Setting) -> Exhibit:
    """The best node of every level, by game."""
    arms = list(setting.runs)
    figures, shown = [], set()
    for game in setting.games:
        lines = []
        own = [point for point in setting.points if point.game == game]
        for i, arm in enumerate(arms):
            runs: dict[tuple[str, int], list[tuple[float, float]]] = {}
            for point in own:
                if Arm(point.algorithm, point.penalty_weight) == arm:
                    place = (float(point.level), point.best)
                    runs.setdefault((point.network, point.seed), []).append(place)
            if runs and all(len(places) > 1 for places in runs.values()):
                shown.add(i)
                lines.append(
                    mean_line(str(arm), list(runs.values()), colour(i))._replace(band=None)
                )
        if lines:
            before: dict[tuple[str, int, str, float], list[tuple[float, float]]] = {}
            for point in own:
                one = (point.network, point.seed, point.algorithm, point.penalty_weight)
                before.setdefault(one, []).append((float(point.level), point.checkpoint))
            line = mean_line("checkpoint", list(before.values()), BLACK)
            lines.append(line._replace(band=None))
            chart = line_chart(lines, title=f"{game}: best node", x_label="level", y_label="score")
            figures.append(Figure(game, chart))
    return Exhibit(
        key=setting.key("curves"),
        title=setting.titled("The best node, level by level"),
        paper="Fig. 11",
        words=(
            "The best of a level's nodes in an evaluation, and the checkpoint on the same starts: "
            "means over networks and seeds. The best of many is above the checkpoint even where "
            "all nodes are alike."
        ),
        figures=tuple(figures),
        legend=(*((str(arms[i]), colour(i)) for i in sorted(shown)), ("checkpoint", BLACK)),
    )
