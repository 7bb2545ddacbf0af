"""Exhibits of tuning by search (Sec. 4.2 and App. D of the paper)."""

from collections.abc import Callable, Sequence

import numpy as np

from conqur.aggregates import AGGREGATES, Improvements, improvements, mean
from conqur.report.charts import Bar, Reference, bar_chart, line_chart, number
from conqur.report.comparing import (
    BLACK,
    EVEN,
    LOST,
    WON,
    margins,
    mean_line,
    of_intervals,
    summed_up,
    won_and_lost,
)
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
from conqur.report.search_nodes import last_nodes
from conqur.report.search_settings import (
    BEST,
    BY_SCORE,
    FRESH,
    Arm,
    Measure,
    Setting,
    Values,
    by_game,
    of_game,
    settings_of,
    with_diverged,
)
from conqur.suite.tables import RankedNode, Tuned, TunedPoint

PAPERS_WEIGHT = 10.0
"""The λ of the paper's Fig. 6 and 12."""
TABLES = {16: (SEARCH_16, "Tab. 4"), 8: (SEARCH_8, "Tab. 7")}
PAPERS = ("paper, ConQUR (best λ)", "paper, multi-DQN", "paper, checkpoint")


FRESH_WORDS = (
    "The node that rollouts chose (it may be the checkpoint itself), on starts that nothing was "
    "chosen by: means with Student's 95 % intervals."
)
LOSS_WORDS = (
    "The node of the pool that the search itself ranks first at the end, by Bellman error and "
    "penalty (or by its rollouts, where they are its scoring), on the same starts: what training "
    "makes of a network when nobody plays to choose, with no way back to the checkpoint."
)
BEST_WORDS = (
    "As the paper counts: the best of all nodes in the best of all evaluations during the search, "
    "that of the checkpoint at its start included (they are shorter than the paper's). It is the "
    "highest of many noisy numbers, too good to be true for every algorithm alike, and the more so "
    "the more was evaluated. The checkpoint's is its mean on the starts of all evaluations."
)

DIVERGED = "they count as their checkpoint, which was handed back."
COUNTED = {
    FRESH: DIVERGED,
    BY_SCORE: "they are missing here.",
    BEST: "they count with what was evaluated before.",
}
"""How runs count whose nodes all diverged."""


def search_exhibits(
    rows: Sequence[Tuned], points: Sequence[TunedPoint], nodes: Sequence[RankedNode] = ()
) -> list[Exhibit]:
    """All that there is to show; an exhibit without anything in it is left out."""
    found = []
    for setting in settings_of(with_diverged(rows), points, nodes):
        over_checkpoint, over_multi_dqn = _improvements(setting)
        found += [
            _algorithms(setting),
            _scores(setting, FRESH, "scores", "Scores on fresh starts", FRESH_WORDS),
            _scores(
                setting, BY_SCORE, "scores-by-loss", "Scores without a choice by play", LOSS_WORDS
            ),
            _scores(setting, BEST, "best-evaluations", "Scores of the best evaluation", BEST_WORDS),
            over_multi_dqn,
            over_checkpoint,
            _weights(setting),
            _scoring(setting),
            last_nodes(setting),
            _curves(setting),
        ]
    return [exhibit for exhibit in found if exhibit.rows or exhibit.figures]


