"""`conqur train`: what it writes and says, and that nothing of it is lost."""

import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys

import equinox as eqx
import gymnasium
import numpy as np
import pytest
from tiny_runs import CARTPOLE, MINATAR, digests, results, sentence

from conqur import training_run
from conqur.cli import parse, whole_number
from conqur.commands.train import SETTINGS, Train
from conqur.config import PRESETS, default_preset
from conqur.environments.atari import PREPROCESSING
from conqur.environments.data import FixedData, load_data, save_data
from conqur.environments.gymnasium_env import GymnasiumEnvironment
from conqur.runs import RunDirectory
from conqur.training import HostTrainer


@pytest.fixture
def interrupted(monkeypatch):
    """Sends this process a signal in the middle of a step of training."""
    real = HostTrainer.step

    def at(time, number):
        def step(self, members, now, end):
            if now == time:
                signal.raise_signal(number)
            return real(self, members, now, end)

        monkeypatch.setattr(HostTrainer, "step", step)

    return at


def test_json_is_one_object_and_agrees_with_the_log(conqur, tmp_path):
    folder = tmp_path / "run"
    arguments = ("train", *CARTPOLE, "--seed", 3, "--seeds", 2, "--json", "--run-dir", folder)
    status, out, err = conqur(*arguments)
    assert status == 0, err
    assert out.count("\n") == 1
    found = json.loads(out)
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [(row["step"], row["seed"]) for row in rows] == [(80, 3), (80, 4), (160, 3), (160, 4)]
    assert found == {
        "finished": True,
        "members": [
            {"penalty_weight": 0.0, "seed": row["seed"], "return": row["return"]}
            for row in rows[2:]
        ],
        "run_dir": str(folder),
        "step": 160,
    }
    assert {path.name for path in (folder / "networks").iterdir()} == {
        "weight-0-seed-3.safetensors",
        "weight-0-seed-4.safetensors",
    }
    assert f"Next: conqur evaluate {folder}" in err
    before = digests(folder)
    status, out, _ = conqur("train", "--resume", "--run-dir", folder, "--json")
    assert (status, json.loads(out)) == (0, found)
    assert digests(folder) == before | {"lock": digests(folder)["lock"]}


def test_the_folder_is_free_and_named_after_the_run(conqur, cartpole, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "CartPole-v1").mkdir()  # the name of an environment, nevertheless
    there = "runs/CartPole-v1-dqn"
    notes = {
        "CartPole-v1-dqn": [],
        "CartPole-v1-dqn-2": [
            f"{there} exists (step 160; to go on: conqur train --resume --run-dir {there}); "
            f"writing to {there}-2"
        ],
    }
    for name, note in notes.items():
        status, out, err = conqur("train", *CARTPOLE)
        assert status == 0, err
        assert err.splitlines()[: len(note) + 1] == [
            *note,
            "DQN on CartPole-v1: one network (λ 0; seed 0), 160 steps each, preset control, on "
            f"cpu, in runs/{name}",
        ]
        assert out.startswith(f"Trained 160 steps. Networks: runs/{name}/networks.")
        assert "step 160 of 160" in err
        assert results(tmp_path / "runs" / name) == results(cartpole)


def test_a_name_that_two_games_have_is_told_apart(capsys):
    for typed, other in (("Breakout", "; MinAtar's is MinAtar/Breakout"), ("Pong", "")):
        command = parse(["train", typed])
        command._say_which_game(command._config())
        told = capsys.readouterr().err
        assert told == (f"{typed} is ALE/{typed}-v5 here{other}.\n" if other else "")


