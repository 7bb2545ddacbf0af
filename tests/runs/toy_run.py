"""A run whose state, rows and log are known in closed form at every step.

As a script it goes on with a run that is killed again and again: `toy_run.py FOLDER KILLS`.
"""

import functools
import hashlib
import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import ml_dtypes
import numpy as np

from conqur.runs import RunDirectory, ring_rows

CAPACITY = 20
ROWS_PER_STEP = 3


def noise(*words):
    digest = hashlib.sha256(repr(words).encode()).digest()
    return np.random.default_rng(list(digest))


@functools.cache
def state(step):
    rng = noise("state", step)
    return {
        "params/weight": rng.normal(size=(7, 5)).astype(np.float32),
        "params/half": rng.normal(size=3).astype(ml_dtypes.bfloat16),
        "mask": rng.random(6) < 0.5,
        "count": np.array(step, np.int32),
    }


@functools.cache
def row(number):
    rng = noise("row", number)
    return {
        "frame": rng.integers(0, 256, (4, 3), dtype=np.uint8),
        "done": np.asarray(rng.random() < 0.5),
        "feature": rng.normal(size=2).astype(ml_dtypes.bfloat16),
    }


def rings(total, capacity=CAPACITY):
    """All rows are remade and put in one after the other."""
    rings = {name: np.zeros((capacity, *a.shape), a.dtype) for name, a in row(0).items()}
    for number in range(total):
        for name, array in row(number).items():
            rings[name][number % capacity] = array
    return rings


def log_row(step):
    return {"loss": round(float(noise("loss", step).random()), 6), "name": "λ"}


def log_text(step):
    lines = (
        f'{{"loss":{json.dumps(log_row(s)["loss"])},"name":"λ","step":{s}}}\n'
        for s in range(1, step + 1)
    )
    return "".join(lines).encode()


def advance(run, step):
    """What a training loop does in a step: log it and save it."""
    run.log(step, log_row(step))
    total = step * ROWS_PER_STEP
    current = rings(total)
    first = max(run.saved_rows, total - CAPACITY)
    new = {name: ring_rows(ring, first, total) for name, ring in current.items()}
    run.save(step, state(step), appended=new, total_rows=total, keep_rows=CAPACITY)


def train(run, start, stop):
    for step in range(start + 1, stop + 1):
        advance(run, step)


def same(left, right):
    assert left.keys() == right.keys()
    for name, array in left.items():
        other = right[name]
        assert (array.dtype, array.shape) == (other.dtype, other.shape), name
        assert array.tobytes() == other.tobytes(), name


def check(run, checkpoint):
    """The checkpoint is exactly that of its step, and the log exactly as long; return the step."""
    step = 0 if checkpoint is None else checkpoint.step
    assert (run.path / "log.jsonl").read_bytes() == log_text(step)
    if checkpoint is not None:
        same(checkpoint.arrays, state(step))
        assert checkpoint.total_rows == step * ROWS_PER_STEP
        same(checkpoint.rings(CAPACITY), rings(checkpoint.total_rows))
    left = sorted(path.name for path in (run.path / "checkpoints").iterdir())
    assert not [name for name in left if name.endswith(".partial")]
    return step


def check_folder(path, warnings=None):
    """Load, check, let go; the step."""
    said = [] if warnings is None else warnings
    with RunDirectory.open(path, warn=said.append) as run:
        return check(run, run.load())


def _fork(work, *arguments):
    child = os.fork()
    if child == 0:
        try:
            work(*arguments)
        finally:
            os._exit(1)  # it is only ever killed
    return child


def _child(path, started, held):
    """Train for ever; a second child of its own outlives it and must not keep the lock."""
    with RunDirectory.open(path, warn=lambda line: None) as run:
        checkpoint = run.load()
        step = 0 if checkpoint is None else checkpoint.step
        _fork(os.read, held, 1)
        os.write(started, b"x")
        train(run, step, 10**9)


def kill_again_and_again(path, kills):
    rng = random.Random(0)
    steps = [0]
    read_started, started = os.pipe()
    held, release = os.pipe()
    try:
        for _ in range(kills):
            child = _fork(_child, path, started, held)
            os.read(read_started, 1)
            time.sleep(rng.uniform(0, 0.2))
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            warnings = []
            steps.append(check_folder(path, warnings))
            assert all("no checkpoint yet" in line for line in warnings), warnings
            assert steps[-1] >= steps[-2], steps
    finally:
        os.write(release, b"x" * kills)  # the children's children end
    assert steps[-1] >= 3, steps  # it did get on
    print(*steps)


if __name__ == "__main__":
    kill_again_and_again(Path(sys.argv[1]), int(sys.argv[2]))
