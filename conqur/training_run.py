"""A training run: the loop around a trainer that logs, saves, stops and goes on."""

import contextlib
import json
import math
import time as clock
from collections.abc import Callable
from dataclasses import dataclass
from signal import Signals
from typing import Any

import jax
import numpy as np

from conqur._memory import device_memory
from conqur._programs import keep_programs
from conqur.config import TrainConfig
from conqur.environments import load_data, make, make_jax
from conqur.environments.data import is_data
from conqur.environments.interface import Spec
from conqur.environments.journal import Journal
from conqur.pretrained import Pretrained, to_bytes
from conqur.regressor import Architecture, initial_regressor
from conqur.replay import least_rows
from conqur.runs import Checkpoint, RunDirectory, RunError, progress, stop_requested
from conqur.runs.layout import LOG
from conqur.training import CompiledTrainer, DataTrainer, HostTrainer, Member, Trainer
from conqur.training_state import restored, save_state

STOPPING = "Stopping, and saving first. Ctrl-C again: at once, without saving."
DIVERGED = 1e10
"""Losses and values beyond this are those of a network that is lost."""


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        step: how far it came.
        returns: of each member, the mean return in the last row of the log that has one.
        stopped_by: the signal that asked it to stop before that was all; None: it was all.
    """

    step: int
    returns: list[float | None]
    stopped_by: Signals | None

    @property
    def finished(self) -> bool:
        """Whether it came to its end."""
        return self.stopped_by is None


def make_trainer(config: TrainConfig) -> Trainer:
    """The trainer for a run's environment: compiled, of the host, or of a fixed data set."""
    name = config.environment
    if is_data(name):
        data = load_data(name)
        _check_network(config, data.spec(name))
        return DataTrainer(config, data)
    compiled = make_jax(name)
    if compiled is not None:
        _check_fit(config, compiled.spec)
        return CompiledTrainer(config, compiled)
    copies = config.num_envs * len(config.members)
    environment = make(name, copies, preprocessing=config.preprocessing or None)
    try:
        _check_fit(config, environment.spec)
        return HostTrainer(config, Journal(environment, tuple(seed for _, seed in config.members)))
    except BaseException:
        environment.close()
        raise


def _check_network(config: TrainConfig, spec: Spec) -> None:
    """Refuse a network that is not for such observations."""
    try:
        wanted = Architecture(
            config.network, spec.observation_shape, len(spec.actions), config.hidden
        )
        jax.eval_shape(lambda: initial_regressor(jax.random.key(0), wanted))
    except ValueError as error:
        raise ValueError(f"network {config.network} is not for {spec.name}: {error}") from None


def _check_fit(config: TrainConfig, spec: Spec) -> None:
    """Refuse a network that does not fit, and a replay that is too small or fits no memory."""
    _check_network(config, spec)
    least = least_rows(spec) * config.num_envs
    if config.replay_size < least:
        raise ValueError(
            f"replay_size must be at least {least} with {config.num_envs} environments, "
            f"got {config.replay_size}"
        )
    frame = math.prod(spec.frame_shape) * np.dtype(spec.frame_dtype).itemsize
    needed, there = len(config.members) * config.replay_size * frame, device_memory()
    if needed > there:
        raise ValueError(
            f"replay_size {config.replay_size:,} takes {needed / 1e9:,.1f} GB for "
            f"{len(config.members)} network(s), but there are {there / 1e9:,.1f} GB of memory: "
            "lower it, or train fewer at once"
        )


def run_training(
    trainer: Trainer,
    run: RunDirectory,
    checkpoint: Checkpoint | None,
    *,
    warn: Callable[[str], None],
    save_every: float,
    quiet: bool = False,
) -> Outcome:
    """Train from a checkpoint, or from the beginning, to the end or until asked to stop.

    Args:
        trainer: with the run's settings.
        run: the run's directory.
        checkpoint: where to go on; None: the beginning.
        warn: told in one line of what is wrong without being in the way.
        save_every: seconds between checkpoints. When they are taken has no influence on results.
        quiet: show no progress.
    """
    keep_programs()
    config = trainer.config
    if checkpoint is None:
        members, time = trainer.begin(), 0
    else:
        members, time = restored(trainer, checkpoint, warn)
    total = math.ceil(config.steps / config.num_envs)
    saved, last_save = time if checkpoint else -1, clock.monotonic()
    returns = _returns_so_far(config, run)
    lap = time, last_save
    with (
        stop_requested(STOPPING) as stop,
        progress(
            total * config.num_envs,
            start=time * config.num_envs,
            learning_starts=0 if trainer.begun(0) else config.learning_starts,
            quiet=quiet,
        ) as shown,
    ):
        while time < total and not stop:
            row_due = _next_row(config, time)
            members, time = trainer.advance(members, time, min(row_due, total))
            latest: dict[str, Any] = {}
            if time == row_due:
                rows = trainer.rows(members, time)
                _check_finite(rows, saved * config.num_envs)
                for row in rows:
                    name = member_name(row["penalty_weight"], row["seed"])
                    run.log(row["step"], row, member=name)
                run.log_speed(time * config.num_envs, _pace(config, time, *lap))
                lap = time, clock.monotonic()
                members = _cleared(members)
                new = [row["return"] for row in rows]
                returns = [old if n is None else n for n, old in zip(new, returns, strict=True)]
                latest = _summary(rows)
            shown.update(time * config.num_envs, **latest)
            if clock.monotonic() - last_save > save_every:
                _save(trainer, run, members, time, saved)
                saved, last_save = time, clock.monotonic()
        if time != saved:
            _save(trainer, run, members, time, saved)
        elif not all((run.networks / _file_name(*member)).exists() for member in config.members):
            _write_networks(trainer, run, members, time)  # somebody removed some
    return Outcome(time * config.num_envs, returns, stop.signal if time < total else None)


