"""All that a training run is at a moment, as the arrays of a checkpoint, and back."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from conqur.runs import Checkpoint, RunDirectory, flatten, ring_rows, unflatten
from conqur.runs.tree import key_data, like_key
from conqur.training import Member, Trainer

RINGS = ("frames", "first", "actions", "rewards", "terminal", "drawable")


def save_state(
    run: RunDirectory, trainer: Trainer, members: Member, time: int, *, step: int
) -> None:
    """Write a checkpoint.

    Args:
        run: the run's directory.
        trainer: the host's environments are part of the state.
        members: all of them.
        time: how many steps of all environments there were.
        step: what the run counts instead.
    """
    state, rings = _split(members, time)
    arrays = flatten({"members": state, "host": trainer.host_state(), "time": np.int64(time)})
    keep = next(iter(rings.values())).shape[1] - 1 if rings else 0
    new = min(time - run.saved_rows, keep)
    appended = {name: ring_rows(ring, time - new, time, axis=1) for name, ring in rings.items()}
    rows = time if rings else 0
    run.save(step, arrays, appended=appended, total_rows=rows, keep_rows=keep)


def _split(members: Member, time: int) -> tuple[Any, dict[str, Any]]:
    """All that is small, as arrays, and the replay's rings; the newest frame counts as small."""
    rings: dict[str, Any] = {}
    state: dict[str, Any] = {
        "agent": members.agent,
        "tally": members.tally,
        "episodes": jax.tree.map(key_data, members.episodes),
    }
    if members.replay is not None:
        rings = {name: getattr(members.replay, name) for name in RINGS}
        row = time % rings["frames"].shape[1]
        state["newest"] = {name: rings[name][:, row] for name in ("frames", "first")}
    return state, rings


def restored(
    trainer: Trainer, checkpoint: Checkpoint, warn: Callable[[str], None]
) -> tuple[Member, int]:
    """The members and the time of a checkpoint; the environments are brought back, too.

    Args:
        trainer: made from the run's settings.
        checkpoint: of a run with the same settings.
        warn: told in one line if the environments did not come back.
    """
    time = int(checkpoint.arrays["time"])
    members = trainer.shapes()  # there may be no memory for a second replay
    template, rings = jax.eval_shape(lambda members: _split(members, time), members)
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
            rows = (
                np.moveaxis(saved.pop(name), 0, 1)
                if name in saved
                else np.zeros(ring.shape, ring.dtype)
            )
            if name in state["newest"]:
                rows[:, time % capacity] = state["newest"][name]
            rings[name] = jnp.array(rows)
        replay = eqx.tree_at(
            lambda replay: [getattr(replay, n) for n in rings], replay, [*rings.values()]
        )
    if not trainer.restore_host(host):
        warn(
            f"{trainer.spec.name} did not come back to the state it was left in: it is not "
            "deterministic, so new episodes begin"
        )
    episodes = jax.tree.map(like_key, members.episodes, state["episodes"])
    return Member(state["agent"], replay, state["tally"], episodes), time
