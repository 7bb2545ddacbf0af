"""The demo's page: complete, self-contained, and true to the measurements."""

import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser

import numpy as np
import pytest

from conqur import __version__, exact, tabular
from conqur.demo.experiment import Demo, Example, Method, RandomStarts
from conqur.demo.page import render
from conqur.demo.pictures import _placed

VOID = {"meta", "br"}


def method(key, name, value, promised, path) -> Method:
    return Method(key, name, "λ = 10", value, promised, path[-1], path, (0.1, value), "7 batches")


def example(problem: tabular.Problem) -> Example:
    """What `run_demo` finds out, from its cheap parts; the regressions are made up."""
    mdp, features = problem
    policies = {
        policy: (witness, mdp.value(np.array(policy)))
        for policy, witness in tabular.greedy_policies(features).items()
    }
    found = exact.pcvi(mdp, features)
    (first, first_value), (second, second_value) = list(policies.values())[:2]
    methods = (
        method("q_learning", "Q-learning", first_value, 0.1234, np.stack([second, first])),
        method("penalised", "the penalty alone", second_value, None, second[None]),
        method("pcvi", "PCVI", found.value, found.value, found.theta[None]),
    )
    best = max(value for _, value in policies.values())
    optimum = mdp.value(mdp.optimal_policy())
    return Example(problem, policies, methods, found, best, optimum)


@pytest.fixture(scope="module")
def demo() -> Demo:
    grid = tabular.grid_world(0, size=2, num_features=2, slip=0.1)
    return Demo(example(tabular.four_state()), example(grid), RandomStarts(20, 9, 3, 11, 2))


@pytest.fixture(scope="module")
def page(demo: Demo) -> str:
    return render(demo, "conqur demo --seed 0")


