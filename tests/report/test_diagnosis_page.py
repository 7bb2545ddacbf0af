"""The page of a diagnosis: well-formed, self-contained, and true to the measurements."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from conqur.diagnosis import Diagnosis, Findings
from conqur.diagnosis.learning import DiagnosisConfig
from conqur.diagnosis.measures import NOISES, Breaks, Churn, Gaps
from conqur.diagnosis.play import Worth
from conqur.diagnosis.satisfiable import Satisfiable
from conqur.diagnosis.words import headline, proofs, summary
from conqur.exact import Consistency
from conqur.report.diagnosis_page import render
from conqur.statistics import Difference

INCONSISTENT, CONSISTENT = Consistency.INCONSISTENT, Consistency.CONSISTENT
CAN = Satisfiable(800, 40, 12, 0.875, 0.9375, INCONSISTENT, 0.0, 1.5e-9)
WORTH = Worth(5.5, 3.25, 2.25, (1.5, 3.0), 17.0, (12.0, 22.0), 4, 1, (10.0, 24.0))
GAPS = Gaps(
    np.linspace(0.0, 1.0, 101),
    2.0,
    NOISES,
    (0.0, 0.01, 0.125, 0.5, 0.625),
    ((0.0, 0.0), (0.0, 0.02), (0.1, 0.15), (0.4, 0.6), (0.5, 0.75)),
)


def findings(share: float, can: Satisfiable = CAN) -> Findings:
    levels = np.array([share / 2, share])
    return Findings(
        Breaks(1234, share, (share / 2, 2 * share), levels, levels),
        can,
        Churn(levels, levels, 0.75 * share, (0.0, share)),
        GAPS,
        (4.0, 5.0),
        WORTH,
    )


@pytest.fixture
def diagnosis() -> Diagnosis:
    return Diagnosis(
        environment="Some/<Game>",
        origin={"seed": 3, "step": 1000},
        config=DiagnosisConfig(levels=2, penalty_weight=2.0),
        checkpoint_gaps=GAPS,
        checkpoint_worth=replace(WORTH, promised=6.5),
        plain=findings(0.25),
        penalised=findings(0.0625),
        fewer_broken=Difference(0.1875, 0.01, (0.125, 0.25)),
        higher_score=Difference(-2.5, 1.0, (-4.5, -0.5)),
    )


class Outline(HTMLParser):
    """Checks that elements are closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def text(page: str) -> str:
    outline = Outline(page)
    assert outline.open == []
    return re.sub(r"\s+", " ", outline.text.replace("\xa0", " "))


def test_the_page_says_what_was_measured(diagnosis):
    page = render(diagnosis, "conqur diagnose <x>")
    words = text(page)
    assert "At least 6.2 % of the choices behind its labels cannot hold together" in words
    assert summary(diagnosis) in words
    assert "25.0 % (12.5 to 50.0 %)" in words
    assert "18.8 points fewer are broken (12.5 to 25.0)" in words
    assert "−2.50 (−4.50 to −0.50)" in words
    assert "12 of 800 states are committed to several actions" in words
    assert "leads by less than 25 % of its value" in words  # 0.5 of 2
    assert "conqur diagnose <x>" in words
    assert "Some/<Game>" in words
    assert "step 1,000" in words
    for forbidden in ("<script", "http://", "https://", "$", "nan"):
        assert forbidden not in page


def test_the_paragraph(diagnosis):
    assert summary(diagnosis) == (
        "Of 1,234 choices behind its labels in 2 levels of Q-learning, the greedy policy that came "
        "of them breaks 25.0 % (12.5 to 50.0 %). No head keeps more than 93.8 %; the best head "
        "that was found keeps 87.5 %. With the consistency penalty (λ = 2) it breaks 6.2 % (3.1 to "
        "12.5 %) of its own. A level changes 18.8 % of all decisions; noise of 1 % on the last "
        "layer would change 12.5 %. Its labels promise 5.50 where the policy earns 3.25; with the "
        "penalty, 5.50 where it earns 3.25."
    )


@pytest.mark.parametrize(
    ("can", "title", "sentence"),
    [
        (
            replace(CAN, contradictory=0, found=1.0, bound=1.0, resolved=CONSISTENT),
            "One head could make all choices behind its labels",
            "One head could keep all of them.",
        ),
        (
            replace(CAN, contradictory=0, bound=0.9999),
            "The choices behind its labels cannot all hold together",
            "No head keeps all of them, but no bound better than 100 % was found; the best",
        ),
        (
            replace(CAN, contradictory=0, bound=1.0, resolved=None),
            "Whether one head could make all choices behind its labels is open",
            "Whether a head could keep all of them is open; the best head that was found keeps 87",
        ),
    ],
)
def test_other_outcomes(diagnosis, can, title, sentence):
    changed = replace(diagnosis, plain=findings(0.25, can))
    assert headline(changed) == title
    assert sentence in summary(changed)
    assert proofs(can) in text(render(changed, "x"))


def test_too_few_states_are_told(diagnosis):
    assert "Too few states to tell" not in text(render(diagnosis, "x"))
    few = replace(diagnosis, plain=findings(0.25, replace(CAN, distinct=399)))
    assert "Too few states to tell: there are 399 different ones for 40" in text(render(few, "x"))
    assert "Too few states" in summary(few)


def test_what_is_not_known_is_left_out(diagnosis):
    nan = math.nan
    unknown = replace(
        WORTH, promised=nan, earned=nan, excess=nan, interval=(nan, nan), episodes=0, cut=2
    )
    changed = replace(
        diagnosis,
        checkpoint_worth=unknown,
        plain=replace(diagnosis.plain, worth=unknown),
        penalised=replace(diagnosis.penalised, worth=replace(WORTH, earned=-1.0)),
    )
    page = render(changed, "x")
    assert "nan" not in page
    assert "2 of 2 episodes were cut" in text(page)
    assert "Episodes were cut too early" in summary(changed)
