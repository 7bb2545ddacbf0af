"""Pages of studies: tables by hand, the paper's numbers, files, a real browser, bad input."""

import csv
import html
import json
import re
import shutil
import subprocess

import pytest

from conqur.report.exhibits import Estimate
from conqur.report.exporting import export
from conqur.report.paper_tables import not_measured, paper_name, paper_table
from conqur.report.penalty_exhibits import mean_line, penalty_exhibits
from conqur.report.search_exhibits import search_exhibits
from conqur.report.study_page import render_study_page, study_exhibits
from conqur.suite.results import read_results
from conqur.suite.tables import (
    CURVES,
    NODES,
    RESULTS,
    RankedNode,
    Trained,
    TrainedPoint,
    Tuned,
    TunedPoint,
    as_csv,
)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def trained(game, weight, seed, score, algorithm="dqn"):
    return Trained(game, algorithm, "", weight, seed, score, None, None, None, 10, "run")


def tuned(game, algorithm, weight, seed, before, after, best=None, nodes=16):
    return Tuned(
        *(f"{game}-{seed}", game, algorithm, "paper", nodes, weight, 0, before, after),
        *(after - before, None, None, after - before, after, after - before, best, before, 0),
        *(8, 100, 1.0, f"{game}-{algorithm}-{weight}-{seed}"),
    )


TRAINED = [
    trained("ALE/Assault-v5", 0.0, 0, 10.0),
    trained("ALE/Assault-v5", 0.0, 1, 20.0),
    trained("ALE/Assault-v5", 1.0, 0, 30.0),
    trained("ALE/Assault-v5", 1.0, 1, 10.0),
    trained("ALE/Assault-v5", 2.0, 0, 18.0),
    trained("ALE/Assault-v5", 2.0, 1, 16.0),
    trained("MinAtar/Breakout", 0.0, 0, -4.0),
    trained("MinAtar/Breakout", 0.0, 1, -6.0),
    trained("MinAtar/Breakout", 1.0, 0, -8.0),
    trained("MinAtar/Breakout", 1.0, 1, -6.0),
]
TUNED = [
    tuned("ALE/Alien-v5", "conqur", 10.0, 0, 10.0, 15.0, best=40.0),
    tuned("ALE/Alien-v5", "conqur", 10.0, 1, 20.0, 15.0, best=20.0),
    tuned("ALE/Alien-v5", "multi-dqn", 0.0, 0, 10.0, 5.0, best=20.0),
    tuned("ALE/Alien-v5", "multi-dqn", 0.0, 1, 20.0, 15.0, best=20.0),
    tuned("MinAtar/Asterix", "conqur", 10.0, 0, 0.0, 3.0, best=5.0),
    tuned("MinAtar/Asterix", "multi-dqn", 0.0, 0, 0.0, 4.0, best=5.0),
]
LEVELS = [
    TunedPoint("n", "MinAtar/Asterix", "conqur", "paper", 16, 10.0, 0, level, 2.0 * level, 1.0, 3.0)
    for level in (0, 10, 20)
]

LAST = [
    RankedNode(f"{game}-0", game, algorithm, "paper", 16, weight, 0, 20, rank, score, before)
    for game, algorithm, weight, before, scores in (
        ("ALE/Alien-v5", "conqur", 10.0, 12.0, (27.0, 12.0)),
        ("ALE/Alien-v5", "multi-dqn", 0.0, 9.0, (9.0, 9.0, -3.0)),
        ("MinAtar/Asterix", "conqur", 10.0, 9.0, (7.0, 6.0)),
    )
    for rank, score in enumerate(scores, 1)
]


def by_key(exhibits):
    return {exhibit.key: exhibit for exhibit in exhibits}


