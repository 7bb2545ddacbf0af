"""The picture of one moment of play: the game, the Q-values as bars, the best of them over time."""

import functools
import re
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from conqur.report.charts import number

try:
    from PIL import Image, ImageDraw, ImageFont
except ModuleNotFoundError:
    raise ImportError("videos need pillow: pip install 'conqur[video]'") from None

Picture = Image.Image

# The colours of report/style.css.
PAPER, BACKDROP, INK, MUTED, RULE = "#fdfdfc", "#f3f4f5", "#1c2228", "#58626c", "#d5dade"
TRACK, COLUMN, BLUE, VERMILLION = "#e6e9ec", "#a3a9af", "#0072b2", "#d55e00"

WIDTH, MARGIN = 320, 18
"""The panel's width, and the margin around everything, in pixels."""
HEAD, ROW, CHART = 88, 21, 130
"""The heights of the head, of an action's row, and of the chart (up to twice that)."""
FINER = 2
"""The panel is drawn that many times as large and then reduced, for smooth lines."""
GAME_HEIGHT, GAME_WIDTH = 420, 960
"""Small pictures are enlarged up to that height; wider ones than that width are reduced."""
MEMORY = 200
"""How many steps the chart shows and the scales are made for."""
EASE = 0.05
"""How much of the way to a narrower scale is gone in a step."""
DRAWN = 4096
"""A picture of more colours is taken for a photograph."""
SMALL, MIDDLE, LARGE = 12, 13, 30
"""Sizes of letters."""


@dataclass(frozen=True, eq=False)
class Moment:
    """What there is to see at one step.

    Attributes:
        picture: of the game.
        step: how many steps were taken before.
        score: so far.
        q_values: of the actions here; after the end, of those before it.
        action: the one chosen here; after the end, the last one.
        end: how the game ended, in two words; empty while it goes on.
    """

    picture: UInt8[np.ndarray, "H W 3"]
    step: int
    score: float
    q_values: Float[np.ndarray, " A"]
    action: int
    end: str = ""


