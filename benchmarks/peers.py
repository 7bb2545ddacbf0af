"""How fast DQN trains in conqur, Stable-Baselines3 and CleanRL, on the same machine by turns.

    python benchmarks/peers.py --cleanrl FOLDER --cleanrl-python FILE --output FILE

Needs what the peers' tests need, OpenCV (`opencv-python-headless`), a checkout of CleanRL and the
Python of an environment for it, which has an older Gymnasium (gymnasium==0.29.1, ale-py==0.9.0,
torch, tyro, tensorboard, opencv-python-headless). Without `--cleanrl` it is left out.

Breakout, with Nature's network, and CartPole, with layers of 120 and 84. All of them have the same
batches, updates per step of an environment and exploration (that of late training); each has its
own preprocessing, replay and loop. CleanRL steps one environment; Stable-Baselines3 is measured
with one, as it is mostly used, and with as many as conqur. What is counted are steps of
environments per second, after learning has begun, in windows of some seconds.
"""

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import gymnasium
import jax
import stable_baselines3
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_atari_env, make_vec_env
from stable_baselines3.common.vec_env import VecFrameStack
from train import Training, settings

from conqur._memory import keep_memory
from conqur.runs.manifest import make_manifest
from conqur.training_run import make_trainer

SECONDS = 5.0
LEARNING_STARTS = 500
FOREVER = 10_000_000
EPSILON = 0.01
Rates = dict[str, list[float]]
"""Steps per second of each contestant, one number for each window."""


class Case(NamedTuple):
    """What is learned, and how."""

    name: str
    preset: str
    environment: str
    policy: str
    policy_settings: dict[str, Any]
    script: str
    batch_size: int
    update_every: int
    target_every: int
    learning_rate: float
    replay_size: int
    num_envs: int


BREAKOUT = Case(
    name="Breakout",
    preset="tf-agents",
    environment="ALE/Breakout-v5",
    policy="CnnPolicy",
    policy_settings={},
    script="dqn_atari.py",
    batch_size=32,
    update_every=4,
    target_every=1_000,
    learning_rate=1e-4,
    replay_size=20_000,
    num_envs=8 if jax.default_backend() == "cpu" else 64,
)
CARTPOLE = Case(
    name="CartPole",
    preset="control",
    environment="CartPole-v1",
    policy="MlpPolicy",
    policy_settings={"net_arch": [120, 84]},
    script="dqn.py",
    batch_size=128,
    update_every=8,
    target_every=512,
    learning_rate=2.5e-4,
    replay_size=10_000,
    num_envs=8,
)


