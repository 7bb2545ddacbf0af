"""Exhibits of training with the penalty alone (Sec. 4.1 and App. C of the paper)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from conqur.aggregates import (
    AGGREGATES,
    improvement,
    improvements,
    probability_of_improvement,
    relative,
)
from conqur.report.charts import Bar, Reference, bar_chart, line_chart, number
from conqur.report.comparing import (
    BLACK,
    ENOUGH,
    EVEN,
    NO_BOOTSTRAP,
    WON,
    as_estimate,
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
    colour,
    estimate,
    per_cent,
    with_papers,
)
from conqur.report.paper_tables import PENALTY, not_measured, paper_name, paper_table
from conqur.suite.tables import Trained, TrainedPoint

LAST_PART = 0.1
"""Of the steps, over which returns at the end of training are averaged."""


class Member(NamedTuple):
    """What networks are compared as; they differ in λ and in their seeds."""

    game: str
    algorithm: str

    def __str__(self) -> str:
        return f"{self.game}, {self.algorithm}"


Scores = dict[Member, dict[float, dict[int, float]]]
"""By λ and seed."""


def penalty_exhibits(rows: Sequence[Trained], points: Sequence[TrainedPoint]) -> list[Exhibit]:
    """All that there is to show; an exhibit without anything in it is left out."""
    several = len({row.preset for row in rows} | {point.preset for point in points}) > 1
    scores: Scores = {}
    for row in rows:
        scores.setdefault(_member(row, several), {}).setdefault(row.penalty_weight, {})
        scores[_member(row, several)][row.penalty_weight][row.seed] = row.score
    curves: dict[Member, dict[float, dict[int, list[TrainedPoint]]]] = {}
    for point in points:
        by_weight = curves.setdefault(_member(point, several), {})
        by_weight.setdefault(point.penalty_weight, {}).setdefault(point.seed, []).append(point)
    kinds = [*map(set, scores.values()), *map(set, curves.values())]
    if all(len(weights) < 2 for weights in kinds):
        alone = (
            _scores(scores),
            _curves(curves, "curves", "Learning curves", "", None),
            _last_returns(curves),
        )
        return [exhibit for exhibit in alone if exhibit.rows or exhibit.figures]
    best = {member: _best(weights) for member, weights in scores.items()}
    chosen = {member: {0.0, weight} for member, weight in best.items() if weight is not None}
    found = [
        _table(scores, best),
        _margins(scores, best),
        _weights(scores),
        _human_normalised(rows, several),
        _effects(scores),
        _curves(
            curves, "curves", "Learning curves", "Fig. 2 and 8", None, _unlogged(scores, curves)
        ),
        _curves(
            curves,
            "curves-best",
            "Learning curves for the best λ",
            "Fig. 9",
            _fewer(curves, chosen),
        ),
        _curves(
            curves,
            "curves-half",
            "Learning curves for λ = 0.5",
            "Fig. 10",
            _fewer(curves, {m: {0.0, 0.5} for m, weights in curves.items() if 0.5 in weights}),
        ),
        _last_returns(curves),
    ]
    return [exhibit for exhibit in found if exhibit.rows or exhibit.figures]


def _member(row: Trained | TrainedPoint, several: bool) -> Member:
    algorithm = row.algorithm.upper()
    return Member(row.game, f"{algorithm}, {row.preset or 'default'}" if several else algorithm)


def _best(weights: dict[float, dict[int, float]]) -> float | None:
    """The λ above zero with the highest mean over the seeds that all have; None without one."""
    seeds = _common(weights)
    means = {w: _mean(by_seed[seed] for seed in seeds) for w, by_seed in weights.items() if w}
    return max(means, key=lambda weight: means[weight], default=None) if seeds else None


def _common(weights: dict[float, dict[int, float]]) -> list[int]:
    """The seeds that every λ has been trained with."""
    return sorted(set.intersection(*(set(by_seed) for by_seed in weights.values())))


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _table(scores: Scores, best: dict[Member, float | None]) -> Exhibit:
    rows = []
    for member, weights in scores.items():
        weight, plain = best[member], list(weights.get(0.0, {}).values())
        with_it = [] if weight is None else list(weights[weight].values())
        lead = improvement(_mean(with_it), _mean(plain)) if with_it and plain else None
        rows.append(
            (
                *member,
                estimate(plain),
                weight,
                estimate(with_it),
                estimate(_on_other_seeds(weights)),
                per_cent(lead),
                *_of_paper(member),
            )
        )
    games = {member.game for member in scores}
    counts = [len(by_seed) for weights in scores.values() for by_seed in weights.values()]
    seeds = sorted({min(counts, default=0), max(counts, default=0)})
    return Exhibit(
        key="best-weight",
        title="The best λ of each game",
        paper="Tab. 3",
        words=(
            "Scores of the final networks in fresh episodes: means over "
            f"{_seeds(seeds)}. The best λ was "
            "chosen by these very scores, as in the paper, so that the score with it is too good; "
            "with λ chosen for every seed by the other seeds (from all, zero too) nothing is seen "
            "twice. Improvement is (s_λ − s_0)/|s_0|; the paper's scores are of its own training, "
            "so compare improvements, not scores." + not_measured(PENALTY, games)
        ),
        **with_papers(
            (
                *("Game", "Algorithm", "λ = 0", "best λ > 0", "with it"),
                "λ chosen on other seeds",
                "improvement, %",
            ),
            ("paper, λ = 0", "paper, best λ", "paper, with it"),
            rows,
        ),
    )


def _seeds(counts: Sequence[int]) -> str:
    """How many there are, and what that is good for."""
    if counts == [1]:
        return "one seed, which says nothing of others"
    return f"{' to '.join(map(str, counts))} seeds with Student's 95 % intervals"


def _on_other_seeds(weights: dict[float, dict[int, float]]) -> list[float]:
    """Of each seed, the score with the λ that is best on the other seeds."""
    seeds = _common(weights)
    if len(seeds) < 2 or len(weights) < 2:
        return []
    scores = []
    for seed in seeds:
        others = {
            weight: _mean(by_seed[other] for other in seeds if other != seed)
            for weight, by_seed in weights.items()
        }
        scores.append(weights[max(others, key=lambda weight: others[weight])][seed])
    return scores


def _of_paper(member: Member) -> tuple[Cell, Cell, Cell]:
    row = paper_table(PENALTY).get(paper_name(member.game) or "", {})
    name = member.algorithm.partition(",")[0].lower()
    return row.get(name), row.get(f"{name}_lambda_best"), row.get(f"{name}_penalised")


def _margins(scores: Scores, best: dict[Member, float | None]) -> Exhibit:
    """Improvements of the best λ, a bar for each game."""
    figures, words = [], []
    for algorithm in dict.fromkeys(member.algorithm for member in scores):
        means = {
            member.game: (_mean(weights[weight].values()), _mean(weights[0.0].values()))
            for member, weights in scores.items()
            if member.algorithm == algorithm
            and (weight := best[member]) is not None
            and 0.0 in weights
        }
        lead = improvements(*({g: both[i] for g, both in means.items()} for i in (0, 1)))
        if lead.by_game:
            figures.append(margins(algorithm, lead))
            words.append(f"{algorithm}: {won_and_lost(lead)}")
    return Exhibit(
        key="margins",
        title="Improvement with the best λ",
        paper="the text of Sec. 4.1",
        words=" ".join(words) + " The best λ of each game was chosen by the same scores.",
        figures=tuple(figures),
    )


def _weights(scores: Scores) -> Exhibit:
    """Every λ over all games, in parts of λ = 0."""
    rows: list[tuple[Cell, ...]] = []
    bars: dict[str, list[Bar]] = {}
    for algorithm in dict.fromkeys(member.algorithm for member in scores):
        own = {m.game: w for m, w in scores.items() if m.algorithm == algorithm and 0.0 in w}
        for weight in sorted({weight for weights in own.values() for weight in weights}):
            games = {
                game: (list(weights[weight].values()), list(weights[0.0].values()))
                for game, weights in own.items()
                if weight in weights and _mean(weights[0.0].values())
            }
            if not games:
                continue
            ours, plain = ({game: pair[i] for game, pair in games.items()} for i in (0, 1))
            fewest = min(len(values) for pair in games.values() for values in pair)
            numbers = {
                name: as_estimate(relative(ours, plain, f), enough=weight != 0 and fewest >= ENOUGH)
                for name, f in AGGREGATES.items()
            }
            better = probability_of_improvement(ours, plain)
            known = weight != 0 and fewest > 1
            chance = as_estimate(better, enough=fewest >= ENOUGH) if known else None
            rows.append((algorithm, number(weight), len(games), *numbers.values(), chance))
            found = numbers["IQM"]
            bars.setdefault(algorithm, []).append(
                Bar(
                    f"λ = {number(weight)}",
                    found.value,
                    EVEN if weight == 0 else WON,
                    number(found.value, 3),
                    found.interval,
                )
            )
    figures = [
        Figure(name, bar_chart(drawn, title=f"IQM in parts of λ = 0, {name}"))
        for name, drawn in bars.items()
    ]
    return Exhibit(
        key="weights",
        title="Every λ, over all games",
        paper="Fig. 2",
        words=(
            "Scores in parts of the mean score with λ = 0 of the same game; 1 is as good. Bars are "
            "interquartile means. Intervals at 95 % are by a bootstrap that draws the seeds of a "
            f"game anew, those with λ = 0, too.{NO_BOOTSTRAP} The median is of the games' means, "
            "the interquartile mean of all networks. Better: how probable it is that a network "
            "with this λ scores more than one with λ = 0."
        ),
        head=("Algorithm", "λ", "games", *AGGREGATES, "better"),
        rows=tuple(rows),
        figures=tuple(figures),
    )


def _human_normalised(rows: Sequence[Trained], several: bool) -> Exhibit:
    """Every λ over all games, in parts of the way from random play to people's."""
    known: dict[tuple[str, float], dict[str, list[float]]] = {}
    for row in rows:
        if row.human_normalised is not None:
            kind = (_member(row, several).algorithm, row.penalty_weight)
            known.setdefault(kind, {}).setdefault(row.game, []).append(row.human_normalised)
    table: list[tuple[Cell, ...]] = []
    for (algorithm, weight), games in sorted(known.items()):
        numbers = [summed_up(games, f) for f in AGGREGATES.values()]
        table.append((algorithm, number(weight), len(games), *numbers))
    return Exhibit(
        key="human-normalised",
        title="Human-normalised scores",
        paper="",
        words=(
            "0 is random play, 1 a person's; games without such numbers are left out. "
            + of_intervals("seeds")
        ),
        head=("Algorithm", "λ", "games", *AGGREGATES),
        rows=tuple(table),
    )


