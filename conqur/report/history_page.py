"""The page of `conqur diagnose` about a tuning run's history.

The words are in `history_page.html`; every number they need is put in here.
"""

from html import escape

import numpy as np

from conqur import __version__, report
from conqur.diagnosis import RunDiagnosis
from conqur.diagnosis.run_words import run_headline, run_summary, untrained
from conqur.diagnosis.words import fixed, percent, proofs
from conqur.report import Bar, Series, number
from conqur.report.diagnosis_parts import (
    CHECKPOINT,
    PENALISED,
    Head,
    in_brackets,
    leads_slots,
    row,
    signed,
    style,
    worth_slots,
)
from conqur.report.pages import filled, numbers, panel, unbroken

MOST_BARS = 32
"""Of nodes."""


def render_run(diagnosis: RunDiagnosis, command: str) -> str:
    """The whole page.

    Args:
        diagnosis: the measurements.
        command: what the reader may type to make the page again.
    """
    name = diagnosis.environment or diagnosis.config.environment
    slots = {
        "style": style(),
        "command": escape(command),
        "version": escape(__version__),
        "environment": escape(name),
        "headline": unbroken(run_headline(diagnosis)),
        "summary": unbroken(run_summary(diagnosis)),
        "facts": f"Environment: {escape(name)}; {diagnosis.config.search} search, level "
        f"{diagnosis.level} of {diagnosis.config.levels}",
        "gaps": filled(
            "diagnosis_gaps.html",
            leads_slots(diagnosis.leads, whose="best node", over="draws, in these states"),
        ),
        "worth": _worth(diagnosis),
        "panels": _panels(diagnosis),
    }
    return filled("history_page.html", slots | _choice_slots(diagnosis) | _how_slots(diagnosis))


def _choice_slots(diagnosis: RunDiagnosis) -> dict[str, str]:
    best, found = diagnosis.best, diagnosis.satisfiable
    others = [node for node in diagnosis.frontier if node.id != best.id]
    others.sort(key=lambda node: (np.isnan(node.score), node.score, node.id))
    nodes = [best, *others]
    bars = [
        Bar(
            f"node {node.id}, score {fixed(node.score, 4)}",
            100 * node.share,
            PENALISED if node.id == best.id else CHECKPOINT,
            percent(node.share),
        )
        for node in nodes[:MOST_BARS]
    ]
    left = len(nodes) - MOST_BARS
    numbers_of_best = percent(1 - best.share), percent(found.found), percent(found.any_policy)
    rows = [row(f"Node {best.id}, the best by score", "", PENALISED, numbers_of_best)]
    drawn = diagnosis.drawn
    return {
        "broken_chart": report.bar_chart(bars, title="Broken choices, in per cent"),
        "more": f"; {left} more are left out" if left > 0 else "",
        "choices_table": report.table(
            ["Head", "Kept now", "Best head found", "Any policy"], rows, "methods", numeric=3
        ),
        "drawn": f"; the last two are of {drawn:,} choices drawn at random"
        if drawn < best.choices
        else "",
        "proofs": escape(proofs(found)),
    }


def _how_slots(diagnosis: RunDiagnosis) -> dict[str, str]:
    config, found, levels = diagnosis.config, diagnosis.satisfiable, diagnosis.levels
    sampled = {
        "boltzmann": f"Choices of expansions, and of one level in {config.boltzmann_every}, were "
        "sampled: no policy is expected to make these.",
        "strict": "Choices of expansions were sampled, and all were made consistent.",
        "random": "",
    }
    children = "random" if config.search == "independent" else config.children
    half = ", in half precision: those that differ by less count as one" * (children != "strict")
    return {
        "sampled": f"{sampled[children]} {untrained(diagnosis)}".strip(),
        "search": f"{config.search} search, {config.nodes} nodes at most, {diagnosis.level} of "
        f"{config.levels} levels of {config.transitions:,} transitions and {config.updates:,} "
        f"gradient steps, λ = {config.penalty_weight:g}, children {config.children}, scores by "
        f"{config.scoring}, seed {config.seed}. Read from its newest checkpoint.",
        "choices_how": f"{diagnosis.best.choices:,} of the best node, from {len(levels)} levels "
        f"({min(levels) + 1} to {max(levels) + 1}) whose states the run kept; {diagnosis.drawn:,} "
        f"of them, in {found.distinct:,} different states with {found.rank} independent features "
        f"(the bias is one), for bounds and noise. States are features as the run kept them{half}. "
        "States that end an episode have no choice.",
    }


def _panels(diagnosis: RunDiagnosis) -> str:
    of_levels = 100 * diagnosis.best.of_levels
    charts = (
        ("Broken by the best node, by level", "per cent", of_levels),
        ("Decisions that a level changed", "per cent", 100 * np.array(diagnosis.churn)),
        ("Mean label", "value", np.array(diagnosis.labels)),
    )
    return "".join(
        panel(
            title,
            unit,
            [Series(title, numbers(values[np.isfinite(values)]), PENALISED)],
            x_label="level" if np.isfinite(values).all() else "level, of those that are known",
        )
        for title, unit, values in charts
    )


def _worth(diagnosis: RunDiagnosis) -> str:
    """The section about what is promised and earned; none if nothing was played."""
    before, after, higher = (
        diagnosis.checkpoint_balance,
        diagnosis.balance,
        diagnosis.higher_score,
    )
    if before is None or after is None or higher is None:
        return ""
    heads = [
        Head("Checkpoint", "checkpoint", CHECKPOINT, before),
        Head(f"Node {diagnosis.best.id}", "best node", PENALISED, after),
    ]
    compared = (
        f"On common starts the best node scores {signed(higher.mean)}"
        f"{in_brackets(higher.interval)} compared to the checkpoint."
    )
    slots = worth_slots(heads, compared=compared, over="episodes") | {
        "played": str(after.episodes),
        "discount": number(diagnosis.config.discount),
        "clipped": ", clipped to ±1" if diagnosis.config.clip_rewards else "",
    }
    return filled("diagnosis_worth.html", slots)
