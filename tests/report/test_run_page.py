"""The page about a tuning run: what it says is what the run's files say, in a real browser, too."""

import contextlib
import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from conqur.report.run_exhibits import run_exhibits
from conqur.report.run_page import headline, render_run_page, verdict, write_page
from conqur.report.search_tree import (
    MOST,
    detail_names,
    drawn_nodes,
    places,
    search_tree,
    shades,
)
from conqur.report.tuned_run import Node, read_tuned, summary_of
from conqur.runs import RunError
from conqur.search.config import tune_config

REAL = Path(__file__).parents[2] / "results/tuning/minatar_breakout_paper16"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
BASIS = {"environment": "CartPole-v1", "checkpoint": "", "preprocessing": ""}


def test_levels_are_whole_numbers_and_variables_that_were_not_set_are_left_out():
    run = read_tuned(REAL)
    exhibits = {exhibit.key: exhibit for exhibit in run_exhibits(run)}
    for key, column in (("levels", 0), ("lineages", 1)):
        assert {type(row[column]) for row in exhibits[key].rows} == {int}
    for variables, times in (({}, 1), ({"XLA_FLAGS": "x"}, 2)):  # one is the game's
        page = render_run_page(replace(run, manifest={"environment": variables}), "x")
        assert page.count("<dt>environment</dt>") == times


def node(number, parent, level, score, status="expanded", kind="expansion"):
    return {
        "id": number,
        "parent": parent,
        "level": level,
        "kind": "root" if parent is None else kind,
        "status": status,
        "assigned_how": "" if parent is None else "max",
        "score": score,
        "calibrated": score,
        "penalty": None if score is None else score / 10,
        "bellman": None if score is None else score / 2,
    }


TREE = [
    node(0, None, 0, None),
    node(1, 0, 1, 3.0),
    node(2, 0, 1, 1.0, "evicted"),
    node(3, 1, 2, 2.5, "frontier", "dive"),
    node(4, 0, 3, 0.5, "frontier"),  # come back to: the checkpoint is two levels before
]