def test_the_best_weight_is_the_one_with_the_highest_mean():
    shown = by_key(penalty_exhibits(TRAINED, []))["best-weight"]
    game, algorithm, plain, weight, with_it, other, lead, *papers = shown.rows[0]
    assert (game, algorithm, weight) == ("ALE/Assault-v5", "DQN", 1.0)
    assert (plain.value, with_it.value) == (15.0, 20.0)
    # Student's interval of two values: 15 ± 12.706 · 5.
    assert plain.low == pytest.approx(15 - 12.7062 * 5, abs=1e-3)
    # Seed 0 by seed 1: λ = 0 is best there (20); seed 1 by seed 0: λ = 1 is (30): 10 and 10.
    assert other.value == 10.0
    assert lead.value == pytest.approx(100 * 5 / 15)
    paper = paper_table("penalty_best")["Assault"]
    assert papers == [paper["dqn"], paper["dqn_lambda_best"], paper["dqn_penalised"]]
    assert shown.rows[1][3:5] == (1.0, Estimate(-7.0, *shown.rows[1][4][1:]))
    # (−7 − −5)/|−5|, and no game of the paper.
    assert shown.rows[1][6].value == pytest.approx(-40.0)
    assert shown.rows[1][7:] == (None, None, None)
    assert "Not measured, of the paper's 19 games: Atlantis, BattleZone" in shown.words


def test_wins_and_aggregates_are_over_games():
    shown = by_key(penalty_exhibits(TRAINED, []))
    assert "DQN: 1 won, 1 lost, 0 within 1 %; median −3.3 %, mean −3.3 %." in shown["margins"].words
    rows = {row[1]: row for row in shown["weights"].rows}
    assert set(rows) == {"0", "1", "2"}
    assert (rows["1"][2], rows["2"][2]) == (2, 1)  # games that were trained with it
    # In parts of λ = 0: Assault 2 and 2/3, Breakout 0.4 and 0.8; games' means 4/3 and 0.6.
    mean = rows["1"][list(shown["weights"].head).index("mean")]
    assert mean.value == pytest.approx((4 / 3 + 0.6) / 2)
    # Runs with λ = 1 against those with λ = 0: 30 and 10 against 10 and 20 (2.5 of 4); −8 and −6
    # against −4 and −6 (0.5 of 4).
    assert rows["1"][-1].value == pytest.approx((2.5 / 4 + 0.5 / 4) / 2)
    assert rows["0"][-1] is None


def test_human_normalised_scores_are_summed_up_where_they_are_known():
    rows = [row._replace(human_normalised=row.score / 10) for row in TRAINED[:6]] + TRAINED[6:]
    shown = by_key(penalty_exhibits(rows, []))["human-normalised"]
    assert [row[:3] for row in shown.rows] == [("DQN", str(weight), 1) for weight in range(3)]
    assert shown.rows[0][3].value == 1.5
    assert "human-normalised" not in by_key(penalty_exhibits(TRAINED, []))


def test_curves_are_means_over_seeds_where_all_have_some():
    line = mean_line("λ", [[(1, 2.0), (3, 4.0)], [(2, 10.0), (3, 20.0), (4, 30.0)]], "red")
    assert list(line.at) == [2, 3]
    assert line.values == [6.5, 12.0]
    assert len(line.band) == 2
    points = [TrainedPoint("g", "dqn", "", 0.5, 0, step, float(step)) for step in (10, 90, 100)]
    shown = by_key(penalty_exhibits([], points))
    assert set(shown) == {"last-returns", "curves"}  # all that there is, once
    assert shown["last-returns"].rows[0][-1].value == 100.0  # only it is in the last tenth
    assert shown["curves"].legend == (("λ = 0.5", "var(--blue)"),)


