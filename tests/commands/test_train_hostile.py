"""`conqur train` where others had their hands in: its streams, its folder, its names."""

import json
import os
import shutil
import signal
import sys
from pathlib import Path

import pytest
from tiny_runs import CARTPOLE, digests, results, sentence

from conqur import cli
from conqur.commands.train import Train
from conqur.training_run import Outcome

CODE = """
import pathlib
pathlib.Path("loaded").touch()
import gymnasium
gymnasium.register("Conqur/Own-v0", "gymnasium.envs.classic_control:CartPoleEnv")
"""


@pytest.fixture
def run_folder(cartpole, tmp_path):
    return shutil.copytree(cartpole, tmp_path / "run")


def edit(path, **changes):
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_training_ends_although_nobody_reads_its_progress(cartpole, tmp_path, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        assert cli.run(["train", *CARTPOLE, "--run-dir", str(tmp_path / "run")]) == 0
    assert results(tmp_path / "run") == results(cartpole)


def test_changed_settings_are_not_gone_on_with(conqur, run_folder):
    edit(run_folder / "config.json", learning_rate=0.1)
    before = digests(run_folder)
    status, out, err = conqur("train", "--resume", "--run-dir", run_folder, "--steps", 320)
    assert (status, out) == (1, "")
    assert err.splitlines() == [
        "conqur: config.json was changed since the last checkpoint:",
        "  --learning-rate: 0.0007 -> 0.1",
        "Put it back, or name another --run-dir.",
    ]
    assert digests(run_folder) == before | {"lock": digests(run_folder)["lock"]}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"learning_rate": "0.1"}, "config.json: learning_rate cannot be '0.1'"),
        ({"hidden": 5}, "config.json: hidden cannot be '5'"),
        ({"num_envs": 0}, "config.json: num_envs must be a whole number of at least 1, got 0"),
        ({"momentum": 0}, "config.json: settings of another version of conqur: they differ in mom"),
    ],
)
def test_impossible_settings_in_the_folder_are_said_to_be_there(conqur, run_folder, change, words):
    edit(run_folder / "config.json", **change)
    status, out, err = conqur("train", "--resume", "--run-dir", run_folder)
    assert (status, out) == (1, "")
    sentence(words, err)


def test_wrong_options_are_named_as_typed_when_a_run_goes_on(conqur, run_folder):
    status, out, err = conqur("train", "--resume", "--run-dir", run_folder, "--num-envs", 0)
    assert (status, out) == (2, "")
    sentence("conqur: --num-envs must be a whole number of at least 1, got 0", err)


def test_code_that_only_the_folder_names_is_not_run(conqur, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "conqur_own_code.py").write_text(CODE)
    name = "conqur_own_code:Conqur/Own-v0"
    assert conqur("train", name, *CARTPOLE[1:], "--run-dir", "run")[0] == 0
    del sys.modules["conqur_own_code"]
    (tmp_path / "loaded").unlink()
    before = digests(tmp_path)
    again = ("--resume", "--run-dir", "run", "--steps", 240)
    status, out, err = conqur("train", *again)
    assert (status, out) == (2, "")
    sentence(f"the run is of {name!r}, which is code to be loaded: if you trust it, name it", err)
    assert digests(tmp_path) == before | {"run/lock": digests(tmp_path)["run/lock"]}
    status, _, err = conqur("train", name, *again)
    assert status == 0, err
    assert (tmp_path / "loaded").exists()


def test_a_stopped_run_of_own_code_says_how_it_goes_on(capsys):
    train = Train(environment="jax:a.b:c")
    train._report(train._config(), Path("run"), Outcome(8, [None], signal.SIGTERM))
    told = "Go on with: conqur train jax:a.b:c --resume --run-dir run\n"
    assert capsys.readouterr().out.endswith(told)


def test_names_that_are_no_text(conqur, cartpole, tmp_path):
    folder = tmp_path / os.fsdecode(b"run-\xff")
    status, _, err = conqur("train", *CARTPOLE, "--run-dir", folder)
    assert status == 0, err
    assert results(folder) == results(cartpole)
    command = json.loads((folder / "manifest.json").read_text())["command"]
    assert command.endswith("--run-dir '.../run-?'")


def test_networks_that_were_removed_come_back(conqur, cartpole, run_folder):
    shutil.rmtree(run_folder / "networks")
    status, _, err = conqur("train", "--resume", "--run-dir", run_folder)
    assert status == 0, err
    assert results(run_folder) == results(cartpole)


def test_a_run_does_not_end_before_it_is(conqur, run_folder):
    before = digests(run_folder)
    again = ("train", "--resume", "--run-dir", run_folder, "--steps")
    for steps in (1, 156):
        status, out, err = conqur(*again, steps)
        assert (status, out) == (2, "")
        sentence(f"--steps {steps} is less than the 160 that the run has done: ask for more", err)
    assert digests(run_folder) == before | {"lock": digests(run_folder)["lock"]}
    assert conqur(*again, 157)[0] == 0  # which is rounded up to 160
