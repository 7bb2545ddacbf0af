"""The page of `conqur diagnose`: one HTML file, without scripts or anything to load.

The words are in `diagnosis_page.html`; every number they need is put in here.
"""

from collections.abc import Callable, Sequence
from html import escape
from importlib import resources
from math import isfinite
from string import Template
from typing import Any

import numpy as np

from conqur import __version__, report
from conqur.diagnosis import Diagnosis, Findings, clips_rewards
from conqur.diagnosis.diagnosing import NOISE_DRAWS
from conqur.diagnosis.play import Worth
from conqur.diagnosis.words import fixed, headline, percent, percent_range, proofs, summary, too_few
from conqur.report import Bar, Series, number

PLAIN, PENALISED, CHECKPOINT = "var(--vermillion)", "var(--blue)", "var(--muted)"


def render(diagnosis: Diagnosis, command: str) -> str:
    """The whole page.

    Args:
        diagnosis: the measurements.
        command: what the reader may type to make the page again.
    """
    page = resources.files("conqur.report").joinpath("diagnosis_page.html")
    common = {
        "style": report.style(),
        "command": escape(command),
        "version": escape(__version__),
        "environment": escape(diagnosis.environment),
        "headline": _unbroken(headline(diagnosis)),
        "summary": _unbroken(summary(diagnosis)),
        "notice": _notice(diagnosis),
        "facts": _facts(diagnosis),
    }
    return Template(page.read_text(encoding="utf-8")).substitute(
        common
        | _choice_slots(diagnosis)
        | _learning_slots(diagnosis)
        | _gap_slots(diagnosis)
        | _worth_slots(diagnosis)
    )


def _unbroken(words: str) -> str:
    return escape(words).replace(" %", "&nbsp;%")


def _notice(diagnosis: Diagnosis) -> str:
    found = diagnosis.plain.satisfiable
    return "" if found.telling else f'<p class="notice">{escape(too_few(found))}</p>'


def _facts(diagnosis: Diagnosis) -> str:
    about = [
        f"{escape(str(name)).replace('_', ' ')} {escape(_written(value))}"
        for name, value in diagnosis.origin.items()
    ]
    return "; ".join([f"Environment: {escape(diagnosis.environment)}", *about])


