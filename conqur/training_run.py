"""A training run: the loop around a trainer that logs, saves, stops and goes on."""

import math
import time as clock
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from conqur.config import TrainConfig
from conqur.environments import load_data, make, make_jax
from conqur.environments.atari import atari_game
from conqur.environments.journal import Journal
from conqur.pretrained import Pretrained, to_bytes
from conqur.runs import (
    Checkpoint,
    RunDirectory,
    RunError,
    flatten,
    progress,
    ring_rows,
    stop_requested,
    unflatten,
)
from conqur.training import CompiledTrainer, DataTrainer, HostTrainer, Member, Trainer

SAVE_EVERY = 300.0
"""Seconds between checkpoints. When they are taken has no influence on results."""

DIVERGED = 1e10
"""Losses and values beyond this are those of a network that is lost."""

RINGS = ("frames", "first", "actions", "rewards", "terminal", "drawable")
DATA_FILES = (".npz", ".safetensors")


@dataclass(frozen=True)
class Outcome:
    """How a run ended.

    Attributes:
        step: how far it came.
        finished: whether that was all; if not, it was asked to stop.
        returns: of each member, the mean return in the last row of the log that has one.
    """

    step: int
    finished: bool
    returns: list[float | None]


def default_preset(environment: str) -> tuple[str, dict[str, Any]]:
    """The preset for an environment, and what has to be changed in it."""
    if is_data(environment):
        # All steps are updates.
        return "control", {
            "num_envs": 64,
            "update_every": 1,
            "learning_starts": 0,
            "preprocessing": "",
        }
    if environment.lower().startswith("minatar"):
        return "minatar", {"preprocessing": ""}
    if ":" not in environment and atari_game(environment) is not None:
        return "tf-agents", {}
    return "control", {"preprocessing": ""}


def is_data(environment: str) -> bool:
    """Whether a name is that of a fixed data set."""
    return (
        environment.endswith(DATA_FILES)
        or environment.startswith("minari:")
        or Path(environment).is_dir()
    )


def make_trainer(config: TrainConfig) -> Trainer:
    """The trainer for a run's environment: compiled, of the host, or of a fixed data set."""
    name = config.environment
    if is_data(name):
        return DataTrainer(config, load_data(name))
    compiled = make_jax(name)
    if compiled is not None:
        return CompiledTrainer(config, compiled)
    copies = config.num_envs * len(config.members)
    environment = make(name, copies, preprocessing=config.preprocessing or None)
    return HostTrainer(config, Journal(environment, tuple(seed for _, seed in config.members)))


def run_training(
    config: TrainConfig,
    trainer: Trainer,
    run: RunDirectory,
    checkpoint: Checkpoint | None,
    *,
    warn: Callable[[str], None],
    quiet: bool = False,
    save_every: float = SAVE_EVERY,
) -> Outcome:
    """Train from a checkpoint, or from the beginning, to the end or until asked to stop.

    Args:
        config: the settings.
        trainer: made from them.
        run: the run's directory.
        checkpoint: where to go on; None: the beginning.
        warn: told in one line of what is wrong without being in the way.
        quiet: show no progress.
        save_every: seconds between checkpoints.
    """
    members, time = trainer.begin(), 0
    if checkpoint is not None:
        members, time = _restored(trainer, members, checkpoint, warn)
    total = _whole_strides(config.steps / config.num_envs, trainer.stride)
    between_rows = _whole_strides(config.log_every / config.num_envs, trainer.stride)
    saved, last_save = time if checkpoint else -1, clock.monotonic()
    returns: list[float | None] = [None] * len(config.members)
    lap = time, last_save
    with (
        stop_requested() as stop,
        progress(total * config.num_envs, start=time * config.num_envs, quiet=quiet) as shown,
    ):
        while time < total and not stop:
            members = trainer.advance(members, time)
            time += trainer.stride
            latest: dict[str, Any] = {}
            if time % between_rows == 0 or time >= total:
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
                _save(config, trainer, run, members, time, saved)
                saved, last_save = time, clock.monotonic()
    if time != saved:
        _save(config, trainer, run, members, time, saved)
    return Outcome(time * config.num_envs, time >= total, returns)