def of_conqur(case: Case) -> Callable[[], float]:
    config = settings(
        case.preset,
        case.environment,
        case.num_envs,
        optimizer="adam",
        learning_rate=case.learning_rate,
        batch_size=case.batch_size,
        update_every=case.update_every,
        target_every=case.target_every // case.update_every,
        replay_size=case.replay_size,
        learning_starts=LEARNING_STARTS,
        epsilon_final=EPSILON,
        preprocessing="dopamine" if case.preset == "tf-agents" else "",
    )
    trainer = make_trainer(config)
    work = Training(trainer)
    # Past the first look at the network, which compiles.
    work.run(2 * max(LEARNING_STARTS // case.num_envs, trainer.between_looks))

    def window() -> float:
        begin, steps = time.perf_counter(), 0
        while time.perf_counter() - begin < SECONDS:
            steps += work.run(100)
        return case.num_envs * steps / (time.perf_counter() - begin)

    return window


class Clock(BaseCallback):
    """Counts steps for some seconds after learning has begun, then stops it."""

    def __init__(self, num_envs: int) -> None:
        super().__init__()
        self.num_envs, self.steps, self.begin, self.rate = num_envs, 0, 0.0, math.nan

    def _on_step(self) -> bool:
        if self.num_timesteps < 2 * LEARNING_STARTS:
            return True
        now = time.perf_counter()
        self.begin = self.begin or now
        self.rate = self.num_envs * self.steps / max(now - self.begin, 1e-9)
        self.steps += 1
        return now - self.begin < SECONDS


def of_stable_baselines3(case: Case, num_envs: int) -> float:
    atari = case.policy == "CnnPolicy"
    name = "BreakoutNoFrameskip-v4" if atari else case.environment
    environment = (make_atari_env if atari else make_vec_env)(name, n_envs=num_envs, seed=0)
    if atari:
        environment = VecFrameStack(environment, 4)
    clock = Clock(num_envs)
    model = stable_baselines3.DQN(
        case.policy,
        environment,
        learning_rate=case.learning_rate,
        buffer_size=case.replay_size,
        learning_starts=LEARNING_STARTS,
        batch_size=case.batch_size,
        # Counted in steps of all environments.
        train_freq=max(1, case.update_every // num_envs),
        gradient_steps=max(1, num_envs // case.update_every),
        target_update_interval=case.target_every,
        exploration_fraction=1e-6,
        exploration_final_eps=EPSILON,
        optimize_memory_usage=atari,
        replay_buffer_kwargs={"handle_timeout_termination": False} if atari else None,
        policy_kwargs=case.policy_settings,
        seed=0,
    )
    model.learn(FOREVER, callback=clock, log_interval=FOREVER)
    environment.close()
    return clock.rate


def of_cleanrl(case: Case, checkout: pathlib.Path, python: pathlib.Path) -> float:
    starting = (
        "import ale_py, runpy, sys; sys.argv = sys.argv[1:]; "  # which knows the games
        "runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    name = "BreakoutNoFrameskip-v4" if case.policy == "CnnPolicy" else case.environment
    options = {
        "env-id": name,
        "total-timesteps": FOREVER,
        "learning-rate": case.learning_rate,
        "buffer-size": case.replay_size,
        "target-network-frequency": case.target_every,
        "batch-size": case.batch_size,
        "end-e": EPSILON,
        "exploration-fraction": 1e-6,
        "learning-starts": 2 * LEARNING_STARTS,
        "train-frequency": case.update_every,
    }
    words = [word for option, value in options.items() for word in (f"--{option}", str(value))]
    command = [python, "-u", "-c", starting, checkout.resolve() / "cleanrl" / case.script, *words]
    every = math.lcm(100, case.update_every)  # steps after which it says how fast it is
    with (
        tempfile.TemporaryDirectory() as folder,
        (pathlib.Path(folder) / "errors").open("w+") as errors,
        subprocess.Popen(
            command,
            cwd=folder,
            env=_with_nothing_of_ours(checkout),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as running,
    ):
        assert running.stdout is not None
        try:
            return _rate_of_lines((line for line in running.stdout if "SPS" in line), every)
        except EOFError:
            errors.seek(0)
            raise SystemExit(f"CleanRL broke off: {errors.read()[-500:]}") from None
        finally:
            running.kill()


def _with_nothing_of_ours(checkout: pathlib.Path) -> dict[str, str]:
    """Where CleanRL's packages are looked for: in its environment, and its own in the checkout."""
    return os.environ | {"PYTHONPATH": str(checkout.resolve())}


def _rate_of_lines(lines: Iterable[str], every: int) -> float:
    """Steps per second, where a line comes after so many steps."""
    begin, steps = 0.0, 0
    for _ in lines:
        now = time.perf_counter()
        begin = begin or now
        if now - begin >= SECONDS:
            return steps / (now - begin)
        steps += every
    raise EOFError


def measure(case: Case, given: argparse.Namespace, rates: Rates, save: Callable[[], None]) -> None:
    """Fills `rates`, window by window, each of which is saved."""
    windows: dict[str, Callable[[], float]] = {
        "conqur": of_conqur(case),
        "Stable-Baselines3, 1 environment": lambda: of_stable_baselines3(case, 1),
        f"Stable-Baselines3, {case.num_envs} environments": lambda: of_stable_baselines3(
            case, case.num_envs
        ),
    }
    if given.cleanrl:
        windows["CleanRL"] = lambda: of_cleanrl(case, given.cleanrl, given.cleanrl_python)
    for _ in range(given.windows):
        for name, window in windows.items():
            rate = window()
            rates.setdefault(name, []).append(rate)
            print(f"{case.name}, {name}: {rate:,.0f} steps/s", file=sys.stderr, flush=True)
            save()
    ours = statistics.median(rates["conqur"])
    print(f"\n{case.name}, conqur with {case.num_envs} environments")
    print(f"{'':40} {'steps/s':>10} {'lowest':>10} {'highest':>10} {'conqur / it':>12}")
    for name, values in rates.items():
        rate = statistics.median(values)
        shown = "".join(f" {value:10,.0f}" for value in (rate, min(values), max(values)))
        print(f"{name:40}{shown} {ours / rate:12.2f}", flush=True)


def versions_of_cleanrl(checkout: pathlib.Path, python: pathlib.Path) -> dict[str, Any]:
    """Its commit, and what it runs with."""
    code = (
        "import json, ale_py, gymnasium, torch; print(json.dumps({'torch': torch.__version__, "
        "'torch threads': torch.get_num_threads(), 'gymnasium': gymnasium.__version__, "
        "'ale-py': ale_py.__version__}))"
    )
    commands = [["git", "-C", str(checkout), "rev-parse", "HEAD"], [str(python), "-c", code]]
    commit, found = (
        subprocess.run(
            command,
            check=True,
            capture_output=True,
            text=True,
            env=_with_nothing_of_ours(checkout),
        ).stdout
        for command in commands
    )
    return {"commit": commit.strip()} | json.loads(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cleanrl", type=pathlib.Path, help="a checkout of it")
    parser.add_argument("--cleanrl-python", type=pathlib.Path, help="of its environment")
    parser.add_argument("--windows", type=int, default=5, help="measured of each")
    parser.add_argument("--output", type=pathlib.Path, help="where to write the numbers")
    given = parser.parse_args()
    if (given.cleanrl is None) != (given.cleanrl_python is None):
        parser.error("--cleanrl and --cleanrl-python go together")
    report: dict[str, Any] = {
        "made_with": make_manifest(seeds=(0,), command="python benchmarks/peers.py"),
        "peers": {
            "stable-baselines3": stable_baselines3.__version__,
            "torch": torch.__version__,
            "torch threads": torch.get_num_threads(),
            "gymnasium": gymnasium.__version__,
        },
    }
    if given.cleanrl:
        report["peers"]["CleanRL"] = versions_of_cleanrl(given.cleanrl, given.cleanrl_python)
    print(jax.devices()[0].device_kind)
    keep_memory()  # as `conqur` does; here Stable-Baselines3 has it, too

    def save() -> None:
        if given.output:
            given.output.write_text(json.dumps(report, indent=2) + "\n")

    for case in (BREAKOUT, CARTPOLE):
        rates: Rates = {}
        report[case.name] = {"num_envs": case.num_envs, "steps_per_second": rates}
        measure(case, given, rates, save)


if __name__ == "__main__":
    main()
