"""What pages are put together from: templates of this folder, small charts, numbers."""

from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

from conqur.report.charts import Series, line_chart


def filled(name: str, slots: dict[str, str]) -> str:
    """A template of this folder with its slots filled."""
    return Template(file_text(name)).substitute(slots)


def file_text(name: str) -> str:
    """A file of this folder."""
    return resources.files("conqur.report").joinpath(name).read_text(encoding="utf-8")


def unbroken(words: str) -> str:
    """Words as HTML, where per cent signs stay with their numbers."""
    return escape(words).replace(" %", "&nbsp;%")


def numbers(values: Any) -> list[float]:
    """Of Python."""
    return [float(value) for value in values]


def panel(title: str, unit: str, lines: Sequence[Series], *, x_label: str = "level") -> str:
    """A small line chart with its title."""
    chart = line_chart(lines, title=title, x_label=x_label, y_label=unit)
    return f"<div><h3>{escape(title)}</h3>{chart}</div>"
