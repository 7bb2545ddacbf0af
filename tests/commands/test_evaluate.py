"""`conqur evaluate`: networks of a run, measured and compared."""

import dataclasses
import json
import os
import re
import shutil
import statistics
from pathlib import Path

import pytest
import scipy.stats
from tiny_runs import digests, sentence

from conqur.commands.evaluate import Evaluate
from conqur.evaluation import Evaluation
from conqur.pretrained import load, to_bytes


def test_one_network(conqur, cartpole):
    arguments = ("evaluate", cartpole, "--episodes", 6, "--seed", 5, "--json")
    status, out, err = conqur(*arguments)
    assert status == 0, err
    assert out.count("\n") == 1
    found = json.loads(out)
    scores = found["episodes"]
    assert len(scores) == 6
    assert found["mean"] == pytest.approx(statistics.mean(scores))
    assert found["median"] == pytest.approx(statistics.median(scores))
    assert min(scores) <= found["interval"][0] <= found["interval"][1] <= max(scores)
    about = {"algorithm": "dqn", "discount": 0.99, "penalty_weight": 0.0, "seed": 0, "step": 160}
    assert found["network"] == about
    assert (found["environment"], found["epsilon"], found["seed"]) == ("CartPole-v1", 0.001, 5)
    assert (found["sticky"], found["preprocessing"]) == (None, None)
    assert found["human_normalised"] is None
    assert conqur(*arguments)[1] == out
    (network,) = (cartpole / "networks").iterdir()
    assert conqur("evaluate", network, *arguments[2:])[1] == out


def test_several_networks_play_the_same_starts(conqur, minatar, tmp_path):
    status, out, err = conqur("evaluate", minatar, "--episodes", 3, "--json")
    assert status == 0, err
    rows = json.loads(out)["networks"]
    names = [(row["network"]["penalty_weight"], row["network"]["seed"]) for row in rows]
    assert names == [(0.0, 0), (0.0, 1), (0.5, 0), (0.5, 1)]
    assert all(len(row["episodes"]) == 3 for row in rows)
    # Together or alone, a network scores the same; a copy of it scores what it does.
    networks = sorted((minatar / "networks").iterdir())
    for name in ("a", "b"):
        shutil.copy(networks[1], tmp_path / f"{name}.safetensors")
    copies = json.loads(conqur("evaluate", tmp_path, "--episodes", 3, "--json")[1])["networks"]
    assert copies[0] == copies[1] == rows[1]


def test_the_table_names_the_networks(conqur, minatar):
    status, out, _ = conqur("evaluate", minatar, "--episodes", 2)
    assert status == 0
    assert "Scores in MinAtar/Breakout" in out
    for words in ("λ 0, seed 0", "λ 0.5, seed 1", "95 % interval", "over episodes"):
        assert words in out


def row(weight, seed, mean):
    network = {"algorithm": "dqn", "penalty_weight": weight, "seed": seed}
    evaluation = Evaluation((mean, mean), (1, 1), 2)
    return {"network": network, **evaluation.to_json()}


def test_seeds_are_summed_up_by_penalty_weight(capsys, monkeypatch):
    """Against SciPy's own intervals."""
    monkeypatch.setenv("COLUMNS", "120")
    scores = {0.5: [4.0, 7.5, 5.0], 0.0: [3.0, 2.0], 2.0: [9.0]}
    rows = [row(weight, i, x) for weight, found in scores.items() for i, x in enumerate(found)]
    Evaluate(Path())._show("CartPole-v1", rows, [Path()] * len(rows))
    _, _, table = capsys.readouterr().out.partition("Over seeds")
    cells = [re.findall(r"[-+.\w]+", line) for line in table.splitlines() if "│" in line]
    plain, penalised, single = [[float(x) for x in line if x != "to"] for line in cells]
    for line, weight in ((plain, 0.0), (penalised, 0.5)):
        found = scores[weight]
        mean = statistics.mean(found)
        bounds = scipy.stats.t.interval(0.95, len(found) - 1, mean, scipy.stats.sem(found))
        assert line[:5] == pytest.approx([weight, len(found), mean, *bounds], abs=0.006)
    assert len(plain) == 5
    bounds = scipy.stats.ttest_ind(scores[0.5], scores[0.0], equal_var=False).confidence_interval()
    assert penalised[5:] == pytest.approx([3.0, *bounds], abs=0.006)
    assert single == [2, 1, 9, 6.5]  # one seed has no interval


