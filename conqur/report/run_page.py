"""The page about a tuning run: before and after, the search tree, nodes against the checkpoint.

The words are in `run_page.html`; every number they need is put in here. One HTML file, which loads
nothing; `run_page.js` in it makes the tree answer.
"""

import shlex
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

from conqur import __version__, report
from conqur._files import replacing
from conqur.report import Bar, Reference, Series, number, signed
from conqur.report.charts import Number
from conqur.report.pages import file_text, filled, panel, unbroken
from conqur.report.search_tree import (
    SHADES,
    detail_names,
    drawn_nodes,
    node_data,
    search_tree,
)
from conqur.report.tuned_run import Interval, Node, Played, Summary, TunedRun

PAGE = "report.html"
"""What a run's page is called in its folder."""
CHECKPOINT, CHOSEN, OTHER = "var(--muted)", "var(--blue)", "var(--sky)"
MOST_BARS, MOST_LINES = 48, 64

LEVELS = (
    ("Best score (less is better)", "best_score"),
    ("Bellman error", "bellman"),
    ("Consistency penalty", "penalty"),
    ("Choices broken, per cent", "inconsistent"),
    ("Decisions that a level changed, per cent", "churn"),
    ("Action gap", "gap"),
    ("Entropy of assignments", "entropy"),
    ("Mean label", "label"),
    ("Return of episodes that ended while collecting", "return"),
)
"""Of the log: what a panel is called, and the column."""
SHARES = {"inconsistent", "churn"}


def render_run_page(run: TunedRun, command: str) -> str:
    """The whole page.

    Args:
        run: what is told.
        command: what the reader may type to make the page again.
    """
    return filled(
        "run_page.html",
        {
            "style": report.style() + file_text("run_page.css"),
            "script": file_text("run_page.js"),
            "environment": escape(run.config.environment),
            "headline": unbroken(headline(run)),
            "verdict": unbroken(_lede(run)),
            "facts": escape(_facts(run)),
            "before_after": _before_after(run),
            "tree": search_tree(run),
            "tree_words": escape(_tree_words(run)),
            "names": " ".join(f"<dt>{escape(name)}</dt><dd></dd>" for name in detail_names(run)),
            "nodes": node_data(run),
            "begin": str(_first_shown(run)),
            "shades": "".join(f'<i class="c{i}"></i>' for i in range(SHADES)),
            "direction": "gains: more is better" if run.by_rollouts else "less is better",
            "ranked": _ranked(run),
            "curves": _curves(run),
            "levels": _levels(run),
            "settings": _definitions(run.config.to_json()),
            "manifest": _definitions(_flat(run.manifest)),
            "command": escape(command),
            "version": escape(__version__),
        },
    )


def write_page(run: TunedRun, output: Path) -> Path:
    """Write a run's page, and return where."""
    command = shlex.join(["conqur", "report", str(run.folder), "--output", str(output)])
    page = render_run_page(run, command)
    with replacing(output, follow=False) as file:  # a link in a run's folder leads anywhere
        file.write(page.encode("utf-8", "replace"))
    return output


def headline(run: TunedRun) -> str:
    """What came of it, in a few words."""
    summary, name = run.summary, run.config.environment
    if summary is None:
        return f"{name}: level {run.level} of {run.config.levels}"
    if summary.candidates == 0:
        return f"{name}: all nodes diverged"
    if summary.checkpoint is None or summary.chosen is None:
        return f"{name}: searched, not played"
    before, after = summary.checkpoint.mean, summary.chosen.mean
    if summary.kept_checkpoint:
        return f"{name}: no better than {number(before, 2)} beyond chance"
    return f"{name}: {number(before, 2)} before, {number(after, 2)} after"


def verdict(summary: Summary) -> str:
    """What came of a search, in words."""
    if summary.candidates == 0:
        return "All nodes diverged: the checkpoint itself is handed back."
    chosen, checkpoint = summary.chosen, summary.checkpoint
    if chosen is None or checkpoint is None:
        return f"Nothing was played; node {summary.by_score_node} has the best score."
    low, high = chosen.gain_interval
    known = low is not None and high is not None
    spread = f" (95 % interval {low:+.2f} to {high:+.2f})" if known else ""
    compared = (
        f"Node {chosen.node} was best of {summary.candidates or 'all'} that were played again. On "
        f"{chosen.episodes} fresh starts the checkpoint scores {checkpoint.mean:.2f} and node "
        f"{chosen.node} {chosen.mean:.2f}: {chosen.gain:+.2f}{spread}."
    )
    if summary.kept_checkpoint:
        chance = chosen.gain > 0 or (high is not None and high > 0)
        reason = "That may be chance" if chance else "No node is better"
        return f"{compared} {reason}: the checkpoint itself is handed back."
    return f"{compared} Node {chosen.node} is handed back."