def test_searches_are_held_against_checkpoint_and_baseline():
    shown = by_key(search_exhibits(TUNED, LEVELS))
    scores = {row[0]: row for row in shown["scores"].rows}
    head = shown["scores"].head
    assert head[:4] == ("Game", "checkpoint", "ConQUR, λ = 10", "multi-DQN")
    alien = paper_table("search_16_nodes")["Alien"]
    assert [cell.value for cell in scores["ALE/Alien-v5"][1:4]] == [15.0, 15.0, 10.0]
    assert scores["ALE/Alien-v5"][4:] == (alien["conqur"], alien["multi_dqn"], alien["checkpoint"])
    best = {row[0]: row for row in shown["best-evaluations"].rows}
    assert [cell.value for cell in best["ALE/Alien-v5"][1:4]] == [15.0, 30.0, 20.0]
    lead = {row[0]: row[1:] for row in shown["over-multi-dqn"].rows}
    theirs = 100 * (alien["conqur"] - alien["multi_dqn"]) / alien["multi_dqn"]
    assert [cell.value for cell in lead["ALE/Alien-v5"]] == pytest.approx([50.0, 50.0, theirs])
    assert [cell and cell.value for cell in lead["MinAtar/Asterix"]] == [-25.0, 0.0, None]
    assert "1 won, 1 lost, 0 within 1 %" in shown["over-multi-dqn"].words
    # A checkpoint of zero has no improvement, and that is said.
    words = shown["over-checkpoint"].words
    assert "Left out for a baseline of zero: MinAtar/Asterix" in words
    arms = {row[0]: row for row in shown["algorithms"].rows}
    # Alien alone: gains 5 and −5 on a mean of 15; both −5 for multi-DQN.
    assert arms["ConQUR, λ = 10"][1:3] == (1, 2)
    assert "Left out for a checkpoint of zero: MinAtar/Asterix" in shown["algorithms"].words
    column = shown["algorithms"].head.index("mean")
    assert arms["ConQUR, λ = 10"][column].value == pytest.approx(1.0)
    assert arms["multi-DQN"][column].value == pytest.approx(1 - 5 / 15)
    # On the same networks: 15 against 5, and 15 against 15, in parts of 15.
    assert arms["ConQUR, λ = 10"][-2].value == pytest.approx(5 / 15)
    assert "scoring" not in shown
    assert len(shown["curves"].figures) == 1


def test_scorings_are_compared_on_the_networks_that_both_were_run_on():
    rows = [
        tuned("g", "conqur", 10.0, 0, 10.0, 12.0),
        tuned("g", "conqur", 10.0, 1, 100.0, 110.0),  # by rollouts, it is not there yet
        tuned("g", "rollouts", 10.0, 0, 10.0, 13.0),
        tuned("g", "rollouts", 10.0, 2, 1000.0, 1000.0),
    ]
    shown = by_key(search_exhibits(rows, []))["scoring"]
    assert shown.head[:4] == ("Game", "λ", "rollouts", "Bellman + penalty")
    assert [cell.value for cell in shown.rows[0][2:4]] == [13.0, 12.0]
    alone = by_key(search_exhibits(rows[2:], []))["scoring"]
    assert alone.rows[0][2].value == 506.5
    assert alone.rows[0][3] is None


def test_nodes_are_compared_rank_by_rank():
    shown = by_key(search_exhibits(TUNED, LEVELS, LAST))["ranks"]
    assert shown.head == ("Rank", "ConQUR, λ = 10", "multi-DQN", "lead of ConQUR, λ = 10")
    # Gains of 15 and 0; of 0, 0 and −12; in parts of Alien's 15. Asterix has nothing to be part of.
    first, second, third = shown.rows
    assert first[:3] == ("1", 2.0, 1.0)
    assert (first[3].value, second[3].value) == (1.0, 0.0)
    assert third == ("3", None, pytest.approx(0.2), None)
    assert [figure.title for figure in shown.figures] == ["ALE/Alien-v5", "MinAtar/Asterix"]
    alone = by_key(search_exhibits(TUNED, LEVELS, LAST[:2]))["ranks"]
    assert alone.head == ("Rank", "ConQUR, λ = 10")
    assert "ranks" not in by_key(search_exhibits(TUNED, LEVELS))


def test_networks_and_not_seeds_are_averaged_over():
    rows = [
        tuned("g", "conqur", 10.0, 0, 10.0, 12.0),
        tuned("g", "conqur", 10.0, 0, 10.0, 14.0)._replace(seed=1),
        tuned("g", "conqur", 10.0, 1, 100.0, 105.0),
        tuned("g", "multi-dqn", 0.0, 0, 10.0, 11.0),
        tuned("g", "multi-dqn", 0.0, 1, 100.0, 104.0),
        tuned("g", "multi-dqn", 0.0, 2, 5000.0, 5000.0),  # ConQUR is not there yet
    ]
    shown = by_key(search_exhibits(rows, []))
    # 13 of the first network, whose seeds are averaged, and 105 of the second.
    assert shown["scores"].rows[0][2].value == 59.0
    assert "Not all algorithms have been run on the same networks" in shown["scores"].words
    arms = {row[0]: row for row in shown["algorithms"].rows}
    # On the networks that both have: 13 − 11 and 105 − 104, in parts of (10 + 100 + 5000)/3.
    assert arms["ConQUR, λ = 10"][-2].value == pytest.approx(1.5 / (5110 / 3))
    # (59 − 57.5)/57.5: the third network does not take part.
    assert shown["over-multi-dqn"].rows[0][1].value == pytest.approx(100 * 1.5 / 57.5)
    one = by_key(search_exhibits(rows[:2], []))["scores"]
    assert (one.rows[0][2].value, one.rows[0][2].interval is None) == (13.0, False)
    assert "Over seeds, of one network each, of each game." in one.words


