"""What the style sheets say of a single element: for figures that leave the page they were in."""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple
from xml.etree.ElementTree import Element

from conqur.report.pages import file_text

SHEETS = ("style.css", "exhibits.css", "run_page.css")
"""The files in which charts and trees have their rules and colours."""
DRAWN = frozenset(
    {
        *("color", "fill", "fill-opacity", "font", "font-size", "font-weight", "paint-order"),
        *("stroke", "stroke-dasharray", "stroke-linejoin", "stroke-opacity", "stroke-width"),
    }
)
"""The properties that SVG has as attributes, too."""

_BLOCK = re.compile(r"([^{}]+)\{((?:[^{}]|\{[^{}]*\})*)\}")
_SIMPLE = re.compile(r"[\w.-]+(?: [\w.-]+)*")
_VARIABLE = re.compile(r"var\(--([\w-]+)\)")


class Rule(NamedTuple):
    """What holds for elements that match the last part, inside of such that match the others."""

    parts: tuple[str, ...]
    declared: dict[str, str]

    @property
    def weight(self) -> tuple[int, int]:
        """How specific it is: classes, then names of elements."""
        classes = sum(part.count(".") for part in self.parts)
        return classes, sum(not part.startswith(".") for part in self.parts)

    def matches(self, path: Sequence[Element]) -> bool:
        """Whether it holds for the last element of a path from the root."""
        *around, last = self.parts
        if not _is(path[-1], last):
            return False
        outside = list(path[:-1])
        while around:
            if not outside:
                return False
            if _is(outside.pop(), around[-1]):
                around.pop()
        return True


def palette(*, dark: bool) -> dict[str, str]:
    """The variables of the style sheets, such as colours, by their names without dashes."""
    found: dict[str, str] = {}
    for head, body in _blocks():
        if head == ":root":
            found |= _declarations(body)
        elif dark and "prefers-color-scheme: dark" in head:
            found |= _declarations(body.partition("{")[2])
    return {name.removeprefix("--"): value for name, value in found.items() if name[:2] == "--"}


def substituted(value: str, colours: dict[str, str]) -> str:
    """A value with what its variables stand for."""
    while match := _VARIABLE.search(value):
        if match[1] not in colours:
            raise ValueError(f"no style sheet says what --{match[1]} is")
        value = value.replace(match[0], colours[match[1]])
    return value


def drawn(path: Sequence[Element]) -> dict[str, str]:
    """How the last element of a path from the root is drawn, by rules and by its own style."""
    found: dict[str, str] = {}
    for rule in _rules():
        if rule.matches(path):
            found |= rule.declared
    found |= _declarations(path[-1].get("style", ""))
    return {name: value for name, value in found.items() if name in DRAWN}


@cache
def _rules() -> list[Rule]:
    """All rules that can hold for a part of a figure, in the order in which they take effect."""
    found = [
        Rule(tuple(selector.split()), _declarations(body))
        for head, body in _blocks()
        for selector in re.split(r",\s*", head)
        if _SIMPLE.fullmatch(selector)
    ]
    return sorted(found, key=lambda rule: rule.weight)  # of equal weight, the last one holds


def _blocks() -> Iterator[tuple[str, str]]:
    """The blocks of the style sheets, each with what stands before its brace."""
    for name in SHEETS:
        text = re.sub(r"/\*.*?\*/", "", file_text(name), flags=re.DOTALL)
        for match in _BLOCK.finditer(text):
            yield match[1].strip(), match[2]


def _declarations(body: str) -> dict[str, str]:
    pairs = (part.partition(":") for part in body.strip(" \n{}").split(";") if ":" in part)
    return {name.strip(): " ".join(value.split()) for name, _, value in pairs}


def _is(element: Element, part: str) -> bool:
    name, *classes = part.split(".")
    return name in ("", element.tag) and set(classes) <= set(element.get("class", "").split())
