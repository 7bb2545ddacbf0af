"""What a study's page is made of: tables and figures, each of which is also a file of its own."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, NamedTuple

from conqur import report
from conqur.report.charts import Number, number, signed
from conqur.report.pages import unbroken
from conqur.report.tables import Cell as Plain
from conqur.statistics import student_interval

COLOURS = ("blue", "orange", "green", "purple", "sky", "vermillion", "brown", "olive")
"""Of lines and bars that differ in kind, as CSS variables; black is what they are held against."""


class Estimate(NamedTuple):
    """A number and its interval at 95 %, if it has one."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """Both ends, if there are any."""
        return None if self.low is None or self.high is None else (self.low, self.high)


class Gain(Estimate):
    """A difference: people see its sign."""


Cell = Plain | Estimate


class Figure(NamedTuple):
    """A chart, and what it shows."""

    title: str
    svg: str


@dataclass(frozen=True, eq=False)
class Exhibit:
    """A table, figures, or both.

    Attributes:
        key: what its files are called.
        title: above it.
        paper: the tables and figures of the paper that it stands for; "" for none.
        words: below it.
        head: what the columns are called.
        rows: of the table.
        figures: side by side.
        legend: names and colours of the figures' lines.
        folded: whether the page shows the table only to those who ask for it.
    """

    key: str
    title: str
    paper: str
    words: str
    head: tuple[str, ...] = ()
    rows: tuple[tuple[Cell, ...], ...] = ()
    figures: tuple[Figure, ...] = ()
    legend: tuple[tuple[str, str], ...] = ()
    folded: bool = False

    def plain(self) -> tuple[list[str], list[list[Plain]]]:
        """Head and rows with the ends of intervals in columns of their own."""
        columns = zip(*self.rows, strict=True)
        wide = [any(isinstance(c, Estimate) and c.interval for c in cells) for cells in columns]
        head = [
            each
            for name, intervals in zip(self.head, wide, strict=True)
            for each in ([name, f"{name}, low", f"{name}, high"] if intervals else [name])
        ]
        rows = [
            [
                each
                for cell, intervals in zip(row, wide, strict=True)
                for each in _flat(cell, intervals)
            ]
            for row in self.rows
        ]
        return head, rows

    def html(self) -> str:
        """The exhibit as a section of a page."""
        parts = []
        if self.figures:
            panels = "".join(
                f"<div>{f'<h3>{escape(title)}</h3>' if title else ''}{svg}</div>"
                for title, svg in self.figures
            )
            few = " few" if len(self.figures) < 3 else ""
            parts.append(f'<div class="panels{few}">{panels}</div>{self._key()}')
        if self.rows:
            numeric = len(self.head) - self._words_columns()
            words = self._words_columns()
            rows = [self._row(row, words) for row in self.rows]
            head = [unbroken(name) for name in self.head]
            table = report.table(head, rows, "exhibit", numeric=numeric)
            shown = f'<div class="scroll">{table}</div>'
            if self.folded:
                shown = f"<details><summary>The numbers</summary>{shown}</details>"
            parts.append(shown)
        paper = f'<p class="paper">The paper: {escape(self.paper)}</p>' if self.paper else ""
        return (
            f'<section id="{escape(self.key)}"><h2>{escape(self.title)}</h2>{paper}'
            f'<figure class="framed">{"".join(parts)}'
            f"<figcaption>{unbroken(self.words)}</figcaption></figure></section>"
        )

    def _key(self) -> str:
        keys = (
            f'<span class="key"><svg width="28" height="8" aria-hidden="true"><g class="line" '
            f'style="color:{escape(colour)}"><polyline points="0,4 28,4"/></g></svg> '
            f"{escape(name)}</span>"
            for name, colour in self.legend
        )
        return f'<p class="legend">{" ".join(keys)}</p>' if self.legend else ""

    def _words_columns(self) -> int:
        """How many columns, from the left, are words."""
        for i in range(len(self.head)):
            if not all(isinstance(row[i], str) for row in self.rows):
                return i
        return len(self.head)

    def _row(self, row: Sequence[Cell], words: int) -> str:
        cells = [f'<th scope="row">{escape(str(row[0]))}</th>']
        for i, cell in enumerate(row[1:], 1):
            css = "" if i < words else ' class="num"'
            cells.append(f"<td{css}>{_written(cell)}</td>")
        return f"<tr>{''.join(cells)}</tr>"


def estimate(values: Sequence[float], kind: type[Estimate] = Estimate) -> Estimate | None:
    """The mean of independent runs with Student's interval; None without any."""
    if not values:
        return None
    low, high = student_interval(list(values))
    mean = math.fsum(values) / len(values)
    return kind(mean) if math.isnan(low) else kind(mean, low, high)


def with_papers(
    head: tuple[str, ...], papers: tuple[str, ...], rows: Sequence[tuple[Cell, ...]]
) -> dict[str, Any]:
    """Head and rows of an exhibit, with the paper's columns at the end if they know any game."""
    known = any(cell is not None for row in rows for cell in row[len(head) :])
    if known:
        return {"head": (*head, *papers), "rows": tuple(rows)}
    return {"head": head, "rows": tuple(row[: len(head)] for row in rows)}


def colour(i: int) -> str:
    """Of the i-th kind."""
    return f"var(--{COLOURS[i % len(COLOURS)]})"


def per_cent(part: Number | None) -> Gain | None:
    """An improvement as per cent."""
    return None if part is None else Gain(100.0 * part)


def shown(cell: Estimate) -> str:
    """The number itself, for people."""
    return signed(cell.value) if isinstance(cell, Gain) else number(cell.value, 2)


def _flat(cell: Cell, intervals: bool) -> list[Plain]:
    if isinstance(cell, Estimate):
        return [*cell] if intervals else [cell.value]
    return [cell, None, None] if intervals else [cell]


def _written(cell: Cell) -> str:
    if isinstance(cell, Estimate):
        value = shown(cell)
        if cell.interval is None:
            return value
        low, high = (number(end, 2) for end in cell.interval)
        return f"{value}<small>{low} to {high}</small>"
    if cell is None:
        return "–"
    return escape(cell) if isinstance(cell, str) else number(cell, 2)