def test_a_search_that_diverged_counts_as_its_checkpoint():
    gone = tuned("g", "conqur", 10.0, 0, 0.0, 0.0)._replace(
        checkpoint=None, score=None, gain=None, diverged=1
    )
    rows = [
        gone,
        tuned("g", "conqur", 10.0, 1, 20.0, 40.0),
        tuned("g", "multi-dqn", 0.0, 0, 10.0, 15.0),
        tuned("g", "multi-dqn", 0.0, 1, 20.0, 30.0),
    ]
    shown = by_key(search_exhibits(rows, []))
    assert shown["scores"].rows[0][2].value == 25.0  # 10, its checkpoint, and 40
    arms = {row[0]: row for row in shown["algorithms"].rows}
    assert arms["ConQUR, λ = 10"][2] == 2
    assert arms["ConQUR, λ = 10"][-2].value == pytest.approx((-5 + 10) / 2 / 15)
    assert "In 1 of 4 runs all nodes diverged" in shown["algorithms"].words


def test_the_best_of_equal_weights_is_one_of_them():
    rows = [
        tuned("g", "conqur", 1.0, 0, 0.0, 0.0),
        tuned("g", "conqur", 1.0, 1, 0.0, 0.0),
        tuned("g", "conqur", 10.0, 0, 0.0, 0.0),  # without an interval
    ]
    shown = by_key(search_exhibits(rows, []))["scores"]
    assert shown.rows[0][-1].value == 0.0
    assert shown.head[-1] == "ConQUR, best λ"


def test_what_the_loss_chose_is_shown_apart_and_without_those_that_diverged():
    rows = [
        tuned("g", "conqur", 10.0, 0, 10.0, 15.0)._replace(score_by_score=7.0),
        tuned("g", "conqur", 10.0, 1, 10.0, 15.0)._replace(score_by_score=9.0),
        tuned("g", "conqur", 10.0, 2, 10.0, 15.0)._replace(
            score=None, gain=None, score_by_score=None, diverged=1
        ),
    ]
    shown = by_key(search_exhibits(rows, []))
    assert shown["scores-by-loss"].rows[0][2].value == 8.0
    assert "all nodes diverged: they are missing here" in shown["scores-by-loss"].words
    assert shown["scores"].rows[0][2].value == pytest.approx(40 / 3)
    assert "diverged: they count as their checkpoint" in shown["scores"].words
    rows = [row._replace(best_evaluation=20.0) for row in rows]
    shown = by_key(search_exhibits(rows, []))["best-evaluations"]
    assert shown.rows[0][2].value == 20.0
    assert "diverged: they count with what was evaluated before" in shown.words


def test_the_refit_stands_beside_the_others():
    rows = [*TUNED, tuned("ALE/Alien-v5", "refit", 0.0, 0, 10.0, 12.0, nodes=1)]
    shown = by_key(search_exhibits(rows, []))
    assert "large-batch refit" in shown["scores"].head
    assert [key for key in shown if key.startswith("scores")] == ["scores", "scores-by-loss"]


def test_settings_are_kept_apart():
    rows = [*TUNED, tuned("MinAtar/Asterix", "conqur", 10.0, 0, 1.0, 3.0, nodes=8)]
    keys = [exhibit.key for exhibit in search_exhibits(rows, LEVELS)]
    apart = {"scores-paper-16-nodes", "scores-paper-8-nodes", "curves-paper-16-nodes"}
    assert apart <= set(keys)
    assert len(keys) == len(set(keys))


