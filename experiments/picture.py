"""Draw what the search and its baseline do to networks of MinAtar, game by game.

    python experiments/picture.py

writes results/search.svg, of results/studies/minatar_search.
"""

import re
from collections.abc import Iterable, Mapping

from measured import GAMES, RESULTS, arms_of, chosen_by, gain, own_game, study, told

from conqur.suite.tables import Tuned

ARMS = {
    "multi-DQN": "multi-DQN",
    "search without penalty": "search, λ = 0",
    "ConQUR, λ = 1": "search, λ = 1",
    "ConQUR, λ = 10": "search, λ = 10",
}
"""What is drawn, and what it is called there."""
CHOSEN = {
    "play": ("chosen by rollouts", 'fill="#0072b2"', "#0072b2"),
    "loss": ("chosen by its own loss", 'fill="#fff" stroke="#d55e00" stroke-width="2"', "#d55e00"),
}
"""By what the node was chosen whose score is drawn; safe for the colour-blind."""
PER_ROW, WIDTH, LINE, LEFT, TOP, GAP = 3, 220, 26, 104, 28, 24
LOWEST, HIGHEST = 0.0, 1.75
TICKS = (0.5, 1.0, 1.5)


def picture(arms: Mapping[str, list[Tuned]]) -> str:
    """A panel for each game and one for all: a line for each arm, and a mark for each choice."""
    height = len(ARMS) * LINE
    panels: dict[str, dict[str, list[Tuned]]] = {
        name: {arm: own_game(arms[arm], name) for arm in ARMS} for name in GAMES
    }
    panels["all five"] = {arm: arms[arm] for arm in ARMS}
    parts = []
    for number, (name, own) in enumerate(panels.items()):
        left = LEFT + number % PER_ROW * (WIDTH + GAP)
        top = TOP + number // PER_ROW * (height + TOP + GAP)
        parts.append(f'<text x="{left}" y="{top - 10}" class="name">{_words(name)}</text>')
        for tick in TICKS:
            x, colour = left + _across(tick), "#777" if tick == 1 else "#ddd"
            parts.append(
                f'<path d="M{x:.1f} {top}v{height}" stroke="{colour}"/>'
                f'<text x="{x:.1f}" y="{top + height + 14}" text-anchor="middle">{tick:g}</text>'
            )
        for i, (arm, label) in enumerate(ARMS.items()):
            y = top + LINE * (i + 0.5)
            if number % PER_ROW == 0:
                parts.append(
                    f'<text x="{LEFT - 12}" y="{y + 4:.1f}" text-anchor="end">{label}</text>'
                )
            parts += _marks(own[arm], left, y)
    bottom = TOP + (len(panels) - 1) // PER_ROW * (height + TOP + GAP) + height + 44
    for i, (label, look, _) in enumerate(CHOSEN.values()):
        x = LEFT + i * 160
        parts.append(
            f'<circle cx="{x}" cy="{bottom}" r="4.5" {look}/>'
            f'<text x="{x + 12}" y="{bottom + 4}">{label}</text>'
        )
    width = LEFT + PER_ROW * (WIDTH + GAP)
    parts.append(
        f'<text x="{width - GAP}" y="{bottom + 4}" text-anchor="end">score in parts of the '
        "checkpoint's (1: as good)</text>"
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {bottom + 16}" '
        f'width="{width}" height="{bottom + 16}" font-family="sans-serif" font-size="12" '
        'role="img" aria-label="Scores after tuning, by game and algorithm">'
        "<style>svg { background: #fff } .name { font-weight: bold }</style>"
        f"{''.join(parts)}</svg>\n"
    )


def _marks(runs: Iterable[Tuned], left: float, y: float) -> list[str]:
    """The mean scores of an arm and their intervals, one above the other."""
    parts = []
    for (by, (label, look, colour)), shift in zip(CHOSEN.items(), (-4.5, 4.5), strict=True):
        found = gain(chosen_by(runs, by))
        assert LOWEST < 1 + found.low <= 1 + found.high < HIGHEST
        x, low, high = (left + _across(1 + end) for end in found)
        parts.append(
            f'<path d="M{low:.1f} {y + shift:.1f}H{high:.1f}" stroke="{colour}" '
            f'stroke-width="2"/><circle cx="{x:.1f}" cy="{y + shift:.1f}" r="4.5" {look}>'
            f"<title>{label}: {told(tuple(1 + end for end in found))}</title></circle>"
        )
    return parts


def _words(name: str) -> str:
    """Of a game's name."""
    return re.sub("(?<=[a-z])(?=[A-Z])", " ", name)


def _across(score: float) -> float:
    return WIDTH * (score - LOWEST) / (HIGHEST - LOWEST)


if __name__ == "__main__":
    drawn = picture(arms_of(study("minatar_search")[0]))
    (RESULTS / "search.svg").write_text(drawn, encoding="utf-8")