def _effects(scores: Scores) -> Exhibit:
    """Every game by itself: a bar for each λ."""
    figures, rows = [], []
    for member, weights in scores.items():
        bars = []
        for weight in sorted(weights):
            found = estimate(list(weights[weight].values()))
            assert found is not None
            rows.append((*member, number(weight), len(weights[weight]), found))
            bars.append(
                Bar(
                    f"λ = {number(weight)}",
                    found.value,
                    EVEN if weight == 0 else WON,
                    number(found.value, 2),
                    found.interval,
                )
            )
        plain = [Reference("λ = 0", _mean(weights[0.0].values()))] if 0.0 in weights else []
        chart = bar_chart(bars, title=f"Scores by λ, {member}", references=plain)
        figures.append(Figure(str(member), chart))
    return Exhibit(
        key="effects",
        title="Every λ, game by game",
        paper="Fig. 2",
        words="Means over seeds with Student's 95 % intervals.",
        head=("Game", "Algorithm", "λ", "seeds", "score"),
        rows=tuple(rows),
        figures=tuple(figures),
        folded=True,
    )


def _scores(scores: Scores) -> Exhibit:
    """Where nothing is to be compared with."""
    rows = [
        (*member, number(weight), len(by_seed), estimate(list(by_seed.values())))
        for member, weights in scores.items()
        for weight, by_seed in weights.items()
    ]
    return Exhibit(
        key="scores",
        title="Scores of the final networks",
        paper="",
        words="In fresh episodes: means over seeds with Student's 95 % intervals.",
        head=("Game", "Algorithm", "λ", "seeds", "score"),
        rows=tuple(rows),
    )