def _save(
    config: TrainConfig,
    trainer: Trainer,
    run: RunDirectory,
    members: Member,
    time: int,
    saved: int,
) -> None:
    """Write a checkpoint and the networks; `saved` is the time of the last one."""
    theta = jax.device_get(members.agent.theta)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(theta)):
        raise RunError(
            f"training diverged before step {time * config.num_envs:,}: a network's weights are "
            f"not finite; {_last_good(saved * config.num_envs)}"
        )
    state, rings = _split(members, time)
    arrays = flatten({"members": state, "host": trainer.host_state(), "time": np.int64(time)})
    keep = next(iter(rings.values())).shape[1] - 1 if rings else 0
    new = min(time - run.saved_rows, keep)
    appended = {name: ring_rows(ring, time - new, time, axis=1) for name, ring in rings.items()}
    run.save(
        time * config.num_envs,
        arrays,
        appended=appended,
        total_rows=time if rings else 0,
        keep_rows=keep,
    )
    for i, (weight, seed) in enumerate(config.members):
        network = Pretrained(
            jax.tree.map(lambda leaf, i=i: leaf[i], theta),
            trainer.architecture,
            trainer.spec.name,
            config.preprocessing,
            {
                "algorithm": config.algorithm,
                "penalty_weight": weight,
                "seed": seed,
                "step": time * config.num_envs,
            },
        )
        run.write_network(f"{member_name(weight, seed)}.safetensors", to_bytes(network))


def member_name(penalty_weight: float, seed: int) -> str:
    """What a member is called in files."""
    return f"weight-{penalty_weight:g}-seed-{seed}"


def _split(members: Member, time: int) -> tuple[Any, dict[str, Any]]:
    """All that is small, as arrays, and the replay's rings; the newest frame counts as small."""
    rings: dict[str, Any] = {}
    state: dict[str, Any] = {
        "agent": members.agent,
        "tally": members.tally,
        "episodes": jax.tree.map(_key_data, members.episodes),
    }
    if members.replay is not None:
        rings = {name: getattr(members.replay, name) for name in RINGS}
        row = time % rings["frames"].shape[1]
        state["newest"] = {name: rings[name][:, row] for name in ("frames", "first")}
    return state, rings


def _restored(
    trainer: Trainer, members: Member, checkpoint: Checkpoint, warn: Callable[[str], None]
) -> tuple[Member, int]:
    """The members and the time of a checkpoint; the environments are brought back, too."""
    time = int(checkpoint.arrays["time"])
    template, rings = _split(members, time)
    host = {
        name.removeprefix("host/"): array
        for name, array in checkpoint.arrays.items()
        if name.startswith("host/")
    }
    state = unflatten({"members": template, "host": host, "time": np.int64(0)}, checkpoint.arrays)
    state = state["members"]
    replay = members.replay
    if rings:
        capacity = rings["frames"].shape[1]
        saved = checkpoint.rings(capacity)
        for name, ring in rings.items():
            rows = np.moveaxis(saved[name], 0, 1) if name in saved else np.array(ring)
            if name in state["newest"]:
                rows = np.array(rows)
                rows[:, time % capacity] = state["newest"][name]
            rings[name] = jnp.array(rows)
        replay = replace(replay, **rings)
    if not trainer.restore_host(host):
        warn(
            f"{trainer.spec.name} did not come back to the state it was left in: it is not "
            "deterministic, so new episodes begin"
        )
    episodes = jax.tree.map(_like_key, members.episodes, state["episodes"])
    return Member(state["agent"], replay, state["tally"], episodes), time


def _key_data(leaf: Any) -> Any:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def _like_key(leaf: Any, data: Any) -> Any:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.wrap_key_data(data) if is_key else data


def _cleared(members: Member) -> Member:
    tally = jax.vmap(lambda tally: tally.cleared())(members.tally)
    return Member(members.agent, members.replay, tally, members.episodes)


def _pace(config: TrainConfig, time: int, before: int, at: float) -> dict[str, float]:
    """Steps per second of one member, since time `before` at moment `at`."""
    seconds = clock.monotonic() - at
    return {"seconds": seconds, "steps_per_second": (time - before) * config.num_envs / seconds}


def _whole_strides(steps: float, stride: int) -> int:
    return max(1, math.ceil(steps / stride)) * stride


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
        worst = max(abs(row[name] or 0.0) for name in ("loss", "q_mean", "q_max"))
        if not worst < DIVERGED:
            raise RunError(
                f"training diverged before step {row['step']:,} (seed {row['seed']}, penalty "
                f"weight {row['penalty_weight']:g}: loss {row['loss']}, mean Q {row['q_mean']}); "
                + _last_good(saved)
            )


def _last_good(saved: int) -> str:
    if saved < 0:
        return "there is no checkpoint yet; try a lower --learning-rate"
    return f"the last good checkpoint, of step {saved:,}, is as it was; try a lower --learning-rate"