def _algorithms(setting: Setting) -> Exhibit:
    """Every algorithm over all games, in parts of the checkpoint."""
    means = setting.checkpoints()
    zero = [game for game, value in means.items() if value == 0]
    rows: list[tuple[Cell, ...]] = []
    bars = []
    for i, (arm, runs) in enumerate(setting.runs.items()):
        gains = setting.values(arm, lambda run: run.gain)
        parts = {
            unit: 1 + gain / abs(means[unit.game])
            for unit, gain in gains.items()
            if means.get(unit.game)
        }
        if not parts:
            continue
        numbers = {name: summed_up(by_game(parts), f) for name, f in AGGREGATES.items()}
        counted = [run for run in runs if means.get(run.game)]
        handed = sum(bool(run.handed_back_gain) for run in counted)
        other = setting.arm("multi-dqn")
        ahead = None if other is None or arm == other else lead(setting, arm, other)
        games = len({unit.game for unit in parts})
        rows.append((str(arm), games, len(counted), *numbers.values(), ahead, handed))
        found = numbers["IQM"]
        name = str(arm) + in_some(games, len(means) - len(zero))
        bars.append(Bar(name, found.value, colour(i), number(found.value, 3), found.interval))
    chart = bar_chart(
        bars, title="IQM in parts of the checkpoint", references=[Reference("checkpoint", 1.0)]
    )
    words = (
        "Scores on fresh starts in parts of the mean score of the game's checkpoints: 1 is as good "
        f"as not tuned{_left_alone(setting)}. Bars are interquartile means. "
        f"{of_intervals(setting.units)} All as if the checkpoints' means were known. The median is "
        "of the games' means, the interquartile mean of all runs. Lead: over the same "
        f"{setting.units} the mean difference to multi-DQN's gains. Handed back: in how many runs "
        "the 95 % interval of the gain on the checkpoint is above zero, which chance alone does in "
        "one of forty; else the checkpoint itself was handed back."
    )
    if zero:
        words += f" Left out for a checkpoint of zero: {', '.join(zero)}."
    return Exhibit(
        key=setting.key("algorithms"),
        title=setting.titled("Every algorithm, over all games"),
        paper="",
        words=words + _caveats(setting, DIVERGED),
        head=("Algorithm", "games", "runs", *AGGREGATES, "lead on multi-DQN", "handed back"),
        rows=tuple(rows),
        figures=(Figure("", chart),) if bars else (),
    )


def _caveats(setting: Setting, counted: str) -> str:
    """What to know of runs that are missing or diverged, and how the latter count."""
    every = [run for runs in setting.runs.values() for run in runs]
    diverged = sum(run.diverged for run in every)
    words = ""
    if diverged:
        words += f" In {diverged} of {len(every)} runs all nodes diverged: {counted}"
    done = [{(run.network, run.seed) for run in runs} for runs in setting.runs.values()]
    if any(pairs != done[0] for pairs in done):
        words += " Not all algorithms have been run on the same networks and seeds yet."
    return words


def in_some(games: int, every: int) -> str:
    """Said of what was not measured in all games."""
    return f" ({games} of {every} games)" if games < every else ""


def _left_alone(setting: Setting) -> str:
    """In how many runs the node that rollouts chose plays as the checkpoint, if in any."""
    every = [run for runs in setting.runs.values() for run in runs]
    alone = sum(run.gain == run.gain_low == run.gain_high == 0 for run in every)
    words = (
        f", and so count {alone} of {len(every)} runs in which rollouts chose the checkpoint, or a "
        "node that plays like it"
    )
    return words if alone else ""


def lead(setting: Setting, arm: Arm, other: Arm) -> Gain | None:
    """By how much one arm gains more than another on the same units, in parts of the checkpoint."""
    means = setting.checkpoints()
    # By gains, as a checkpoint may score differently on another machine.
    ours, theirs = (setting.values(each, lambda run: run.gain) for each in (arm, other))
    leads = {
        unit: (gain - theirs[unit]) / abs(means[unit.game])
        for unit, gain in ours.items()
        if unit in theirs and means.get(unit.game)
    }
    return Gain(*summed_up(by_game(leads), mean)) if leads else None