def test_it_says_what_it_is_about_to_do(conqur, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = training_run.Outcome(160, [None] * 4, None)
    monkeypatch.setattr(training_run, "run_training", lambda *run, **options: done)
    (tmp_path / "runs" / "MinAtar-Breakout-ddqn").mkdir(parents=True)  # no run
    several = ("--algorithm", "ddqn", "--seeds", 2, "--penalty-weight", 0, 0.5)
    err = conqur("train", *MINATAR, *several)[2]
    updates = 160 - 40  # of λ t/(t + 2·10⁶)
    words = f"4 networks (λ 0, 0.5, annealed from 0 to {0.5 * updates / 2e6:.1g}; "
    words += "2 seeds), 160 steps each, preset minatar, on cpu, in "
    means = "; return and loss are means over the networks"
    folder = "runs/MinAtar-Breakout-ddqn-2"
    assert err.splitlines()[:2] == [
        f"runs/MinAtar-Breakout-ddqn exists; writing to {folder}",
        f"DDQN on MinAtar/Breakout: {words}{folder}{means}",
    ]
    again = words.replace("preset minatar", "settings of the run")
    err = conqur("train", "--resume", "--run-dir", folder)[2]
    assert f"DDQN on MinAtar/Breakout: {again}{folder}{means}" in err.splitlines()


def test_an_atari_game_without_its_version_is_the_same_run():
    for name, full in (("ALE/Pong", "ALE/Pong-v5"), ("space_invaders", "ALE/SpaceInvaders-v5")):
        assert Train(environment=name)._config() == Train(environment=full)._config()
    kept = "PongNoFrameskip-v4"
    assert Train(environment=kept)._config().environment == kept


def test_progress_knows_when_learning_starts(conqur, played, tmp_path, monkeypatch):
    told = []

    def noted(total, **options):
        told.append(options["learning_starts"])
        return conqur_progress(total, **options)

    conqur_progress = training_run.progress
    monkeypatch.setattr(training_run, "progress", noted)
    assert conqur("train", *CARTPOLE, "--run-dir", tmp_path / "a")[0] == 0
    few = ("--batch-size", "8", "--steps", "64", "--log-every", "64", "--learning-starts", "400")
    assert conqur("train", played, *few, "--run-dir", tmp_path / "b")[0] == 0
    assert told == [40, 0]  # on a data set, at once


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
@pytest.mark.parametrize("time", [0, 17])
def test_signals_save_and_the_run_goes_on_as_told(
    conqur, cartpole, interrupted, tmp_path, number, status, time
):
    folder = tmp_path / "a run"
    handlers = [signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGINT)]
    interrupted(time, number)
    found, out, _ = conqur("train", *CARTPOLE, "--run-dir", folder)
    assert found == status
    stopped = re.fullmatch(r"Stopped at step (\d+); all is saved. Go on with: (.*)\n", out)
    assert stopped is not None, out
    assert int(stopped[1]) == 4 * (time + 1)
    assert [signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGINT)] == handlers
    interrupted(None, number)
    status, out, err = conqur(*shlex.split(stopped[2])[1:])
    assert status == 0, err
    assert results(folder) == results(cartpole)


def test_a_second_ctrl_c_says_what_was_saved(conqur, tmp_path, monkeypatch):
    real = HostTrainer.step

    def step(self, members, time, end):
        if time == 10:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return real(self, members, time, end)

    monkeypatch.setattr(HostTrainer, "step", step)
    status, _, err = conqur("train", *CARTPOLE, "--run-dir", tmp_path / "run")
    assert status == 130
    assert "Nothing was saved yet. Begin again in its folder with: conqur train --resume" in (
        " ".join(err.split())
    )


def test_a_signal_at_the_very_end_does_no_harm(conqur, cartpole, tmp_path, monkeypatch):
    real = RunDirectory.save

    def save(self, *arguments, **options):
        signal.raise_signal(signal.SIGINT)
        real(self, *arguments, **options)

    monkeypatch.setattr(RunDirectory, "save", save)
    status, out, _ = conqur("train", *CARTPOLE, "--run-dir", tmp_path / "run")
    assert (status, out.partition(".")[0]) == (0, "Trained 160 steps")
    assert results(tmp_path / "run") == results(cartpole)


def test_a_stopped_run_says_so_in_json(conqur, interrupted, tmp_path):
    interrupted(30, signal.SIGTERM)
    status, out, err = conqur("train", *CARTPOLE, "--run-dir", tmp_path / "run", "--json")
    assert status == 143
    found = json.loads(out)
    assert (found["finished"], found["step"]) == (False, 124)
    assert found["members"][0]["return"] is not None  # of step 80
    assert "Go on with: " in err