def _lede(run: TunedRun) -> str:
    if run.summary is None:
        return (
            "This run is not at its end: what it came to is not known yet. The page shows the run "
            "as of its newest checkpoint."
        )
    return verdict(run.summary).replace(" -", " −").replace("(-", "(−")


def _facts(run: TunedRun) -> str:
    config = run.config
    facts = [
        f"{config.search} search, {config.nodes} nodes, {config.levels} levels of "
        f"{config.transitions:,} transitions and {config.updates:,} gradient steps",
        f"λ = {config.penalty_weight:g}",
        f"children: {'greedy' if config.search == 'independent' else config.children}",
        f"scores: {config.scoring}",
    ]
    if run.summary is not None:
        facts.append(f"{run.summary.frames:,} frames, {_duration(run.summary.seconds)}")
    return "; ".join(facts)


def _duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} seconds"
    return f"{whole // 3600} h {whole % 3600 // 60} min" if whole >= 3600 else f"{whole // 60} min"


def _before_after(run: TunedRun) -> str:
    """The section with scores on fresh starts; none if nothing was played."""
    summary = run.summary
    if summary is None or not (summary.checkpoint and summary.chosen and summary.by_score):
        return ""
    chosen, by_score = summary.chosen, summary.by_score
    told = [
        ("Checkpoint", summary.checkpoint, CHECKPOINT),
        (f"Node {chosen.node}, chosen by rollouts", chosen, CHOSEN),
        (f"Node {by_score.node}, best by its score", by_score, OTHER),
    ]
    told = told[:2] if by_score.node == chosen.node else told
    bars = [
        Bar(name, found.mean, colour, number(found.mean, 2), whisker(found.interval))
        for name, found, colour in told
    ]
    rows = [_row(name, found, of_checkpoint=not i) for i, (name, found, _) in enumerate(told)]
    slots = {
        "chart": report.bar_chart(bars, title="Scores before and after"),
        "table": report.table(["", "Score", "Gain"], rows, "scores", numeric=2),
        "episodes": str(chosen.episodes),
        "champion": escape(_champion(summary.best)),
    }
    return filled("run_before_after.html", slots)


def _champion(best: Played | None) -> str:
    """What the best of all evaluations says, and what it is worth."""
    if best is None:
        return ""
    if best.gain <= 0:
        return "In no evaluation during the search a node scored more than the checkpoint."
    return (
        f"The best of all evaluations during the search was node {best.node} with "
        f"{number(best.gain, 2)} above the checkpoint on {best.episodes} starts. The best of many "
        "noisy numbers is too good to be true: it took part in the choice, and only the fresh "
        "starts count."
    )


def whisker(interval: Interval) -> tuple[Number, Number] | None:
    """An interval of a bar chart, if it is known."""
    low, high = interval
    return None if low is None or high is None else (low, high)


def _row(name: str, found: Played, *, of_checkpoint: bool) -> str:
    score = f"{number(found.mean, 2)}<small>{_range(*found.interval)}</small>"
    gain = f"{signed(found.gain)}<small>{_range(*found.gain_interval)}</small>"
    values = (score, "–" if of_checkpoint else gain)
    cells = "".join(f'<td class="num">{cell}</td>' for cell in values)
    return f'<tr><th scope="row">{escape(name)}</th>{cells}</tr>'