class Outline(HTMLParser):
    """Checks that elements are closed in order, and collects tables and attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.tables: list[list[list[str]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_startendtag(self, tag, attrs):
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "td" in self.open or "th" in self.open:
            self.tables[-1][-1][-1] += data


def test_page_is_well_formed_and_every_table_has_headings(page):
    outline = Outline(page)
    assert outline.open == []
    assert len(outline.tables) == 4
    assert page.count('scope="col"') == sum(len(table[0]) for table in outline.tables)


def test_page_loads_nothing(page):
    names = {name for name, _ in Outline(page).attributes}
    assert not names & {"src", "href", "srcset", "xlink:href", "data", "onload"}
    assert re.findall(r"url\((?!#head\))", page) == []
    for forbidden in ("http:", "https:", "<script", "<link", "@import"):
        assert forbidden not in page
    assert len(page.encode()) < 500_000


@pytest.mark.parametrize(("index", "name"), [(2, "four_state"), (3, "grid_world")])
def test_method_tables_say_what_was_measured(demo, page, index, name):
    example = getattr(demo, name)
    head, *rows = Outline(page).tables[index]
    assert head == ["Method", "Promised", "Value", "Shortfall"]
    for row, method in zip(rows, example.methods, strict=True):
        assert row[0].lower() == (method.name + method.setting).lower()
        promised = "none" if method.promised is None else f"{method.promised:.3f}"
        shortfall = example.best_realizable - method.value
        assert row[1:] == [promised, f"{method.value:.3f}", f"{abs(shortfall):.3f}"]


def test_policy_table_has_every_realizable_policy_and_marks_the_best(page):
    head, *rows = Outline(page).tables[0]
    assert head == ["Policy", "s₁", "s₂", "s₃", "s₄", "Witness θ", "Value"]
    values = {row[0]: row[-1] for row in rows}
    assert values == {
        "1121": "0.300",
        "1122": "best 0.500",
        "1211": "0.300",
        "2122": "0.000",
        "2211": "0.000",
        "2212": "0.000",
    }
    assert rows[0][1:5] == ["a₁", "a₁", "a₂", "a₁"]


def test_cell_table_has_the_information_sets_at_the_start(page):
    _, *rows = Outline(page).tables[1]
    assert rows == [
        ["s₁ ↦ a₁, s₄ ↦ a₁", "s₂, s₃", "0.300"],
        ["s₁ ↦ a₁, s₄ ↦ a₂", "s₂, s₃", "best 0.500"],
        ["s₁ ↦ a₂, s₂ ↦ a₁", "s₃, s₄", "0.000"],
        ["s₁ ↦ a₂, s₂ ↦ a₂, s₃ ↦ a₁", "s₄", "0.000"],
    ]


def test_text_has_the_numbers_of_the_four_states(page):
    text = " ".join(re.sub(r"<[^>]*>", "", page).split())
    assert "6 of 16 policies are realizable" in text
    assert "is worth 0.5; an optimal policy that it cannot express is worth 2." in text
    assert (
        "Q-learning (0.3) ends below the best realizable value; the penalty alone and PCVI" in text
    )
    assert "From 20 random starts" in text
    assert (
        "without the penalty reached the best realizable value 3 times, with the penalty 11" in text
    )
    assert "θ · (0.8, 0) &gt; θ · (0, 0)" in text
    assert "θ · (−1, 0) &gt; θ · (0, 0)" in text


def test_plane_has_one_cone_for_each_policy(page):
    whole, _ = re.findall(
        r'<svg class="plane".*?</svg></svg>|<svg class="plane".*?</text></svg>', page
    )
    assert whole.count('class="sector"') == 6
    codes = re.findall(r'class="code">(\d+)<', whole)
    assert sorted(codes) == ["1121", "1122", "1211", "2122", "2211", "2212"]


def test_names_of_points_are_not_written_over_each_other():
    """Two that ended side by side, as far apart as Q-learning and regression do in the demo."""
    names = [_placed(164.2, 73.8, "Q-learning", [])]
    names.append(_placed(260.0, 84.2, "Batch regression", names))
    names.append(_placed(120.0, 80.0, "Algorithm 1", names))
    for i, name in enumerate(names):
        left, right = name.span
        assert left >= 0
        assert right <= 320
        for other in names[:i]:
            apart = right < other.span[0] or other.span[1] < left
            assert apart or abs(name.y - other.y) >= 13  # the size of the letters
    assert names[0] == (155.2, 77.8, "Q-learning", "end")  # beside its point, where there is room


def test_values_side_by_side_have_as_many_decimals(demo):
    methods = tuple(
        replace(method, value=value)
        for method, value in zip(demo.grid_world.methods, (0.421, 0.27, 0.799), strict=True)
    )
    grid = replace(demo.grid_world, methods=methods, best_realizable=0.799)
    page = render(replace(demo, grid_world=grid), "conqur demo")
    assert "Q-learning (0.421) and the penalty alone (0.270) end below" in page
    assert "The penalty alone 0.270<" in page


def test_footer_has_command_and_version(page):
    footer = page[page.index("<footer>") :]
    assert "<code>conqur demo --seed 0</code>" in footer
    assert f"conqur {__version__}" in footer
    assert "ICML 2020" in footer
    assert "NeurIPS 2018" in footer


def test_hostile_text_is_escaped(demo):
    hostile = '"><script>alert("$style & co")</script>'
    methods = tuple(
        replace(method, name=hostile, setting=hostile, unit=hostile)
        for method in demo.four_state.methods
    )
    page = render(
        replace(
            demo,
            four_state=replace(demo.four_state, methods=methods),
            grid_world=replace(demo.grid_world, methods=methods),
        ),
        hostile,
    )
    assert "<script" not in page.lower()
    assert page.count(escape(hostile)) > 10
    assert Outline(page).open == []


def test_no_regression_to_look_at_closely(demo):
    only_pcvi = replace(demo.four_state, methods=demo.four_state.methods[-1:])
    page = render(replace(demo, four_state=only_pcvi), "conqur demo")
    assert page.count('<svg class="plane"') == 1
    assert "PCVI reaches the best realizable value." in page