def change(folder, **values):
    """Change the second line of the tree."""
    rows = [TREE[0], TREE[1] | values, *TREE[2:]]
    (folder / "tree.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_run(folder, nodes=TREE, *, summary=None, **changes):
    folder.mkdir(exist_ok=True)
    config = tune_config("paper-16", **BASIS | changes).to_json()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tree.jsonl").write_text("".join(json.dumps(row) + "\n" for row in nodes))
    if summary is not None:
        (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def played(number, level, mean):
    about = {"node": number, "level": level, "mean": mean, "interval": [mean - 1, mean + 1]}
    return about | {"gain": 1.0, "gain_interval": [0, 2], "checkpoint": 99.0, "episodes": 4}


def summary(chosen):
    found = played(chosen, 3, 7.0) | {"gain": -1.0}
    return {
        "candidates": 3,
        "frames": 9,
        "checkpoint": {"mean": 8.0, "interval": [7.0, 9.0]},
        "chosen": found,
        "chosen_by_score": found,
        "best_of_evaluations": found | {"gain": 0.0},
        "played_again": [
            {"node": 3, "mean": 6.25, "episodes": 2},
            {"node": chosen, "mean": 7.5, "episodes": 6},
        ],
        "handed_back": "checkpoint",
    }


@pytest.fixture(scope="module")
def real():
    return read_tuned(REAL)


def test_all_of_a_run_is_read(real):
    lines = [json.loads(line) for line in (REAL / "tree.jsonl").read_text().splitlines()]
    assert len(real.nodes) == len(lines)
    for line in lines:
        assert {name: getattr(real.nodes[line["id"]], name) for name in line} == line
    assert len(real.played) == len((REAL / "evaluations.jsonl").read_text().splitlines())
    assert real.chosen == json.loads((REAL / "summary.json").read_text())["chosen"]["node"]


def test_numbers_on_the_page_are_those_of_the_files(real):
    page = html.unescape(render_run_page(real, "conqur report REAL"))
    summary = json.loads((REAL / "summary.json").read_text())
    for name in ("checkpoint", "chosen", "chosen_by_score"):
        assert f"{summary[name]['mean']:.2f}" in page
    rows = json.loads(re.search(r'id="nodes">(.*?)</script>', page, re.DOTALL)[1])
    assert [row[0] for row in rows] == list(real.nodes)
    told = {row[0]: row for row in rows}
    for number, found in real.nodes.items():
        assert told[number][1] == found.parent
        if found.score is not None:
            assert float(told[number][5].replace("−", "-")) == pytest.approx(found.score, rel=1e-3)
    assert len(page.encode()) < 2e6
    assert "http" not in re.sub(r'"http://www.w3.org[^"]*"', "", page)  # nothing is loaded


def test_the_page_tells_what_was_typed_and_by_what_the_node_was_chosen(tmp_path):
    folder = write_run(tmp_path / "run", summary=summary(4))
    (folder / "manifest.json").write_text(json.dumps({"command": "conqur tune <b>net</b>"}))
    run = read_tuned(folder)
    page = render_run_page(run, "")
    assert "<code>conqur tune &lt;b&gt;net&lt;/b&gt;</code>" in page
    again = next(exhibit for exhibit in run_exhibits(run) if exhibit.key == "played-again")
    assert again.rows == (("4", 7.5, 6), ("3", 6.25, 2))


def test_lineages_stay_in_order_and_levels_go_to_the_right(tmp_path):
    run = read_tuned(write_run(tmp_path / "run"))
    at = places(list(run.nodes.values()))
    assert at[0].x < at[1].x == at[2].x < at[3].x < at[4].x
    assert at[1].y < at[2].y
    assert [n.id for n in run.lineage(3)] == [0, 1, 3]
    picture = search_tree(run)
    back = re.search(r'class="back" d="([^"]*)"', picture)[1]
    assert back.count("M") == 1
    assert f"M{at[0].x:.1f} {at[0].y:.1f}" in back
    assert re.search(r'class="edge" d="([^"]*)"', picture)[1].count("M") == 3
    assert "evicted" in re.search(r'<circle id="n2" class="([^"]*)"', picture)[1]


def test_colours_rank_scores_within_a_level():
    row = [
        Node(i, 0, 0, "dive", "pool", "max", score, 0, 0, 0) for i, score in enumerate([3, 1, 2])
    ]
    row.append(Node(9, 0, 1, "dive", "pool", "max", 7.0, 0, 0, 0))
    row.append(Node(10, 0, 1, "dive", "pool", "max", None, 0, 0, 0))
    assert shades(row) == {1: 0, 2: 4, 0: 8, 9: 0}
    equal = [each._replace(score=2.0) for each in row]
    assert set(shades(equal).values()) == {0}


def test_a_huge_tree_is_thinned_but_never_its_living_lineages(tmp_path):
    nodes = [node(0, None, 0, None)]
    for level in range(MOST // 50):
        nodes += [
            node(level * 100 + i + 1, max(0, (level - 1) * 100 + i + 1), level + 1, 1.0, "evicted")
            for i in range(100)
        ]
    for row in nodes[-3:]:
        row["status"] = "frontier"
    run = read_tuned(write_run(tmp_path / "run", nodes, summary=summary(chosen=MOST + 50)))
    assert run.chosen == MOST + 50
    drawn = {each.id for each in drawn_nodes(run)}
    assert len(run.nodes) > MOST
    assert MOST <= len(drawn) < MOST + 200
    for row in (*nodes[-3:], nodes[MOST + 50]):
        assert {each.id for each in run.lineage(row["id"])} <= drawn
    assert "left out" in render_run_page(run, "")


def test_a_run_that_is_not_at_its_end_is_shown_as_far_as_it_came(tmp_path):
    run = read_tuned(write_run(tmp_path / "run"))
    assert headline(run) == "CartPole-v1: level 3 of 100"
    page = render_run_page(run, "")
    assert "not at its end" in page
    assert "Before and after" not in page


def test_what_comes_from_files_is_escaped(tmp_path):
    hostile = "</script><script>alert(1)</script>"
    nodes = [TREE[0], TREE[1] | {"status": hostile, "kind": hostile, "assigned_how": hostile}]
    folder = write_run(tmp_path / "run", nodes, environment=hostile)
    (folder / "manifest.json").write_text(json.dumps({hostile: {hostile: hostile}}))
    page = render_run_page(read_tuned(folder), hostile)
    assert "<script>alert" not in page


def test_gains_are_told_with_their_sign_and_diverged_nodes_are_left_out(tmp_path):
    nodes = [*TREE[:4], TREE[4] | {"score": -2.0, "calibrated": -2.0}]
    nodes.append(node(5, 1, 3, None, "frontier"))
    run = read_tuned(write_run(tmp_path / "run", nodes, scoring="rollouts"))
    page = html.unescape(render_run_page(run, ""))
    ranked = re.search(r"Nodes, best first</h2>.*?</section>", page, re.DOTALL)[0]
    names = re.findall(r'class="name">([^<]*)<tspan class="value" dx="8">([^<]*)', ranked)
    assert names == [("node 4", "+2"), ("node 3", "−2.5")]
    assert "more is better" in page
    assert "The checkpoint is at 0." in page


def test_evaluations_and_gains_do_not_share_a_picture(tmp_path):
    """The lineage of node 4 was never evaluated: it has no line beside those that were."""
    folder = write_run(tmp_path / "run", scoring="rollouts")
    rows = [played(1, 1, 100.0), played(3, 2, 104.0)]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    page = html.unescape(render_run_page(read_tuned(folder), ""))
    lines = re.search(r"Lineages</h2>.*?</section>", page, re.DOTALL)[0]
    assert re.findall(r"<title>([^<]*)</title>", lines) == ["to node 3", "checkpoint"]


def test_a_search_that_diverged_or_found_nothing_is_told_so(tmp_path):
    diverged = {"candidates": 0, "frames": 9, "handed_back": "checkpoint", "levels": 3}
    run = read_tuned(write_run(tmp_path / "one", summary=diverged))
    assert headline(run) == "CartPole-v1: all nodes diverged"
    assert "All nodes diverged" in render_run_page(run, "")
    run = read_tuned(write_run(tmp_path / "two", summary=summary(chosen=3)))
    page = render_run_page(run, "")
    assert "In no evaluation during the search a node scored more" in page
    assert page.count("chosen by rollouts") == 2  # a bar and a row, and none for the same by score
    assert "best by its score" not in page


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f: (f / "tree.jsonl").write_text(""), "no tree.jsonl yet"),
        (lambda f: (f / "summary.json").write_text("{}"), "the summary has no frames"),
        (lambda f: (f / "log.jsonl").write_text('{"step": "x"}\n'), "damaged"),
        (lambda f: (f / "tree.jsonl").unlink(), "no tree.jsonl yet"),
        (lambda f: (f / "tree.jsonl").write_text("{}\n{}\n"), "line 1 of tree.jsonl has no"),
        (lambda f: (f / "tree.jsonl").write_text("[]\n[]\n"), "line 1 of tree.jsonl"),
        (lambda f: change(f, id=2**60), "no whole number"),
        (lambda f: change(f, id=0), "same number"),
        (lambda f: change(f, level=float("inf")), "no whole number"),
        (lambda f: change(f, score=10**400), "no number"),
        (lambda f: change(f, score="3"), "no number"),
        (lambda f: (f / "summary.json").symlink_to("summary.json"), "link to itself"),
        (lambda f: (f / "tree.jsonl").write_text("x\n{}\n"), "line 1 of tree.jsonl"),
        (lambda f: (f / "config.json").write_text("{}"), "another version"),
        (lambda f: (f / "config.json").write_text("["), "not JSON"),
        (lambda f: (f / "summary.json").write_text("7"), "no JSON object"),
        (
            lambda f: (f / "tree.jsonl").write_text(json.dumps(TREE[0] | {"parent": 0}) + "\n"),
            "not below its parent",
        ),
    ],
)
def test_what_is_no_run_is_refused_in_one_sentence(tmp_path, spoil, words):
    folder = write_run(tmp_path / "run")
    spoil(folder)
    with pytest.raises(RunError, match=words):
        read_tuned(folder)


