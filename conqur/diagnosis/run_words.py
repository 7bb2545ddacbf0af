"""What a run's history shows, in plain words."""

from conqur.diagnosis.averages import Balance
from conqur.diagnosis.history import RunDiagnosis
from conqur.diagnosis.measures import NOISES
from conqur.diagnosis.words import fixed, kept, percent, together, too_few
from conqur.exact import Consistency


def run_headline(diagnosis: RunDiagnosis) -> str:
    """The answer in one sentence."""
    choices, found = "the choices behind the labels of the node with the best score", diagnosis
    if not diagnosis.config.updates:
        return "The nodes of this search never learned from their labels"
    if found.drawn == found.best.choices:
        return together([found.satisfiable], choices)
    if found.satisfiable.union is Consistency.INCONSISTENT:  # and so are all, if some are
        return f"No head makes {choices} together"
    return together([found.satisfiable], f"{found.drawn:,} of {choices}, drawn at random")


def run_summary(diagnosis: RunDiagnosis) -> str:
    """What was found, in one paragraph."""
    best, found, config = diagnosis.best, diagnosis.satisfiable, diagnosis.config
    drawn = diagnosis.drawn
    of = "" if drawn == best.choices else f"Of {drawn:,} of them, drawn at random: "
    flipped = percent(diagnosis.leads.flipped[NOISES.index(0.01)].mean)
    sentence = kept([found])
    words = [
        untrained(diagnosis),
        f"Of {best.choices:,} choices behind the labels of node {best.id} and its ancestors, its "
        f"greedy policy breaks {percent(best.share)} (λ = {config.penalty_weight:g}).",
        of + (sentence[0].lower() + sentence[1:] if of else sentence),
        f"In {percent(diagnosis.moved)} of these states it decides otherwise than the checkpoint; "
        f"noise of 1 % on its last layer would change {flipped} of its decisions.",
        _earned(diagnosis.balance),
        too_few(found),
    ]
    return " ".join(word for word in words if word)


def untrained(diagnosis: RunDiagnosis) -> str:
    """That labels had no effect, where that is so."""
    if diagnosis.config.updates:
        return ""
    return "The search made no gradient steps: nothing held its nodes to the choices told of here."


def _earned(balance: Balance | None) -> str:
    if balance is None:
        return "Nothing was played, since the run learned from a data set: name an --env to do so."
    if not balance.known:
        return "Episodes were cut too early to tell what is earned of what labels promise."
    return (
        f"Its labels promise {fixed(balance.promised.mean)} where its policy earns "
        f"{fixed(balance.earned.mean)}."
    )