def test_the_page_begins_with_all_settings_and_says_what_is_not_in_all_games(folder):
    rows = [
        *TUNED,
        tuned("ALE/Assault-v5", "multi-dqn", 0.0, 0, 10.0, 20.0),
        tuned("ALE/Alien-v5", "conqur", 10.0, 0, 1.0, 3.0, nodes=8),
    ]
    (folder / RESULTS).write_text(as_csv(Tuned, rows))
    results = read_results(folder)
    shown = study_exhibits(results)
    page = html.unescape(re.sub(r"\s+", " ", render_study_page(results, shown, "")))
    # In parts of 15 in Alien: 1 ± 5/15; of 10 in Assault: 2. Asterix has a checkpoint of zero.
    assert "Paper-16-nodes: ConQUR, λ = 10 (1 of 2 games): 1.00" in page.replace("\u00a0", " ")
    assert "Paper-8-nodes: ConQUR, λ = 10: 3.00" in page.replace("\u00a0", " ")
    figure = by_key(shown)["algorithms-paper-16-nodes"].figures[0].svg
    assert "ConQUR, λ = 10 (1 of 2 games)" in figure
    assert "multi-DQN (" not in figure


def test_scores_are_gains_on_one_score_of_each_checkpoint():
    """Which may be another on another machine."""
    rows = [
        tuned("g", "conqur", 10.0, 0, 10.0, 12.0, best=30.0),
        tuned("g", "multi-dqn", 0.0, 0, 14.0, 15.0, best=40.0),
    ]
    shown = by_key(search_exhibits(rows, []))
    assert [cell.value for cell in shown["scores"].rows[0][1:]] == [10.0, 12.0, 11.0]
    assert [cell.value for cell in shown["scores-by-loss"].rows[0][1:]] == [10.0, 12.0, 11.0]
    assert [cell.value for cell in shown["best-evaluations"].rows[0][1:]] == [10.0, 30.0, 36.0]
    assert shown["over-multi-dqn"].rows[0][1].value == pytest.approx(100 / 11)


def test_it_is_said_how_often_the_checkpoint_was_chosen():
    same = tuned("g", "conqur", 10.0, 0, 10.0, 10.0)._replace(gain_low=0.0, gain_high=0.0)
    rows = [same, tuned("g", "conqur", 10.0, 1, 10.0, 10.0)]  # the other by chance
    words = by_key(search_exhibits(rows, []))["algorithms"].words
    assert "so count 1 of 2 runs in which rollouts chose the checkpoint, or a node that" in words
    assert "chose the checkpoint" not in by_key(search_exhibits(rows[1:], []))["algorithms"].words


def test_one_run_has_no_interval_and_is_shown():
    (shown,) = (e for e in search_exhibits(TUNED[4:5], []) if e.key == "scores")
    assert shown.rows[0][2] == Estimate(3.0)
    shown = by_key(penalty_exhibits(TRAINED[:1], []))
    assert shown["scores"].rows[0][2:] == ("0", 1, Estimate(10.0))


def test_games_are_the_papers_only_if_they_are():
    assert paper_name("ALE/SpaceInvaders-v5") == "SpaceInvaders"
    assert paper_name("PongNoFrameskip-v4") == "Pong"
    assert paper_name("MinAtar/Breakout") is None
    assert paper_name("CartPole-v1") is None
    assert len(paper_table("search_16_nodes")) == 59
    assert paper_table("search_8_nodes")["Alien"]["multi_dqn"] is None
    assert not_measured("scoring_8_nodes", {"MinAtar/Breakout"}).endswith("none was measured.")


@pytest.fixture
def folder(tmp_path):
    """What `conqur suite collect` leaves behind."""
    (tmp_path / RESULTS).write_text(as_csv(Tuned, TUNED))
    (tmp_path / CURVES).write_text(as_csv(TunedPoint, LEVELS))
    (tmp_path / NODES).write_text(as_csv(RankedNode, LAST))
    (tmp_path / "study.toml").write_text('command = "tune" # <script>alert(1)</script>')
    (tmp_path / "made_with.json").write_text(json.dumps({"conqur": "0.1.0"}))
    return tmp_path


