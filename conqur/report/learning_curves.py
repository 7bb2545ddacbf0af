"""Learning curves as an SVG file that stands by itself: a line and a band for each kind of member.

Its look is that of `charts` and its colours those of `style.css`; it follows the reader's choice of
light or dark, also where a page shows it as a picture.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from jaxtyping import Float

from conqur.report.charts import Number, compact, number, ticks, words

WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 52, 570, 56, 348
"""The size of the figure and the edges of its plot, in pixels."""
LINE_HEIGHT = 17
MOST_SEEDS_SHOWN = 5
"""With more seeds, theirs are not drawn one by one."""

COLOURS = ("vermillion", "blue", "green", "purple", "orange", "sky")
STYLE = """
:root { color-scheme: light dark; --paper: #fdfdfc; --ink: #1c2228; --muted: #58626c;
  --rule: #d5dade; --blue: #0072b2; --sky: #56b4e9; --green: #009e73; --orange: #e69f00;
  --vermillion: #d55e00; --purple: #cc79a7; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181b; --ink: #e4e7ea; --muted: #a0aab3;
  --rule: #3a4249; --blue: #56b4e9; --sky: #8fd0f5; --green: #1fb58a; --vermillion: #ef7a26;
  --orange: #f0b429; --purple: #d993b9; } }
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  fill: var(--muted); font-variant-numeric: tabular-nums; }
.title { font-size: 16px; font-weight: 600; fill: var(--ink); }
.name { font-weight: 600; fill: currentColor; }
.paper { fill: var(--paper); }
.grid { stroke: var(--rule); }
.axis { stroke: var(--muted); }
polyline { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }
.seed { stroke-width: 1; stroke-opacity: .45; }
.band { fill: currentColor; fill-opacity: .16; stroke: none; }
.leader { stroke: currentColor; stroke-opacity: .6; }
"""


@dataclass(frozen=True, eq=False)
class Line:
    """One kind of member over time.

    Attributes:
        name: what is written beside it.
        steps: increasing, [T].
        mean: over the seeds, [T].
        low: where the band begins, [T]; NaN where there is none.
        high: where it ends, [T].
        seeds: of each seed by itself, [S, T].
    """

    name: str
    steps: Float[np.ndarray, " T"]
    mean: Float[np.ndarray, " T"]
    low: Float[np.ndarray, " T"]
    high: Float[np.ndarray, " T"]
    seeds: Float[np.ndarray, "S T"]


def figure(lines: Sequence[Line], *, title: str, subtitle: str, y_label: str) -> str:
    """The whole file.

    Args:
        lines: at most as many as there are colours; those without points are left out.
        title: what is shown.
        subtitle: how it is shown.
        y_label: what the values are.
    """
    lines = [line for line in lines if len(line.steps)]
    if len(lines) > len(COLOURS):
        raise ValueError(f"lines must be {len(COLOURS)} at most, got {len(lines)}")
    low, high = _range(lines)
    last = max((line.steps[-1] for line in lines), default=1.0)

    def x(step: Number) -> float:
        return LEFT + (RIGHT - LEFT) * step / last

    def y(value: Number) -> float:
        return BOTTOM + (TOP - BOTTOM) * (value - low) / (high - low)

    body = [
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        '<rect class="paper" width="100%" height="100%"/>',
        words(LEFT, 22, title, css="title"),
        words(LEFT, 42, subtitle),
        _axes(x, y, (low, high), last),
        words((LEFT + RIGHT) / 2, HEIGHT - 12, "steps", "middle"),
        f'<text transform="translate(14 {(TOP + BOTTOM) / 2:.1f}) rotate(-90)" '
        f'text-anchor="middle">{escape(y_label)}</text>',
    ]
    ends = spread([y(float(line.mean[-1])) for line in lines], LINE_HEIGHT)
    for line, colour, end in zip(lines, COLOURS, ends, strict=False):
        body.append(f'<g style="color:var(--{colour})">{_line(line, x, y, end)}</g>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(title)}">'
        f"{''.join(body)}</svg>\n"
    )


def spread(places: Sequence[Number], gap: Number) -> list[float]:
    """Places moved as little apart as it takes for all to be `gap` away from each other."""
    groups: list[list[int]] = []
    for i in sorted(range(len(places)), key=lambda i: places[i]):
        groups.append([i])
        while len(groups) > 1 and _touch(groups[-2], groups[-1], places, gap):
            groups[-2:] = [groups[-2] + groups[-1]]
    moved = [0.0] * len(places)
    for group in groups:
        for rank, i in enumerate(group):
            moved[i] = _middle(group, places) + gap * (rank - (len(group) - 1) / 2)
    return moved


def _touch(above: list[int], below: list[int], places: Sequence[Number], gap: Number) -> bool:
    """Whether two groups, each spread around its middle, are nearer than `gap`."""
    distance = _middle(below, places) - _middle(above, places)
    return distance < gap * (len(above) + len(below)) / 2


def _middle(group: list[int], places: Sequence[Number]) -> float:
    return sum(places[i] for i in group) / len(group)


def _range(lines: Sequence[Line]) -> tuple[float, float]:
    """From zero, or the lowest value if that is below, to the highest value."""
    shown = [line.seeds if len(line.seeds) <= MOST_SEEDS_SHOWN else line.mean for line in lines]
    shown += [values for line in lines for values in (line.low, line.high)]
    seen = np.concatenate([[0.0], *(np.ravel(values) for values in shown)])
    low, high = float(np.nanmin(seen)), float(np.nanmax(seen))
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _axes(
    x: Callable[[Number], float],
    y: Callable[[Number], float],
    values: tuple[float, float],
    last: Number,
) -> str:
    rows = (
        f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>'
        f"{words(LEFT - 8, y(tick) + 4, number(tick), 'end')}"
        for tick in ticks(*values, 6)
    )
    columns = (words(x(tick), BOTTOM + 20, compact(tick), "middle") for tick in ticks(0, last, 6))
    base = f'<line class="axis" x1="{LEFT}" x2="{RIGHT}" y1="{BOTTOM}" y2="{BOTTOM}"/>'
    return "".join((*rows, base, *columns))


def _line(
    line: Line, x: Callable[[Number], float], y: Callable[[Number], float], end: float
) -> str:
    """Band, seeds and mean, and its name at height `end`."""

    def points(steps: np.ndarray, values: np.ndarray) -> str:
        return " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in zip(steps, values, strict=True))

    parts = []
    known = ~np.isnan(line.low)
    if known.any():
        steps, low, high = line.steps[known], line.low[known], line.high[known]
        around = f"{points(steps, high)} {points(steps[::-1], low[::-1])}"
        parts.append(f'<polygon class="band" points="{around}"/>')
    if 1 < len(line.seeds) <= MOST_SEEDS_SHOWN:
        for values in line.seeds:
            parts.append(f'<polyline class="seed" points="{points(line.steps, values)}"/>')
    parts.append(f'<polyline points="{points(line.steps, line.mean)}"/>')
    at, height = x(line.steps[-1]), y(line.mean[-1])
    parts.append(
        f'<line class="leader" x1="{at + 3:.1f}" y1="{height:.1f}" x2="{RIGHT + 14}" '
        f'y2="{end:.1f}"/>'
    )
    parts.append(words(RIGHT + 19, end + 4, line.name, css="name"))
    return "".join(parts)
