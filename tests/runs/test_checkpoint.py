"""Checkpoints: rows of a ring in segments, what is kept, and files that are not to be trusted."""

import hashlib
import json
import os
import zlib

import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import toy_run

from conqur.runs import RunDirectory, RunError, ring_rows, rows
from conqur.runs.checkpoint import Checkpoints
from conqur.runs.record import LogPosition


@pytest.fixture
def run(tmp_path, fast_disk):
    with RunDirectory.create(tmp_path / "run", {}) as run:
        yield run


def names(run, pattern="*"):
    return sorted(path.name for path in (run.path / "checkpoints").glob(pattern))


@settings(max_examples=40)
@given(
    capacity=st.integers(1, 12),
    growth=st.lists(st.integers(0, 30), min_size=1, max_size=8),
    reload_after=st.integers(0, 8),
)
def test_rings_are_as_if_every_row_had_been_kept(tmp_path_factory, capacity, growth, reload_after):
    folder = tmp_path_factory.mktemp("rings")
    store, total = Checkpoints(folder), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        for step, new in enumerate(growth):
            total += new
            everything = {name: [toy_run.row(i)[name] for i in range(total)] for name in ("frame",)}
            newest = everything["frame"][max(store.saved_rows, total - capacity) :]
            store.save(
                step,
                {},
                appended={"frame": np.array(newest, np.uint8).reshape(-1, 4, 3)},
                total_rows=total,
                keep_rows=capacity,
                log=LogPosition(0, ""),
                config={},
            )
            if step == reload_after:
                store = Checkpoints(folder)
                store.load(0, print)
            found = Checkpoints(folder).load(0, print)
            assert found.total_rows == total
            expected = toy_run.rings(total, capacity)["frame"]
            assert (found.rings(capacity).get("frame", 0 * expected) == expected).all()
            kept = sum(len(part["frame"]) for _, part in found.segments())
            assert kept < capacity + max(growth)  # what is too old is not kept for ever


@given(
    capacity=st.integers(1, 9),
    first=st.integers(0, 40),
    count=st.integers(0, 9),
    axis=st.sampled_from([0, 1]),
)
def test_ring_rows(capacity, first, count, axis):
    count = min(count, capacity)
    ring = np.zeros(capacity, int)
    for number in range(first + count):
        ring[number % capacity] = number
    rings = ring[:, None] if axis == 0 else ring[None]
    found = ring_rows(rings, first, first + count, axis=axis)
    assert found.tolist() == [[number] for number in range(first, first + count)]


def test_ring_rows_of_a_jax_array():
    found = ring_rows(jnp.array([[4, 5, 2, 3]], jnp.uint8), 3, 6, axis=1)
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.uint8
    assert found.tolist() == [[3], [4], [5]]


def test_ring_rows_refuses_what_the_ring_cannot_hold():
    with pytest.raises(ValueError, match="ring holds 4 rows, got first = 1 and stop = 6"):
        ring_rows(np.zeros(4), 1, 6)


def test_two_checkpoints_and_their_files_are_kept(run):
    toy_run.train(run, 0, 9)
    assert names(run, "checkpoint*") == [
        "checkpoint-000000000008.json",
        "checkpoint-000000000009.json",
    ]
    assert [name[:18] for name in names(run, "state*")] == [
        "state-000000000008",
        "state-000000000009",
    ]
    # Step 8 has rows up to 24 of which 4 on are still in a ring of 20: 3 on, as they were saved.
    assert [int(name[5:17]) for name in names(run, "rows*")] == list(range(3, 27, 3))


def test_a_second_checkpoint_at_the_same_step_takes_the_place_of_the_first(run):
    toy_run.train(run, 0, 2)
    run.log(2, {"evaluation": 1})
    run.save(2, toy_run.state(2), total_rows=6, keep_rows=20)
    assert [name[-8:-5] for name in names(run, "checkpoint*")] == ["001", "002"]
    length = (run.path / "log.jsonl").stat().st_size
    found = run.load()
    assert (run.path / "log.jsonl").stat().st_size == length
    toy_run.same(found.rings(20), toy_run.rings(6))


def test_segments_are_shared_and_not_written_again(run):
    toy_run.train(run, 0, 3)
    first = next((run.path / "checkpoints").glob("rows-*00-*"))
    before = first.stat().st_mtime_ns, first.stat().st_ino
    toy_run.train(run, 3, 5)
    assert (first.stat().st_mtime_ns, first.stat().st_ino) == before


def test_noise_is_stored_and_frames_are_compressed():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(300, 5000)).astype(np.float32)
    frames = np.repeat(rng.integers(0, 3, (700, 84, 1), dtype=np.uint8), 84, axis=2)
    assert noise.nbytes > len(rows.encode({"x": noise})) - 1000 > 0.99 * noise.nbytes - 1000
    assert len(rows.encode({"x": frames})) < frames.nbytes / 20