def _scores(setting: Setting, measure: Measure, key: str, title: str, words: str) -> Exhibit:
    """Scores by game and arm, beside the paper's."""
    before = setting.before(measure)
    name, paper = TABLES.get(setting.nodes, ("", "")) if measure is not BY_SCORE else ("", "")
    columns = {str(arm): setting.scores(arm, measure) for arm in setting.runs}
    own = [str(arm) for arm in setting.runs if arm.algorithm == "conqur"]
    rows = []
    for game in setting.games:
        cells = {column: estimate(of_game(values, game)) for column, values in columns.items()}
        if not any(cells.values()):
            continue
        known = paper_table(name).get(paper_name(game) or "", {}) if name else {}
        papers = [known.get(column) for column in ("conqur", "multi_dqn", "checkpoint")]
        penalised = [cell for column in own if (cell := cells[column]) is not None]
        best = [max(penalised, key=lambda c: c.value, default=None)] if len(own) > 1 else []
        rows.append((game, estimate(of_game(before, game)), *cells.values(), *best, *papers))
    head = ("Game", "checkpoint", *columns, *(["ConQUR, best λ"] if len(own) > 1 else []))
    if len(own) > 1:
        words += " The best λ is chosen by these very scores, as the paper does."
    words += f" Over {setting.units} of each game."
    words += _caveats(setting, COUNTED[measure])
    return Exhibit(
        key=setting.key(key),
        title=setting.titled(title),
        paper=paper,
        words=words + (not_measured(name, set(setting.games)) if name else ""),
        **with_papers(head, PAPERS, rows),
    )


def _improvements(setting: Setting) -> tuple[Exhibit, Exhibit]:
    """Of ConQUR over the checkpoint, and over multi-DQN."""
    arm = setting.arm("conqur", PAPERS_WEIGHT)
    other = setting.arm("multi-dqn")
    nothing = Exhibit("", "", "", "")
    if arm is None:
        return nothing, nothing

    def over_checkpoint(measure: Measure) -> tuple[Values, Values]:
        return setting.values(arm, measure.score), setting.values(arm, measure.checkpoint)

    def over_multi_dqn(measure: Measure) -> tuple[Values, Values]:
        return setting.scores(arm, measure), setting.scores(other, measure)

    first = _improvement(
        setting,
        f"Improvement of {arm} over the checkpoint",
        ("over-checkpoint", "Fig. 12", "checkpoint"),
        over_checkpoint,
    )
    if other is None:
        return first, nothing
    return first, _improvement(
        setting,
        f"Improvement of {arm} over multi-DQN",
        ("over-multi-dqn", "Fig. 6", "multi_dqn"),
        over_multi_dqn,
    )


def _improvement(
    setting: Setting,
    title: str,
    names: tuple[str, str, str],
    of: Callable[[Measure], tuple[Values, Values]],
) -> Exhibit:
    """Improvements by game, on fresh starts and by best evaluations, beside those of the paper."""
    key, figure, column = names

    def found(measure: Measure) -> Improvements:
        scores, baselines = of(measure)
        common = [unit for unit in scores if unit in baselines]
        means = [
            {
                game: float(np.mean(own))
                for game, own in by_game({unit: values[unit] for unit in common}).items()
            }
            for values in (scores, baselines)
        ]
        return improvements(*means)

    fresh, counted = found(FRESH), found(BEST)
    table = TABLES.get(setting.nodes, ("", ""))[0]
    rows = []
    for game in setting.games:
        known = paper_table(table).get(paper_name(game) or "", {}) if table else {}
        one, two = known.get("conqur"), known.get(column)
        papers = None if one is None or not two else (one - two) / abs(two)
        values = (fresh.by_game.get(game), counted.by_game.get(game), papers)
        if any(value is not None for value in values):
            rows.append((game, *(per_cent(value) for value in values)))
    words = (
        f"(s − s_B)/|s_B| of mean scores, in per cent, over the {setting.units} that both have. On "
        f"fresh starts: {won_and_lost(fresh)}"
    )
    if counted.by_game:
        words += f" By the best of all evaluations: {won_and_lost(counted)}"
    if any(row[3] is not None for row in rows):
        words += " The paper's are computed from its tables, whose scores are of the best λ."
    return Exhibit(
        key=setting.key(key),
        title=setting.titled(title),
        paper=figure,
        words=words,
        **with_papers(
            ("Game", "fresh starts, %", "best evaluations, %"), ("paper (best λ), %",), rows
        ),
        figures=(margins("On fresh starts", fresh),) if fresh.by_game else (),
    )


