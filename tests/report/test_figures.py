"""Figures and tables as files: nothing of the page is missing in them, and nothing is left over."""

import builtins
import csv
import io
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from conqur import report
from conqur.report import Bar, Reference, Series
from conqur.report.figures import FONTS, MARGIN, as_csv, as_latex, as_png, standalone
from conqur.report.search_tree import search_tree
from conqur.report.stylesheet import palette
from conqur.report.tuned_run import read_tuned

RUN = Path(__file__).parents[2] / "results/tuning/minatar_asterix_default"
SVG = "{http://www.w3.org/2000/svg}"
LIGHT, DARK = palette(dark=False), palette(dark=True)
DRAWN = {
    "line": report.line_chart(
        [Series("DQN(λ)", [1.0, 3.0, 2.0], "var(--blue)"), Series("DQN", [2, 2], "var(--green)")],
        title="Learning <curves>",
        x_label="steps",
        y_label="score",
        references=[Reference("human", 2.5), Reference("best", 3)],
    ),
    "bars": report.bar_chart(
        [
            Bar("one & two", 2.0, "var(--blue)", interval=(1.5, 2.5)),
            Bar("three", -1.0, "var(--vermillion)"),
        ],
        title="Bars",
        references=[Reference("checkpoint", 1.0)],
    ),
    "histogram": report.histogram(
        [0.1, 0.2, 0.2, 0.9], [Bar("here", 0.25, "var(--orange)")], title="Values", unit="policies"
    ),
    "tree": search_tree(read_tuned(RUN)),
}


def colours(png: bytes) -> set[str]:
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).reshape(-1, 3)
    return {f"#{r:02x}{g:02x}{b:02x}" for r, g, b in np.unique(pixels, axis=0)}


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_stands_by_itself(name, dark):
    svg = standalone(DRAWN[name], dark=dark)
    for left_over in ("var(", "currentColor", "class=", "style=", "%", " id=", "tabindex"):
        assert left_over not in svg
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    wide, high = float(root.get("width")), float(root.get("height"))
    assert [float(n) for n in root.get("viewBox").split()][2:] == [wide, high]
    drawn = ElementTree.fromstring(DRAWN[name])
    assert root.findtext(f"{SVG}title") == drawn.get("aria-label")
    assert [e.text for e in root.iter(f"{SVG}text")] == [e.text for e in drawn.iter("text")]
    background = root.find(f"{SVG}rect")
    assert background.get("fill") == (DARK if dark else LIGHT)["paper"]
    for text in root.iter(f"{SVG}text"):
        assert text.get("fill") in ((DARK if dark else LIGHT)[c] for c in ("ink", "muted"))
        assert 12 <= float(text.get("font-size")) <= 13
    assert "sans-serif" in root.get("font-family")


def test_charts_that_take_any_width_get_the_one_asked_for():
    root = ElementTree.fromstring(standalone(DRAWN["bars"], width=400))
    assert root.get("width") == "400"
    tracks = [r for r in root.iter(f"{SVG}rect") if r.get("fill") == LIGHT["track"]]
    assert [track.get("width") for track in tracks] == [str(400 - 2 * MARGIN)] * 2
    (whisker,) = [e for e in root.iter(f"{SVG}line") if e.get("stroke-width") == "2.5"]
    # Of −1 to 2.5, on 376 pixels: 1.5 is at 2.5 / 3.5 of them.
    assert float(whisker.get("x1")) == pytest.approx(376 * 2.5 / 3.5, rel=1e-3)
    assert float(whisker.get("x2")) == 376
    line = ElementTree.fromstring(standalone(DRAWN["line"], width=400))
    assert line.get("width") == str(320 + 2 * MARGIN)  # it has a size of its own


