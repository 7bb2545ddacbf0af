"""Figures and tables of a page as files of their own: SVG, PNG, LaTeX and CSV.

On a page a chart counts on the style sheet around it. In a file all of that is written into the
elements themselves, so that every viewer, Inkscape and LaTeX's tools show the same.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from math import ceil, floor
from unicodedata import east_asian_width
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from conqur import _checks
from conqur.report.charts import Number
from conqur.report.stylesheet import drawn, palette, substituted
from conqur.report.tables import as_csv, as_latex

__all__ = ["as_csv", "as_latex", "as_png", "standalone"]

FONTS = "Helvetica, Arial, 'Liberation Sans', 'Nimbus Sans', 'DejaVu Sans', 'Noto Sans', sans-serif"
"""What words are set in: the first of these that there is."""
MARGIN = 12
"""Pixels around a figure, at least."""

_NAMESPACE = "http://www.w3.org/2000/svg"
_ACROSS = ("x", "x1", "x2", "cx", "width")
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SWATCH, _KEY_ROW = 28, 18


def standalone(svg: str, *, width: int = 720, dark: bool = False, key: bool = False) -> str:
    """A figure as the text of an SVG file that needs nothing else.

    Args:
        svg: a chart of `conqur.report`, or a search tree.
        width: in pixels, of figures that take what width they get; others have their own. Words
            that stand out make it more.
        dark: in the colours of dark pages.
        key: below a line chart, say which line is which.
    """
    _checks.number("width", width, at_least=100, at_most=10_000)
    root = ElementTree.fromstring(_FORBIDDEN.sub("", svg))
    colours = palette(dark=dark)
    across, height = _size(root, width - 2 * MARGIN)
    for path in _paths(root):
        _draw(path, colours)
    lines = _key(root, across, height + MARGIN, colours["muted"]) if key else []
    height += MARGIN + _KEY_ROW * len(lines) if lines else 0
    root.extend(part for line in lines for part in line)
    for path in _paths(root):
        _settle(path[-1], across)
    left, right = _sides(root, across)
    x, y = str(left - MARGIN), str(-MARGIN)
    size = {"width": str(right - left + 2 * MARGIN), "height": str(ceil(height) + 2 * MARGIN)}
    seen = {"viewBox": " ".join((x, y, *size.values())), "font-family": FONTS}
    whole = Element("svg", {"xmlns": _NAMESPACE} | size | seen)
    ElementTree.SubElement(whole, "title").text = root.get("aria-label", "")
    ElementTree.SubElement(whole, "rect", {"x": x, "y": y} | size | {"fill": colours["paper"]})
    whole.extend(root)
    return ElementTree.tostring(whole, encoding="unicode") + "\n"


def as_png(svg: str, *, scale: Number = 2) -> bytes:
    """A figure as a PNG file. This needs resvg_py, and fonts.

    Args:
        svg: as `standalone` makes it.
        scale: pixels of the picture for each of the figure.
    """
    _checks.number("scale", scale, at_least=0.1, at_most=20)
    try:
        import resvg_py
    except ImportError:
        raise ImportError("PNG needs resvg_py: pip install 'conqur[figures]'") from None
    if not _has_fonts():
        raise RuntimeError(f"PNG needs a font: install one of {FONTS.removesuffix(', sans-serif')}")
    return resvg_py.svg_to_bytes(svg_string=svg, zoom=scale)


@cache
def _has_fonts() -> bool:
    """Whether words are drawn: without a font that fits, they are left out and nobody is told."""
    import resvg_py

    def drawn(word: str) -> bytes:
        text = f'<text y="15" font-family="{FONTS}">{word}</text>'
        size = 'width="20" height="20"'
        return resvg_py.svg_to_bytes(svg_string=f'<svg xmlns="{_NAMESPACE}" {size}>{text}</svg>')

    return drawn("M") != drawn("")


def _size(root: Element, width: float) -> tuple[float, float]:
    """How wide and high a figure's own coordinates are, where what is given is `width`."""
    if root.get("viewBox"):
        _, _, wide, high = map(float, root.get("viewBox", "").split())
        return wide, high
    wide = width if root.get("width", "100%") == "100%" else float(root.get("width", ""))
    return wide, float(root.get("height", ""))