def test_files_hold_the_numbers_of_the_page(folder, conqur):
    status, out, _ = conqur("report", folder, "--export", folder / "files")
    assert status == 0
    assert "Report: " in out
    page = (folder / "report.html").read_text()
    assert "<script>alert" not in page
    assert len(page.encode()) < 2_000_000
    for exhibit in study_exhibits(read_results(folder)):
        section = re.search(f'<section id="{exhibit.key}">.*?</section>', page, re.DOTALL)[0]
        if exhibit.rows:
            shown = [_cells(row) for row in re.findall("<tr>(.*?)</tr>", section, re.DOTALL)]
            with (folder / "files" / f"{exhibit.key}.csv").open() as file:
                head, *rows = csv.reader(file)
            plain = [i for i, name in enumerate(head) if not name.endswith((", low", ", high"))]
            assert [head[i] for i in plain] == shown[0]
            for row, cells in zip(rows, shown[1:], strict=True):
                for i, cell in zip(plain, cells, strict=True):
                    assert _same(row[i], cell), (row[i], cell)
            assert (folder / "files" / f"{exhibit.key}.tex").read_text().count(r"\\") > len(rows)
        names = {path.name for path in (folder / "files").iterdir()}
        for figure in exhibit.figures:
            one = exhibit.key if len(exhibit.figures) == 1 else f"{exhibit.key}-{figure.title}"
            one = one.replace("/", "-")
            assert {f"{one}.svg", f"{one}.png"} <= names


def _cells(row):
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
    return [
        html.unescape(re.sub(r"<small>.*?</small>", "", cell)).replace("\xa0", " ")
        for cell in cells
    ]


def _same(written, shown):
    if not written:
        return shown in ("–", "")
    try:
        value = float(written)
    except ValueError:
        return written == shown
    return float(shown.replace("−", "-").replace(",", "").removeprefix("+")) == pytest.approx(
        value, abs=0.00501
    )


def test_a_study_with_tables_alone_knows_how_many_runs_it_was_to_have(folder):
    for none in ((folder / "study.toml").read_text(), "a = " + "[" * 50_000, "\x00", ""):
        (folder / "study.toml").write_text(none)
        assert read_results(folder).runs == len(TUNED)
    (folder / "study.toml").write_text('command = "tune"\nnetworks = ["a", "b"]\nseeds = 4')
    results = read_results(folder)
    assert (results.done, results.runs) == (len(TUNED), 8)
    assert "6 of 8 runs" in render_study_page(results, [], "")