def test_rules_hold_as_they_do_in_a_browser():
    """Of several rules the most specific one; of a bar's own style and any rule, the style."""
    root = ElementTree.fromstring(standalone(DRAWN["bars"]))
    (mark,) = [e for e in root.iter(f"{SVG}line") if e.get("stroke-dasharray")]
    assert mark.get("stroke-width") == "2"  # .bar-chart .reference, not .reference
    assert [e.get("fill") for e in root.iter(f"{SVG}tspan")] == [LIGHT["ink"]] * 2
    bar = [e for e in root.iter(f"{SVG}rect") if e.get("height") == "14"][1]
    assert bar.get("fill") == LIGHT["blue"]
    line = ElementTree.fromstring(standalone(DRAWN["line"]))
    (dqn, _) = line.findall(f"{SVG}g")
    assert (dqn.get("stroke"), dqn.get("fill")) == (LIGHT["blue"], "none")
    assert dqn.find(f"{SVG}circle").get("fill") == LIGHT["blue"]
    assert dqn.find(f"{SVG}circle").get("stroke") == "none"


def test_words_that_stand_out_make_room_for_themselves():
    name = "a name that is much longer than the chart is wide, " * 4
    narrow = ElementTree.fromstring(standalone(report.bar_chart([Bar(name, 1)], title="")))
    assert float(narrow.get("width")) > 1000
    values = [0.0, 2_000_000.0]
    chart = report.line_chart([Series("", values)], title="", x_label="", y_label="")
    left, *_ = map(float, ElementTree.fromstring(standalone(chart)).get("viewBox").split())
    assert left < -MARGIN


def test_a_key_says_which_line_is_which():
    root = ElementTree.fromstring(standalone(DRAWN["line"], key=True))
    plain = ElementTree.fromstring(standalone(DRAWN["line"]))
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert texts[-4:] == ["DQN(λ)", "DQN", "human 2.5", "best 3"]
    assert float(root.get("height")) > float(plain.get("height"))
    swatches = [line for line in root.iter(f"{SVG}line") if line.find(f"{SVG}title") is None][-4:]
    assert [line.get("stroke") for line in swatches[:2]] == [LIGHT["blue"], LIGHT["green"]]
    assert swatches[2].get("stroke-dasharray") != swatches[3].get("stroke-dasharray")
    for text in root.iter(f"{SVG}text"):
        assert float(text.get("y")) < float(root.get("height")) - MARGIN
    assert standalone(DRAWN["bars"], key=True) == standalone(DRAWN["bars"])


def test_letters_that_no_file_can_hold_are_left_out():
    svg = standalone(report.bar_chart([Bar("a\x00\x1b\ud800b", 1)], title="\x0c"))
    assert ">ab<" in svg
    with pytest.raises(ValueError, match="what --nothing is"):
        standalone(report.bar_chart([Bar("", 1, "var(--nothing)")], title=""))


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_has_the_colours_and_the_words(name):
    svg = standalone(DRAWN[name])
    png = as_png(svg, scale=1.5)
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    root = ElementTree.fromstring(svg)
    size = [1.5 * float(root.get(side)) for side in ("width", "height")]
    assert np.abs(np.subtract(Image.open(io.BytesIO(png)).size, size)).max() <= 1
    wanted = {
        "line": ("paper", "blue", "green"),
        "bars": ("paper", "blue", "vermillion", "track", "ink"),
        "histogram": ("paper", "orange"),
        "tree": ("paper", "c0", "c8", "muted"),
    }[name]
    assert {LIGHT[colour] for colour in wanted} <= colours(png)
    silent = re.sub(r"<text.*?</text>", "", svg)
    assert as_png(silent, scale=1.5) != png  # words are drawn
    assert DARK["paper"] in colours(as_png(standalone(DRAWN[name], dark=True), scale=1))


def test_without_the_package_it_is_said_what_to_install(monkeypatch):
    real = builtins.__import__

    def missing(name, *arguments):
        if name == "resvg_py":
            raise ImportError(name)
        return real(name, *arguments)

    monkeypatch.delitem(sys.modules, "resvg_py", raising=False)
    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(ImportError, match=re.escape("pip install 'conqur[figures]'")):
        as_png(standalone(DRAWN["line"]))