@pytest.mark.parametrize("kind", [CARTPOLE, MINATAR], ids=["host", "compiled"])
def test_steps_are_those_asked_for_and_may_be_raised(conqur, tmp_path, kind):
    """Also where the first ones end between two rows of the log."""
    whole, folder = tmp_path / "whole", tmp_path / "run"
    few = ("--update-every", "64")  # so that looks at the network are far apart
    assert conqur("train", *kind, *few, "--steps", 320, "--run-dir", whole)[0] == 0
    status, out, _ = conqur("train", *kind, *few, "--steps", 100, "--run-dir", folder)
    assert (status, out.partition(".")[0]) == (0, "Trained 100 steps")
    assert logged_steps(folder) == [80]
    again = (*kind, *few, "--resume", "--run-dir", folder)
    status, out, err = conqur("train", *again, "--steps", 320)
    assert (status, out.partition(".")[0]) == (0, "Trained 320 steps"), err
    assert logged_steps(folder) == [80, 160, 240, 320]
    assert results(folder) == results(whole)
    assert json.loads((folder / "config.json").read_text())["steps"] == 320
    status, _, err = conqur("train", "--resume", "--run-dir", folder)
    assert "The run has all its steps: --steps with a larger number goes on." in err
    assert results(folder) == results(whole)


def logged_steps(folder):
    return [json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()]


def test_other_options_may_not_be_changed(conqur, cartpole):
    before = digests(cartpole)
    status, out, err = conqur(
        *("train", "CartPole-v0", "--resume", "--run-dir", cartpole),
        *("--learning-rate", "0.001", "--penalty-weight", "0", "0.5", "--steps", "9999"),
    )
    assert (status, out) == (1, "")
    assert err.splitlines() == [
        "conqur: the run was started with another configuration:",
        '  ENV: "CartPole-v1" -> "CartPole-v0"',
        "  --learning-rate: 0.0007 -> 0.001",
        "  --penalty-weight: [0.0] -> [0.0,0.5]",
        "Give --resume the options it was started with, or name another --run-dir.",
    ]
    assert digests(cartpole) == before | {"lock": digests(cartpole)["lock"]}


def test_a_run_is_of_one_process(conqur, cartpole):
    with RunDirectory.open(cartpole):
        before = digests(cartpole)
        status, _, err = conqur("train", "--resume", "--run-dir", cartpole)
        assert status == 1
        sentence(f"{cartpole} is in use by process {os.getpid()}; wait", err)
        assert digests(cartpole) == before
    status, _, err = conqur("train", *CARTPOLE, "--run-dir", cartpole)
    assert status == 1
    sentence(f"{cartpole} is not empty; continue the run in it with --resume", err)


DIVERGING = ("--optimizer", "adam", "--learning-rate", "1e20", "--loss", "squared")


def test_a_diverging_run_keeps_its_last_good_checkpoint(conqur, tmp_path):
    folder = tmp_path / "run"
    often = ("--save-every", "1e-9")
    status, out, err = conqur("train", *CARTPOLE, *DIVERGING, *often, "--run-dir", folder)
    assert (status, out) == (1, "")
    # Learning starts with step 40: the first update makes weights of 1e20.
    assert (
        "conqur: training diverged before step 44: a network's weights are out of all bounds; the "
        "last good checkpoint, of step 40, is as it was; try a lower --learning-rate\n"
    ) in err
    with RunDirectory.open(folder) as run:
        checkpoint = run.load()
    assert checkpoint.step == 40
    assert checkpoint.arrays["members/agent/updates"] == 0
    assert np.abs(checkpoint.arrays["members/agent/theta/head/weight"]).max() < 1  # as drawn


def test_a_diverging_run_stops_at_the_next_row_of_the_log(conqur, tmp_path):
    folder = tmp_path / "run"
    status, _, err = conqur("train", *CARTPOLE, *DIVERGING, "--run-dir", folder)
    assert status == 1
    last = err.splitlines()[-1]
    assert last.startswith("conqur: training diverged before step 80 (seed 0, penalty weight 0: ")
    assert last.endswith("; there is no checkpoint yet; try a lower --learning-rate")
    assert list((folder / "networks").iterdir()) == []
    assert (folder / "log.jsonl").read_bytes() == b""