def test_what_the_paper_has_and_nobody_measured_is_said(folder):
    results = read_results(folder)
    page = render_study_page(results, study_exhibits(results), "conqur report")
    index = page[page.index("The paper's tables and figures") :]
    assert '<th scope="row">Tab. 4</th><td>scores with 16 nodes</td><td><a href="#scores"' in index
    for name in ("Tab. 3", "Tab. 1", "Tab. 7"):
        assert re.search(f"{name}</th><td>[^<]*</td><td>not measured in this study", index)
    assert "on the page of each run" in index


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_the_page_opens_in_a_browser_and_fits_a_phone(folder, conqur, tmp_path):
    assert conqur("report", folder)[0] == 0
    page = (folder / "report.html").read_text()
    probe = (
        "<script>addEventListener('error', e => document.title = 'failed: ' + e.message);"
        "addEventListener('load', () => document.title = "
        "document.documentElement.scrollWidth - innerWidth)</script>"
    )
    (folder / "probed.html").write_text(page.replace("<style>", probe + "<style>", 1))
    dom = subprocess.run(
        [
            *(CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--window-size=500,900", "--dump-dom"),
            (folder / "probed.html").as_uri(),
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    title = re.search("<title>(.*?)</title>", dom)[1]
    assert int(title) <= 0  # nothing sticks out to the right


def test_what_is_not_there_is_said_in_one_sentence(folder, conqur, tmp_path):
    def complains(words, *arguments):
        status, _, err = conqur("report", *arguments)
        assert status in (1, 2)
        assert words in err
        assert len(err.strip().splitlines()) == 1

    (folder / CURVES).unlink()
    assert conqur("report", folder)[0] == 0  # what there is, is shown
    complains("report on it alone", folder, folder, "--output", "x.html")
    complains("say --output", tmp_path / "..", tmp_path)
    complains("is not there", tmp_path / "none")
    complains("--watch writes no file", folder, "--watch", "--export", "x")
    complains("give both", folder, "--port", "8000")
    (folder / RESULTS).write_text(as_csv(Tuned, []))
    complains("has no rows", folder)
    (folder / RESULTS).write_text("no table")
    complains("is no table of a study", folder)
    (tmp_path / "many" / "one").mkdir(parents=True)
    (tmp_path / "many" / "one" / "config.json").write_text("{}")
    complains("is a folder of runs: name one, such as one", tmp_path / "many")
    empty = tmp_path / "begun"
    (empty / "runs").mkdir(parents=True)
    told = json.dumps(["a", ["train"], {"game": "g", "algorithm": "dqn", "preset": ""}, 3])
    (empty / "study.json").write_text(json.dumps([told]))
    complains("none of the 1 runs of", empty)
    (empty / "study.json").write_text("{}")
    complains("is done yet", empty)
    for wrong in (
        [3],
        [json.dumps(["../../etc", ["train"], {}, 3])],
        [json.dumps(["a", 3, {}, 3])],
    ):
        (empty / "study.json").write_text(json.dumps(wrong))
        complains("is no list of runs", empty)


def test_pictures_are_left_out_with_a_word_where_they_cannot_be_drawn(monkeypatch, tmp_path):
    def missing(svg):
        raise ImportError("PNG needs resvg_py")

    monkeypatch.setattr("conqur.report.exporting.as_png", missing)
    said = []
    written = export(search_exhibits(TUNED, LEVELS), tmp_path, warn=said.append)
    assert said == ["no pictures are written as PNG: PNG needs resvg_py"]
    assert not any(path.suffix == ".png" for path in written)
    assert any(path.suffix == ".svg" for path in written)


def test_a_training_run_has_a_page(tmp_path, conqur):
    run = tmp_path / "run"
    run.mkdir()
    (run / "config.json").write_text(json.dumps({"environment": "g", "algorithm": "dqn"}))
    rows = [
        {"step": step, "seed": seed, "penalty_weight": weight, "return": step, "episodes": 2}
        | {"loss": 0.5, "inconsistent": 0.25, "q_mean": None}
        for step in (1000, 2000)
        for seed in (0, 1)
        for weight in (0.0, 0.5)
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (run / "log.jsonl").write_text(text + '{"step": 3')  # being written
    status, out, _ = conqur("report", run)
    assert status == 0
    assert out.startswith("g, DQN: 2,000 steps\n")
    page = (run / "report.html").read_text()
    assert "conqur evaluate RUN --keep brings them" in page
    assert "Choices broken, per cent" in page
    assert "Mean Q-value" not in page  # nothing is known of it
    status, _, err = conqur("report", run, run, "--output", tmp_path / "both.html")
    assert status == 1
    assert "a run is named twice" in err
    shutil.copytree(run, tmp_path / "copy")
    _, _, err = conqur("report", run, tmp_path / "copy", "--output", tmp_path / "both.html")
    assert "seed 0 is in more than one of the runs" in err
    other = tmp_path / "other"
    shutil.copytree(run, other)
    (other / "config.json").write_text(json.dumps({"environment": "g", "algorithm": "ddqn"}))
    status, out, _ = conqur("report", run, other, "--output", tmp_path / "both.html")
    assert (status, out.partition("\n")[0]) == (0, "2 runs")
    tiny = text.replace('"loss": 0.5', '"loss": 2e-13')
    (run / "log.jsonl").write_text(tiny)
    assert conqur("report", run)[0] == 0
    (run / "log.jsonl").write_text("")
    assert "no episode that ended is in its log" in conqur("report", run)[2]
    (run / "log.jsonl").write_text('{"step": "x"}\n{}\n')
    status, _, err = conqur("report", run)
    assert status == 1
    assert "line 1 of log.jsonl" in err


def test_a_single_weight_is_not_compared():
    rows = [row for row in TRAINED if row.penalty_weight == 0]
    points = [TrainedPoint("g", "dqn", "", 0.0, 0, step, float(step)) for step in (10, 20)]
    shown = by_key(penalty_exhibits(rows, points))
    assert list(shown) == ["scores", "curves", "last-returns"]
    assert shown["scores"].rows[0][:4] == ("ALE/Assault-v5", "DQN", "0", 2)
    assert shown["scores"].rows[0][4].value == 15.0
