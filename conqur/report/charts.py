"""Charts as inline SVG. Their colours, lines and fonts come from `style.css` next to this file.

Line charts have a fixed size and are meant to stand side by side; bars and histograms are laid out
in per cent of the width they get, so that their words stay readable on a phone.
"""

from collections.abc import Callable, Sequence
from html import escape
from math import ceil, floor, log10
from typing import NamedTuple

Number = int | float  # beartype, in the tests, takes no int for a float

WIDTH, HEIGHT = 320, 200
LEFT, RIGHT, TOP, BOTTOM = 40, 310, 24, 160
"""A line chart's size and the edges of its plot, in pixels."""
MANY_STEPS = 1_000
"""Lines over so many begin at zero."""
DOTTED_LENGTH = 25
"""A line with no more points shows each of them."""


class Series(NamedTuple):
    """Values over 1, 2, 3, …, or over the places `at`; the colour is a CSS colour.

    `band` is an interval for every value, drawn behind the line.
    """

    name: str
    values: Sequence[Number]
    colour: str = "var(--ink)"
    at: Sequence[Number] | None = None
    band: Sequence[tuple[Number, Number]] | None = None

    def points(self) -> list[tuple[Number, Number]]:
        """Places and values."""
        at = range(1, len(self.values) + 1) if self.at is None else self.at
        return list(zip(at, self.values, strict=True))


class Bar(NamedTuple):
    """One value with a name; `text` is written instead of the value if given.

    Bar charts draw its `interval`, if it has one, as a line across the end of the bar.
    """

    name: str
    value: Number
    colour: str = "var(--ink)"
    text: str | None = None
    interval: tuple[Number, Number] | None = None


class Reference(NamedTuple):
    """A value to hold others against."""

    name: str
    value: Number


def number(value: Number, decimals: int = 3) -> str:
    """A number for people: rounded, no trailing zeros, thousands separated, a true minus sign."""
    text = f"{value:,.{decimals}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text.replace("-", "−")


def compact(step: Number) -> str:
    """A number of steps in few letters: 500, 20k, 1.5M."""
    for unit, letter in ((1e6, "M"), (1e3, "k")):
        if step >= unit:
            return f"{number(step / unit)}{letter}"
    return number(step)


def signed(value: Number, decimals: int = 2) -> str:
    """A difference for people: as `number`, with its sign."""
    text = number(value, decimals)
    return text if text == "0" or value < 0 else f"+{text}"


def ticks(low: Number, high: Number, most: int = 5) -> list[float]:
    """At most `most` round numbers from `low` to `high`, evenly spaced by 1, 2 or 5 · 10ⁿ."""
    if not high > low:
        return [float(low)]
    magnitude = 10.0 ** floor(log10((high - low) / most))
    for step in (magnitude * factor for factor in (1, 2, 5, 10, 20)):
        first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
        if last - first < most:
            break
    return [round(i * step, 12) for i in range(first, last + 1)]


def line_chart(
    series: Sequence[Series],
    *,
    title: str,
    x_label: str,
    y_label: str,
    references: Sequence[Reference] = (),
    y_range: tuple[Number, Number] | None = None,
) -> str:
    """Lines over steps, with dashed lines at the references (see `legend`).

    Args:
        series: the lines; empty ones are left out.
        title: what the chart shows, for those who cannot see it.
        x_label: what one step is.
        y_label: what the values are.
        references: at most two values to hold the lines against.
        y_range: the lowest and the highest value; from the data and zero if not given.
    """
    series = [line for line in series if len(line.values)]
    places = [place for line in series for place, _ in line.points()]
    first, last = min(1, *places, 1), max(1, *places, 1)
    first = min(0, first) if last >= MANY_STEPS else first
    seen = [value for line in series for value in line.values] + [r.value for r in references]
    seen += [end for line in series for ends in line.band or () for end in ends]
    low, high = y_range or (min(0.0, *seen, 0.0), max(0.0, *seen, 0.0))
    low, high = (low, high) if high > low else (low - 0.5, low + 0.5)

    def x(step: Number) -> float:
        return _scale(step, first, last, LEFT, RIGHT)

    def y(value: Number) -> float:
        return _scale(value, low, high, BOTTOM, TOP)

    body = [_y_axis(y, ticks(low, high)), _x_axis(x, first, last)]
    for i, reference in enumerate(references):
        body.append(
            f'<line class="reference r{i}" x1="{LEFT}" x2="{RIGHT}" {_at(y(reference.value))}>'
            f"<title>{escape(_named(reference))}</title></line>"
        )
    body += [_band(line, x, y) for line in series if line.band]
    for line in series:
        body.append(_polyline(line, [(x(place), y(value)) for place, value in line.points()]))
    body += [words((LEFT + RIGHT) / 2, HEIGHT - 6, x_label, "middle"), words(0, 10, y_label)]
    return _svg(title, f'viewBox="0 0 {WIDTH} {HEIGHT}" class="chart line-chart"', body)


