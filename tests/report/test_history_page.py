"""The page about a tuning run's history: well-formed, self-contained, and true."""

import math
from dataclasses import replace

import numpy as np
import pytest
from diagnosed import CAN, FLIPS, text

from conqur.diagnosis import RunDiagnosis
from conqur.diagnosis.averages import Balance, Leads
from conqur.diagnosis.history import NodeBreaks
from conqur.diagnosis.measures import Gaps
from conqur.diagnosis.run_words import run_headline, run_summary
from conqur.diagnosis.values import Estimate
from conqur.exact import Consistency
from conqur.report.history_page import render_run
from conqur.search.config import tune_config


def estimate(mean: float) -> Estimate:
    return Estimate(mean, (mean - 1, mean + 1))


@pytest.fixture
def diagnosis() -> RunDiagnosis:
    config = tune_config(
        "paper-8", environment="Some/<Game>", preprocessing="", checkpoint="", levels=4
    )
    balance = Balance(estimate(5.5), estimate(3.25), estimate(2.25), estimate(17.0), 8, 2)
    best = NodeBreaks(7, 0.5, 1234, 0.25, np.array([0.5, math.nan, 0.25]))
    return RunDiagnosis(
        environment="Some/<Game>",
        config=config,
        level=3,
        levels=(0, 1, 2),
        best=best,
        frontier=(replace(best, id=8, share=0.375, score=0.75), best),
        drawn=1000,
        satisfiable=CAN,
        moved=0.125,
        leads=Leads.of_draws(Gaps(np.linspace(0.0, 1.0, 101), 2.0, FLIPS)),
        churn=(0.5, 0.25, 0.125),
        labels=(1.0, math.nan, 3.0),
        checkpoint_balance=replace(balance, score=estimate(14.0)),
        balance=balance,
        higher_score=estimate(3.0),
    )


def test_the_page_says_what_was_measured(diagnosis):
    page = render_run(diagnosis, "conqur diagnose <x>")
    words = text(page)
    assert run_headline(diagnosis) in words
    assert run_summary(diagnosis) in words
    assert words.index("node 7, score 0.500025.0 %") < words.index("node 8, score 0.750037.5 %")
    assert "the last two are of 1,000 choices drawn at random" in words
    assert "+3.00 (2.00 to 4.00) compared to the checkpoint" in words
    assert "2 of 8 episodes were cut" in words
    assert "one level in 5, were sampled" in words
    assert "from 3 levels (1 to 3)" in words
    assert "level 3 of 4" in words
    assert "conqur diagnose <x>" in words
    for forbidden in ("<script", "http://", "https://", "$", "nan"):
        assert forbidden not in page


def test_the_paragraph(diagnosis):
    assert run_summary(diagnosis) == (
        "Of 1,234 choices behind the labels of node 7 and its ancestors, its greedy policy breaks "
        "25.0 % (λ = 10). Of 1,000 of them, drawn at random: no policy of any form keeps more "
        "than 93.8 %, as some states got several actions; the best head that was found keeps 87.5 "
        "%, and none keeps as many as a policy could (proved). In 12.5 % of these states it "
        "decides otherwise than the checkpoint; noise of 1 % on its last layer would change 12.5 % "
        "of its decisions. "
        "Its labels promise 5.50 where its policy earns 3.25."
    )
    whole = replace(diagnosis, drawn=1234)
    assert "(λ = 10). No policy of any form keeps more" in run_summary(whole)


def test_a_best_node_outside_the_frontier_is_shown_first(diagnosis):
    waiting = replace(diagnosis, frontier=diagnosis.frontier[:1])
    words = text(render_run(waiting, "x"))
    assert words.index("node 7, score 0.5000") < words.index("node 8, score 0.7500")


def test_what_was_not_played_is_left_out(diagnosis):
    idle = replace(
        diagnosis, environment="", checkpoint_balance=None, balance=None, higher_score=None
    )
    words = text(render_run(idle, "x"))
    assert "Nothing was played" in run_summary(idle)
    assert "Promised and earned" not in words
    assert idle.to_json()["balance"] is None


def test_labels_without_effect_are_told(diagnosis):
    idle = replace(diagnosis, config=replace(diagnosis.config, updates=0, children="random"))
    assert "made no gradient steps" in run_summary(idle)
    assert run_headline(idle) == "The nodes of this search never learned from their labels"
    assert "made no gradient steps" in text(render_run(idle, "x"))
    assert "gradient steps" not in run_summary(diagnosis)


def test_headlines(diagnosis):
    # What holds of choices that were drawn does of all, but not of the most frequent ones.
    impossible = "No head makes the choices behind the labels of the node with the best score"
    assert run_headline(diagnosis) == f"{impossible} together"
    whole = replace(diagnosis, drawn=1234)
    assert run_headline(whole) == (
        f"{impossible} together, not even the most frequent one of each state"
    )
    fine = replace(CAN, contradictory=0, found=1.0, any_policy=1.0, resolved=Consistency.CONSISTENT)
    assert run_headline(replace(diagnosis, satisfiable=fine)) == (
        "One head could make all 1,000 of the choices behind the labels of the node with the best "
        "score, drawn at random"
    )


def test_how_exact_states_are_is_told(diagnosis):
    assert "as the run kept them, in half precision" in text(render_run(diagnosis, "x"))
    strict = replace(diagnosis.config, children="strict")
    exact = replace(diagnosis, config=strict)
    assert "as the run kept them. States that end" in text(render_run(exact, "x"))
    alone = replace(diagnosis, config=replace(strict, search="independent", penalty_weight=0.0))
    assert "in half precision" in text(render_run(alone, "x"))
