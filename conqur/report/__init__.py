"""What self-contained HTML pages are made of: the style sheet, and charts drawn as inline SVG."""

from collections.abc import Iterable, Sequence
from importlib import resources

from conqur.report.charts import (
    Bar,
    Reference,
    Series,
    bar_chart,
    histogram,
    legend,
    line_chart,
    number,
    signed,
    words,
)


def style() -> str:
    """The style sheet that the charts count on, light, dark and for print."""
    return resources.files("conqur.report").joinpath("style.css").read_text(encoding="utf-8")


def table(head: Sequence[str], rows: Iterable[str], css: str, *, numeric: int) -> str:
    """A table; the last `numeric` columns hold numbers. Head and rows are HTML already."""
    cells = (
        f'<th scope="col"{" class=num" * (i >= len(head) - numeric)}>{name}</th>'
        for i, name in enumerate(head)
    )
    return (
        f'<table class="{css}"><thead><tr>{"".join(cells)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


__all__ = [
    "Bar",
    "Reference",
    "Series",
    "bar_chart",
    "histogram",
    "legend",
    "line_chart",
    "number",
    "signed",
    "style",
    "table",
    "words",
]
