"""What the paper reports: its four tables of results, and which of its exhibits are where."""

import csv
import io
import re
from functools import cache
from importlib import resources

PENALTY, SEARCH_16, SEARCH_8, SCORING = (
    "penalty_best",
    "search_16_nodes",
    "search_8_nodes",
    "scoring_8_nodes",
)

EXHIBITS = {
    "Fig. 2": "effects of λ without search",
    "Tab. 3": "best λ of DQN and DDQN",
    "Fig. 8": "training curves for every λ",
    "Fig. 9": "training curves for the best λ",
    "Fig. 10": "training curves for λ = 0.5",
    "Fig. 3": "node values, sorted",
    "Fig. 4": "training curves of nodes",
    "Fig. 5": "effects of λ in the search",
    "Fig. 6": "improvement over multi-DQN",
    "Tab. 1": "scoring by rollouts and by loss",
    "Tab. 4": "scores with 16 nodes",
    "Fig. 11": "training curves of the search",
    "Fig. 12": "improvement over the checkpoint",
    "Tab. 7": "scores with 8 nodes",
}
"""The paper's results, in the order of its sections; Fig. 1 and 7 show no results."""


@cache
def paper_table(name: str) -> dict[str, dict[str, float | None]]:
    """A table of the paper: by game, its columns; None where a cell is unreadable."""
    path = resources.files("conqur.report").joinpath("paper", f"{name}.csv")
    rows = csv.DictReader(io.StringIO(path.read_text("utf-8")))
    return {
        _singular(row.pop("game")): {c: float(v) if v else None for c, v in row.items()}
        for row in rows
    }


def paper_name(game: str) -> str | None:
    """What the paper calls an Atari game; None for any other environment."""
    match = re.fullmatch(r"(?:ALE/)?([A-Za-z]+?)(?:NoFrameskip|Deterministic)?-v\d", game)
    known = {*paper_table(SEARCH_16), *paper_table(PENALTY)}
    return match[1] if match and match[1] in known else None


def not_measured(name: str, games: set[str]) -> str:
    """A sentence about the paper's games of a table that these games are none of."""
    table = paper_table(name)
    missing = [game for game in table if game not in {paper_name(own) for own in games}]
    if not missing:
        return ""
    if len(missing) == len(table):
        return f" Of the paper's {len(table)} games none was measured."
    return f" Not measured, of the paper's {len(table)} games: {', '.join(missing)}."


def _singular(game: str) -> str:
    """Tab. 1 calls one game by another name than the others."""
    return {"SpaceInvader": "SpaceInvaders"}.get(game, game)
