"""The page of a diagnosis: well-formed, self-contained, and true to the measurements."""

from dataclasses import replace

import numpy as np
import pytest
from diagnosed import CAN, FLIPS, text

from conqur.diagnosis import Diagnosis
from conqur.diagnosis.averages import Findings
from conqur.diagnosis.diagnosing import Repetition
from conqur.diagnosis.learning import DiagnosisConfig
from conqur.diagnosis.measures import Breaks, Churn, Gaps
from conqur.diagnosis.play import Worth
from conqur.diagnosis.satisfiable import Satisfiable
from conqur.diagnosis.words import at_least, at_most, headline, proofs, summary
from conqur.exact import Consistency
from conqur.report.diagnosis_page import render

INCONSISTENT, CONSISTENT = Consistency.INCONSISTENT, Consistency.CONSISTENT


def worth(promised: float, earned: float, score: float) -> Worth:
    return Worth((promised,) * 2, (earned,) * 2, (score - 4, score + 4), 1)


def findings(share: float, score: float, can: Satisfiable = CAN) -> Findings:
    levels = np.array([share / 2, share])
    return Findings(
        Breaks(617, share, levels, levels),
        can,
        Churn(levels, levels),
        (4.0, 5.0),
        worth(5.5, 3.25, score),
    )


def repetition(plain: float, penalised: float, change: float, can: Satisfiable = CAN) -> Repetition:
    return Repetition(
        Gaps(np.linspace(0.0, 1.0, 101), 2.0, FLIPS),
        worth(6.5, 3.25, 17.0),
        findings(plain, 17.0, can),
        findings(penalised, 17.0 + change, can),
    )


def measured(can: Satisfiable = CAN, other: Satisfiable | None = None) -> Diagnosis:
    return Diagnosis(
        environment="Some/<Game>",
        origin={"seed": 3, "step": 1000},
        config=DiagnosisConfig(levels=2, target_every=1, penalty_weight=2.0, seeds=2),
        repetitions=(
            repetition(0.25, 0.0625, -2.5, can),
            repetition(0.27, 0.0625, -2.7, other or can),
        ),
    )


@pytest.fixture
def diagnosis() -> Diagnosis:
    return measured()


def test_the_page_says_what_was_measured(diagnosis):
    page = render(diagnosis, "conqur diagnose <x>")
    words = text(page)
    assert headline(diagnosis) in words
    assert headline(diagnosis) == (
        "No head makes the choices behind its labels together, not even the most frequent one of "
        "each state"
    )
    assert summary(diagnosis) in words
    # 0.25 and 0.27: standard error 0.01, Student's quantile 12.7062 with one degree of freedom
    assert "26.0 % (13.3 to 38.7 %)" in words
    assert "19.8 points fewer are broken (7.0 to 32.5)" in words
    assert "−2.60 (−3.87 to −1.33)" in words
    assert "over 2 repetitions of all of it" in words
    assert "12 of 800 states are committed to several actions" in words
    assert "leads by less than 25 % of its value" in words  # 0.5 of 2
    assert "conqur diagnose <x>" in words
    assert "Some/<Game>" in words
    assert "step 1,000" in words
    for forbidden in ("<script", "http://", "https://", "$", "nan"):
        assert forbidden not in page


def test_the_paragraph(diagnosis):
    assert summary(diagnosis) == (
        "Of 1,234 choices behind its labels in 2 repetitions of 2 levels of Q-learning, the greedy "
        "policy that came of them breaks 26.0 % (13.3 to 38.7 %). On average over repetitions no "
        "policy of any form keeps more than 93.8 %, as some states got several actions; the best "
        "head that was found keeps 87.5 %, and none keeps as many as a policy could (proved). With "
        "the consistency penalty (λ = 2) it breaks 6.2 % (6.2 to 6.2 %) of its own. A level "
        "changes 19.5 % of all decisions; noise of 1 % on the last layer would change 12.5 %. Its "
        "labels promise 5.50 where the policy earns 3.25; with the penalty, 5.50 where it earns "
        "3.25."
    )


def test_a_single_repetition_has_no_intervals(diagnosis):
    alone = replace(
        diagnosis,
        config=replace(diagnosis.config, seeds=1),
        repetitions=diagnosis.repetitions[:1],
    )
    assert "breaks 25.0 %. No policy of any form keeps more than 93.8 %" in summary(alone)
    assert headline(alone) == headline(diagnosis)
    words = text(render(alone, "x"))
    assert "None, since all was done once: give more --seeds." in words
    assert "18.8 points fewer are broken." in words
    assert "nan" not in words


