"""The nodes that searches end with, ranked (Fig. 3 of the paper)."""

import numpy as np

from conqur.aggregates import mean
from conqur.report.charts import Series, line_chart
from conqur.report.comparing import summed_up
from conqur.report.exhibits import Cell, Exhibit, Figure, Gain, colour
from conqur.report.search_settings import (
    FRESH,
    PAPERS_WEIGHT,
    Arm,
    Setting,
    Values,
    by_game,
    of_game,
)


def last_nodes(setting: Setting) -> Exhibit:
    """What nodes of every rank scored in the end."""
    means = {game: float(np.mean(found)) for game, found in by_game(setting.before(FRESH)).items()}
    ranks = {arm: setting.by_rank(arm) for arm in setting.runs}
    ranks = {arm: found for arm, found in ranks.items() if len(found) > 1}
    parts = {arm: [_parts(values, means) for values in found] for arm, found in ranks.items()}
    ours, other = setting.arm("conqur", PAPERS_WEIGHT), setting.arm("multi-dqn")
    compared = (ours, other) if ours in parts and other in parts else ()
    rows = []
    for i in range(max(map(len, parts.values()), default=0)):
        of_rank = {arm: found[i] for arm, found in parts.items() if i < len(found)}
        cells: list[Cell] = [_over_games(of_rank.get(arm, {})) for arm in parts]
        if compared:
            mine, theirs = (of_rank.get(arm, {}) for arm in compared)
            leads = {unit: mine[unit] - theirs[unit] for unit in mine if unit in theirs}
            cells.append(Gain(*summed_up(by_game(leads), mean)) if leads else None)
        rows.append((str(i + 1), *cells))
    colours = {arm: colour(i) for i, arm in enumerate(setting.runs) if arm in ranks}
    return Exhibit(
        key=setting.key("ranks"),
        title=setting.titled("The last nodes, best first"),
        paper="Fig. 3",
        words=(
            "What the nodes scored in the last evaluation of a search, ranked by these scores: the "
            "first are too good to be true, for every algorithm alike. The table has means over "
            "games, in parts of the mean score of the game's checkpoints."
            + (f" Lead: of {ours} on multi-DQN, on the same {setting.units}." if compared else "")
        ),
        head=("Rank", *map(str, parts), *(["lead"] if compared else [])),
        rows=tuple(rows),
        figures=tuple(_ranks_of(game, ranks, colours) for game in setting.games if ranks),
        legend=tuple((str(arm), tone) for arm, tone in colours.items()),
        folded=True,
    )


def _ranks_of(game: str, ranks: dict[Arm, list[Values]], colours: dict[Arm, str]) -> Figure:
    """The nodes of one game, by rank."""
    lines = []
    for arm, found in ranks.items():
        own = [of_game(values, game) for values in found]
        heights = [float(np.mean(values)) for values in own if values]
        lines.append(Series(str(arm), heights, colours[arm]))
    shown = [line for line in lines if len(line.values) > 1]
    return Figure(game, line_chart(shown, title=game, x_label="rank", y_label="score"))


def _over_games(values: Values) -> float | None:
    """The mean of the games' means."""
    return float(np.mean([np.mean(own) for own in by_game(values).values()])) if values else None


def _parts(values: Values, means: dict[str, float]) -> Values:
    """In parts of the games' checkpoints; without those whose checkpoints score zero."""
    return {
        unit: value / abs(means[unit.game])
        for unit, value in values.items()
        if means.get(unit.game)
    }
