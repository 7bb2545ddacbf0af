"""What a diagnosis found, in plain words."""

from math import isfinite

from conqur.diagnosis.diagnosing import Diagnosis
from conqur.diagnosis.measures import Breaks
from conqur.diagnosis.play import Worth
from conqur.diagnosis.satisfiable import Satisfiable
from conqur.exact import Consistency

LEAST_SAID = 5e-4
"""A smaller share would be written as 0 %."""


def fixed(value: float, decimals: int = 2) -> str:
    """A number for a column of numbers; a dash if it is not known."""
    return f"{value:,.{decimals}f}".replace("-", "−") if isfinite(value) else "–"


def percent(share: float) -> str:
    """A share as people write it."""
    return f"{100 * share:.1f} %"


def percent_range(interval: tuple[float, float]) -> str:
    """An interval of shares; a dash if it is not known."""
    low, high = interval
    if not isfinite(low):
        return "–"
    return f"{fixed(100 * low, 1)} to {fixed(100 * high, 1)} %"


def headline(diagnosis: Diagnosis) -> str:
    """The answer in one sentence."""
    found = diagnosis.plain.satisfiable
    if found.union is Consistency.CONSISTENT:
        return "One head could make all choices behind its labels"
    if found.union is Consistency.UNDECIDED:
        return "Whether one head could make all choices behind its labels is open"
    if 1 - found.bound < LEAST_SAID:
        return "The choices behind its labels cannot all hold together"
    lost = percent(1 - found.bound)
    return f"At least {lost} of the choices behind its labels cannot hold together"


def summary(diagnosis: Diagnosis) -> str:
    """What was found, in one paragraph."""
    plain, penalised = diagnosis.plain, diagnosis.penalised
    noise, config = diagnosis.checkpoint_gaps, diagnosis.config
    flipped = percent(noise.flipped[noise.noises.index(0.01)])
    return (
        f"Of {plain.breaks.choices:,} choices behind its labels in {config.levels} levels of "
        f"Q-learning, the greedy policy that came of them breaks {_share(plain.breaks)}. "
        f"{_kept(plain.satisfiable)} With the consistency penalty (λ = "
        f"{config.penalty_weight:g}) it breaks {_share(penalised.breaks)} of its own. "
        f"A level changes {percent(plain.churn.mean)} of all decisions; noise of 1 % on the last "
        f"layer would change {flipped}. {_earned(plain.worth, penalised.worth)}"
        f"{'' if plain.satisfiable.telling else ' ' + too_few(plain.satisfiable)}"
    )


def too_few(found: Satisfiable) -> str:
    """That there are too few states for anything to be inconsistent."""
    return (
        f"Too few states to tell: there are {found.distinct:,} different ones for {found.rank} "
        f"independent features, and any choices in up to {found.rank} such states hold together. "
        "Give more --levels or --transitions, for at least ten states a feature."
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


def _share(found: Breaks) -> str:
    return f"{percent(found.share)} ({percent_range(found.interval)})"


def _kept(found: Satisfiable) -> str:
    if found.union is Consistency.CONSISTENT:
        return "One head could keep all of them."
    kept = f"the best head that was found keeps {percent(found.found)}"
    if 1 - found.bound >= LEAST_SAID:
        return f"No head keeps more than {percent(found.bound)}; {kept}."
    if found.union is Consistency.INCONSISTENT:
        return f"No head keeps all of them, but no bound better than 100 % was found; {kept}."
    return f"Whether a head could keep all of them is open; {kept}."


def _earned(plain: Worth, penalised: Worth) -> str:
    if not (plain.episodes and penalised.episodes):
        return "Episodes were cut too early to tell what is earned of what labels promise."
    return (
        f"Its labels promise {fixed(plain.promised)} where the policy earns "
        f"{fixed(plain.earned)}; with the penalty, {fixed(penalised.promised)} where it earns "
        f"{fixed(penalised.earned)}."
    )
