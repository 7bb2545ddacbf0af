"""A training loop that is stopped and goes on ends where it would have ended anyway."""

import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from runs import toy_run

from conqur.runs import (
    RunDirectory,
    flatten,
    progress,
    ring_rows,
    stop_requested,
    unflatten,
)

CAPACITY = 8


@jax.jit
def update(state, ring):
    key = jax.random.fold_in(jax.random.key(0), state["step"])
    picked = ring[jax.random.randint(key, (4,), 0, CAPACITY)]
    params = state["params"] * 0.9 + picked.mean(0)
    return {"params": params, "step": state["step"] + 1}


def train(path, *, steps, resume=False, save_every=3, signal_at=None):
    config = {"capacity": CAPACITY, "steps": steps}
    state = {"params": jnp.zeros(3), "step": jnp.int32(0)}
    ring = np.zeros((CAPACITY, 3), np.float32)
    with (
        RunDirectory.open(path) if resume else RunDirectory.create(path, config) as run,
        stop_requested() as stop,
    ):
        checkpoint = run.resume(config, may_change={"steps"}) if resume else None
        if checkpoint is not None:
            state = unflatten(state, checkpoint.arrays)
            ring = checkpoint.rings(CAPACITY)["row"]
        start = int(state["step"])
        with progress(steps, start=start, quiet=True) as shown:
            for step in range(start + 1, steps + 1):
                ring[(step - 1) % CAPACITY] = np.sin(step + np.arange(3))
                state = update(state, jnp.asarray(ring))
                run.log(step, {"norm": jnp.linalg.norm(state["params"])})
                shown.update(step)
                if step == signal_at:
                    signal.raise_signal(signal.SIGTERM)
                if stop or step % save_every == 0 or step == steps:
                    new = ring_rows(ring, max(run.saved_rows, step - CAPACITY), step)
                    run.save(
                        step,
                        flatten(state),
                        appended={"row": new},
                        total_rows=step,
                        keep_rows=CAPACITY,
                    )
                if stop:
                    break
    return flatten(state)


@pytest.mark.usefixtures("fast_disk")
def test_stopped_three_times(tmp_path):
    whole = train(tmp_path / "whole", steps=40)
    train(tmp_path / "parts", steps=40, save_every=5, signal_at=7)
    train(tmp_path / "parts", steps=40, save_every=50, signal_at=29, resume=True)
    train(tmp_path / "parts", steps=31, save_every=1, resume=True)
    parts = train(tmp_path / "parts", steps=40, resume=True)
    toy_run.same(parts, whole)
    logs = [(tmp_path / name / "log.jsonl").read_bytes() for name in ("whole", "parts")]
    assert logs[0] == logs[1]
    assert logs[0].count(b"\n") == 40