def bar_chart(
    bars: Sequence[Bar],
    *,
    title: str,
    references: Sequence[Reference] = (),
    high: Number = 0.0,
    below_zero: bool = False,
) -> str:
    """Horizontal bars from zero on tracks of equal length, each below its name and value.

    Args:
        bars: from top to bottom.
        title: what the chart shows, for those who cannot see it.
        references: values to hold the bars against, lowest first, marked across all of them.
        high: where the tracks end at least.
        below_zero: whether there is room for intervals below zero though no value is.
    """
    row, head = 40, 18 * len(references)
    ends = [end for bar in bars if bar.interval is not None for end in bar.interval]
    values = [*(bar.value for bar in bars), *(reference.value for reference in references)]
    low = min([0.0, *values])
    low = min([low, *ends]) if low < 0 or below_zero else 0.0
    high = max([high, *values, *ends])
    span = high - low or 1.0

    def place(value: Number) -> float:
        return 100 * (min(max(value, low), high) - low) / span

    height = head + row * len(bars)
    body = []
    for i, bar in enumerate(bars):
        top = head + row * i
        text = number(bar.value) if bar.text is None else bar.text
        body.append(
            f'<text x="0" y="{top + 14}" class="name">{escape(bar.name)}'
            f'<tspan class="value" dx="8">{escape(text)}</tspan></text>'
            f'<rect class="track" x="0" y="{top + 20}" width="100%" height="14"/>'
            f'<rect x="{place(min(bar.value, 0)):.4g}%" y="{top + 20}" '
            f'width="{100 * abs(bar.value) / span:.4g}%" height="14" '
            f'style="fill:{escape(bar.colour)}"/>'
        )
        if bar.interval is not None:
            left, right = (f"{place(end):.4g}%" for end in bar.interval)
            body.append(f'<line class="whisker" x1="{left}" x2="{right}" {_at(top + 27)}/>')
    for i, reference in enumerate(references):
        at = f"{place(reference.value):.4g}%"
        anchor = "end" if place(reference.value) > 50 else "start"
        body.append(words(at, head - 18 * i - 6, _named(reference), anchor))
        body.append(  # dashes of 18 in every 40 pixels: across the tracks, not across the names
            f'<line class="reference" x1="{at}" x2="{at}" y1="{head + 18}" y2="{height}" '
            f'stroke-dasharray="18 {row - 18}"/>'
        )
    return _svg(title, f'width="100%" height="{height}" class="chart bar-chart"', body)


def histogram(
    values: Sequence[Number], marks: Sequence[Bar], *, title: str, unit: str, bins: int = 24
) -> str:
    """How often values occur, from zero to the highest one, and below it where the marks lie.

    Args:
        values: what is counted; none is negative.
        marks: named values, one below the other.
        title: what the chart shows, for those who cannot see it.
        unit: what is counted, in the plural.
        bins: how many columns.
    """
    tall, row = 96, 24
    high = max([*values, *(mark.value for mark in marks)], default=0.0) or 1.0
    counts = [0] * bins
    for value in values:
        counts[min(bins - 1, int(bins * value / high))] += 1
    base, most = tall + 16, max([1, *counts])
    body = [words(0, 11, f"{max(counts)} {unit} in the fullest column", "start")]
    for i, count in enumerate(counts):
        column = tall * count / most
        body.append(
            f'<rect class="column" x="{100 * i / bins:.4g}%" y="{base - column:.1f}" '
            f'width="{100 / bins:.4g}%" height="{column:.1f}"><title>{count} {escape(unit)} from '
            f"{number(i * high / bins)} to {number((i + 1) * high / bins)}</title></rect>"
        )
    body.append(f'<line class="axis" x1="0" x2="100%" {_at(base)}/>')
    for tick in ticks(0, high):
        anchor = "start" if tick == 0 else "end" if tick > 0.95 * high else "middle"
        body.append(words(f"{100 * tick / high:.4g}%", base + 16, number(tick), anchor))
    for i, mark in enumerate(marks):
        at, y = f"{100 * mark.value / high:.4g}%", base + 38 + row * i
        dx, anchor = (-11, "end") if mark.value > high / 2 else (11, "start")
        text = f"{mark.name} {number(mark.value) if mark.text is None else mark.text}"
        body.append(f'<line class="grid" x1="0" x2="100%" {_at(y)}/>')
        body.append(f'<circle cx="{at}" cy="{y}" r="6" style="fill:{escape(mark.colour)}"/>')
        body.append(words(at, y + 4, text, anchor, "halo name", dx=dx))
    height = base + 26 + row * len(marks)
    return _svg(title, f'width="100%" height="{height}" class="chart histogram"', body)


