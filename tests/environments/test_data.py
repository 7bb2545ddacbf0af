import io
import json
import os
import struct
import sys
import warnings
import zipfile

import equinox as eqx
import gymnasium
import h5py
import jax
import minari
import numpy as np
import pytest
import safetensors.numpy
from gymnasium import spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from conqur.environments import FixedData, data_files, load_data, save_data

ARRAYS = {
    "observations": np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]),
    "actions": np.array([0, 2, 1]),
    "rewards": np.array([0.5, -1.0, 2.0]),
    "next_observations": np.array([[2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]),
    "terminals": np.array([False, False, True]),
}
# Rows 0–2 end; 3–4 are cut short; 5–6 are all that is left of the third.
SEQUENCE = {
    "observations": np.arange(7.0)[:, None],
    "actions": np.array([0, 1, 0, 1, 0, 1, 0]),
    "rewards": np.arange(7.0) * 10,
    "terminals": np.array([0, 0, 1, 0, 0, 0, 0]),
    "timeouts": np.array([0, 0, 0, 0, 1, 0, 0]),
}
FIELDS = ("observations", "actions", "rewards", "next_observations", "terminals")


def assert_same(data, arrays):
    for name in FIELDS:
        np.testing.assert_array_equal(getattr(data, name), arrays[name])


def write(path, arrays):
    """As somebody else would write it."""
    if path.suffix == ".npz":
        np.savez_compressed(path, **arrays)
    else:
        arrays = {name: np.asarray(array) for name, array in arrays.items()}
        safetensors.numpy.save_file(arrays, path)
    return path


@pytest.fixture(params=[".npz", ".safetensors"])
def path(request, tmp_path):
    return tmp_path / f"data{request.param}"


def test_transitions_by_hand(path):
    data = load_data(write(path, ARRAYS | {"infos": np.zeros(2)}))
    assert_same(data, ARRAYS)
    assert (len(data), data.num_actions) == (3, 3)
    assert data.observations.dtype == data.rewards.dtype == np.float32
    assert (data.actions.dtype, data.terminals.dtype) == (np.int32, np.bool_)


def test_episodes_one_after_the_other_by_hand(path):
    data = load_data(write(path, SEQUENCE))
    # Row 4 was cut short and row 6 is the last: what came after them is not known.
    assert data.observations[:, 0].tolist() == [0, 1, 2, 3, 5]
    assert data.rewards.tolist() == [0, 10, 20, 30, 50]
    assert data.actions.tolist() == [0, 1, 0, 1, 1]
    assert data.terminals.tolist() == [False, False, True, False, False]
    assert data.next_observations[:, 0].tolist()[:2] == [1, 2]
    assert data.next_observations[:, 0].tolist()[3:] == [4, 6]


def test_episodes_without_timeouts_and_with_an_end_in_the_last_row(path):
    arrays = {name: array for name, array in SEQUENCE.items() if name != "timeouts"}
    arrays["terminals"] = np.array([0, 0, 1, 0, 0, 0, 1])
    data = load_data(write(path, arrays))
    assert data.observations[:, 0].tolist() == list(range(7))
    assert data.terminals.tolist() == [False, False, True, False, False, False, True]
    successors = data.next_observations[:, 0]
    assert [successors[row] for row in (0, 1, 3, 4, 5)] == [1, 2, 4, 5, 6]


def test_a_row_that_ends_and_is_cut_at_once_has_ended(path):
    timeouts = np.array([0, 0, 1, 0, 1, 0, 0])
    data = load_data(write(path, SEQUENCE | {"timeouts": timeouts}))
    assert data.observations[:, 0].tolist() == [0, 1, 2, 3, 5]
    assert data.terminals.tolist() == [False, False, True, False, False]


def test_timeouts_keep_successors_that_are_there(path):
    data = load_data(write(path, ARRAYS | {"timeouts": np.array([False, True, False])}))
    assert_same(data, ARRAYS)


observations = st.one_of(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(1, 6), st.integers(1, 4)),
        elements=st.floats(-1e3, 1e3, width=32),
    ),
    hnp.arrays(np.uint8, st.tuples(st.integers(1, 6), st.integers(1, 4), st.integers(1, 3))),
    hnp.arrays(np.bool_, st.tuples(st.integers(1, 6), *[st.integers(1, 3)] * 3)),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), observations)
