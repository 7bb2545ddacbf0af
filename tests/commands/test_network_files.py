"""Files of networks on the command line: another tool's agent in, the same kind of file out."""

import dataclasses
import json

import numpy as np
import pytest
import safetensors.numpy
from tiny_runs import sentence
from torch_by_hand import random_arrays, sb3_zip, state_dict

from conqur.pretrained import load, to_bytes


@pytest.fixture
def agent(tmp_path):
    """An agent of Stable-Baselines3 for CartPole."""
    shapes = {"q_net.0": (6, 4), "q_net.2": (2, 6)}
    both = {f"{net}.{n}": s for net in ("q_net", "q_net_target") for n, s in shapes.items()}
    path = tmp_path / "agent.zip"
    path.write_bytes(sb3_zip(state_dict(random_arrays(both))))
    return path


def test_inspect_says_what_a_file_holds(agent, conqur):
    status, out, err = conqur("inspect", agent)
    assert status == 0, err
    assert "a network of type mlp for observations 4 with 6 hidden units and 2 actions" in out
    assert "stable-baselines3 2.9.2" in out
    status, out, err = conqur("inspect", agent, "--json")
    assert status == 0, err
    found = json.loads(out)
    assert found["format"] == "sb3"
    assert found["shapes"]["head/weight"] == [6, 2]
    assert found["weights"] == 4 * 6 + 6 + 6 * 2 + 2


def test_imported_and_exported_again_a_file_is_the_same(agent, tmp_path, conqur):
    ours, theirs = tmp_path / "ours.safetensors", tmp_path / "theirs.zip"
    arguments = ("import", agent, "--env", "CartPole-v1", "--output", ours)
    assert conqur(*arguments)[0] == 0
    assert load(ours).environment == "CartPole-v1"
    assert conqur("export", ours, "--like", agent, "--output", theirs)[0] == 0
    assert theirs.read_bytes() == agent.read_bytes()


def test_a_tuned_agent_comes_back_in_its_format(agent, tmp_path, conqur):
    run = tmp_path / "run"
    arguments = ("tune", agent, "--env", "CartPole-v1", *SMALL)
    status, out, err = conqur(*arguments, "--run-dir", run)
    assert status == 0, err
    assert str(run / "networks" / "best.zip") in out
    best, ours = (load(run / "networks" / f"best.{kind}") for kind in ("zip", "safetensors"))
    assert best.format == "sb3"
    np.testing.assert_array_equal(best.head.weight, ours.head.weight)
    np.testing.assert_array_equal(
        best.regressor.body.layers[0].weight, load(agent).regressor.body.layers[0].weight
    )


SMALL = (
    *("--levels", "2", "--transitions", "40", "--nodes", "2", "--expanded", "1"),
    *("--splitting-factor", "2", "--num-envs", "2", "--rollout-episodes", "2"),
    *("--final-episodes", "4"),
)


def test_a_mapped_network_comes_back_beside_our_own(tmp_path, conqur):
    arrays = random_arrays({"a": (6, 4), "b": (2, 6)})
    path, networks = tmp_path / "mine.safetensors", tmp_path / "run" / "networks"
    safetensors.numpy.save_file(arrays, path)
    mapping = {"layers": ["a", "b"], "environment": "CartPole-v1"}
    path.with_name(path.name + ".json").write_text(json.dumps(mapping))
    assert conqur("tune", path, *SMALL, "--run-dir", tmp_path / "run", "--json")[0] == 0
    ours, theirs = load(networks / "best.safetensors"), load(networks / "best.tensors")
    assert (ours.format, theirs.format) == ("conqur", "mapped")
    np.testing.assert_array_equal(ours.head.weight, theirs.head.weight)


def test_if_all_nodes_diverge_the_checkpoint_is_handed_back(agent, tmp_path, conqur):
    diverging = ("--children", "boltzmann", "--scoring", "loss", "--units", "q")
    diverging += ("--learning-rate", "1e30", "--updates", "5", "--evaluation-episodes", "2")
    arguments = ("tune", agent, "--env", "CartPole-v1", *SMALL, *diverging)
    status, out, err = conqur(*arguments, "--run-dir", tmp_path / "run")
    assert status == 0, err
    assert "All nodes diverged: the checkpoint itself is handed back" in out
    best = (tmp_path / "run" / "networks" / "best.zip").read_bytes()
    assert best == agent.read_bytes()


@pytest.mark.parametrize("command", ["tune", "diagnose", "evaluate"])
def test_code_that_a_file_names_is_not_loaded(tmp_path, monkeypatch, conqur, agent, command):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "evil.py").write_text("open('touched', 'w').close()")
    for environment in ("jax:evil:x", "evil:CartPole-v1"):
        network = dataclasses.replace(load(agent), environment=environment)
        (tmp_path / "evil.safetensors").write_bytes(to_bytes(network))
        status, _, err = conqur(command, "evil.safetensors")
        assert status != 0
        sentence("which is code to be loaded: if you trust it, name it with --env", err)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("import", "agent.zip", "--output", "agent.zip"),
        ("export", "agent.zip", "--like", "copy.zip", "--output", "copy.zip"),
        ("diagnose", "agent.zip", "--env", "CartPole-v1", "--output", "agent.zip"),
        ("diagnose", "run", "--output", "run/networks/best.safetensors"),
    ],
)
def test_what_is_read_is_not_overwritten(agent, tmp_path, monkeypatch, conqur, arguments):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copy.zip").write_bytes(agent.read_bytes())
    (tmp_path / "run" / "networks").mkdir(parents=True)
    (tmp_path / "run" / "networks" / "best.safetensors").write_bytes(to_bytes(load(agent)))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*") if path.is_file()}
    status, _, err = conqur(*arguments)
    assert status == 2
    sentence("would overwrite what is read: name another file", err)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("import", "agent.zip", "--preprocessing", "sb3", "--output", "x"), "is for pictures"),
        (("inspect", "."), "it is a folder"),
        (("tune", "agent.zip", "--env", "CartPole-v1", "--num-envs", "1e9"), "at most 10,000"),
        (("tune", "agent.zip", "--env", "CartPole-v1", "--updates", "1e99"), "below 2³¹"),
        (("tune", "agent.zip", "--env", "CartPole-v1", "--proximal", "1e300"), "at most 1e+30"),
        (("evaluate", "agent.zip"), "does not say what it was trained on: name it with --env"),
        (("tune", "agent.zip"), "does not say what it was trained on: name it with --env"),
        (("diagnose", "agent.zip"), "does not say what it was trained on: name it with --env"),
        (("tune", "agent.zip", "--env", "Acrobot-v1"), "chooses among 2 actions"),
        (("inspect", "nothing.zip"), "there is no file nothing.zip"),
        (("inspect", "notes.txt"), "notes.txt is in none of the formats that conqur reads"),
        (("import", "agent.zip", "--output", "no/x"), "--output no/x: there is no folder no"),
        (("import", "agent.zip", "--preprocessing", "p", "--output", "x"), "no preprocessing 'p'"),
        (("export", "agent.zip", "--like", "notes.txt", "--output", "x"), "none of the formats"),
    ],
)
def test_bad_input_is_one_sentence(agent, tmp_path, monkeypatch, conqur, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes.txt").write_text("nothing")
    status, out, err = conqur(*arguments)
    assert (status != 0, out) == (True, "")
    sentence(words, err)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["agent.zip", "notes.txt"]