def _save(trainer: Trainer, run: RunDirectory, members: Member, time: int, saved: int) -> None:
    """Write the networks and a checkpoint; `saved` is the time of the last one."""
    num_envs = trainer.config.num_envs
    theta = jax.device_get(members.agent.theta)
    if not all((np.abs(leaf) < DIVERGED).all() for leaf in jax.tree.leaves(theta)):  # nor NaN
        raise RunError(
            f"training diverged before step {time * num_envs:,}: a network's weights are "
            f"out of all bounds; {_last_good(saved * num_envs)}"
        )
    # The networks first: with its last checkpoint, a run is complete.
    _write_networks(trainer, run, members, time)
    save_state(run, trainer, members, time, step=time * num_envs)


def _write_networks(trainer: Trainer, run: RunDirectory, members: Member, time: int) -> None:
    config, theta = trainer.config, jax.device_get(members.agent.theta)
    for i, (weight, seed) in enumerate(config.members):
        network = Pretrained(
            jax.tree.map(lambda leaf, i=i: leaf[i], theta),
            trainer.architecture,
            trainer.spec.name,
            config.preprocessing,
            {
                "algorithm": config.algorithm,
                "discount": config.discount,
                "penalty_weight": weight,
                "seed": seed,
                "step": time * config.num_envs,
            },
        )
        run.write_network(_file_name(weight, seed), to_bytes(network))


def member_name(penalty_weight: float, seed: int) -> str:
    """What a member is called in files."""
    short = f"{penalty_weight:g}"
    exact = short if float(short) == penalty_weight else repr(penalty_weight)
    return f"weight-{exact}-seed-{seed}"


def _file_name(penalty_weight: float, seed: int) -> str:
    return f"{member_name(penalty_weight, seed)}.safetensors"


def _returns_so_far(config: TrainConfig, run: RunDirectory) -> list[float | None]:
    """Of each member, the last mean return that the log holds."""
    last: dict[tuple[float, int], float] = {}
    with open(run.path / LOG, "rb") as file:
        for line in file:
            with contextlib.suppress(ValueError, KeyError, TypeError):  # somebody changed the log
                row = json.loads(line)
                if row["return"] is not None:
                    last[row["penalty_weight"], row["seed"]] = float(row["return"])
    return [last.get(member) for member in config.members]


def _cleared(members: Member) -> Member:
    tally = jax.vmap(lambda tally: tally.cleared())(members.tally)
    return Member(members.agent, members.replay, tally, members.episodes)


def _pace(config: TrainConfig, time: int, before: int, at: float) -> dict[str, float]:
    """Steps per second of one member, since time `before` at moment `at`."""
    seconds = clock.monotonic() - at
    return {"seconds": seconds, "steps_per_second": (time - before) * config.num_envs / seconds}


def _next_row(config: TrainConfig, time: int) -> int:
    """The first time with `log_every` more steps, counted from the run's start.

    There is no row at the end of a run unless it is due: more steps may follow.
    """
    count = time * config.num_envs // config.log_every + 1
    return math.ceil(count * config.log_every / config.num_envs)


def _summary(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    returns = [row["return"] for row in rows if row["return"] is not None]
    losses = [row["loss"] for row in rows if row["loss"] is not None]
    return {
        "mean_return": float(np.mean(returns)) if returns else None,
        "loss": float(np.mean(losses)) if losses else None,
    }


def _check_finite(rows: list[dict[str, Any]], saved: int) -> None:
    """Stop a run whose networks are lost."""
    for row in rows:
        found = [row[name] for name in ("loss", "q_mean", "q_max") if row[name] is not None]
        if not all(abs(value) < DIVERGED for value in found):  # nor NaN
            raise RunError(
                f"training diverged before step {row['step']:,} (seed {row['seed']}, penalty "
                f"weight {row['penalty_weight']:g}: loss {row['loss']}, mean Q {row['q_mean']}); "
                + _last_good(saved)
            )


def _last_good(saved: int) -> str:
    if saved < 0:
        return "there is no checkpoint yet; try a lower --learning-rate"
    return f"the last good checkpoint, of step {saved:,}, is as it was; try a lower --learning-rate"