def legend(references: Sequence[Reference]) -> str:
    """One line of HTML that says what the dashed lines of line charts are."""
    items = (
        f'<span class="key"><svg width="28" height="8" aria-hidden="true">'
        f'<line class="reference r{i}" x1="0" x2="28" {_at(4)}/></svg> '
        f"{escape(_named(reference))}</span>"
        for i, reference in enumerate(references)
    )
    return f'<p class="legend">{" ".join(items)}</p>'


def words(
    x: Number | str, y: Number, text: str, anchor: str = "start", css: str = "", *, dx: int = 0
) -> str:
    """Text in an SVG; x is in pixels, or in per cent if it says so."""
    place = x if isinstance(x, str) else f"{x:.1f}"
    shift = f' dx="{dx}"' if dx else ""
    css = f' class="{css}"' if css else ""
    return f'<text x="{place}" y="{y:.1f}"{shift} text-anchor="{anchor}"{css}>{escape(text)}</text>'


def _scale(value: Number, low: Number, high: Number, start: Number, end: Number) -> float:
    """Map [low, high] to [start, end]; the middle if low is high."""
    return start + (end - start) * ((value - low) / (high - low) if high > low else 0.5)


def _y_axis(y: Callable[[Number], float], at: Sequence[Number]) -> str:
    apart = at[1] - at[0] if len(at) > 1 else 1.0
    decimals = max(3, -floor(log10(apart))) if apart > 0 else 3
    return "".join(
        f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" {_at(y(tick))}/>'
        f"{words(LEFT - 6, y(tick) + 4, number(tick, decimals), 'end')}"
        for tick in at
    )


def _x_axis(x: Callable[[Number], float], first: Number, last: Number) -> str:
    round_numbers = range(2, 9) if last <= 8 else (int(tick) for tick in ticks(0, last, 4))
    steps = sorted({first, *(step for step in round_numbers if first < step <= last)})
    return f'<line class="axis" x1="{LEFT}" x2="{RIGHT}" {_at(BOTTOM)}/>' + "".join(
        words(x(tick), BOTTOM + 16, compact(tick), "middle") for tick in steps
    )


def _band(line: Series, x: Callable[[Number], float], y: Callable[[Number], float]) -> str:
    ends = list(zip((place for place, _ in line.points()), line.band or (), strict=True))
    around = [(place, high) for place, (_, high) in ends]
    around += [(place, low) for place, (low, _) in reversed(ends)]
    path = " ".join(f"{x(place):.1f},{y(value):.1f}" for place, value in around)
    return f'<polygon class="band" style="color:{escape(line.colour)}" points="{path}"/>'


def _polyline(line: Series, points: Sequence[tuple[float, float]]) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dots = points if len(points) <= DOTTED_LENGTH else points[-1:]
    circles = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6"/>' for x, y in dots)
    return (
        f'<g class="line" style="color:{escape(line.colour)}"><title>{escape(line.name)}</title>'
        f'<polyline points="{path}"/>{circles}</g>'
    )


def _named(reference: Reference) -> str:
    return f"{reference.name} {number(reference.value)}"


def _at(y: Number) -> str:
    return f'y1="{y:.1f}" y2="{y:.1f}"'


def _svg(title: str, attributes: str, body: Sequence[str]) -> str:
    return f'<svg role="img" aria-label="{escape(title)}" {attributes}>{"".join(body)}</svg>'