def test_what_is_saved_is_loaded(path, data, frames):
    count = len(frames)
    actions = data.draw(hnp.arrays(np.int64, count, elements=st.integers(0, 17)))
    saved = FixedData(
        frames,
        actions,
        data.draw(hnp.arrays(np.float32, count, elements=st.floats(-10, 10, width=32))),
        frames[::-1],
        data.draw(hnp.arrays(np.bool_, count)),
        num_actions=data.draw(st.sampled_from([None, 18])),
    )
    save_data(path, saved)
    loaded = load_data(path)
    for name in FIELDS:
        before, after = np.asarray(getattr(saved, name)), np.asarray(getattr(loaded, name))
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)
    assert saved.num_actions == loaded.num_actions
    np.testing.assert_array_equal(loaded.observations, frames)
    assert loaded.observations.dtype == frames.dtype
    assert os.listdir(path.parent) == [path.name]


def test_the_digest_is_that_of_the_content(tmp_path):
    data = FixedData(**ARRAYS)
    for name in ("a.npz", "a.safetensors"):
        save_data(tmp_path / name, data)
        assert load_data(tmp_path / name).digest() == data.digest()
    others = [FixedData(**ARRAYS, num_actions=9)]
    for name in FIELDS:
        changed = ARRAYS[name].copy()
        changed.flat[0] = not changed.flat[0]
        others.append(FixedData(**ARRAYS | {name: changed}))
    assert len({data.digest(), *(other.digest() for other in others)}) == 7


def test_other_observations_become_vectors():
    frames = np.arange(24).reshape(2, 3, 4)
    data = FixedData(frames, [0, 1], [0, 0], frames, [0, 0])
    assert (data.observations.shape, data.observations.dtype) == ((2, 12), np.float32)
    np.testing.assert_array_equal(data.observations, frames.reshape(2, 12))


def test_samples_are_rows_drawn_uniformly(path):
    data = load_data(write(path, ARRAYS))
    sample = eqx.filter_jit(lambda data, key: data.sample(key, 3000))
    batch = sample(data, jax.random.key(0))
    assert batch._fields == ("states", "actions", "rewards", "successors", "terminal")
    rows = np.asarray(batch.states[:, 0] / 2).astype(int)
    for name, array in zip(FIELDS, (batch[0], batch[1], batch[2], batch[3], batch[4]), strict=True):
        np.testing.assert_array_equal(array, ARRAYS[name][rows])
    # 1000 each are expected, with a standard deviation of 26.
    assert all(880 < count < 1120 for count in np.bincount(rows, minlength=3))
    other = sample(data, jax.random.key(1))
    assert (other.actions != batch.actions).any()