class Panel:
    """Draws moments one after the other; it remembers the scales and the newest values.

    Args:
        title: above all.
        actions: their names.
    """

    def __init__(self, title: str, actions: Sequence[str]) -> None:
        self._title = title
        self._actions = actions
        self._scale = Scale()
        self._best_scale = Scale()
        self._best: deque[float] = deque(maxlen=MEMORY)

    def draw(self, moment: Moment) -> Picture:
        """The game's picture with the panel to its right; width and height are even."""
        if not moment.end:
            self._scale.include(moment.q_values)
            self._best_scale.include(moment.q_values.max())
            self._best.append(float(moment.q_values.max()))
        game = _fitted(moment.picture)
        bars_end = HEAD + ROW * len(self._actions)
        height = _even(max(game.height + 2 * MARGIN, bars_end + CHART + MARGIN))
        left = _even(game.width + 2 * MARGIN)
        image = Image.new("RGB", (left + WIDTH, height), BACKDROP)
        image.paste(game, ((left - game.width) // 2, (height - game.height) // 2))
        pen = Pen(WIDTH, height)
        self._draw_head(pen, moment)
        self._draw_bars(pen, moment)
        self._draw_chart(pen, bars_end + 18, min(height - MARGIN, bars_end + 2 * CHART))
        image.paste(pen.picture(), (left, 0))
        return image

    def _draw_head(self, pen: "Pen", moment: Moment) -> None:
        right = WIDTH - MARGIN
        note = moment.end or ("" if _is_greedy(moment) else "random action")
        pen.text(MARGIN, 20, self._title, size=MIDDLE, colour=MUTED)
        score = number(moment.score, 2)
        pen.text(MARGIN, 48, score, size=LARGE)
        pen.text(MARGIN + pen.width(score, LARGE) + 7, 52, "score", size=MIDDLE, colour=MUTED)
        pen.text(
            right, 20, f"step {number(moment.step, 0)}", size=MIDDLE, anchor="rm", colour=MUTED
        )
        pen.text(right, 52, note, size=MIDDLE, anchor="rm", colour=VERMILLION)
        pen.line([(MARGIN, 76), (right, 76)], RULE)

    def _draw_bars(self, pen: "Pen", moment: Moment) -> None:
        scale, right = self._scale, WIDTH - MARGIN
        names = max(pen.width(name, SMALL) for name in self._actions)
        x = scale.onto(MARGIN + 12 + names + 10, right - scale.written_width(pen) - 8)
        origin = x(min(max(0.0, scale.low), scale.high))
        for i, (name, value) in enumerate(zip(self._actions, moment.q_values, strict=True)):
            middle = HEAD + ROW * i + ROW / 2
            colour, words = COLUMN, MUTED
            if i == moment.action:
                colour, words = BLUE if _is_greedy(moment) else VERMILLION, INK
                pen.pointer(MARGIN, middle, colour)
            pen.bar(x(scale.low), x(scale.high), middle, TRACK)
            pen.bar(origin, x(value), middle, colour)
            pen.text(MARGIN + 12, middle, name, size=SMALL, colour=words)
            pen.text(right, middle, scale.write(value), size=SMALL, anchor="rm", colour=words)

    def _draw_chart(self, pen: "Pen", top: int, bottom: int) -> None:
        scale = self._best_scale
        pen.text(MARGIN, top + 6, f"max Q, last {MEMORY} steps", size=SMALL, colour=MUTED)
        edge = WIDTH - MARGIN
        left, right = MARGIN, edge - scale.written_width(pen) - 10
        y = scale.onto(bottom - 8, top + 28)
        for end in (scale.low, scale.high):
            pen.line([(left, y(end)), (right, y(end))], RULE)
            pen.text(
                WIDTH - MARGIN, y(end), scale.write(end), size=SMALL, anchor="rm", colour=MUTED
            )
        points = [
            (left + (right - left) * i / (MEMORY - 1), y(best)) for i, best in enumerate(self._best)
        ]
        pen.line(points, BLUE, width=1.5)
        pen.dot(*points[-1], BLUE)


class Scale:
    """The range of the newest values: wider at once where it has to be, narrower only slowly."""

    def __init__(self) -> None:
        self.low, self.high = float("inf"), float("-inf")
        self._lows: deque[float] = deque(maxlen=MEMORY)
        self._highs: deque[float] = deque(maxlen=MEMORY)

    def include(self, values: Any) -> None:
        """Take in the values of one more step."""
        self._lows.append(float(np.min(values)))
        self._highs.append(float(np.max(values)))
        low, high = min(self._lows), max(self._highs)
        if len(self._lows) == 1:
            self.low, self.high = low, high
        self.low = min(low, self.low + EASE * (low - self.low))
        self.high = max(high, self.high + EASE * (high - self.high))

    def onto(self, start: float, end: float) -> Callable[[float], float]:
        """The map from [low, high] to [start, end]; to the middle if there is one value only."""
        width = self.high - self.low
        return lambda value: (
            start + (end - start) * ((value - self.low) / width if width > 0 else 0.5)
        )

    def write(self, value: float) -> str:
        """The value with as many decimals as tell a thousandth of the scale."""
        width = self.high - self.low
        decimals = min(4, max(0, 3 - floor(log10(width)))) if width > 0 else 2
        return f"{value:,.{decimals}f}"

    def written_width(self, pen: "Pen") -> float:
        """How wide its values are at most, with all digits as wide as 0 so that nothing shakes."""
        ends = (re.sub(r"\d", "0", self.write(end)) for end in (self.low, self.high))
        return max(pen.width(end, SMALL) for end in ends)


class Pen:
    """Draws on a sheet of paper, in its pixels; finer than these."""

    def __init__(self, width: int, height: int) -> None:
        self._sheet = Image.new("RGB", (FINER * width, FINER * height), PAPER)
        self._draw = ImageDraw.Draw(self._sheet)

    def picture(self) -> Picture:
        """The sheet."""
        return self._sheet.reduce(FINER)

    def width(self, words: str, size: int) -> float:
        """How wide a text is."""
        return _font(size).getlength(_printable(words)) / FINER

    def text(
        self, x: float, y: float, words: str, *, size: int, colour: str = INK, anchor: str = "lm"
    ) -> None:
        """Write to the right of (x, y), or to its left with the anchor "rm"."""
        self._draw.text((FINER * x, FINER * y), _printable(words), colour, _font(size), anchor)

    def line(self, points: Sequence[tuple[float, float]], colour: str, width: float = 1) -> None:
        """Lines from point to point."""
        fine = [(FINER * x, FINER * y) for x, y in points]
        self._draw.line(fine, colour, round(FINER * width), joint="curve")

    def bar(self, start: float, end: float, middle: float, colour: str) -> None:
        """A horizontal bar, from left to right or from right to left."""
        left, right = sorted((FINER * start, FINER * end))
        box = (left, FINER * (middle - 6), right, FINER * (middle + 6) - 1)
        self._draw.rectangle(box, colour)

    def dot(self, x: float, y: float, colour: str) -> None:
        """A point to be seen."""
        self._draw.circle((FINER * x, FINER * y), FINER * 3, colour)

    def pointer(self, x: float, y: float, colour: str) -> None:
        """A triangle that points to the right."""
        corners = [(x, y - 4), (x, y + 4), (x + 6, y)]
        self._draw.polygon([(FINER * x, FINER * y) for x, y in corners], colour)


def with_palette(picture: Picture) -> Picture:
    """The picture in at most 256 colours, of which those of large areas are exact."""
    colours = picture.getcolors(DRAWN)
    if colours is None:
        return picture.quantize(256, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE)
    frequent = sorted(colours, reverse=True)[:256]
    palette = Image.new("P", (1, 1))
    palette.putpalette(np.array([colour for _, colour in frequent], np.uint8).tobytes())
    return picture.quantize(palette=palette, dither=Image.Dither.NONE)


def _fitted(picture: UInt8[np.ndarray, "H W 3"]) -> Picture:
    """By a whole factor, so that pixels stay what they are."""
    image = Image.fromarray(picture)
    factor = max(1, GAME_HEIGHT // image.height)
    if factor > 1:
        size = (factor * image.width, factor * image.height)
        return image.resize(size, Image.Resampling.NEAREST)
    return image.reduce(-(-image.width // GAME_WIDTH))


def _is_greedy(moment: Moment) -> bool:
    return bool(moment.q_values[moment.action] == moment.q_values.max())


def _even(length: int) -> int:
    return length + length % 2


def _printable(words: str) -> str:
    """Pillow's font has no minus sign."""
    return words.replace("−", "-")


@functools.cache
def _font(size: int) -> Any:
    return ImageFont.load_default(FINER * size)
