"""Training runs survive: killed, stopped and resumed, they end as if they had not been."""

import gc
import json
import re
import shutil
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import safetensors.numpy
import torture
from tiny_runs import CARTPOLE, cartpole, conqur, results  # noqa: F401

from conqur import _memory, cli, training_run
from conqur.config import default_preset, train_config
from conqur.environments import Spec
from conqur.runs import RunDirectory, RunError
from conqur.training import HostTrainer
from conqur.training_run import make_trainer
from conqur.training_state import RINGS

FEW = ("--num-envs", "4", "--replay-size", "240", "--batch-size", "4", "--save-every", "0.01")
KINDS = {
    "host": (
        *("CartPole-v1", *FEW, "--learning-starts", "40", "--log-every", "100", "--steps", "400"),
        *("--algorithm", "ddqn", "--penalty-weight", "0.5", "--target-every", "20"),
    ),
    "compiled": (
        *("MinAtar/Breakout", *FEW, "--learning-starts", "40", "--log-every", "400"),
        *("--steps", "2300", "--update-every", "1", "--penalty-weight", "0", "0.5"),
    ),
    "atari": (
        *("ALE/Breakout-v5", *FEW, "--learning-starts", "24", "--log-every", "20"),
        *("--steps", "48", "--penalty-weight", "0.5"),
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_ends_as_if_it_had_not_been(kind, tmp_path):
    arguments, environment = KINDS[kind], torture.cached(tmp_path / "cache")
    whole, victim = tmp_path / "whole", tmp_path / "victim"
    torture.trained(arguments, whole, environment)
    assert torture.killed(arguments, victim, torture.saved(1, victim), environment)
    if kind == "host":
        assert torture.killed(arguments, victim, torture.writing(2, "checkpoints"), environment)
        ask_to_stop(arguments, victim, environment)
    assert "starting from the beginning" not in torture.trained(arguments, victim, environment)
    assert torture.differences(whole, victim) == []
    if kind == "host":
        check_that_everything_is_compared(whole, tmp_path)


def ask_to_stop(arguments, folder, environment):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    process = torture.train(arguments, folder, env=environment, **pipes)
    assert torture.wait_for(torture.saved(1, folder), process, folder)
    process.terminate()
    words, _ = process.communicate(timeout=torture.PATIENCE)
    assert process.returncode == 128 + signal.SIGTERM
    assert f"all is saved. Go on with: conqur train --resume --run-dir {folder}\n" in words


def check_that_everything_is_compared(folder, tmp_path):
    """Of a run of DDQN, and of copies with one bit changed."""
    state = torture.last_state(folder)
    arrays = safetensors.numpy.load_file(state)
    assert [name for name in arrays if name.startswith("members/agent/target")]
    assert arrays["host/actions"].shape == (100, 4)
    assert torture.replay(folder).keys() == set(RINGS)
    for part in ("agent/commitments", "agent/optimizer_state", "agent/theta", "tally"):
        name = max(
            (n for n in arrays if n.startswith(f"members/{part}")),
            key=lambda n: np.count_nonzero(arrays[n]),
        )
        assert np.any(arrays[name]), name
        other = shutil.copytree(folder, tmp_path / part)
        changed = arrays[name].copy()
        changed.reshape(-1).view(np.uint8)[0] ^= 1
        changed = safetensors.numpy.save(arrays | {name: changed})
        torture.last_state(other).write_bytes(changed)
        before, after = torture.result_files(folder), torture.result_files(other)
        assert [name for name in before if before[name] != after[name]] == [state.name]


@pytest.mark.parametrize(("num_envs", "log_every"), [(4, 80), (64, 50_000), (7, 10), (8, 3)])
def test_rows_of_the_log_are_due_where_so_many_more_steps_are_done(num_envs, log_every):
    config = train_config(
        "control",
        environment="x",
        algorithm="dqn",
        penalty_weights=(0.0,),
        seeds=(0,),
        num_envs=num_envs,
        log_every=log_every,
        update_every=num_envs,
    )
    whole = [time * num_envs // log_every for time in range(3000)]
    due = [time for time in range(1, 3000) if whole[time] > whole[time - 1]]
    for time in range(due[-1]):
        assert training_run._next_row(config, time) == next(later for later in due if later > time)


def test_resuming_takes_memory_for_one_replay(cartpole, tmp_path, monkeypatch):  # noqa: F811
    folder, seen = shutil.copytree(cartpole, tmp_path / "run"), []

    def replays():
        return sum(array.shape == (1, 100, 4, 4) for array in jax.live_arrays())

    # It is called when the replay is back.
    monkeypatch.setattr(
        HostTrainer, "restore_host", lambda self, state: seen.append(replays()) or True
    )
    gc.collect()
    before = replays()
    assert cli.run(["train", "--resume", "--run-dir", str(folder)]) == 0
    assert [now - before for now in seen] == [1]


class Crash(BaseException):
    """The process is dead."""


def test_programs_are_kept_before_anything_is_compiled(cartpole, monkeypatch):  # noqa: F811
    done = []

    def shapes(self):
        done.append("begun")
        raise Crash

    monkeypatch.setattr(training_run, "keep_programs", lambda: done.append("kept"))
    monkeypatch.setattr(HostTrainer, "shapes", shapes)
    with pytest.raises(Crash):
        cli.run(["train", "--resume", "--run-dir", str(cartpole)])
    assert done == ["kept", "begun"]


@pytest.mark.parametrize("after_the_checkpoint", [True, False])
def test_a_kill_around_the_last_checkpoint(
    cartpole,  # noqa: F811
    tmp_path,
    monkeypatch,
    after_the_checkpoint,
):
    folder = tmp_path / "run"
    real = RunDirectory.save

    def save(self, step, *arguments, **options):
        if after_the_checkpoint:
            real(self, step, *arguments, **options)
        raise Crash

    monkeypatch.setattr(RunDirectory, "save", save)
    with pytest.raises(Crash):
        cli.run(["train", *CARTPOLE, "--run-dir", str(folder)])
    monkeypatch.undo()
    assert cli.run(["train", "--resume", "--run-dir", str(folder)]) == 0
    assert results(folder) == results(cartpole)


def test_a_changed_log_does_not_stop_a_run(conqur, cartpole, tmp_path):  # noqa: F811
    folder = shutil.copytree(cartpole, tmp_path / "run")
    log = bytearray((folder / "log.jsonl").read_bytes())
    first = json.loads(log.splitlines()[0])
    log[len(log.splitlines()[0]) + 2] = 0xFF  # in the second and last row
    (folder / "log.jsonl").write_bytes(log)
    status, out, err = conqur("train", "--resume", "--run-dir", folder, "--json")
    assert status == 0
    assert "log.jsonl was changed since it was written" in err
    assert json.loads(out)["members"][0]["return"] == first["return"]


@pytest.mark.parametrize("name", ["loss", "q_mean", "q_max"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 2e10, -2e10])
def test_any_number_out_of_bounds_stops_a_run(name, value):
    row = {"step": 8, "seed": 3, "penalty_weight": 0.5, "loss": 0.1, "q_mean": 1.0, "q_max": None}
    training_run._check_finite([row], saved=-1)
    with pytest.raises(RunError, match=r"diverged before step 8 \(seed 3, penalty weight 0.5: "):
        training_run._check_finite([row, row | {name: value}], saved=4)


def test_the_last_good_checkpoint_is_named():
    assert training_run._last_good(-4).startswith("there is no checkpoint yet;")
    assert "the last good checkpoint, of step 1,200, is as it was;" in training_run._last_good(1200)


def test_members_that_are_almost_alike_have_names_of_their_own():
    assert training_run.member_name(0.5, 7) == "weight-0.5-seed-7"
    assert training_run.member_name(0.0, 7) == "weight-0-seed-7"
    names = {training_run.member_name(weight, 0) for weight in (0.1, 0.1000001, 0.1000002)}
    assert len(names) == 3


def test_a_replay_that_no_memory_holds(monkeypatch):
    config = train_config(
        "tf-agents",
        environment="ALE/Pong-v5",
        algorithm="dqn",
        penalty_weights=(0.0, 0.5),
        seeds=(0, 1),
        replay_size=1_000_000,
    )
    spec = Spec("ALE/Pong-v5", (84, 84), "uint8", ("NOOP",) * 6, stack=4)
    monkeypatch.setattr(training_run, "device_memory", lambda: 4 * 84 * 84 * 1_000_000)
    training_run._check_fit(config, spec)
    monkeypatch.setattr(training_run, "device_memory", lambda: 4 * 84 * 84 * 1_000_000 - 1)
    with pytest.raises(ValueError, match=r"takes 28.2 GB for 4 network\(s\), but there are 28.2"):
        training_run._check_fit(config, spec)


@pytest.mark.parametrize(
    ("said", "expected"), [({"bytes_limit": 12_345}, 12_345), (None, 2**20), ({}, 2**20)]
)
def test_memory_is_the_accelerator_s_or_else_the_machine_s(monkeypatch, said, expected):
    device = SimpleNamespace(memory_stats=lambda: said)
    monkeypatch.setattr(training_run.jax, "devices", lambda: [device])
    monkeypatch.setattr(_memory, "machine_memory", lambda: 2**20)
    assert _memory.device_memory() == expected


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="it is said there")
def test_the_machine_s_memory_is_what_the_system_says():
    kilobytes = re.search(r"MemTotal: *(\d+) kB", Path("/proc/meminfo").read_text())[1]
    assert _memory.machine_memory() == pytest.approx(1024 * int(kilobytes), rel=0.01)


def test_a_refused_environment_is_closed(monkeypatch):
    closed = []
    monkeypatch.setattr(
        "conqur.environments.gymnasium_env.GymnasiumEnvironment.close",
        lambda self: closed.append(self.spec.name),
    )
    config = train_config(
        "nature",
        environment="CartPole-v1",
        algorithm="dqn",
        penalty_weights=(0.0,),
        seeds=(0,),
        preprocessing="",
    )
    with pytest.raises(ValueError, match="network nature is not for CartPole-v1"):
        make_trainer(config)
    assert closed == ["CartPole-v1"]


def test_presets_for_environments(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "CartPole-v1").mkdir()
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "metadata.json").write_text("{}")
    for name, preset, preprocessing in (
        ("ALE/Pong-v5", "tf-agents", None),
        ("MinAtar/Breakout", "minatar", ""),
        ("minatar-breakout", "minatar", ""),
        ("CartPole-v1", "control", ""),
        ("package:Pong-v5", "control", ""),
        ("played.npz", "control", ""),
        ("set", "control", ""),
    ):
        found, changes = default_preset(name)
        assert (found, changes.get("preprocessing")) == (preset, preprocessing), name
    # Of data, every step is an update.
    assert default_preset("set")[1]["update_every"] == 1
    assert "update_every" not in default_preset("CartPole-v1")[1]