def _written(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _choice_slots(diagnosis: Diagnosis) -> dict[str, str]:
    bars = [
        Bar(
            name,
            100 * found.breaks.share,
            colour,
            f"{percent(found.breaks.share)} ({percent_range(found.breaks.interval)})",
            _hundredfold(found.breaks.interval),
        )
        for name, colour, found in _copies(diagnosis)
    ]
    fewer = diagnosis.fewer_broken
    return {
        "choices": f"{diagnosis.plain.breaks.choices:,}",
        "levels": str(diagnosis.config.levels),
        "broken_chart": report.bar_chart(bars, title="Broken choices, in per cent"),
        "fewer": f"With the penalty {fixed(100 * fewer.mean, 1)} points fewer are broken "
        f"({percent_range(fewer.interval).replace(' %', '')}).",
        "choices_table": _choices_table(diagnosis),
        "bound_words": f"<b>Plain:</b> {escape(proofs(diagnosis.plain.satisfiable))} <b>With the "
        f"penalty:</b> {escape(proofs(diagnosis.penalised.satisfiable))}",
        "choices_how": _choices_how(diagnosis),
    }


def _choices_table(diagnosis: Diagnosis) -> str:
    rows = []
    for name, colour, found in _copies(diagnosis):
        can = found.satisfiable
        numbers = percent(1 - found.breaks.share), percent(can.found), percent(can.bound)
        rows.append(_row(name, "", colour, numbers))
    head = ["Learning", "Kept now", "Best found", "Bound"]
    return report.table(head, rows, "methods", numeric=3)


def _choices_how(diagnosis: Diagnosis) -> str:
    found = diagnosis.plain.satisfiable
    targets = -(-diagnosis.config.levels // diagnosis.config.target_every)
    return (
        f"{diagnosis.plain.breaks.choices:,}, in {found.distinct:,} different states with "
        f"{found.rank} independent features (the bias is one). Labels came from {targets} target "
        "heads in turn. Choices of one target head are consistent, since that head makes them; "
        "those of different ones may contradict each other. States that end an episode have none."
    )


def _learning_slots(diagnosis: Diagnosis) -> dict[str, str]:
    plain, penalised, config = diagnosis.plain, diagnosis.penalised, diagnosis.config
    charts: tuple[tuple[str, str, Callable[[Findings], Any]], ...] = (
        ("Choices broken so far", "per cent", lambda f: 100 * f.breaks.after_levels),
        ("Broken in the end, by level", "per cent", lambda f: 100 * f.breaks.of_levels),
        ("Decisions that a level changed", "per cent", lambda f: 100 * f.churn.between),
        ("Decisions unlike the checkpoint's", "per cent", lambda f: 100 * f.churn.since_start),
        ("Mean label", "value", lambda f: f.labels),
    )
    panels = []
    for title, unit, values in charts:
        lines = [
            Series(name, _numbers(values(f)), colour) for name, colour, f in _copies(diagnosis)
        ]
        chart = report.line_chart(lines, title=title, x_label="level", y_label=unit)
        panels.append(f"<div><h3>{title}</h3>{chart}</div>")
    keys = (
        f'<span class="key"><span class="dot" style="background:{colour}"></span>{name}</span>'
        for name, colour, _ in _copies(diagnosis)
    )
    unit = " action gaps" if config.units == "gap" else ""
    return {
        "legend": "".join(keys),
        "panels": "".join(panels),
        "churn_words": f"A level changes {percent(plain.churn.mean)} of all decisions "
        f"({percent_range(plain.churn.interval)}), with the penalty "
        f"{percent(penalised.churn.mean)} ({percent_range(penalised.churn.interval)}).",
        "learning": f"{config.levels} levels of {config.transitions:,} transitions, collected by "
        f"the plain copy with ε = {config.epsilon:g}, and {config.updates:,} steps of RMSProp on "
        f"the last layer in each (batches of {config.batch_size}, learning rate "
        f"{config.learning_rate:g}{unit}, a new target every {config.target_every} levels). The "
        f"second copy learns from the same batches with the consistency penalty (λ = "
        f"{config.penalty_weight:g}, mean over actions, all choices so far). Seed {config.seed}.",
    }


def _gap_slots(diagnosis: Diagnosis) -> dict[str, str]:
    found = diagnosis.checkpoint_gaps
    relative = 100 * found.gaps / (found.scale or 1.0)
    shown = relative[relative <= np.quantile(relative, 0.9)]
    median = float(np.median(relative))
    bars = [
        Bar(f"noise of {size} %", 100 * share, CHECKPOINT, percent(share), _hundredfold(interval))
        for size, share, interval in zip(
            (number(100 * noise) for noise in found.noises),
            found.flipped,
            found.intervals,
            strict=True,
        )
    ]
    return {
        "gap_words": f"In half of all states the checkpoint's best action leads by less than "
        f"{_significant(median)} % of its value. Learning that changes values by as much changes "
        "what the policy does there.",
        "gap_chart": report.histogram(
            _numbers(shown),
            [Bar("median", median, CHECKPOINT, f"{_significant(median)} %")],
            title="Action gaps, in per cent of the mean value",
            unit="states",
        ),
        "noise_chart": report.bar_chart(bars, title="Decisions that noise changes", high=100),
        "scale": number(found.scale),
        "draws": str(NOISE_DRAWS),
    }


def _worth_slots(diagnosis: Diagnosis) -> dict[str, str]:
    heads = _heads(diagnosis)
    bars, rows = [], []
    for name, colour, worth in heads:
        if worth.episodes:
            bars += [
                Bar(f"{name}: promised", max(0.0, worth.promised), colour, fixed(worth.promised)),
                Bar(f"{name}: earned", max(0.0, worth.earned), colour, fixed(worth.earned)),
            ]
        numbers = (
            fixed(worth.promised),
            fixed(worth.earned),
            f"{fixed(worth.excess)}<small>{_range(worth.interval)}</small>",
            f"{fixed(worth.score)}<small>{_range(worth.score_interval)}</small>",
        )
        cut = f"{worth.cut} of {len(worth.scores)} episodes were cut" if worth.cut else ""
        rows.append(_row(name, cut, colour, numbers))
    higher = diagnosis.higher_score
    head = ["Head", "Promised", "Earned", "Difference", "Score"]
    positive = all(min(worth.promised, worth.earned) >= 0 for _, _, worth in heads)
    return {
        "worth_words": f"{_excess(heads)} On common starts the copy with the penalty scores "
        f"{_signed(higher.mean)} ({_range(higher.interval)}) compared to the plain one.",
        "worth_chart": report.bar_chart(bars, title="Promised and earned") if positive else "",
        "worth_table": report.table(head, rows, "methods four", numeric=4),
        "episodes": str(diagnosis.config.episodes),
        "discount": number(diagnosis.config.discount),
        "clipped": ", clipped to ±1" if clips_rewards(diagnosis.environment) else "",
    }


def _excess(heads: Sequence[tuple[str, str, Worth]]) -> str:
    """How much more is promised than earned, of those heads that it is known of."""
    parts = [
        f"{fixed(worth.excess)} ({_range(worth.interval)}) for the {words}"
        for words, (_, _, worth) in zip(
            ("checkpoint", "plain copy", "copy with the penalty"), heads, strict=True
        )
        if worth.episodes
    ]
    return f"What labels promise less what is earned is {'; '.join(parts)}." if parts else ""


def _copies(diagnosis: Diagnosis) -> tuple[tuple[str, str, Findings], ...]:
    weight = f"{diagnosis.config.penalty_weight:g}"
    return (
        ("Plain Q-learning", PLAIN, diagnosis.plain),
        (f"With the penalty, λ = {weight}", PENALISED, diagnosis.penalised),
    )


def _heads(diagnosis: Diagnosis) -> tuple[tuple[str, str, Worth], ...]:
    copies = ((name, colour, found.worth) for name, colour, found in _copies(diagnosis))
    return (("Checkpoint", CHECKPOINT, diagnosis.checkpoint_worth), *copies)


def _row(name: str, small: str, colour: str, cells: Sequence[str]) -> str:
    return (
        f'<tr><th scope="row"><span class="dot" style="background:{colour}"></span>{name}'
        f"<small>{small}</small></th>"
        + "".join(f'<td class="num">{cell}</td>' for cell in cells)
        + "</tr>"
    )


def _numbers(values: Any) -> list[float]:
    return [float(value) for value in values]


def _hundredfold(interval: tuple[float, float]) -> tuple[float, float]:
    return 100 * interval[0], 100 * interval[1]


def _signed(value: float) -> str:
    return ("+" if value > 0 else "") + fixed(value)


def _range(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{fixed(low)} to {fixed(high)}" if isfinite(low) else "–"


def _significant(value: float) -> str:
    """Two digits that count."""
    return f"{value:.2g}" if value < 100 else f"{value:.0f}"
