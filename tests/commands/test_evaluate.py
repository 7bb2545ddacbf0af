"""`conqur evaluate`: networks of a run, measured and compared."""

import json
import shutil
import statistics

import pytest
from tiny_runs import digests, sentence


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
    assert found["network"] == {"algorithm": "dqn", "penalty_weight": 0.0, "seed": 0, "step": 160}
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
    for words in ("λ 0, seed 0", "λ 0.5, seed 1", "95 % interval"):
        assert words in out


WRONG = [
    ("--env Acrobot-v1", "chooses among 2 actions, but Acrobot-v1 has 3: name the environment"),
    ("--env MinAtar/Pong", "there is no MinAtar game 'MinAtar/Pong'"),
    ("--episodes 0", "--episodes must be a whole number of at least 1, got 0"),
    ("--frames 0", "--frames must be a whole number of at least 1, got 0"),
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
