"""The page of `conqur diagnose`: one HTML file, without scripts or anything to load.

The words are in `diagnosis_page.html`; every number they need is put in here.
"""

from collections.abc import Callable
from html import escape
from typing import Any

from conqur import __version__, report
from conqur.config import clips_rewards
from conqur.diagnosis import Diagnosis
from conqur.diagnosis.averages import Copy, Findings
from conqur.diagnosis.words import fixed, headline, proofs, summary, with_interval
from conqur.report import Bar, Series, number
from conqur.report.diagnosis_parts import (
    CHECKPOINT,
    PENALISED,
    PLAIN,
    Head,
    hundredfold,
    in_brackets,
    leads_slots,
    row,
    share_cell,
    signed,
    style,
    worth_slots,
)
from conqur.report.pages import filled, numbers, panel, unbroken


def render(diagnosis: Diagnosis, command: str) -> str:
    """The whole page.

    Args:
        diagnosis: the measurements.
        command: what the reader may type to make the page again.
    """
    slots = {
        "style": style(),
        "command": escape(command),
        "version": escape(__version__),
        "environment": escape(diagnosis.environment),
        "headline": unbroken(headline(diagnosis)),
        "summary": unbroken(summary(diagnosis)),
        "facts": _facts(diagnosis),
        "gaps": filled(
            "diagnosis_gaps.html",
            leads_slots(diagnosis.leads, whose="checkpoint", over=_over(diagnosis)),
        ),
        "worth": filled("diagnosis_worth.html", _worth_slots(diagnosis)),
        "intervals": _intervals(diagnosis),
    }
    return filled(
        "diagnosis_page.html", slots | _choice_slots(diagnosis) | _learning_slots(diagnosis)
    )


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
            100 * copy.broken.mean,
            colour,
            with_interval(copy.broken),
            hundredfold(copy.broken.interval),
        )
        for name, colour, copy in _copies(diagnosis)
    ]
    fewer, config = diagnosis.fewer_broken, diagnosis.config
    interval = tuple(100 * end for end in fewer.interval)
    return {
        "over": f", means of {config.seeds} repetitions with 95 % intervals over these"
        if config.seeds > 1
        else "",
        "broken_chart": report.bar_chart(bars, title="Broken choices, in per cent"),
        "fewer": f"With the penalty {fixed(100 * fewer.mean, 1)} points fewer are broken"
        f"{in_brackets((interval[0], interval[1]), lambda end: fixed(end, 1))}.",
        "choices_table": _choices_table(diagnosis),
        "proofs": f"<b>Plain:</b> {_proofs(diagnosis.plain)} <b>With the penalty:</b> "
        f"{_proofs(diagnosis.penalised)}",
        "choices_how": _choices_how(diagnosis),
    }


def _choices_table(diagnosis: Diagnosis) -> str:
    rows = [
        row(
            name,
            "",
            colour,
            [share_cell(each) for each in (copy.kept, copy.found, copy.any_policy)],
        )
        for name, colour, copy in _copies(diagnosis)
    ]
    head = ["Learning", "Kept now", "Best head found", "Any policy"]
    return report.table(head, rows, "methods", numeric=3)


def _proofs(copy: Copy) -> str:
    """What is proved of the first repetition's choices, and whether the others are alike."""
    first, *others = (each.satisfiable for each in copy.findings)
    words = escape(proofs(first))
    if not others:
        return words
    alike = all((o.union, o.resolved) == (first.union, first.resolved) for o in others)
    return f"{words} So it is in the first repetition; {'all' if alike else 'not all'} are alike."


def _choices_how(diagnosis: Diagnosis) -> str:
    found = diagnosis.plain.findings[0].satisfiable
    targets = -(-diagnosis.config.levels // diagnosis.config.target_every)
    several = diagnosis.config.seeds > 1
    return (
        f"{diagnosis.plain.findings[0].breaks.choices:,}{' in the first repetition' * several}, in "
        f"{found.distinct:,} different states with "
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
    panels = [
        panel(
            title,
            unit,
            [
                Series(name, numbers(copy.curve(values)), colour)
                for name, colour, copy in _copies(diagnosis)
            ],
        )
        for title, unit, values in charts
    ]
    keys = (
        f'<span class="key"><span class="dot" style="background:{colour}"></span>{name}</span>'
        for name, colour, _ in _copies(diagnosis)
    )
    unit = " action gaps" if config.units == "gap" else ""
    return {
        "legend": "".join(keys) + " Means over repetitions." * (config.seeds > 1),
        "panels": "".join(panels),
        "churn_words": f"A level changes {with_interval(plain.churn)} of all decisions, with the "
        f"penalty {with_interval(penalised.churn)}.",
        "learning": f"{config.levels} levels of {config.transitions:,} transitions, collected by "
        f"the plain copy with ε = {config.epsilon:g}, and {config.updates:,} steps of RMSProp on "
        f"the last layer in each (batches of {config.batch_size}, learning rate "
        f"{config.learning_rate:g}{unit}, a new target every {config.target_every} levels). The "
        f"second copy learns from the same batches with the consistency penalty (λ = "
        f"{config.penalty_weight:g}, mean over actions, all choices so far). {_seeds(diagnosis)}",
    }


def _worth_slots(diagnosis: Diagnosis) -> dict[str, str]:
    higher, config = diagnosis.higher_score, diagnosis.config
    words = ("plain copy", "copy with the penalty")
    heads = [Head("Checkpoint", "checkpoint", CHECKPOINT, diagnosis.balance)] + [
        Head(name, word, colour, copy.balance)
        for word, (name, colour, copy) in zip(words, _copies(diagnosis), strict=True)
    ]
    compared = (
        f"On common starts the copy with the penalty scores {signed(higher.mean)}"
        f"{in_brackets(higher.interval)} compared to the plain one."
    )
    return worth_slots(heads, compared=compared, over=_over(diagnosis)) | {
        "played": f"{config.episodes}{' in each repetition' * (config.seeds > 1)}",
        "discount": number(config.discount),
        "clipped": ", clipped to ±1" if clips_rewards(diagnosis.environment) else "",
    }


def _over(diagnosis: Diagnosis) -> str:
    """What intervals are over."""
    seeds = diagnosis.config.seeds
    return f"the {seeds} repetitions" if seeds > 1 else "repetitions, if there are several"


def _intervals(diagnosis: Diagnosis) -> str:
    seeds = diagnosis.config.seeds
    unsaid = "They say nothing of other seeds of the network's own training."
    if seeds == 1:
        return f"None, since all was done once: give more --seeds. {unsaid}"
    return (
        f"Student's, at 95 %, over {seeds} repetitions of all of it, each with its own "
        f"exploration, batches, noise and starts. {unsaid}"
    )


def _seeds(diagnosis: Diagnosis) -> str:
    first, count = diagnosis.config.seed, diagnosis.config.seeds
    return f"Seed {first}." if count == 1 else f"Seeds {first} to {first + count - 1}."


def _copies(diagnosis: Diagnosis) -> tuple[tuple[str, str, Copy], ...]:
    weight = f"{diagnosis.config.penalty_weight:g}"
    return (
        ("Plain Q-learning", PLAIN, diagnosis.plain),
        (f"With the penalty, λ = {weight}", PENALISED, diagnosis.penalised),
    )
