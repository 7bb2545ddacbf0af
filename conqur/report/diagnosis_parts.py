"""What the pages of `conqur diagnose` have in common."""

from collections.abc import Callable, Sequence
from math import isfinite
from typing import NamedTuple

import numpy as np

from conqur import report
from conqur.diagnosis.averages import Balance, Leads
from conqur.diagnosis.diagnosing import NOISE_DRAWS
from conqur.diagnosis.measures import NOISES
from conqur.diagnosis.values import Estimate, Interval
from conqur.diagnosis.words import fixed, percent, percent_range
from conqur.report import Bar, number
from conqur.report.pages import file_text, numbers

PLAIN, PENALISED, CHECKPOINT = "var(--vermillion)", "var(--blue)", "var(--muted)"


class Head(NamedTuple):
    """A head that played: its name in tables and in sentences, its colour, what came of it."""

    name: str
    words: str
    colour: str
    balance: Balance


def style() -> str:
    """The style sheet of the pages."""
    return report.style() + file_text("diagnosis.css")


def leads_slots(leads: Leads, *, whose: str, over: str) -> dict[str, str]:
    """Of the section about action gaps.

    Args:
        leads: what was measured.
        whose: of which head.
        over: what intervals of flipped decisions are over.
    """
    relative = 100 * leads.gaps / (leads.scale or 1.0)
    shown = relative[relative <= np.quantile(relative, 0.9)]
    median = 100 * leads.median.mean
    bars = [
        Bar(
            f"noise of {number(100 * size)} %",
            100 * found.mean,
            CHECKPOINT,
            percent(found.mean),
            hundredfold(found.interval),
        )
        for size, found in zip(NOISES, leads.flipped, strict=True)
    ]
    low, high = (significant(100 * end) for end in leads.median.interval)
    spread = f" (95 % interval {low} to {high} %)" if isfinite(leads.median.interval[0]) else ""
    return {
        "gap_words": f"In half of all states the {whose}'s best action leads by less than "
        f"{significant(median)} % of its value{spread}. Learning that changes values by as much "
        "changes what the policy does there.",
        "gap_chart": report.histogram(
            numbers(shown),
            [Bar("median", median, CHECKPOINT, f"{significant(median)} %")],
            title="Action gaps, in per cent of the mean value",
            unit="states",
        ),
        "noise_chart": report.bar_chart(bars, title="Decisions that noise changes", high=100),
        "states": f"{len(leads.gaps):,}",
        "scale": number(leads.scale),
        "draws": str(NOISE_DRAWS),
        "noise_over": over,
        "whose": whose,
    }


def worth_slots(heads: Sequence[Head], *, compared: str, over: str) -> dict[str, str]:
    """Of the section about what is promised and earned.

    Args:
        heads: those that played.
        compared: a sentence about their scores.
        over: what intervals are over.
    """
    bars, rows = [], []
    for name, _, colour, balance in heads:
        promised, earned = balance.promised, balance.earned
        if balance.known:
            bars += [
                Bar(f"{name}: promised", max(0.0, promised.mean), colour, fixed(promised.mean)),
                Bar(f"{name}: earned", max(0.0, earned.mean), colour, fixed(earned.mean)),
            ]
        differences = _with_range(balance.excess), _with_range(balance.score)
        cut = f"{balance.cut} of {balance.episodes} episodes were cut" if balance.cut else ""
        rows.append(
            row(name, cut, colour, (fixed(promised.mean), fixed(earned.mean), *differences))
        )
    means = [each.mean for h in heads for each in (h.balance.promised, h.balance.earned)]
    head = ["Head", "Promised", "Earned", "Difference", "Score"]
    return {
        "worth_words": f"{_excess(heads)} {compared}",
        "worth_chart": report.bar_chart(bars, title="Promised and earned")
        if all(mean >= 0 for mean in means)
        else "",
        "worth_table": report.table(head, rows, "methods four", numeric=4),
        "worth_over": over,
    }


def row(name: str, small: str, colour: str, cells: Sequence[str]) -> str:
    """Of a table: a head and its numbers."""
    return (
        f'<tr><th scope="row"><span class="dot" style="background:{colour}"></span>{name}'
        f"<small>{small}</small></th>"
        + "".join(f'<td class="num">{cell}</td>' for cell in cells)
        + "</tr>"
    )


def share_cell(found: Estimate) -> str:
    """A share in a table, above its interval, if there is one."""
    spread = (
        f"<small>{percent_range(found.interval)}</small>" if isfinite(found.interval[0]) else ""
    )
    return percent(found.mean) + spread


def hundredfold(interval: Interval) -> Interval | None:
    """An interval in per cent; None where there is none."""
    return (100 * interval[0], 100 * interval[1]) if isfinite(interval[0]) else None


def signed(value: float) -> str:
    """A difference."""
    return ("+" if value > 0 else "") + fixed(value)


def in_brackets(interval: Interval, written: Callable[[float], str] = fixed) -> str:
    """An interval behind its value, if there is one."""
    low, high = interval
    return f" ({written(low)} to {written(high)})" if isfinite(low) else ""


def significant(value: float) -> str:
    """Two digits that count."""
    return f"{value:.2g}".replace("-", "−") if abs(value) < 100 else fixed(value, 0)


def _with_range(found: Estimate) -> str:
    low, high = found.interval
    spread = f"<small>{fixed(low)} to {fixed(high)}</small>" if isfinite(low) else ""
    return fixed(found.mean) + spread


def _excess(heads: Sequence[Head]) -> str:
    """How much more is promised than earned, of those heads that it is known of."""
    parts = [
        f"{fixed(head.balance.excess.mean)}{in_brackets(head.balance.excess.interval)} for the "
        f"{head.words}"
        for head in heads
        if head.balance.known
    ]
    return f"What labels promise less what is earned is {'; '.join(parts)}." if parts else ""
