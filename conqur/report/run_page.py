"""The page about a tuning run: before and after, the search tree, nodes against the checkpoint.

The words are in `run_page.html`; every number they need is put in here. One HTML file, which loads
nothing; `run_page.js` in it makes the tree answer.
"""

import shlex
from html import escape
from pathlib import Path

from conqur import __version__, report
from conqur._files import replacing
from conqur._messages import duration
from conqur.report import number
from conqur.report.pages import definitions, file_text, filled, flat, unbroken
from conqur.report.run_exhibits import before_after, others
from conqur.report.search_tree import (
    SHADES,
    detail_names,
    drawn_nodes,
    node_data,
    search_tree,
)
from conqur.report.tuned_run import Summary, TunedRun


def render_run_page(run: TunedRun, command: str) -> str:
    """The whole page.

    Args:
        run: what is told.
        command: what the reader may type to make the page again.
    """
    return filled(
        "run_page.html",
        {
            "style": report.style() + file_text("exhibits.css") + file_text("run_page.css"),
            "script": file_text("run_page.js"),
            "environment": escape(run.config.environment),
            "headline": unbroken(headline(run)),
            "verdict": unbroken(_lede(run)),
            "facts": escape(_facts(run)),
            "typed": f'<p class="facts"><code>{escape(run.command)}</code></p>' * bool(run.command),
            "before_after": "\n".join(exhibit.html() for exhibit in before_after(run)),
            "tree": search_tree(run),
            "tree_words": escape(_tree_words(run)),
            "names": " ".join(f"<dt>{escape(name)}</dt><dd></dd>" for name in detail_names(run)),
            "nodes": node_data(run),
            "begin": str(_first_shown(run)),
            "shades": "".join(f'<i class="c{i}"></i>' for i in range(SHADES)),
            "direction": "gains: more is better" if run.by_rollouts else "less is better",
            "others": "\n".join(exhibit.html() for exhibit in others(run)),
            "settings": definitions(run.config.to_json()),
            "manifest": definitions(flat(run.manifest)),
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
    among = f"Of {summary.candidates or 'all'} nodes that were played again"
    best = f"{among} node {chosen.node} was best."
    if summary.candidates == 1:
        best = f"There was nothing to choose from but node {chosen.node}."
    compared = (
        f"{best} On {chosen.episodes} fresh starts the checkpoint scores {checkpoint.mean:.2f} and "
        f"node {chosen.node} {chosen.mean:.2f}: {chosen.gain:+.2f}{spread}."
    )
    if summary.kept_checkpoint:
        chance = chosen.gain > 0 or (high is not None and high > 0)
        reason = "That may be chance" if chance else "That is no gain"
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
        facts.append(f"{run.summary.frames:,} frames, {duration(run.summary.seconds)}")
    return "; ".join(facts)


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
