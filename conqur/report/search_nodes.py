"""The nodes that searches end with, ranked (Fig. 3 of the paper)."""

import numpy as np

from conqur.aggregates import mean
from conqur.report.charts import Series, line_chart
from conqur.report.comparing import summed_up
from conqur.report.exhibits import Cell, Exhibit, Figure, Gain, colour
from conqur.report.search_settings import (
    Arm,
    Setting,
    Values,
    by_game,
    of_game,
)


def last_nodes(setting: Setting) -> Exhibit:
    """What nodes of every rank scored in the end."""
    means = setting.checkpoints()
    ranks = {arm: setting.by_rank(arm, lambda node: node.score) for arm in setting.runs}
    ranks = {arm: found for arm, found in ranks.items() if len(found) > 1}
    parts = {
        arm: [
            _parts(gains, means)
            for gains in setting.by_rank(arm, lambda node: node.score - node.checkpoint)
        ]
        for arm in ranks
    }
    other = setting.arm("multi-dqn")
    ours = [arm for arm in parts if arm.algorithm == "conqur" and other in parts]
    rows = []
    for i in range(max(map(len, parts.values()), default=0)):
        of_rank = {arm: found[i] if i < len(found) else {} for arm, found in parts.items()}
        cells: list[Cell] = [_over_games(values) for values in of_rank.values()]
        for arm in ours:
            mine, theirs = of_rank[arm], of_rank[other or arm]
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
            "games of 1 + gain on the checkpoint, in parts of the mean score of the game's "
            f"checkpoints. Leads are differences to multi-DQN's over the same {setting.units} with "
            "Student's 95 % intervals."
        ),
        head=("Rank", *map(str, parts), *(f"lead of {arm}" for arm in ours)),
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


def _parts(gains: Values, means: dict[str, float]) -> Values:
    """In parts of the games' checkpoints; without those whose checkpoints score zero."""
    return {
        unit: 1 + gain / abs(means[unit.game])
        for unit, gain in gains.items()
        if means.get(unit.game)
    }