def _range(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{number(low, 2)} to {number(high, 2)}"


def _tree_words(run: TunedRun) -> str:
    hidden = len(run.nodes) - len(drawn_nodes(run))
    left_out = f" {hidden:,} that led nowhere are left out." if hidden else ""
    return f"{len(run.nodes):,} nodes.{left_out}"


def _first_shown(run: TunedRun) -> int:
    """The node that the page tells of first."""
    if run.chosen is not None:
        return run.chosen
    left = [n for n in drawn_nodes(run) if n.status == "frontier" and n.score is not None]
    return min(left, key=lambda n: (n.score, n.id)).id if left else min(run.nodes)


def _ranked(run: TunedRun) -> str:
    """Nodes of the last evaluation, best first, against the checkpoint."""
    last = max((row.level for row in run.played), default=0)
    rows = sorted((r for r in run.played if r.level == last), key=lambda r: (-r.mean, r.node))
    if last and rows:
        bars = [
            Bar(
                f"node {row.node}",
                row.mean,
                CHOSEN if row.node == run.chosen else OTHER,
                number(row.mean, 2),
                whisker(row.interval),
            )
            for row in rows[:MOST_BARS]
        ]
        references = [Reference("checkpoint", rows[0].checkpoint)]
        words = (
            f"Scores of the nodes of level {last}, {rows[0].episodes} episodes each on common "
            "starts, with bootstrap intervals over episodes."
        )
    elif run.by_rollouts:
        rows_of = [n for n in run.nodes.values() if n.status == "frontier" and n.score is not None]
        gains = sorted((n.score or 0.0, n.id) for n in rows_of)
        bars = [
            Bar(f"node {node}", -score, CHOSEN if node == run.chosen else OTHER, signed(-score))
            for score, node in gains[:MOST_BARS]
        ]
        references = []
        words = (
            f"Gains on the checkpoint of the nodes of the last level, "
            f"{run.config.rollout_episodes} episodes each on common starts. These chose the nodes, "
            "so the best are too good to be true."
        )
    else:
        return ""
    if len(bars) == MOST_BARS:
        words += f" No more than {MOST_BARS} are shown."
    chart = report.bar_chart(bars, title="Nodes, best first", references=references)
    return _section("Nodes, best first", f'<div class="ranked">{chart}</div>', words)


def _curves(run: TunedRun) -> str:
    """Of every lineage that is left: what it scored when it was evaluated."""
    gains = run.by_rollouts and len({row.level for row in run.played}) < 2
    ends = [n for n in run.nodes.values() if n.status == "frontier" or n.id == run.chosen]
    ends = sorted(ends, key=lambda node: node.id != run.chosen)[:MOST_LINES]
    lines = []
    for node in ends:
        at, values = _course(run, node, gains)
        colour = CHOSEN if node.id == run.chosen else OTHER
        lines.append(Series(f"to node {node.id}", values, colour, at))
    lines.sort(key=lambda line: line.colour == CHOSEN)  # above the others
    lines = [line for line in lines if len(line.values) > 1]
    if not lines:
        return ""
    y_label = "gain" if gains else "score"
    if not gains:
        known = {float(row.level): row.checkpoint for row in run.played}
        lines.append(Series("checkpoint", list(known.values()), "var(--ink)", list(known)))
    chart = report.line_chart(
        lines, title="Lineages of the last level", x_label="level", y_label=y_label
    )
    words = (
        "What the ancestors of nodes of the last level scored. Siblings share their past; a "
        "lineage that waited has no points in between. "
        + ("The checkpoint is at 0." if gains else "The checkpoint, on the same starts, is black.")
    )
    if any(line.colour == CHOSEN for line in lines):
        words += " The node that was chosen is in dark blue."
    return _section("Lineages", f'<div class="curves">{chart}</div>', words)


def _course(run: TunedRun, node: Node, gains: bool) -> tuple[list[float], list[float]]:
    """Levels at which a lineage was evaluated, or scored by rollouts, and what it scored."""
    ancestors = {ancestor.id: ancestor for ancestor in run.lineage(node.id)}
    rows = [(float(row.level), row.mean) for row in run.played if row.node in ancestors]
    if gains:
        rows = [
            (ancestor.level + 1.0, -ancestor.score)
            for ancestor in ancestors.values()
            if ancestor.score is not None
        ]
    return [level for level, _ in rows], [value for _, value in rows]


def _levels(run: TunedRun) -> str:
    """Small charts of what levels were like; none of a run with a single one."""
    panels = []
    for title, column in LEVELS:
        known = [(float(row["step"]), row[column]) for row in run.levels if column in row]
        if len(known) < 2 or not any(value for _, value in known):
            continue
        factor = 100.0 if column in SHARES else -1.0 if _turned(run, column) else 1.0
        values = [factor * value for _, value in known]
        name = "Best gain on the checkpoint" if _turned(run, column) else title
        line = Series(name, values, CHOSEN, [level for level, _ in known])
        panels.append(panel(name, "", [line]))
    if not panels:
        return ""
    return f'<section><h2>Level by level</h2><div class="panels">{"".join(panels)}</div></section>'


def _turned(run: TunedRun, column: str) -> bool:
    return column == "best_score" and run.by_rollouts


def _section(title: str, figure: str, words: str) -> str:
    return (
        f'<section><h2>{escape(title)}</h2><figure class="framed">{figure}'
        f"<figcaption>{escape(words)}</figcaption></figure></section>"
    )


def _definitions(values: dict[str, Any]) -> str:
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
    return f"{value:g}" if isinstance(value, float) else str(value) or "–"


def _flat(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest with what is nested in it as words."""
    flat: dict[str, Any] = {}
    for name, value in manifest.items():
        if isinstance(value, dict):
            parts: Sequence[str] = [f"{key} {_value(inner)}" for key, inner in value.items()]
            flat[name] = ", ".join(parts)
        elif isinstance(value, list):
            flat[name] = ", ".join(_value(inner) for inner in value)
        else:
            flat[name] = value
    return flat