def test_without_a_font_there_is_no_picture_without_words(monkeypatch):
    monkeypatch.setattr("conqur.report.figures._has_fonts", lambda: False)
    with pytest.raises(RuntimeError, match="install one of Helvetica"):
        as_png(standalone(DRAWN["line"]))
    assert FONTS.endswith("sans-serif")


def test_a_table_in_latex():
    head = ["Game", "Score", "Gain, 95 %"]
    rows = [["Asterix_v1", 21.284, "+8.4 [5.1, 11.9]"], ["Q*bert & Co.", None, "-1.5 ± 0.2"]]
    assert as_latex(head, rows, caption="λ = 0.5: 100%", label="tab:scores") == (
        r"""\begin{table}
\centering
\caption{$\lambda$ = 0.5: 100\%}
\label{tab:scores}
\begin{tabular}{lrr}
\toprule
Game & Score & Gain, 95 \% \\
\midrule
Asterix\_v1 & 21.284 & +8.4 {[}5.1, 11.9{]} \\
Q{*}bert \& Co. & \textendash{} & $-$1.5 $\pm$ 0.2 \\
\bottomrule
\end{tabular}
\end{table}
"""
    )
    with pytest.raises(ValueError, match="cells as the head"):
        as_latex(head, [["one"]], caption="", label="a")
    with pytest.raises(ValueError, match="label must be"):
        as_latex(head, rows, caption="", label="tab:{")
    assert r"\begin{tabular}{ll}" in as_latex(["a", "b"], [], caption="", label="a")


@pytest.mark.parametrize(
    ("word", "written"),
    [
        ("εΛ×−", r"$\varepsilon$$\Lambda$$\times$$-$"),
        ("é Å ç ő", r"\'{e} \r{A} \c{c} \H{o}"),
        ("a\\b~c^d", r"a\textbackslash{}b\textasciitilde{}c\textasciicircum{}d"),
        ("--seed -3", "-{}-seed $-$3"),
        ("10⁻² ½", r"10$^{-}$$^{2}$ 1/2"),
        ("two\nlines\x07", "two lines"),
        ("中", "{[}U+4E2D{]}"),
    ],
)
def test_words_in_latex(word, written):
    assert rf"\caption{{{written}}}" in as_latex(["a"], [], caption=word, label="a")


KNOWN = re.compile(
    r"\\[&%_#${}]|\$(?:\\[A-Za-z]+|[-']|\^\{\\circ\}|[\^_]\{[-n\d]\})\$|\\[A-Za-z]+(?=\{)|\\,"
    r"|\{\\[A-Za-z]+\}|\{[\[\]*]\}|\\[`'^~=.\"](?=\{)|\{\}"
)


@given(st.text(max_size=40))
def test_nothing_special_is_left_in_any_word(word):
    text = as_latex([word], [[word]], caption=word, label="a")
    assert text.isascii()
    (caption,) = re.findall(r"^\\caption\{(.*)\}$", text, re.MULTILINE)
    rest = caption
    while (less := KNOWN.sub("", rest)) != rest:
        rest = less
    depth = 0
    for letter in rest:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        assert depth >= 0
    assert depth == 0
    assert not set(rest) & set("&%#_$^\\[]*"), rest
    assert "--" not in caption
    rows = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert rows == [f"{caption} \\\\"] * 2


cells = st.none() | st.integers() | st.floats(allow_nan=False) | st.text()


@given(st.lists(st.lists(cells, min_size=3, max_size=3), max_size=5))
def test_csv_comes_back(rows):
    rows = [[c.replace("\r", "\n") if isinstance(c, str) else c for c in row] for row in rows]
    text = as_csv(["a", "b,", 'c"'], rows)
    head, *found = csv.reader(io.StringIO(text, newline=""))
    assert head == ["a", "b,", 'c"']
    assert found == [["" if cell is None else str(cell) for cell in row] for row in rows]


def test_csv_is_as_wide_as_its_head():
    with pytest.raises(ValueError, match="cells as the head"):
        as_csv(["a", "b"], [[1.0]])
