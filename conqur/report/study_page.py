"""The page about a study, or about training runs: all tables and figures that have data."""

import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path

from conqur import __version__, report
from conqur._files import replacing
from conqur.report.exhibits import Estimate, Exhibit
from conqur.report.pages import definitions, file_text, filled, flat, unbroken
from conqur.report.paper_tables import EXHIBITS
from conqur.report.penalty_exhibits import penalty_exhibits
from conqur.report.search_exhibits import in_some, search_exhibits
from conqur.report.training_exhibits import training_exhibits
from conqur.suite.results import Results

ON_RUN_PAGES = ("Fig. 3", "Fig. 4")
"""What a search's own page shows."""


def study_exhibits(results: Results) -> list[Exhibit]:
    """All tables and figures that there is data for."""
    if results.command == "tune":
        return search_exhibits(results.rows, results.points, results.nodes)
    shown = penalty_exhibits(results.rows, results.points)
    if len(results.folders) == 1:
        shown += training_exhibits(results.folders[0])
    return shown


def render_study_page(results: Results, exhibits: Sequence[Exhibit], command: str) -> str:
    """The whole page.

    Args:
        results: what is told.
        exhibits: of it.
        command: what the reader may type to make the page again.
    """
    settings = (
        f"<details><summary>The study</summary><pre>{escape(results.settings)}</pre></details>"
        if results.settings
        else ""
    )
    return filled(
        "study_page.html",
        {
            "style": report.style() + file_text("exhibits.css"),
            "title": escape(headline(results)),
            "headline": escape(headline(results)),
            "lede": unbroken(_lede(results, exhibits)),
            "facts": escape(_facts(results)),
            "exhibits": "\n".join(exhibit.html() for exhibit in exhibits),
            "index": _index(results, exhibits),
            "settings": settings,
            "manifest": definitions(flat(results.made_with)),
            "command": escape(command),
            "version": escape(__version__),
        },
    )


def write_study_page(
    results: Results, exhibits: Sequence[Exhibit], folders: Sequence[Path], output: Path
) -> Path:
    """Write the page about what is in these folders, and return where."""
    command = shlex.join(["conqur", "report", *map(str, folders), "--output", str(output)])
    page = render_study_page(results, exhibits, command)
    with replacing(output, follow=False) as file:
        file.write(page.encode("utf-8", "replace"))
    return output


def headline(results: Results) -> str:
    """How far it is, in a few words."""
    if results.command == "train" and results.runs == 1 and results.points:
        first = results.points[0]
        steps = max(point.step for point in results.points)
        return f"{first.game}, {first.algorithm.upper()}: {steps:,} steps"
    if results.name == _counted(results.runs, "run"):
        return results.name
    if results.done == results.runs:
        return f"{results.name}: {_counted(results.runs, 'run')}"
    return f"{results.name}: {results.done} of {_counted(results.runs, 'run')}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'s' * (count != 1)}"


def _lede(results: Results, exhibits: Sequence[Exhibit]) -> str:
    """What came of it: the interquartile means of all that was compared."""
    key = "algorithms" if results.command == "tune" else "weights"
    tables = [e for e in exhibits if e.key.partition("-")[0] == key and e.rows]
    if not tables:
        return (
            "No score is of fresh episodes yet: conqur evaluate RUN --keep brings them."
            if results.command == "train" and not results.rows
            else "One λ was trained with: there is nothing to compare its scores with."
            if results.command == "train"
            else "Nothing is compared here: there is nothing to compare with."
        )
    against = "the checkpoint's" if results.command == "tune" else "that of λ = 0"
    words = f"Scores in parts of {against}, interquartile means over all games."
    for table in tables:
        setting = table.key.partition("-")[2]
        found = "; ".join(_told(table, train=results.command == "train"))
        found = f"{setting}: {found}" if setting else found
        words += f" {found[:1].upper()}{found[1:]}." if found else ""
    return words


def _told(table: Exhibit, *, train: bool) -> list[str]:
    """What a table says of everything that is compared in it, and in how many games."""
    column, games = table.head.index("IQM"), table.head.index("games")
    most = max(int(str(row[games])) for row in table.rows)
    told = []
    for row in table.rows:
        value = row[column]
        name = f"{row[0]} with λ = {row[1]}" if train else str(row[0])
        if isinstance(value, Estimate) and not name.endswith(" with λ = 0"):
            spread = "" if value.interval is None else " ({:.2f} to {:.2f})".format(*value.interval)
            told.append(f"{name}{in_some(int(str(row[games])), most)}: {value.value:.2f}{spread}")
    return told


def _facts(results: Results) -> str:
    games = list(dict.fromkeys(row.game for row in (*results.rows, *results.points)))
    facts = [f"{_counted(len(games), 'game')}: {', '.join(games)}"]
    if results.settings.startswith("#"):  # what its author says of the study
        facts.insert(0, results.settings.partition("\n")[0].lstrip("# ").rstrip(". "))
    networks = {getattr(row, "network", row) for row in results.rows}
    if networks:
        facts.append(_counted(len(networks), "network"))
    if 1 < results.runs > results.done:
        facts.append("not at its end: what is not done yet is not in any number here")
    return "; ".join(facts)


def _index(results: Results, exhibits: Sequence[Exhibit]) -> str:
    """Where the paper's tables and figures are on this page, or that they are not."""
    if results.runs == 1:
        return ""
    rows = []
    for name, what in EXHIBITS.items():
        here = [e for e in exhibits if name in _named(e.paper)]
        links = ", ".join(f'<a href="#{escape(e.key)}">{escape(e.title)}</a>' for e in here)
        if not links and name in ON_RUN_PAGES and results.command == "tune":
            links = "on the page of each run: <code>conqur report RUN</code>"
        rows.append(
            f'<tr><th scope="row">{name}</th><td>{escape(what)}</td>'
            f"<td>{links or 'not measured in this study'}</td></tr>"
        )
    table = report.table(["The paper", "What", "Here"], rows, "exhibit", numeric=0)
    return (
        "<section><h2>The paper's tables and figures</h2>"
        f'<figure class="framed"><div class="scroll">{table}</div></figure></section>'
    )


def _named(paper: str) -> set[str]:
    """The names in words such as "Fig. 2 and 8"."""
    kind, _, numbers = paper.partition(" ")
    return {f"{kind} {part.strip()}" for part in numbers.split("and")}
