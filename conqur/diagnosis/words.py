"""What a diagnosis found, in plain words."""

from collections.abc import Sequence
from math import ceil, floor, isfinite
from statistics import fmean

from conqur.diagnosis.averages import Balance
from conqur.diagnosis.diagnosing import Diagnosis
from conqur.diagnosis.measures import NOISES
from conqur.diagnosis.satisfiable import TOLERANCE, Satisfiable
from conqur.diagnosis.values import Estimate, Interval
from conqur.exact import Consistency

ROUNDING = 1e-9
"""Of sums of shares, in tenths of a per cent: what is written as such is not a bound's next."""


def fixed(value: float, decimals: int = 2) -> str:
    """A number for a column of numbers; a dash if it is not known."""
    return f"{value:,.{decimals}f}".replace("-", "−") if isfinite(value) else "–"


def percent(share: float) -> str:
    """A share as people write it."""
    return f"{100 * share:.1f} %"


def at_least(share: float) -> str:
    """A lower bound, rounded down."""
    return percent(floor(1000 * share + ROUNDING) / 1000)


def at_most(share: float) -> str:
    """An upper bound, rounded up."""
    return percent(ceil(1000 * share - ROUNDING) / 1000)


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
    answer = together(found, "the choices behind its labels")
    if all(each.union is Consistency.CONSISTENT and each.telling for each in found):
        answer += f"; its policy breaks {percent(diagnosis.plain.broken.mean)}"
    return answer


def together(found: Sequence[Satisfiable], choices: str) -> str:
    """Whether one head makes all choices, in one sentence that is true of all that was found."""
    impossible = [each for each in found if each.union is Consistency.INCONSISTENT]
    if impossible:
        few = len(impossible) < len(found)
        no = f"In {len(impossible)} of {len(found)} repetitions no" if few else "No"
        return f"{no} head makes {choices} together{_even(impossible)}"
    telling = all(each.telling for each in found)
    if all(each.union is Consistency.CONSISTENT for each in found):
        little = "" if telling else ", which says little of so few states"
        return f"One head could make all {choices.removeprefix('the ')}{little}"
    if not telling:
        return f"Too few states to tell whether {choices} can hold together"
    return f"Whether one head could make {choices} together is open"


def _even(impossible: Sequence[Satisfiable]) -> str:
    """What is known of the most frequent choices, where no head makes all of them."""
    outcomes = {each.resolved for each in impossible}
    if outcomes == {Consistency.INCONSISTENT}:
        several = any(each.contradictory for each in impossible)
        return ", not even the most frequent one of each state" * several
    if not all(each.contradictory for each in impossible):
        return ""
    if outcomes == {Consistency.CONSISTENT}:
        return ", as some states got several; one could make the most frequent one of each"
    return ", as some states got several"


def summary(diagnosis: Diagnosis) -> str:
    """What was found, in one paragraph."""
    plain, penalised, config = diagnosis.plain, diagnosis.penalised, diagnosis.config
    flipped = diagnosis.leads.flipped[NOISES.index(0.01)].mean
    few = too_few(min((each.satisfiable for each in plain.findings), key=lambda f: f.telling))
    times = f"{config.seeds} repetitions of " if config.seeds > 1 else ""
    return (
        f"Of {plain.choices:,} choices behind its labels in {times}{config.levels} levels of "
        f"Q-learning, the greedy policy that came of them breaks {with_interval(plain.broken)}. "
        f"{kept([each.satisfiable for each in plain.findings])} "
        f"With the consistency penalty (λ = {config.penalty_weight:g}) it breaks "
        f"{with_interval(penalised.broken)} of its own. A level changes "
        f"{percent(plain.churn.mean)} of all decisions; noise of 1 % on the last layer would "
        f"change {percent(flipped)}. {_earned(plain.balance, penalised.balance)}"
        f"{few and ' ' + few}"
        f"{'' if config.seeds > 1 else ' This is one repetition: differences may be chance.'}"
    )


def too_few(found: Satisfiable) -> str:
    """That there are too few states for much to be inconsistent; empty if there are enough."""
    if found.telling or found.resolved is Consistency.INCONSISTENT:
        return ""
    return (
        f"Too few states to tell{' more' if found.contradictory else ''}: there are "
        f"{found.distinct:,} different ones for {found.rank} independent features, and in "
        f"{found.rank} linearly independent states any choices hold together, one in each. It "
        "takes more levels or transitions, for at least ten states a feature."
    )


def proofs(found: Satisfiable) -> str:
    """What is proved about choices that one head makes together."""
    if found.union is Consistency.CONSISTENT:
        return "one head can make all choices (proved)."
    one = (
        "No state is committed to two actions, but "
        if not found.contradictory
        else f"{found.contradictory:,} of {found.distinct:,} states are committed to several "
        "actions; "
    )
    outcomes = {
        None: "the head is too large to be tested exactly here.",
        Consistency.CONSISTENT: "one head makes a most frequent choice in every state (proved).",
        Consistency.INCONSISTENT: "even the most frequent choices of all states contradict each "
        f"other (proved: no head has a normalised margin above {TOLERANCE:g}).",
        Consistency.UNDECIDED: "whether one head can make the most frequent choice in every "
        "state is open.",
    }
    return one + outcomes[found.resolved]


def kept(found: Sequence[Satisfiable]) -> str:
    """How many choices could be kept, in one sentence; shares are means of repetitions."""
    if all(each.union is Consistency.CONSISTENT for each in found):
        return "One head could keep all of them."
    best = f"the best head that was found keeps {at_least(fmean(each.found for each in found))}"
    if all(each.found == each.any_policy for each in found):
        best = "one head keeps as many (proved)"
    impossible = [each.resolved for each in found].count(Consistency.INCONSISTENT)
    times = "" if impossible == len(found) else f"in {impossible} of {len(found)} repetitions "
    if any(each.contradictory for each in found):
        most = at_most(fmean(each.any_policy for each in found))
        average = "On average over repetitions no" if len(found) > 1 else "No"
        bound = (
            "No policy of any form keeps all of them"
            if most == percent(1)
            else f"{average} policy of any form keeps more than {most}"
        )
        proved = f", and {times}none keeps as many as a policy could (proved)" if impossible else ""
        return f"{bound}, as some states got several actions; {best}{proved}."
    if impossible:
        return (
            f"{times.capitalize()}{'n' if times else 'N'}o head keeps all of them (proved); {best}."
        )
    return f"Whether a head could keep all of them is open; {best}."


def _earned(plain: Balance, penalised: Balance) -> str:
    if not (plain.known and penalised.known):
        return "Episodes were cut too early to tell what is earned of what labels promise."
    return (
        f"Its labels promise {fixed(plain.promised.mean)} where the policy earns "
        f"{fixed(plain.earned.mean)}; with the penalty, {fixed(penalised.promised.mean)} where it "
        f"earns {fixed(penalised.earned.mean)}."
    )