FIELDS = [("checkpoint",), ("chosen",), ("chosen_by_score",), ("best_of_evaluations",)]
FIELDS += [(*way, name) for way in FIELDS for name in ("mean", "interval", "gain", "node")]
FIELDS += [("frames",), ("seconds",), ("played_frames",), ("candidates",), ("handed_back",)]
FIELDS += [("played_again",), ("played_again", 0), ("played_again", 1, "mean")]


@pytest.mark.parametrize("value", [None, "17", [], {"a": 1}, float("inf"), 1e308, True])
def test_a_summary_with_anything_else_in_it_is_told_or_refused(tmp_path, value):
    for way in FIELDS:
        found = json.loads((REAL / "summary.json").read_text())
        found["played_again"] = [{"node": n, "mean": 1.5, "episodes": 2} for n in (1, 2)]
        part = found
        for name in way[:-1]:
            part = part[name]
        part[way[-1]] = value
        folder = write_run(tmp_path / "run", summary=found)
        with contextlib.suppress(RunError):  # and nothing else
            page = render_run_page(read_tuned(folder), "")
            assert "inf%" not in page
            assert "nan%" not in page


def test_the_page_takes_the_place_of_nothing_else(tmp_path, conqur):
    folder = write_run(tmp_path / "run")
    precious = tmp_path / "precious.txt"
    precious.write_text("precious")
    for name in ("config.json", "tree.jsonl"):
        status, _, err = conqur("report", folder, "--output", folder / name)
        assert status == 2
        assert "would overwrite" in err
    (folder / "report.html").symlink_to(precious)
    status, out, _ = conqur("report", folder)
    assert status == 0
    assert "CartPole-v1: level 3 of 100" in out
    assert precious.read_text() == "precious"
    assert (folder / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert conqur("report", precious)[2].startswith("conqur: ")


def test_a_line_that_was_cut_off_is_left_out(tmp_path):
    folder = write_run(tmp_path / "run")
    with (folder / "tree.jsonl").open("a") as file:
        file.write('{"id": 5, "par')
    assert len(read_tuned(folder).nodes) == 5
    with (folder / "tree.jsonl").open("w") as file:
        file.write("".join(json.dumps(row) + "\n" for row in TREE) + "\n\n")
    assert len(read_tuned(folder).nodes) == 5


def test_summaries_of_older_runs_can_be_told():
    summary = json.loads((REAL / "summary.json").read_text())
    summary.pop("candidates", None)
    assert "Of all nodes that were played again" in verdict(summary_of(summary))
    summary["chosen"]["gain_interval"] = [None, None]  # of a single start
    assert "interval" not in verdict(summary_of(summary))


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_in_a_browser_the_tree_answers_to_a_click(tmp_path):
    page = write_page(read_tuned(write_run(tmp_path / "run")), tmp_path / "page.html")
    probe = """<script>
      const seen = [document.getElementById("node").textContent];
      document.getElementById("n3").dispatchEvent(new MouseEvent("click", {bubbles: true}));
      seen.push(document.getElementById("node").textContent);
      seen.push(document.getElementById("details").innerText.replaceAll("\\n", "|"));
      const left = new KeyboardEvent("keydown", {key: "ArrowLeft"});
      document.getElementById("tree").dispatchEvent(left);
      seen.push(document.getElementById("node").textContent);
      document.body.innerHTML = "";
      document.body.textContent = JSON.stringify([seen, window.problems]);
    </script>"""
    watch = "<script>window.problems = []; window.onerror = (m) => problems.push(m);</script>"
    text = (
        page.read_text().replace("<head>", "<head>" + watch).replace("</body>", probe + "</body>")
    )
    page.write_text(text)
    options = ("--headless", "--no-sandbox", "--disable-gpu", "--dump-dom")
    dom = subprocess.run(
        [CHROMIUM, *options, f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    found = json.loads(html.unescape(re.search(r"<body[^>]*>(.*)</body>", dom, re.DOTALL)[1]))
    (first, clicked, details, parent), problems = found
    assert problems == []
    assert first == "Node 4, made from node 0"  # the best of the last level
    assert clicked == "Node 3, made from node 1"
    assert "score|2.5" in details
    assert "frontier" in details
    assert parent == "Node 1, made from node 0"


def test_of_what_was_not_learned_no_labels_and_losses_are_told(tmp_path):
    learned, random = (
        detail_names(read_tuned(write_run(tmp_path / f"run-{updates}", updates=updates)))
        for updates in (5, 0)
    )
    assert set(learned) - set(random) == {"labels", "Bellman error", "penalty"}
    assert [name for name in learned if name in random] == random