def _weights(setting: Setting) -> Exhibit:
    """Gains of every λ, game by game; without a penalty the search is λ = 0."""
    arms = {
        0.0 if arm.algorithm == "no-penalty" else arm.penalty_weight: arm
        for arm in setting.runs
        if arm.algorithm in ("conqur", "no-penalty")
    }
    figures, rows = [], []
    for game in setting.games if len(arms) > 1 else []:
        bars = []
        for weight, arm in sorted(arms.items()):
            gains = of_game(setting.values(arm, lambda run: run.gain), game)
            found = estimate(gains, Gain)
            if found is not None:
                rows.append((game, number(weight), len(gains), found))
                tone = WON if found.value > 0 else LOST if found.value < 0 else EVEN
                text = number(found.value, 2)
                bars.append(Bar(f"λ = {number(weight)}", found.value, tone, text, found.interval))
        chart = bar_chart(bars, title=f"Gain on the checkpoint, {game}", below_zero=True)
        figures.append(Figure(game, chart))
    return Exhibit(
        key=setting.key("weights"),
        title=setting.titled("Effects of λ in the search"),
        paper="Fig. 5",
        words=(
            "By how much the node that rollouts chose scores more than the checkpoint, on fresh "
            f"starts: means over {setting.units} with Student's 95 % intervals."
        ),
        head=("Game", "λ", "networks" if setting.by_network else "seeds", "gain"),
        rows=tuple(rows),
        figures=tuple(figures),
        folded=True,
    )


def _scoring(setting: Setting) -> Exhibit:
    """Nodes ranked by rollouts and by their loss."""
    rows = []
    for arm in setting.runs:
        if arm.algorithm != "rollouts":
            continue
        by_loss = Arm("conqur", arm.penalty_weight)
        found = [
            setting.scores(each, FRESH) if each in setting.runs else {} for each in (arm, by_loss)
        ]
        if all(found):  # of what both were run on
            found = [{u: one[u] for u in one if u in other} for one, other in (found, found[::-1])]
        for game in setting.games:
            known = paper_table(SCORING).get(paper_name(game) or "", {})
            papers = [known.get(column) for column in ("rollouts", "bellman_plus_penalty")]
            cells = [estimate(of_game(values, game)) for values in found]
            rows.append((game, number(arm.penalty_weight), *cells, *papers))
    return Exhibit(
        key=setting.key("scoring"),
        title=setting.titled("Scoring by rollouts and by loss"),
        paper="Tab. 1",
        words=f"{FRESH_WORDS} Over the {setting.units} of each game that both were run on."
        + not_measured(SCORING, set(setting.games)),
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
                line = mean_line(str(arm), list(runs.values()), colour(i))
                lines.append(line._replace(band=None))
        if lines:
            before: dict[tuple[str, int], dict[float, float]] = {}
            for point in own:
                starts = before.setdefault((point.network, point.seed), {})
                starts[float(point.level)] = point.checkpoint
            courses = [sorted(starts.items()) for starts in before.values()]
            line = mean_line("checkpoint", courses, BLACK)
            lines.append(line._replace(band=None))
            chart = line_chart(lines, title=f"{game}: best node", x_label="level", y_label="score")
            figures.append(Figure(game, chart))
    return Exhibit(
        key=setting.key("curves"),
        title=setting.titled("The best node, level by level"),
        paper="Fig. 11",
        words=(
            "The best of a level's nodes in an evaluation, and the checkpoint on the same starts: "
            "means over runs. The best of many is above the checkpoint even where all nodes are "
            "alike."
        ),
        figures=tuple(figures),
        legend=(*((str(arms[i]), colour(i)) for i in sorted(shown)), ("checkpoint", BLACK)),
    )