@pytest.fixture
def half_way(conqur, interrupted, tmp_path):
    """A run that was stopped at step 84, with a checkpoint of every step before."""
    interrupted(20, signal.SIGTERM)
    arguments = ("train", *CARTPOLE, "--save-every", "1e-9", "--run-dir", tmp_path / "run")
    assert conqur(*arguments)[0] == 143
    interrupted(None, signal.SIGTERM)
    return tmp_path / "run"


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("damage", [truncate, flip])
def test_a_damaged_checkpoint_costs_a_line_and_no_result(conqur, cartpole, half_way, damage):
    damage(next((half_way / "checkpoints").glob("state-*84-*")))
    status, _, err = conqur("train", "--resume", "--run-dir", half_way, "--json")
    assert status == 0
    (line,) = [line for line in err.splitlines() if line.startswith("conqur: ")]
    assert line.startswith("conqur: checkpoint 84 is damaged (state-")
    assert line.endswith("), using 80")
    assert results(half_way) == results(cartpole)


def test_a_full_disk_costs_nothing_that_was_saved(conqur, cartpole, half_way):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))  # the state is a megabyte
    try:
        status, out, err = conqur("train", "--resume", "--run-dir", half_way, "--json")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (status, out) == (1, "")
    sentence(f"no space left in {half_way}; the last good checkpoint is step 84; free space", err)
    with RunDirectory.open(half_way) as run:
        assert run.load().step == 84
    assert conqur("train", "--resume", "--run-dir", half_way)[0] == 0
    assert results(half_way) == results(cartpole)