def test_repetitions_that_came_out_differently():
    fine = replace(CAN, contradictory=0, found=1.0, any_policy=1.0, resolved=CONSISTENT)
    found = measured(CAN, fine)
    assert headline(found) == (
        "In 1 of 2 repetitions no head makes the choices behind its labels together, not even the "
        "most frequent one of each state"
    )
    assert "keeps 93.7 %, and in 1 of 2 repetitions none keeps as many as" in summary(found)
    assert "in the first repetition; not all are alike" in text(render(found, "x"))
    no_even = replace(CAN, resolved=CONSISTENT)
    assert headline(measured(CAN, no_even)).endswith("together, as some states got several")
    assert headline(measured(no_even, fine)).startswith("In 1 of 2 repetitions no head makes")
    assert headline(measured(replace(CAN, contradictory=0), no_even)).endswith("labels together")
    weaker = measured(CAN, replace(CAN, any_policy=0.97))
    assert "no policy of any form keeps more than 95.4 %" in summary(weaker)
    assert "in the first repetition; all are alike" in text(render(weaker, "x"))


@pytest.mark.parametrize(
    ("can", "title", "sentence"),
    [
        (
            replace(CAN, contradictory=0, found=1.0, any_policy=1.0, resolved=CONSISTENT),
            "One head could make all choices behind its labels; its policy breaks ",
            "One head could keep all of them.",
        ),
        (
            replace(CAN, contradictory=0, any_policy=1.0),
            "No head makes the choices behind its labels together",
            "No head keeps all of them (proved); the best head that was found keeps 87.5 %.",
        ),
        (
            replace(CAN, found=CAN.any_policy, resolved=CONSISTENT),
            "No head makes the choices behind its labels together, as some states got several; one "
            "could make the most frequent one of each",
            "as some states got several actions; one head keeps as many (proved).",
        ),
        (
            replace(CAN, resolved=None),
            "No head makes the choices behind its labels together, as some states got several",
            "as some states got several actions; the best head that was found keeps 87.5 %.",
        ),
        (
            replace(CAN, contradictory=0, any_policy=1.0, resolved=None),
            "Whether one head could make the choices behind its labels together is open",
            "Whether a head could keep all of them is open; the best head that was found keeps 87",
        ),
    ],
)
def test_other_outcomes(can, title, sentence):
    changed = measured(can)
    assert headline(changed).startswith(title)
    assert sentence in summary(changed)
    assert proofs(can) in text(render(changed, "x"))


def test_too_few_states_are_told(diagnosis):
    assert "Too few states to tell" not in text(render(diagnosis, "x"))
    few = measured(replace(CAN, contradictory=0, distinct=399, resolved=None))
    assert "Too few states to tell: there are 399 different ones for 40" in text(render(few, "x"))
    assert "Too few states" in summary(few)
    assert headline(few).startswith("Too few states to tell")
    several = measured(replace(CAN, distinct=399, resolved=None))
    assert "Too few states to tell more: there are 399" in text(render(several, "x"))
    assert headline(several).endswith("together, as some states got several")
    # A proof is one however few states there are.
    kept = {"contradictory": 0, "found": 1.0, "resolved": Consistency.CONSISTENT}
    possible = measured(replace(CAN, distinct=399, **kept))
    assert headline(possible).startswith("One head could make all choices behind its labels, which")
    assert text(render(possible, "x")).count("Too few states to tell") == 1
    proved = measured(replace(CAN, distinct=399))
    assert headline(proved) == headline(diagnosis)
    assert "Too few states" not in summary(proved)


def test_bounds_are_rounded_to_the_safe_side():
    assert (at_least(0.9375), at_most(0.9375)) == ("93.7 %", "93.8 %")
    for share in (0.1 + 0.2, 0.57, 0.29, 1.0, 0.0):  # as written, whatever their last bits
        assert at_least(share) == at_most(share) == f"{100 * share:.1f} %"
    nearly = measured(replace(CAN, found=0.5, any_policy=0.9999, resolved=None))
    assert "No policy of any form keeps all of them, as some states got" in summary(nearly)


def test_what_is_not_known_is_left_out(diagnosis):
    unknown = Worth((), (), (10.0, 24.0), 2)
    repetitions = tuple(
        replace(each, worth=unknown, plain=replace(each.plain, worth=unknown))
        for each in diagnosis.repetitions
    )
    changed = replace(diagnosis, repetitions=repetitions)
    page = render(changed, "x")
    assert "nan" not in page
    assert "4 of 4 episodes were cut" in text(page)
    assert "Episodes were cut too early" in summary(changed)
    assert changed.to_json()["plain"]["balance"]["promised"]["mean"] is None