def test_scores_are_kept_for_the_report_of_a_run(conqur, minatar, tmp_path):
    run = shutil.copytree(minatar, tmp_path / "run")
    assert "Over seeds" in conqur("evaluate", run, "--episodes", 2)[1]
    assert not (run / "evaluation.json").exists()
    _, out, err = conqur("evaluate", run, "--episodes", 2, "--keep", "--json")
    assert f"Next: conqur report {run}" in " ".join(err.split())
    assert (run / "evaluation.json").read_text() == out
    assert conqur("report", run)[0] == 0
    missing = "No score is of fresh episodes yet"
    assert missing not in (run / "report.html").read_text()
    with (run / "log.jsonl").open("a") as log:  # it went on
        last = json.loads((run / "log.jsonl").read_text().splitlines()[-1])
        log.write(json.dumps(last | {"step": 240}) + "\n")
    assert conqur("report", run)[0] == 0
    assert missing in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--epsilon", 0.5), "--keep is for scores by the rules"),
        (("--env", "CartPole-v0"), "in the environment of the run's training"),
        ((), "--keep is for a run that is at its end"),
    ],
)
def test_what_a_report_would_take_for_something_else_is_not_kept(
    conqur, cartpole, tmp_path, options, words
):
    run = shutil.copytree(cartpole, tmp_path / "run")
    settings = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(settings | {"steps": 9999}))
    status, _, err = conqur("evaluate", run, "--episodes", 2, "--keep", *options)
    assert status == 2
    assert words in err
    assert not (run / "evaluation.json").exists()


def test_scores_are_kept_of_training_runs_only(conqur, cartpole, tmp_path):
    (network,) = (cartpole / "networks").iterdir()
    shutil.copytree(cartpole / "networks", tmp_path / "networks")
    for path in (network, tmp_path / "networks"):
        status, _, err = conqur("evaluate", path, "--keep")
        assert (status, err.count("--keep is for the folder of a `conqur train` run")) == (2, 1)
    run = shutil.copytree(cartpole, tmp_path / "run")
    (run / "evaluation.json").mkdir()
    status, out, err = conqur("evaluate", run, "--episodes", 2, "--keep")
    assert status == 1
    assert "λ 0, seed 0" in out  # shown, though they cannot be kept
    assert len(err.strip().splitlines()[-1]) < 200


def test_copies_of_a_network_are_no_seeds(conqur, cartpole, tmp_path):
    (network,) = (cartpole / "networks").iterdir()
    for name in ("a", "b"):
        shutil.copy(network, tmp_path / f"{name}.safetensors")
    status, out, _ = conqur("evaluate", tmp_path, "--episodes", 2)
    assert status == 0
    assert "│ a " in out  # their files tell them apart
    assert "│ b " in out
    assert "Over seeds" not in out
    assert "Next" not in out  # there is no log


def test_the_same_progress_is_not_said_twice(conqur, cartpole):
    lines = conqur("evaluate", cartpole, "--episodes", 3, "--epsilon", 1)[2].splitlines()
    assert lines == list(dict.fromkeys(lines))
    assert lines[-1] == "played 100%"


WRONG = [
    ("--env Acrobot-v1", "chooses among 2 actions, but Acrobot-v1 has 3: it was trained on"),
    ("--env MinAtar/Pong", "there is no MinAtar game 'MinAtar/Pong'"),
    ("--episodes 0", "--episodes must be a whole number of at least 1, got 0"),
    ("--frames 0", "--frames must be a whole number of at least 1, got 0"),
    ("--frames 2147483648", "--frames must be below 2³¹, got 2147483648"),
    ("--episodes 2147483648", "--episodes must be below 2³¹, got 2147483648"),
    ("--epsilon 2", "--epsilon must be a number of at least 0 and of at most 1, got 2.0"),
    ("--epsilon x", "--epsilon must be a number, got 'x'"),
    ("--seed -1", "--seed must be a whole number of at least 0, got -1"),
    ("--sticky 0.25", "--sticky and --preprocessing are for Atari games, and CartPole-v1 is none"),
    ("--env ALE/Pong-v5 --sticky 1.5", "--sticky must be a number of at least 0 and below 1"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=[case[0] for case in WRONG])
def test_wrong_use_is_one_sentence(conqur, cartpole, arguments, words):
    before = digests(cartpole)
    status, out, err = conqur("evaluate", cartpole, *arguments.split())
    assert status in (1, 2)
    assert out == ""
    sentence(words, err)
    assert digests(cartpole) == before


def test_no_networks(conqur, tmp_path):
    for path, words in (
        (tmp_path / "nothing", f"there is no file or run {tmp_path / 'nothing'}"),
        (tmp_path, f"{tmp_path} holds no networks (yet)"),
        ("/dev/zero", "/dev/zero is no regular file"),
    ):
        status, out, err = conqur("evaluate", path)
        assert (status, out) == (1, "")
        sentence(words, err)


def test_pipes_among_the_networks_are_not_waited_for(conqur, cartpole, tmp_path):
    folder = shutil.copytree(cartpole / "networks", tmp_path / "networks")
    os.mkfifo(folder / "a.safetensors")
    status, out, err = conqur("evaluate", tmp_path)
    assert (status, out) == (1, "")
    sentence(f"{folder / 'a.safetensors'} cannot be read: it is no regular file", err)


def test_what_a_file_says_does_nothing_to_a_terminal(conqur, cartpole, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    (path,) = (cartpole / "networks").iterdir()
    origin = {"penalty_weight": "[bold]0\x1b[2J[/nothing]", "seed": "\n1\x9b2J"}
    network = dataclasses.replace(load(path), origin=origin)
    (tmp_path / "a.safetensors").write_bytes(to_bytes(network))
    status, out, err = conqur("evaluate", tmp_path, "--episodes", 1)
    assert status == 0, err
    assert "λ [bold]0[2J[/nothing], seed 12J" in out
    assert not {"\x1b", "\x9b"} & set(out)