class Unsuited(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Dict({"x": gymnasium.spaces.Box(0, 1, (3,))})


gymnasium.register("Unsuited-v0", Unsuited)

WRONG = [
    ("", "name what to learn: conqur train ENV"),
    ("NoSuch/Env-v0", "there is no environment 'NoSuch/Env-v0'; known are"),
    ("CartPole-v9", "(nearest: CartPole-v1"),
    ("MinAtar/Pong", "there is no MinAtar game 'MinAtar/Pong'; there are MinAtar/Asterix"),
    ("Pendulum-v1", "Pendulum-v1 has actions Box(-2.0, 2.0, (1,), float32)"),
    ("Unsuited-v0", "Unsuited-v0 has Dict observations, but they have to be a Box"),
    ("nothing.npz", "there is no file nothing.npz"),
    ("CartPole-v1 --seeds 0", "--seeds must be between 1 and 10,000, got 0"),
    ("CartPole-v1 --seeds 99999999", "--seeds must be between 1 and 10,000"),
    ("CartPole-v1 --seed 99999999999", "--seed must be below 2³¹, got 99999999999"),
    ("CartPole-v1 --seed -1", "--seed must be a whole number of at least 0, got -1"),
    ("CartPole-v1 --num-envs 3 --update-every 4", "or a divisor of --update-every (4)"),
    ("CartPole-v1 --num-envs 0", "--num-envs must be a whole number of at least 1, got 0"),
    ("CartPole-v1 --num-envs 1000000", "must be at least three times --num-envs (1000000)"),
    ("CartPole-v1 --penalty-weight -1", "--penalty-weight must be a number of at least 0"),
    ("CartPole-v1 --penalty-weight nan", "--penalty-weight must be a number of at least 0"),
    ("CartPole-v1 --penalty-weight 1 1", "--penalty-weight and seeds must not repeat a value"),
    ("CartPole-v1 --steps 0", "--steps must be a whole number of at least 1, got 0"),
    ("CartPole-v1 --steps 3000000000", "--steps must be below 2³¹, got 3000000000"),
    ("CartPole-v1 --replay-size 10 --num-envs 4", "must be at most --replay-size (10)"),
    ("CartPole-v1 --replay-size 2000 --batch-size 2001", "--batch-size (2001) must be at most"),
    (
        "CartPole-v1 --replay-size 2000 --learning-starts 2001",
        "--learning-starts (2001) must be at",
    ),
    (
        "CartPole-v1 --replay-size 2000000000 --seeds 50 --num-envs 1",
        "--replay-size 2,000,000,000 takes 1,600.0 GB",
    ),
    ("CartPole-v1 --replay-size 2147483648", "--replay-size must be below 2³¹, got 2147483648"),
    ("CartPole-v1 --target-every 2147483648", "--target-every must be below 2³¹, got 2147483648"),
    ("CartPole-v1 --learning-rate 0", "--learning-rate must be a number above 0, got 0.0"),
    ("CartPole-v1 --learning-rate inf", "--learning-rate must be a number above 0, got inf"),
    ("CartPole-v1 --discount 1.5", "--discount must be a number of at least 0 and of at most 1"),
    ("CartPole-v1 --save-every 0", "--save-every must be above 0 seconds, got 0"),
    ("CartPole-v1 --save-every nan", "--save-every must be above 0 seconds, got nan"),
    ("CartPole-v1 --steps x", "--steps must be a whole number, got 'x'"),
    ("CartPole-v1 --algorithm sarsa", "--algorithm must be one of ddqn, dqn, got 'sarsa'"),
    ("CartPole-v1 --preprocessing nature", "--preprocessing is for Atari games"),
    ("CartPole-v1 --preset nature", "the --preset's network nature is not for CartPole-v1"),
    ("MinAtar/Breakout --preset nature", "are too small for a nature body"),
    ("CartPole-v1 --run-dir /proc/nowhere", "--run-dir /proc/nowhere cannot be made: No such"),
    ("CartPole-v1 --run-dir /dev/null", "/dev/null is no folder; name another --run-dir"),
    ("CartPole-v1 --resume", "--resume needs --run-dir"),
    ("--resume --run-dir nowhere", "there is no run in nowhere; leave out --resume to start"),
    ("--resume --run-dir nowhere --preset nature", "leave out --preset with --resume"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=[case[0] for case in WRONG])
def test_wrong_use_is_one_sentence_and_writes_nothing(
    conqur, tmp_path, monkeypatch, arguments, words
):
    monkeypatch.chdir(tmp_path)
    status, out, err = conqur("train", *arguments.split())
    assert status in (1, 2)
    assert out == ""
    sentence(words, err)
    assert "_" not in err  # options are named as they are typed
    assert "None" not in err
    assert list(tmp_path.iterdir()) == []


MISSING = """
import sys
from conqur import cli
for module, environment in (
    ("ale_py", "ALE/Pong-v5"), ("pgx", "MinAtar/Breakout"), ("Box2D", "LunarLander-v3")
):
    sys.modules[module] = None
    print(cli.run(["train", environment]))
"""


def test_missing_extras_are_named(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", MISSING], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert done.stdout == "1\n1\n1\n"
    assert done.stderr.splitlines() == [
        "conqur: ALE/Pong-v5 needs ale-py: pip install 'conqur[atari]'",
        "conqur: MinAtar/Breakout needs pgx: pip install 'conqur[minatar]'",
        "conqur: LunarLander-v3 needs Box2D: pip install 'conqur[box2d]'",
    ]
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_which_nothing_is_learned_says_so(conqur, tmp_path):
    folder = tmp_path / "run"
    _, _, err = conqur("train", *CARTPOLE, "--steps", 40, "--run-dir", folder, "--json")
    assert err.splitlines()[:2] == [
        "conqur: nothing will be learned: --steps (40) ends before --learning-starts (40)",
        "conqur: nothing will be logged: --steps (40) ends before --log-every (80)",
    ]


@pytest.fixture
def played(tmp_path):
    """A data set of random play in CartPole."""
    random = np.random.default_rng(0)
    environment = GymnasiumEnvironment("CartPole-v1", 8)
    frames, rows = environment.reset(list(range(8))), []
    for _ in range(40):
        actions = random.integers(2, size=8)
        environment.send(actions)
        step = environment.receive()
        rows += [
            (frames[i], actions[i], step.reward[i], step.frame[i], step.terminal[i])
            for i in range(8)
            if not step.reset[i]
        ]
        frames = step.frame
    environment.close()
    data = FixedData(*(np.stack(column) for column in zip(*rows, strict=True)))
    save_data(tmp_path / "played.npz", data)
    return tmp_path / "played.npz"


def test_training_on_a_data_set(conqur, played, tmp_path):
    few = ("--batch-size", "8", "--log-every", "128", "--penalty-weight", "0.5")
    whole, parted = tmp_path / "whole", tmp_path / "parted"
    assert conqur("train", played, *few, "--steps", 256, "--run-dir", whole)[0] == 0
    assert conqur("train", played, *few, "--steps", 128, "--run-dir", parted)[0] == 0
    status, _, err = conqur("train", "--resume", "--steps", 256, "--run-dir", parted)
    assert status == 0, err
    assert results(whole) == results(parted)
    rows = [json.loads(line) for line in (whole / "log.jsonl").read_text().splitlines()]
    assert [row["updates"] for row in rows] == [128, 256]
    assert rows[1]["loss"] > 0
    status, _, err = conqur("evaluate", whole, "--episodes", 4)
    assert status == 1
    sentence(f"{played} is a data set: name the environment to play in with --env", err)
    status, out, err = conqur(
        *("evaluate", whole, "--env", "CartPole-v1", "--episodes", 4, "--json")
    )
    assert status == 0, err
    assert len(json.loads(out)["episodes"]) == 4


def test_on_a_data_set_learning_starts_at_once(conqur, played, tmp_path):
    folder = tmp_path / "run"
    few = ("--batch-size", "8", "--log-every", "320", "--steps", "320", "--learning-starts", "400")
    status, _, err = conqur("train", played, *few, "--run-dir", folder, "--json")
    assert (status, err.count("\n")) == (0, 1), err  # no warning
    (row,) = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert row["updates"] == 320
    assert row["q_mean"] is not None


def test_a_run_goes_on_with_its_own_data_only(conqur, played, tmp_path):
    folder, data = tmp_path / "run", load_data(played)
    few = ("--batch-size", "8", "--steps", "128", "--log-every", "128")
    assert conqur("train", played, *few, "--run-dir", folder)[0] == 0
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["data"] == data.digest()
    before = digests(folder)
    save_data(played, eqx.tree_at(lambda data: data.rewards, data, data.rewards.at[5].add(1)))
    status, out, err = conqur("train", "--resume", "--steps", 256, "--run-dir", folder)
    assert (status, out) == (1, "")
    sentence(f"the data is not that which the run in {folder} was started with", err)
    assert digests(folder) == before
    save_data(played, data)
    status, _, err = conqur("train", "--resume", "--steps", 256, "--run-dir", folder)
    assert status == 0, err


def test_the_help_has_the_presets_values():
    table = re.search(r"^ *(Presets .*?)\n\n", Train.__doc__, re.DOTALL | re.MULTILINE)[1]
    head, *rows = (re.split(r"  +", line.strip()) for line in table.splitlines())
    assert head == ["Presets", "tf-agents, dopamine", "nature", "minatar", "control"]
    shown = {row[0].replace("-", "_"): row[1:] for row in rows}
    assert set(shown) == set(SETTINGS) - {"environment", "algorithm"}
    assert PRESETS["dopamine"] == PRESETS["tf-agents"] | {"network": "nature-same"}
    for column, preset in enumerate(("tf-agents", "nature", "minatar", "control")):
        for name, cells in shown.items():
            value = PRESETS[preset][name]
            if isinstance(value, int):
                assert whole_number(cells[column]) == value, (preset, name)
            elif isinstance(value, float):
                assert float(cells[column]) == value, (preset, name)
            elif cells[column] == "-":
                default = {"minatar": "MinAtar/Breakout", "control": "CartPole-v1"}[preset]
                assert default_preset(default) == (preset, {name: ""})
            else:
                assert cells[column] == value, (preset, name)


def test_the_help_names_every_preset_and_preprocessing(conqur):
    status, out, _ = conqur("train", "--help")
    assert status == 0
    for name in (*PRESETS, *PREPROCESSING):
        assert re.search(rf"\b{name}\b", out), name
    assert "None" not in out