def _paths(element: Element, above: tuple[Element, ...] = ()) -> Iterator[tuple[Element, ...]]:
    """Every element with all that it is inside of, the root first."""
    path = (*above, element)
    yield path
    for child in element:
        yield from _paths(child, path)


def _draw(path: Sequence[Element], colours: dict[str, str]) -> None:
    """Write into an element how it is drawn."""
    element = path[-1]
    for name, value in sorted(drawn(path).items()):  # its colour comes first
        value = substituted(value, colours)
        if name == "font":  # the family is that of the whole file
            name, value = "font-size", value.partition(" ")[0]
        if value == "currentColor":
            value = next(p.get("color", "") for p in reversed(path) if p.get("color"))
        element.set(name, value.removesuffix("px"))


def _settle(element: Element, across: float) -> None:
    """Turn per cent into pixels, and take out what only means something on a page."""
    for name in _ACROSS:
        value = element.get(name, "")
        if value.endswith("%"):
            element.set(name, _short(across * float(value[:-1]) / 100))
    for name in ("class", "color", "id", "style", "tabindex"):
        element.attrib.pop(name, None)
    for child in list(element):
        if child.tag == "path" and not child.get("d"):
            element.remove(child)


def _key(root: Element, across: float, top: float, fill: str) -> list[list[Element]]:
    """Rows of what the lines of a chart are, each of which is named once."""
    rows: list[list[Element]] = []
    known: set[tuple[str, str]] = set()
    at = across
    for line in (line for kind in ("line", "reference") for line in root if _is_a(kind, line)):
        name, colour = line.findtext("title", ""), line.get("stroke", "")
        if not name or (name, colour) in known:
            continue
        known.add((name, colour))
        words = Element("text", {"font-size": "12", "fill": fill})
        words.text = name
        wide = _SWATCH + 6 + _length(words)
        if at + wide > across:
            rows.append([])
            at = 0.0
        y = _short(top + _KEY_ROW * (len(rows) - 0.5))
        looks = {n: v for n, v in line.attrib.items() if n.startswith("stroke")}
        ends = {"x1": _short(at), "x2": _short(at + _SWATCH), "y1": y, "y2": y}
        words.attrib |= {"x": _short(at + _SWATCH + 6), "y": _short(float(y) + 4)}
        rows[-1] += [Element("line", looks | ends), words]
        at += wide + 18
    return rows


def _is_a(kind: str, element: Element) -> bool:
    return kind in element.get("class", "").split()


def _sides(root: Element, across: float) -> tuple[int, int]:
    """Where the leftmost word begins and the rightmost ends, if that is outside of the figure."""
    left, right = 0.0, across
    for text in root.iter("text"):
        length = _length(text)
        x = float(text.get("x", "0")) + float(text.get("dx", "0"))
        x -= {"end": length, "middle": length / 2}.get(text.get("text-anchor", ""), 0.0)
        left, right = min(left, x), max(right, x + length)
    return floor(left), ceil(right)


def _length(text: Element, size: float = 12.0) -> float:
    """Pixels that words take at most, in the widest of the fonts."""
    size = float(text.get("font-size", size))
    bold = 1.1 if text.get("font-weight", "400") >= "600" else 1.0
    found = bold * size * sum(_WIDTHS.get(letter, _width(letter)) for letter in text.text or "")
    return found + sum(float(part.get("dx", "0")) + _length(part, size) for part in text)


_WIDTHS = dict.fromkeys(" .,:;'|!ijlIft()[]", 0.4) | dict.fromkeys("mwMW%@", 1.0)


def _width(letter: str) -> float:
    return 1.0 if east_asian_width(letter) in "WF" else 0.7 if letter.isupper() else 0.64


def _short(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")
