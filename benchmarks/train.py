"""How fast training is, beside what bounds it and beside the way it is usually written.

    python benchmarks/train.py                   both parts; sizes go by what JAX runs on
    python benchmarks/train.py --part minatar    one of them
    --output FILE                                writes all numbers, window by window

Atari: the steps per second of DQN(λ) on Breakout, in parts of those of the emulator alone, which
steps as many environments with random actions and nothing else. What a step of all environments
costs is also taken apart: its parts one after the other, each waited for, and all of it as training
does it, where the accelerator learns while the emulators run ("hidden" is how much of the shorter
one of the two costs no time).

MinAtar: DQN on Breakout as one compiled program, for one member and for several, in multiples of
two plain loops in Python with the same network, optimizer, batches and updates per step:
environments on the host's processor, compiled; replay in NumPy; one compiled update for each
minibatch. One loop steps one environment, as most code does, the other as many as our program.

What is compared is measured by turns, in windows; compilation and first steps are not counted.
Exploration is that of late training (ε = 0.01), where every action asks the network.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from conqur.config import TrainConfig, train_config
from conqur.environments import make, make_jax
from conqur.environments.interface import Transitions
from conqur.environments.jax_env import HostedJax
from conqur.runs.manifest import make_manifest
from conqur.training import CompiledTrainer, HostTrainer, Member, Trainer
from conqur.training_run import make_trainer

Run = Callable[[int], int]
"""Goes on by about so many steps of all environments and waits for them; how many they were."""


class Sizes(NamedTuple):
    """What fits into two minutes."""

    atari_envs: tuple[int, ...]
    atari_replay: int
    minatar_envs: int
    members: int
    windows: int
    seconds: float
    """That a window takes, about."""


SMALL = Sizes(
    atari_envs=(8,), atari_replay=20_000, minatar_envs=64, members=4, windows=3, seconds=1.0
)
LARGE = Sizes(
    (64, 128), atari_replay=1_000_000, minatar_envs=64, members=10, windows=5, seconds=1.0
)


def settings(preset: str, environment: str, num_envs: int, **changes: Any) -> TrainConfig:
    basis = {
        "environment": environment,
        "algorithm": "dqn",
        "penalty_weights": (0.0,),
        "seeds": (0,),
        "num_envs": num_envs,
        "learning_starts": 8 * num_envs,
        "epsilon_steps": 0,
        "epsilon_final": 0.01,
    }
    return train_config(preset, **basis | changes)


def in_turn(runs: dict[str, Run], sizes: Sizes) -> dict[str, list[float]]:
    """Steps of all environments per second of each, window by window."""
    lengths = {}
    for name, run in runs.items():
        run(12)  # compiles, and fills what has to be filled
        lengths[name] = max(4, round(sizes.seconds * _rate(run, 4)))
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(sizes.windows):
        for name, run in runs.items():
            rates[name].append(_rate(run, lengths[name]))
    return rates


def _rate(run: Run, steps: int) -> float:
    start = time.perf_counter()
    done = run(steps)
    return done / (time.perf_counter() - start)


class Training:
    """A trainer at work."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        self.members, self.now = trainer.begin(), 0

    def run(self, steps: int) -> int:
        """As it trains."""
        end = self.now + steps
        while self.now < end:
            self.members, self.now = self.trainer.advance(self.members, self.now, end)
        jax.block_until_ready(self.members)
        return steps


