"""Charts: coordinates computed by hand, and data that could divide by zero."""

import re
from xml.etree import ElementTree

import pytest

from conqur import report
from conqur.report import Bar, Reference, Series, charts


def points(svg: str) -> list[tuple[float, float]]:
    (path,) = re.findall(r'<polyline points="([^"]*)"', svg)
    return [tuple(map(float, point.split(","))) for point in path.split()]


def line_chart(*values: float, **options) -> str:
    series = [Series("line", values)]
    return report.line_chart(series, title="title", x_label="x", y_label="y", **options)


def test_line_chart_puts_points_where_they_belong():
    # The plot is 40 to 310 wide and 160 (bottom) to 24 (top) high: half of 0 to 2 is at y = 92.
    svg = line_chart(0.0, 1.0, 2.0, y_range=(0.0, 2.0))
    assert points(svg) == [(40, 160), (175, 92), (310, 24)]


def test_line_chart_reaches_from_zero_to_the_highest_reference():
    svg = line_chart(1.0, 3.0, references=[Reference("best", 2.0), Reference("optimum", 4.0)])
    assert points(svg) == [(40, 126), (310, 58)]
    references = re.findall(r'class="reference r(\d)" x1="40" x2="310" y1="(.*?)"', svg)
    assert references == [("0", "92.0"), ("1", "24.0")]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((0.5,), [(175, 24)]),  # one point stands in the middle
        ((0.0, 0.0), [(40, 92), (310, 92)]),  # no range at all: as if from −0.5 to 0.5
        ((-1.0, -1.0), [(40, 160), (310, 160)]),
    ],
)
def test_flat_and_single_point_lines(values, expected):
    assert points(line_chart(*values)) == expected


def test_line_chart_of_nothing_still_has_axes():
    assert "<polyline" not in line_chart()
    assert 'class="axis"' in line_chart()


def test_bar_chart_is_laid_out_in_per_cent_of_the_highest_value():
    svg = report.bar_chart(
        [Bar("one", 0.5), Bar("two", 1.0, text="a lot")],
        title="title",
        references=[Reference("best", 1.0), Reference("optimum", 4.0)],
    )
    assert re.findall(r'<rect x="0%" y="\d+" width="(.*?)"', svg) == ["12.5%", "25%"]
    assert re.findall(r'class="reference" x1="(.*?)"', svg) == ["25%", "100%"]
    assert ">0.5</tspan>" in svg
    assert ">a lot</tspan>" in svg


def test_negative_bars_go_to_the_left_of_zero():
    svg = report.bar_chart([Bar("loss", -3.0, interval=(-4, -1)), Bar("gain", 1.0)], title="title")
    bars = re.findall(r'<rect x="(.*?)" y="\d+" width="(.*?)" height="14" style', svg)
    assert bars == [("20%", "60%"), ("80%", "20%")]
    assert 'class="whisker" x1="0%" x2="60%"' in svg


def test_bar_chart_of_zeros():
    assert 'width="0%"' in report.bar_chart([Bar("none", 0.0)], title="title")


def test_histogram_counts_and_marks():
    values, marks = [0.0, 0.1, 0.6, 1.0], [Bar("here", 0.25)]
    svg = report.histogram(values, marks, title="title", unit="policies", bins=2)
    # Columns are 96 high at most and stand on y = 112.
    columns = re.findall(r'class="column" x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"', svg)
    assert columns == [("0%", "16.0", "50%", "96.0"), ("50%", "16.0", "50%", "96.0")]
    assert '<circle cx="25%"' in svg
    assert ">here 0.25</text>" in svg


def test_histogram_of_one_value():
    assert "1 policies from" in report.histogram([0.0], [], title="title", unit="policies")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 2, [0, 0.5, 1, 1.5, 2]),
        (0, 0.84, [0, 0.2, 0.4, 0.6, 0.8]),
        (-1, 1, [-1, -0.5, 0, 0.5, 1]),
        (3, 3, [3]),
    ],
)
def test_ticks_are_round(low, high, expected):
    assert charts.ticks(low, high) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, "0.5"), (2.0, "2"), (-0.25, "−0.25"), (-1e-9, "0"), (65536, "65,536"), (100, "100")],
)
def test_numbers_are_written_for_people(value, expected):
    assert report.number(value) == expected


def test_names_are_escaped_and_every_chart_is_well_formed():
    name = '<b>&"'
    bars, references = [Bar(name, 1.0, text=name)], [Reference(name, 2.0)]
    drawn = [
        report.line_chart(
            [Series(name, [1.0])], title=name, x_label=name, y_label=name, references=references
        ),
        report.bar_chart(bars, title=name, references=references),
        report.histogram([1.0], bars, title=name, unit=name),
    ]
    for svg in drawn:
        root = ElementTree.fromstring(svg)
        assert root.get("role") == "img"
        assert root.get("aria-label") == name
    assert "<b>" not in report.legend(references)


def test_style_is_found_and_loads_nothing():
    assert "prefers-color-scheme: dark" in report.style()
    assert "url(" not in report.style()
    assert "@import" not in report.style()


def test_bars_show_their_intervals_within_the_chart():
    bars = [Bar("one", 1.0, interval=(0.5, 2.0)), Bar("two", 0.5, interval=(-1.0, 1.0))]
    svg = report.bar_chart(bars, title="title")
    assert re.findall(r'<rect x="0%" y="\d+" width="(.*?)"', svg) == ["50%", "25%"]
    whiskers = re.findall(r'class="whisker" x1="(.*?)" x2="(.*?)" y1="(.*?)"', svg)
    assert whiskers == [("25%", "100%", "27.0"), ("0%", "50%", "67.0")]


def test_what_is_below_the_lowest_bar_has_its_place():
    bars = [charts.Bar("a", -15.0, interval=(-19.0, -11.0)), charts.Bar("b", -18.0)]
    chart = charts.bar_chart(bars, title="", references=[charts.Reference("checkpoint", -20.0)])
    assert 'class="whisker" x1="5%" x2="45%"' in chart  # of −20 to 0
    assert 'class="reference" x1="0%"' in chart
    assert '<rect x="10%"' in chart
