"""What pages are put together from: templates of this folder, small charts, numbers."""

from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template
from typing import Any

from conqur._messages import printable
from conqur.report.charts import Series, line_chart

PAGE = "report.html"
"""What the page about a run or a study is called in its folder."""


def filled(name: str, slots: dict[str, str]) -> str:
    """A template of this folder with its slots filled."""
    return Template(file_text(name)).substitute(slots)


def file_text(name: str) -> str:
    """A file of this folder."""
    return resources.files("conqur.report").joinpath(name).read_text(encoding="utf-8")


def unbroken(words: str) -> str:
    """Words as HTML, where per cent signs and values of λ stay with their numbers."""
    return escape(words).replace(" %", "&nbsp;%").replace("λ = ", "λ&nbsp;=&nbsp;")


def numbers(values: Any) -> list[float]:
    """Of Python."""
    return [float(value) for value in values]


def panel(title: str, unit: str, lines: Sequence[Series], *, x_label: str = "level") -> str:
    """A small line chart with its title."""
    chart = line_chart(lines, title=title, x_label=x_label, y_label=unit)
    return f"<div><h3>{escape(title)}</h3>{chart}</div>"


def definitions(values: dict[str, Any]) -> str:
    """Names and values as a list of HTML."""
    rows = (
        f"<dt>{escape(str(name)).replace('_', ' ')}</dt><dd>{escape(_value(value))}</dd>"
        for name, value in values.items()
    )
    return f"<dl>{''.join(rows)}</dl>"


def _value(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "–"}[value]
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else printable(str(value)) or "–"


def flat(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest with what is nested in it as words."""
    flat: dict[str, Any] = {}
    for name, value in manifest.items():
        if name == "environment" and value in ({}, None):  # variables, of which none was set
            continue
        if isinstance(value, dict):
            parts: Sequence[str] = [f"{key} {_value(inner)}" for key, inner in value.items()]
            flat[name] = ", ".join(parts)
        elif isinstance(value, list):
            flat[name] = ", ".join(_value(inner) for inner in value)
        else:
            flat[name] = value
    return flat