class InParts(Training):
    """The same for environments of the host, one part of a step after the other."""

    trainer: HostTrainer

    def __init__(self, trainer: HostTrainer) -> None:
        super().__init__(trainer)
        self.milliseconds: dict[str, list[float]] = {
            part: [] for part in ("emulator", "act", "learn", "absorb")
        }
        # Looks at the network are rare: the first one, which compiles, must not fall in a window.
        agent, replay = self.members.agent, self.members.replay
        tally = trainer._look(agent, replay, self.members.tally, trainer.seeds, 0)
        self.members = Member(agent, replay, tally, None)

    def run_apart(self, steps: int) -> int:
        """Wait for each part, and note how long it took."""
        trainer, members = self.trainer, self.members
        agent, replay, tally = members.agent, members.replay, members.tally
        seeds, weights = trainer.seeds, trainer.weights
        for _ in range(steps):
            with self.clock("act"):
                actions = trainer._act(agent, replay, seeds, self.now)
                chosen = np.asarray(actions).reshape(-1)
            with self.clock("emulator"):
                trainer.environment.send(chosen)
                answer = jax.tree.map(trainer._by_member, trainer.environment.receive())
            with self.clock("learn"):
                if trainer.learning.due(self.now):
                    agent, tally = trainer._learn(agent, replay, tally, seeds, weights, self.now)
                jax.block_until_ready((agent, tally))
            with self.clock("absorb"):
                replay, tally = trainer._absorb(replay, tally, actions, answer, False, self.now)
                jax.block_until_ready((replay, tally))
            self.now += 1
        self.members = Member(agent, replay, tally, None)
        return steps

    @contextlib.contextmanager
    def clock(self, part: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.milliseconds[part].append(1000 * (time.perf_counter() - start))


def emulator(environment: Any, num_envs: int) -> Run:
    """Random actions, and nothing else."""
    rng = np.random.default_rng(0)
    environment.reset(range(num_envs))

    def run(steps: int) -> int:
        for actions in rng.integers(len(environment.spec.actions), size=(steps, num_envs)):
            environment.step(actions)
        return steps

    return run


def atari(sizes: Sizes) -> list[dict[str, Any]]:
    print("\nAtari Breakout: training beside the emulator alone")
    print(
        f"{'envs':>4} {'λ':>4} {'emulator/s':>11} {'training/s':>11} {'ratio':>6}   "
        "ms per step of all environments: parts, their sum, the step as it runs"
    )
    found = []
    for num_envs in sizes.atari_envs:
        for weight in (0.0, 0.5):
            config = settings(
                "tf-agents",
                "ALE/Breakout-v5",
                num_envs,
                penalty_weights=(weight,),
                replay_size=sizes.atari_replay,
            )
            found.append(beside_emulator(config, sizes))
            print(_atari_line(found[-1]), flush=True)
    return found


def beside_emulator(config: TrainConfig, sizes: Sizes) -> dict[str, Any]:
    num_envs = config.num_envs
    alone = make(config.environment, num_envs, preprocessing=config.preprocessing)
    trainer = make_trainer(config)
    assert isinstance(trainer, HostTrainer)
    work = InParts(trainer)
    runs = {
        "emulator": emulator(alone, num_envs),
        "training": work.run,
        "in parts": work.run_apart,
    }
    rates = in_turn(runs, sizes)
    trainer.close()
    alone.close()
    ratios = [b / a for a, b in zip(rates["emulator"], rates["training"], strict=True)]
    parts = {part: statistics.median(values[16:]) for part, values in work.milliseconds.items()}
    step, total = 1000 / statistics.median(rates["training"]), sum(parts.values())
    return {
        "num_envs": num_envs,
        "penalty_weight": config.penalty_weights[0],
        "replay_size": config.replay_size,
        "steps_per_second": {
            name: [num_envs * rate for rate in windows] for name, windows in rates.items()
        },
        "ratios": ratios,
        "ratio": statistics.median(ratios),
        "milliseconds": parts | {"sum": total, "step": step},
        # 1: the shorter one of the emulators' step and learning costs no time; 0: all of it.
        "hidden": (total - step) / min(parts["emulator"], parts["learn"]),
        "parts_milliseconds": work.milliseconds,
    }


def _atari_line(row: dict[str, Any]) -> str:
    rates = {name: statistics.median(rates) for name, rates in row["steps_per_second"].items()}
    took = "  ".join(f"{part} {value:.2f}" for part, value in row["milliseconds"].items())
    # Where learning takes the emulators' cores, there is nothing to hide behind.
    hidden = "" if jax.default_backend() == "cpu" else f"  hidden {row['hidden']:.0%}"
    return (
        f"{row['num_envs']:4} {row['penalty_weight']:4g} {rates['emulator']:11,.0f} "
        f"{rates['training']:11,.0f} {row['ratio']:6.2f}   {took}{hidden}"
    )


class PlainLoop:
    """DQN as a loop in Python."""

    def __init__(self, config: TrainConfig) -> None:
        environment = make_jax(config.environment)
        assert environment is not None
        trainer = CompiledTrainer(config, environment)  # only for its network and its settings
        algorithm, spec = trainer.learning.algorithm, environment.spec
        self.config = config
        self.host = jax.devices("cpu")[0]
        self.environment = HostedJax(environment, config.num_envs)
        with jax.default_device(self.host):
            self.frames = self.environment.reset(range(config.num_envs))
        self.agent = jax.jit(trainer.initial_agent)(0)
        self.greedy = jax.jit(lambda theta, frames: jnp.argmax(theta(frames), axis=-1))

        def update(agent: Any, batch: Transitions) -> Any:
            return algorithm.update(agent, batch, jax.random.key(0), penalty_weight=0.0)[0]

        self.update = jax.jit(update, donate_argnums=0)
        self.rng = np.random.default_rng(0)
        size, shape = config.replay_size, spec.frame_shape
        self.replay = Transitions(
            states=np.zeros((size, *shape), spec.frame_dtype),
            actions=np.zeros(size, np.int32),
            rewards=np.zeros(size, np.float32),
            successors=np.zeros((size, *shape), spec.frame_dtype),
            terminal=np.zeros(size, bool),
        )
        self.stored = 0
        self.now = 0

    def run(self, steps: int) -> int:
        config = self.config
        for _ in range(steps):
            self.step()
            self.now += 1
            begun = self.now * config.num_envs >= config.learning_starts
            if begun and self.now % config.steps_per_update == 0:
                for _ in range(config.updates_at_once):
                    self.agent = self.update(self.agent, self.sample())
        jax.block_until_ready(self.agent)
        return steps

    def step(self) -> None:
        num_envs, actions = self.config.num_envs, len(self.environment.spec.actions)
        explore = self.rng.random(num_envs) < self.config.epsilon_final
        chosen = self.rng.integers(actions, size=num_envs)
        if not explore.all():
            chosen = np.where(explore, chosen, self.greedy(self.agent.theta, self.frames))
        with jax.default_device(self.host):
            step = self.environment.step(chosen)
        kept = ~step.reset
        place = (self.stored + np.arange(kept.sum())) % self.config.replay_size
        seen = (self.frames, chosen, step.reward, step.frame, step.terminal)
        for ring, values in zip(self.replay, seen, strict=True):
            ring[place] = values[kept]
        self.stored += len(place)
        self.frames = step.frame

    def sample(self) -> Transitions:
        filled = min(self.stored, self.config.replay_size)
        rows = self.rng.integers(filled, size=self.config.batch_size)
        return Transitions(*(ring[rows] for ring in self.replay))


def minatar(sizes: Sizes) -> dict[str, Any]:
    num_envs = sizes.minatar_envs
    runs: dict[str, Run] = {}
    scale: dict[str, int] = {}
    for envs in (1, num_envs):
        name = f"plain loop, {envs} environment" + "s" * (envs > 1)
        config = settings("minatar", "MinAtar/Breakout", envs, preprocessing="")
        runs[name], scale[name] = PlainLoop(config).run, envs
    for members in (1, sizes.members):
        name = f"conqur, {members} member" + "s" * (members > 1)
        config = settings(
            "minatar",
            "MinAtar/Breakout",
            num_envs,
            preprocessing="",
            seeds=tuple(range(members)),
        )
        runs[name], scale[name] = Training(make_trainer(config)).run, members * num_envs
    rates = in_turn(runs, sizes)
    per_second = {name: [scale[name] * rate for rate in windows] for name, windows in rates.items()}
    middle = {name: statistics.median(windows) for name, windows in per_second.items()}
    one, many = list(middle)[:2]
    ratios = {
        name: {other: rate / middle[other] for other in (one, many)}
        for name, rate in middle.items()
    }
    print(f"\nMinAtar Breakout, {num_envs} environments for each member; steps/s of all together")
    print(f"{'':40} {'steps/s':>10} {'x loop, 1':>10} {f'x loop, {num_envs}':>11}")
    for name, rate in middle.items():
        print(f"{name:40} {rate:10,.0f} {rate / middle[one]:10.1f} {rate / middle[many]:11.1f}")
    return {"num_envs": num_envs, "steps_per_second": per_second, "ratios": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("atari", "minatar"), help="only this one")
    parser.add_argument("--output", type=pathlib.Path, help="where to write the numbers")
    given = parser.parse_args()
    sizes = SMALL if jax.default_backend() == "cpu" else LARGE
    command = "python benchmarks/train.py" + (f" --part {given.part}" if given.part else "")
    report: dict[str, Any] = {"made_with": make_manifest(seeds=(0,), command=command)}
    print(jax.devices()[0].device_kind)
    for name, measure in (("atari", atari), ("minatar", minatar)):
        if given.part in (None, name):
            report[name] = measure(sizes)
    if given.output:
        given.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