def test_rows_in_several_blocks(tmp_path):
    rng = np.random.default_rng(0)
    frames = rng.integers(0, 2, (1000, 84, 84), dtype=np.uint8)
    noise = rng.normal(size=(1000, 3000)).astype(jnp.bfloat16)
    few = np.arange(1000)[:, None][:, :0]
    given = {"frames": frames, "noise": noise, "few": few, "done": frames[:, 0, 0] > 0}
    assert frames.nbytes % (4 << 20)
    (tmp_path / "rows").write_bytes(rows.encode(given))
    toy_run.same(rows.decode(tmp_path / "rows"), given)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"step": 1}, "step must not go back, got 1 after 2"),
        ({"step": -1}, "step must be a whole number of at least 0, got -1"),
        ({"total_rows": 5}, "total_rows must not go back, got 5 after 6"),
        ({"total_rows": 8}, "keep_rows must be a whole number of at least 1, got 0"),
        ({"total_rows": 8, "keep_rows": 9}, "appended must hold the 2 newest rows, got none"),
        (
            {"total_rows": 8, "keep_rows": 9, "appended": {"frame": np.zeros((3, 2))}},
            r"appended must hold the 2 newest rows, got \[3, 2\]",
        ),
        ({"appended": {"frame": np.zeros((3, 2))}}, "appended must hold the 0 newest rows"),
        ({"arrays": {"x": np.array(["word"])}}, "arrays holds 'x' of dtype <U4"),
    ],
)
def test_wrong_use_is_refused_and_harms_nothing(run, arguments, words):
    toy_run.train(run, 0, 2)
    before = names(run)
    with pytest.raises(ValueError, match=words):
        run.save(**{"step": 3, "arrays": {}, "total_rows": 6, **arguments})
    assert names(run) == before


def forge(run, change):
    """Rewrite the newest checkpoint's JSON, with a digest that fits."""
    path = run.path / "checkpoints" / names(run, "checkpoint*")[-1]
    content = json.loads(path.read_text())
    del content["sha256"]
    change(content)
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    content["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c["state"].update(name="../../secret"), "it names files that are not its own"),
        (lambda c: c["state"].update(name=5), "its name is impossible"),
        (lambda c: c["state"].update(size=-1), "its size is impossible"),
        (lambda c: c.update(step="2"), "its step is impossible"),
        (lambda c: c.update(step=3), "it is of another step"),
        (lambda c: c.update(format=1), "it was written by another version of conqur"),
        (lambda c: c.update(segments=3), "it lacks fields"),
        (lambda c: c.update(other=3), "it lacks fields"),
        (lambda c: c.pop("log"), "it lacks fields"),
        (lambda c: c.update(config=3), "it lacks fields"),
        (lambda c: c["state"].update(size=10**15), "bytes instead of 1000000000000000"),
        (lambda c: c["state"].update(sha256="0"), "was changed"),
    ],
)
def test_a_forged_checkpoint_counts_as_damaged(run, change, words):
    toy_run.train(run, 0, 2)
    forge(run, change)
    warnings = []
    run.close()
    with RunDirectory.open(run.path, warn=warnings.append) as again:
        assert again.load().step == 1
    assert len(warnings) == 1
    assert warnings[0].startswith("checkpoint 2 is damaged (")
    assert words in warnings[0]


@pytest.mark.parametrize(
    "text", ["", "[]", "[" * 10**5, "NaN", '{"a":NaN}', '{"a":"\\ud800"}', "\xff"]
)
def test_a_checkpoint_that_is_no_json_counts_as_damaged(run, text):
    toy_run.train(run, 0, 2)
    path = run.path / "checkpoints" / names(run, "checkpoint*")[-1]
    path.write_bytes(text.encode("latin-1"))
    warnings = []
    run.close()
    assert toy_run.check_folder(run.path, warnings) == 1
    assert len(warnings) == 1


@pytest.mark.parametrize(
    "about",
    [
        {"compressed": True, "dtype": "uint8", "shape": [10**12]},
        {"compressed": True, "dtype": "uint8", "shape": [10]},
        {"compressed": True, "dtype": "uint8", "shape": [-1]},
        {"compressed": True, "dtype": "object", "shape": [1]},
        {"compressed": False, "dtype": "uint8", "shape": [7]},
        {"compressed": True, "dtype": "uint8"},
        {"compressed": True, "dtype": "nothing", "shape": [1]},
        [],
    ],
)
def test_a_forged_segment_is_refused(tmp_path, about):
    """It says more, or less, than it holds: a megabyte of zeros in a thousand bytes."""
    block = np.frombuffer(zlib.compress(bytes(10**6)), np.uint8)
    data = safetensors.numpy.save({"x/0": block}, {"arrays": json.dumps({"x": about})})
    (tmp_path / "rows").write_bytes(data)
    if isinstance(about, dict) and about.get("shape") == [10]:
        assert rows.decode(tmp_path / "rows")["x"].tolist() == [0] * 10  # and no more is unpacked
        return
    with pytest.raises(RunError, match="rows holds no rows of a replay"):
        rows.decode(tmp_path / "rows")
