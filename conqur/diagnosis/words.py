"""What a diagnosis found, in plain words."""

from collections.abc import Sequence
from math import isfinite

from conqur.diagnosis.averages import Balance, Copy
from conqur.diagnosis.diagnosing import Diagnosis
from conqur.diagnosis.measures import NOISES
from conqur.diagnosis.satisfiable import Satisfiable
from conqur.diagnosis.values import Estimate, Interval
from conqur.exact import Consistency

LEAST_SAID = 5e-4
"""A smaller share would be written as 0 %."""


def fixed(value: float, decimals: int = 2) -> str:
    """A number for a column of numbers; a dash if it is not known."""
    return f"{value:,.{decimals}f}".replace("-", "−") if isfinite(value) else "–"


def percent(share: float) -> str:
    """A share as people write it."""
    return f"{100 * share:.1f} %"


def percent_range(interval: Interval) -> str:
    """An interval of shares; a dash if it is not known."""
    low, high = interval
    if not isfinite(low):
        return "–"
    return f"{fixed(100 * low, 1)} to {fixed(100 * high, 1)} %"


def with_interval(found: Estimate) -> str:
    """A share and its interval, if there is one."""
    if not isfinite(found.interval[0]):
        return percent(found.mean)
    return f"{percent(found.mean)} ({percent_range(found.interval)})"


def headline(diagnosis: Diagnosis) -> str:
    """The answer in one sentence."""
    found = [each.satisfiable for each in diagnosis.plain.findings]
    if not found[0].telling:
        return "Too few states to tell whether the choices behind its labels can hold together"
    answer = together(found, "the choices behind its labels")
    if all(each.union is Consistency.CONSISTENT for each in found):
        answer += f"; its policy breaks {percent(diagnosis.plain.broken.mean)}"
    return answer


def together(found: Sequence[Satisfiable], choices: str) -> str:
    """Whether one head makes all choices, in one sentence that is true of all that was found."""
    unions = [each.union for each in found]
    if all(union is Consistency.CONSISTENT for union in unions):
        return f"One head could make all {choices.removeprefix('the ')}"
    impossible = sum(union is Consistency.INCONSISTENT for union in unions)
    if not impossible:
        return f"Whether one head could make all {choices.removeprefix('the ')} is open"
    if impossible < len(unions):
        return f"In {impossible} of {len(unions)} repetitions {choices} cannot all hold together"
    lost = min(1 - each.bound for each in found)
    if lost < LEAST_SAID:
        return f"{choices[0].upper()}{choices[1:]} cannot all hold together"
    least = "At least" if len(found) == 1 else "In every repetition at least"
    return f"{least} {percent(lost)} of {choices} cannot hold together"


def summary(diagnosis: Diagnosis) -> str:
    """What was found, in one paragraph."""
    plain, penalised, config = diagnosis.plain, diagnosis.penalised, diagnosis.config
    flipped = diagnosis.leads.flipped[NOISES.index(0.01)].mean
    first = plain.findings[0].satisfiable
    times = f"{config.seeds} repetitions of " if config.seeds > 1 else ""
    return (
        f"Of {plain.choices:,} choices behind its labels in {times}{config.levels} levels of "
        f"Q-learning, the greedy policy that came of them breaks {with_interval(plain.broken)}. "
        f"{_kept(plain)} With the consistency penalty (λ = {config.penalty_weight:g}) it breaks "
        f"{with_interval(penalised.broken)} of its own. A level changes "
        f"{percent(plain.churn.mean)} of all decisions; noise of 1 % on the last layer would "
        f"change {percent(flipped)}. {_earned(plain.balance, penalised.balance)}"
        f"{'' if first.telling else ' ' + too_few(first)}"
        f"{'' if config.seeds > 1 else ' This is one repetition: differences may be chance.'}"
    )


def too_few(found: Satisfiable) -> str:
    """That there are too few states for anything to be inconsistent."""
    return (
        f"Too few states to tell: there are {found.distinct:,} different ones for {found.rank} "
        f"independent features, and any choices in up to {found.rank} such states hold together. "
        "It takes more levels or transitions, for at least ten states a feature."
    )


def proofs(found: Satisfiable) -> str:
    """What is proved about choices that one head makes together."""
    lower, upper = (f"{margin:.2g}" for margin in (found.margin_lower, found.margin_upper))
    if found.union is Consistency.CONSISTENT:
        return f"one head can make all choices (proved; normalised margin at least {lower})."
    one = (
        "No state is committed to two actions, but "
        if not found.contradictory
        else f"{found.contradictory:,} of {found.distinct:,} states are committed to several "
        "actions; "
    )
    outcomes = {
        None: "the head is too large to be tested exactly here.",
        Consistency.CONSISTENT: "one head makes the most frequent choice in every state (proved; "
        f"normalised margin at least {lower}).",
        Consistency.INCONSISTENT: "even the most frequent choices of all states contradict each "
        f"other (proved; no head has a normalised margin above {upper}).",
        Consistency.UNDECIDED: "whether one head can make the most frequent choice in every "
        f"state is open (no head has a normalised margin above {upper}).",
    }
    return one + outcomes[found.resolved]


def kept(unions: Sequence[Consistency], found: float, bound: float) -> str:
    """How many choices a head could keep, in one sentence; shares are means of repetitions."""
    if all(union is Consistency.CONSISTENT for union in unions):
        return "One head could keep all of them."
    best = f"the best head that was found keeps {percent(found)}"
    if 1 - bound >= LEAST_SAID:
        average = "On average over repetitions no" if len(unions) > 1 else "No"
        return f"{average} head keeps more than {percent(bound)}; {best}."
    if all(union is Consistency.INCONSISTENT for union in unions):
        return f"No head keeps all of them, but no bound better than 100 % was found; {best}."
    return f"Whether a head could keep all of them is open; {best}."


def _kept(copy: Copy) -> str:
    unions = [each.satisfiable.union for each in copy.findings]
    return kept(unions, copy.found.mean, copy.bound.mean)


def _earned(plain: Balance, penalised: Balance) -> str:
    if not (plain.known and penalised.known):
        return "Episodes were cut too early to tell what is earned of what labels promise."
    return (
        f"Its labels promise {fixed(plain.promised.mean)} where the policy earns "
        f"{fixed(plain.earned.mean)}; with the penalty, {fixed(penalised.promised.mean)} where it "
        f"earns {fixed(penalised.earned.mean)}."
    )