def _last_returns(
    curves: dict[Member, dict[float, dict[int, list[TrainedPoint]]]],
) -> Exhibit:
    """What training itself came to."""
    rows = []
    for member, by_weight in curves.items():
        for weight in sorted(by_weight):
            last = []
            for points in by_weight[weight].values():
                late = [p.score for p in points if p.step > (1 - LAST_PART) * points[-1].step]
                last.append(_mean(late))
            end = max(points[-1].step for points in by_weight[weight].values())
            rows.append((*member, number(weight), len(last), end, estimate(last)))
    return Exhibit(
        key="last-returns",
        title="Returns at the end of training",
        paper="",
        words=(
            f"Mean returns in the last {100 * LAST_PART:g} % of the steps, of episodes with "
            "exploration: means over seeds with Student's 95 % intervals."
        ),
        head=("Game", "Algorithm", "λ", "seeds", "steps", "return"),
        rows=tuple(rows),
    )


def _fewer(
    curves: dict[Member, dict[float, dict[int, list[TrainedPoint]]]], only: dict[Member, set[float]]
) -> dict[Member, set[float]]:
    """`only`, unless it is all that there is, which has its picture."""
    some = any(set(curves.get(member, ())) - weights for member, weights in only.items())
    return only if some else {}


def _curves(
    curves: dict[Member, dict[float, dict[int, list[TrainedPoint]]]],
    key: str,
    title: str,
    paper: str,
    only: dict[Member, set[float]] | None,
    caveat: str = "",
) -> Exhibit:
    every = sorted({weight for by_weight in curves.values() for weight in by_weight if weight})
    colours = {0.0: BLACK} | {weight: colour(i) for i, weight in enumerate(every)}
    figures, shown = [], set()
    for member, by_weight in curves.items():
        if only is not None and member not in only:
            continue
        lines = []
        for weight in sorted(by_weight):
            if only is None or weight in only[member]:
                shown.add(weight)
                drawn = [
                    [(point.step, point.score) for point in own]
                    for own in by_weight[weight].values()
                ]
                lines.append(mean_line(f"λ = {number(weight)}", drawn, colours[weight]))
        chart = line_chart(
            lines, title=f"{member}: returns while training", x_label="step", y_label="return"
        )
        figures.append(Figure(str(member), chart))
    legend = tuple((f"λ = {number(weight)}", colours[weight]) for weight in sorted(shown))
    return Exhibit(
        key=key,
        title=title,
        paper=paper,
        words=(
            "Returns of episodes with exploration while training: the mean over seeds and, where "
            f"there are several, Student's 95 % interval.{caveat}"
        ),
        figures=tuple(figures),
        legend=legend,
    )


def _unlogged(scores: Scores, curves: Mapping[Member, Any]) -> str:
    """Whose curves are missing."""
    missing = [str(member) for member in scores if member not in curves]
    if not missing:
        return ""
    return f" Trained in fewer steps than a row of the log has: {'; '.join(missing)}."