def test_the_number_of_actions(path):
    assert load_data(write(path, ARRAYS), num_actions=6).num_actions == 6
    with pytest.raises(ValueError, match="actions holds action 2, but num_actions is 2"):
        load_data(path, num_actions=2)
    assert load_data(write(path, ARRAYS | {"num_actions": np.array(4)})).num_actions == 4
    with pytest.raises(ValueError, match="num_actions is 4 in the data, but 5 given"):
        load_data(path, num_actions=5)
    for wrong in (np.array([1, 2]), np.array(4.0), np.array(2), np.array(-1)):
        with pytest.raises(ValueError, match="num_actions"):
            load_data(write(path, ARRAYS | {"num_actions": wrong}))
    assert load_data(write(path, ARRAYS | {"num_actions": np.array(100_000)})).num_actions == 10**5
    for change in (
        {"num_actions": np.array(100_001)},
        {"actions": np.full_like(ARRAYS["actions"], 2**40, np.int64)},
    ):
        with pytest.raises(ValueError, match=r"actions must be at most 100,000, but these are"):
            load_data(write(path, ARRAYS | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": None}, "the array actions is missing"),
        ({"observations": None}, "the array observations is missing"),
        ({"actions": np.array([0, -1, 0])}, "actions holds -1"),
        ({"actions": np.array([0.0, 1.0, 1.0])}, "actions must hold integers"),
        ({"actions": np.array([0, 1])}, r"actions must have shape \[3\], got \[2\]"),
        ({"actions": np.zeros((3, 1), int)}, r"actions must have shape \[3\], got \[3, 1\]"),
        ({"rewards": np.array([0, np.nan, 0])}, "rewards holds NaN"),
        ({"rewards": np.array([0, 1e300, 0])}, "rewards holds NaN or infinite entries, or too"),
        ({"rewards": np.zeros(4)}, r"rewards must have shape \[3\], got \[4\]"),
        ({"observations": np.full((3, 2), np.inf)}, "observations holds NaN or infinite"),
        ({"observations": np.zeros((2, 2))}, "next_observations must have shape"),
        ({"observations": np.zeros((0, 2))}, "observations must have shape"),
        ({"observations": np.array(1.0)}, "observations must have shape"),
        ({"observations": np.zeros((3, 2, 2), np.uint8)}, "next_observations must have shape"),
        ({"terminals": np.array([0, 2, 0])}, "terminals must hold booleans"),
        ({"terminals": np.array([0, 1])}, r"terminals must have shape \[3\]"),
        ({"next_observations": None, "rewards": np.zeros(2)}, "rewards must have 3 rows"),
        ({"next_observations": None, "actions": np.array(1)}, "actions must have 3 rows"),
        ({"next_observations": None, "observations": np.array(1)}, "must have 1 rows"),
        (
            {"next_observations": None, "timeouts": np.ones(3), "terminals": np.zeros(3)},
            "no row has a successor",
        ),
        ({"next_observations": None, "timeouts": np.ones(2)}, r"timeouts must have shape \[3\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(path, change, message):
    arrays = {name: array for name, array in (ARRAYS | change).items() if array is not None}
    with pytest.raises(ValueError, match=message) as caught:
        load_data(write(path, arrays))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_images_beside_vectors_are_refused():
    with pytest.raises(ValueError, match="next_observations must be of uint8"):
        FixedData(np.zeros((1, 2, 2), np.uint8), [0], [0.0], np.zeros((1, 2, 2), bool), [0])


def npy(header, version=1, body=b""):
    """A member of an .npz file, with any header."""
    width = "<H" if version == 1 else "<I"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack(width, len(header)) + header + body


def npz(path, **members):
    """An .npz file of these members, and what `ARRAYS` has besides."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, array in ARRAYS.items():
            stream = io.BytesIO()
            np.save(stream, array)
            archive.writestr(f"{name}.npy", members.get(name, stream.getvalue()))
    return path


HEADER = b"{'descr': '<f8', 'fortran_order': False, 'shape': (%s), }\n"


@pytest.mark.parametrize(
    ("member", "message"),
    [
        (b"", "rewards is no array of NumPy's format"),
        (b"not an array at all", "rewards is no array of NumPy's format"),
        (npy(b"x", version=9), "rewards is no array of NumPy's format"),
        (npy(HEADER % b"3,", body=bytes(23)), r"rewards says it has shape \[3\], but holds 23"),
        (npy(HEADER % b"10**12,"), "cannot be read"),
        (npy(HEADER % b"1000000000000,"), "says it has shape"),
        (npy(HEADER % b"-1, -3", body=bytes(24)), "says it has shape"),
        (npy(HEADER.replace(b"<f8", b"|O") % b"3,", body=bytes(24)), "rewards holds object"),
        (npy(HEADER.replace(b"<f8", b"<U2") % b"3,", body=bytes(24)), "rewards holds <U2"),
        (npy(HEADER.replace(b"<f8", b"<c16") % b"3,", body=bytes(48)), "rewards holds complex"),
        (npy(b"(" * 9000), "cannot be read"),
        (npy(b" " * 20_000, version=2), "rewards has a header of 20000 bytes"),
        (npy(b"", version=2)[:8] + b"\xff" * 4, "rewards has a header of 4294967295 bytes"),
    ],
    ids=range(13),
)
def test_hostile_arrays_in_npz_are_refused_before_they_are_read(tmp_path, member, message):
    path = npz(tmp_path / "data.npz", rewards=member)
    with pytest.raises(ValueError, match=message) as caught:
        load_data(path)
    assert "\n" not in str(caught.value)


def test_npz_by_hand_is_read(tmp_path):
    # The two tests of hostile files would show nothing if all files made this way were refused.
    member = npy(HEADER % b"3,", version=2, body=ARRAYS["rewards"].tobytes())
    assert_same(load_data(npz(tmp_path / "data.npz", rewards=member)), ARRAYS)


def test_pickles_are_never_loaded(tmp_path):
    path = tmp_path / "data.npz"
    np.savez(path, **ARRAYS | {"rewards": np.array([None, 1, 2], object)})
    with pytest.raises(ValueError, match="rewards holds object instead of numbers"):
        load_data(path)


def test_bombs_are_not_unpacked(tmp_path, monkeypatch):
    size = 50_000_000  # zeros, which deflate to a thousandth
    header = HEADER % f"{size // 8},".encode()
    path = npz(tmp_path / "data.npz", rewards=npy(header, body=bytes(size)))
    assert path.stat().st_size < 100_000
    read = []
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: read.append(1))
    monkeypatch.setattr(data_files, "HARMLESS", 2**20)
    with pytest.raises(ValueError, match=r"has \d+ bytes, but claims to hold 50\d+"):
        load_data(path)
    monkeypatch.setattr(data_files, "MAX_RATIO", 10_000)
    monkeypatch.setattr(data_files, "machine_memory", lambda: 2**26)
    with pytest.raises(ValueError, match="too much for this machine"):
        load_data(path)
    assert not read


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"\xff" * 100, b'{"a": 1}' * 50])
def test_files_of_another_kind_are_refused(tmp_path, suffix, content):
    path = tmp_path / f"data{suffix}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"cannot be read as {suffix}: ") as caught:
        load_data(path)
    assert "\n" not in str(caught.value)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_damaged_files_are_refused_or_read_as_numbers(path, data):
    write(path, ARRAYS)
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(content) - 1))
        content[place] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    try:
        loaded = load_data(path)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017 (most damage is refused, not all)
    else:
        assert np.isfinite(loaded.observations).all()


def test_safetensors_headers_that_promise_too_much(tmp_path):
    path = tmp_path / "data.safetensors"
    for header in (
        b"",
        b'{"rewards":{"dtype":"F64","shape":[1000000000000],"data_offsets":[0,8000000000000]}}',
        b'{"rewards":{"dtype":"F64","shape":[3],"data_offsets":[0,8]}}',
    ):
        path.write_bytes(struct.pack("<Q", len(header) or 2**32) + header)
        with pytest.raises(ValueError, match=r"cannot be read as \.safetensors: "):
            load_data(path)
    with path.open("wb") as file:  # a hole of a terabyte, which takes no room
        file.truncate(2**40)
    with pytest.raises(ValueError, match="too much for this machine"):
        load_data(path)


def test_paths_that_are_no_data(tmp_path):
    with pytest.raises(ValueError, match=r"there is no file .*x\.npz"):
        load_data(tmp_path / "x.npz")
    with pytest.raises(ValueError, match=r"x\.csv is no data set: that is a file \.npz or"):
        load_data(tmp_path / "x.csv")
    with pytest.raises(ValueError, match=r"path must end in \.npz or \.safetensors"):
        save_data(tmp_path / "x.csv", FixedData(**ARRAYS))


def test_saving_that_fails_leaves_the_old_file(path, monkeypatch):
    data = FixedData(**ARRAYS)
    save_data(path, data)

    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        save_data(path, FixedData(**ARRAYS | {"rewards": np.zeros(3)}))
    assert os.listdir(path.parent) == [path.name]
    assert eqx.tree_equal(load_data(path), data)


@pytest.fixture
def minari_root(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "sets"))
    return tmp_path / "sets"


def episode(observations, actions, *, ended):
    """A buffer of Minari's own: one more observation than steps."""
    steps = len(actions)
    last = np.arange(steps) == steps - 1
    return minari.data_collector.EpisodeBuffer(
        observations=observations,
        actions=actions,
        rewards=[float(action) for action in actions],
        terminations=(last & ended).tolist(),
        truncations=(last & ~np.bool_(ended)).tolist(),
    )


def minari_set(space=None):
    space = spaces.Box(-10, 10, (2,), np.float32) if space is None else space
    frames = [np.full(space.shape, number, space.dtype) for number in range(7)]
    with warnings.catch_warnings(action="ignore"):  # of a set without an environment
        minari.create_dataset_from_buffers(
            dataset_id="conqur/walk-v0",
            buffer=[
                episode(frames[:4], [5, 6, 7], ended=True),
                episode(frames[4:7], [7, 5], ended=False),
            ],
            observation_space=space,
            action_space=spaces.Discrete(4, start=5),
        )


def test_minari_sets_by_hand(minari_root):
    minari_set()
    for path in (
        "minari:conqur/walk-v0",
        minari_root / "conqur/walk-v0",
        minari_root / "conqur/walk-v0/data",
    ):
        data = load_data(path)
        assert data.observations[:, 0].tolist() == [0, 1, 2, 4, 5]
        assert data.next_observations[:, 0].tolist() == [1, 2, 3, 5, 6]
        assert data.actions.tolist() == [0, 1, 2, 2, 0]
        assert data.rewards.tolist() == [5, 6, 7, 7, 5]
        assert data.terminals.tolist() == [False, False, True, False, False]
        assert data.num_actions == 4


def test_minari_images(minari_root):
    minari_set(spaces.Box(0, 255, (40, 48, 3), np.uint8))
    data = load_data("minari:conqur/walk-v0")
    assert (data.observations.shape, data.observations.dtype) == ((5, 40, 48, 3), np.uint8)
    # Minari stores JPEGs, in which a picture of one colour stays about what it was.
    means = np.asarray(data.next_observations).mean(axis=(1, 2, 3))
    np.testing.assert_allclose(means, [1, 2, 3, 5, 6], atol=1.01)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observation_space": None}, "lacks the observation_space"),
        ({"action_space": '{"type": "Box"}'}, "action_space is Box, but has to be Discrete"),
        ({"observation_space": '{"type": "Dict"}'}, "observation_space is Dict"),
        ({"data_format": "arrow"}, "its format is arrow"),
        ({"total_episodes": 10**12}, "counts 1000000000000 episodes, but it holds 2"),
        ({"total_episodes": "2"}, "counts 2 episodes"),
        ({"observation_space": "{"}, "cannot be read as a Minari data set"),
        ({"minari_version": "99"}, "does not support"),
    ],
)
def test_minari_metadata_that_does_not_fit(minari_root, change, message):
    minari_set()
    file = minari_root / "conqur/walk-v0/data/metadata.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(ValueError, match=message) as caught:
        load_data("minari:conqur/walk-v0")
    assert "\n" not in str(caught.value)


def shorten(file):
    data = file["episode_0/observations"][:-1]
    del file["episode_0/observations"]
    file["episode_0/observations"] = data


def inflate(file):
    del file["episode_0/observations"]
    file.create_dataset("episode_0/observations", (10**12, 2), np.float32, chunks=(1000, 2))


def link(file):
    file.move("episode_0/rewards", "other")
    file["episode_0/rewards"] = h5py.SoftLink("/other")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.pop("episode_1/rewards"), "episode 1 has no rewards"),
        (shorten, "episode 0 has 3 observations, but 3 steps"),
        (inflate, "claims to hold"),
        (link, "episode 0 has no rewards"),
    ],
)
def test_minari_files_that_are_damaged(minari_root, damage, message):
    minari_set()
    with h5py.File(minari_root / "conqur/walk-v0/data/main_data.hdf5", "a") as file:
        damage(file)
    with pytest.raises(ValueError, match=message):
        load_data(minari_root / "conqur/walk-v0")


def test_minari_sets_that_are_not_there(minari_root, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"there is no minari:x-v0 .*: minari download x-v0$"):
        load_data("minari:x-v0")
    with pytest.raises(ValueError, match="there is no minari:"):
        load_data("minari:conqur/../..")
    with pytest.raises(ValueError, match="cannot be read as a Minari data set"):
        load_data(tmp_path)
    monkeypatch.setitem(sys.modules, "minari", None)
    with pytest.raises(ValueError, match=r"needs minari: pip install 'conqur\[minari\]'$"):
        load_data("minari:x-v0")


def test_minari_sets_never_make_environments(minari_root, monkeypatch):
    minari_set()
    monkeypatch.setattr(gymnasium, "make", lambda *_, **__: pytest.fail("made an environment"))
    assert len(load_data("minari:conqur/walk-v0")) == 5
