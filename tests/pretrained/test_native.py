"""conqur's own network files: nothing is lost in them, and nothing but them is read."""

import contextlib
import json
import os
import struct

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from conqur.pretrained import Pretrained, find_networks, to_bytes, together
from conqur.pretrained.native import read_native as load
from conqur.regressor import Architecture, initial_regressor
from conqur.runs import flatten

ARCHITECTURES = [
    Architecture("mlp", (4,), 2, (8, 5)),
    Architecture("minatar", (10, 10, 4), 6, (16,)),
    Architecture("nature", (84, 84, 4), 18, (8,)),
    Architecture("nature-same", (84, 84, 4), 3, (8,)),
]


def network(architecture=ARCHITECTURES[0], seed=0):
    regressor = initial_regressor(jax.random.key(seed), architecture)
    origin = {"algorithm": "ddqn", "penalty_weight": 0.5, "seed": seed, "step": 1000}
    return Pretrained(regressor, architecture, "CartPole-v1", "", origin)


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.body)
def test_a_network_comes_back_as_it_was(tmp_path, architecture):
    before = network(architecture)
    path = tmp_path / "network.safetensors"
    path.write_bytes(to_bytes(before))
    after = load(path)
    for name in ("architecture", "environment", "preprocessing", "origin"):
        assert getattr(after, name) == getattr(before, name)
    assert jax.tree.structure(after.regressor) == jax.tree.structure(before.regressor)
    pairs = zip(jax.tree.leaves(after.regressor), jax.tree.leaves(before.regressor), strict=True)
    for one, other in pairs:
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    assert to_bytes(after) == path.read_bytes()


def test_networks_answer_together_as_alone():
    networks = [network(seed=seed) for seed in range(3)]
    seen = jax.random.normal(jax.random.key(9), (3, 5, 4))
    found = together(networks)(seen)
    assert found.shape == (3, 5, 2)
    for k, alone in enumerate(networks):
        np.testing.assert_allclose(found[k], alone.regressor(seen[k]), rtol=1e-6)


def test_what_a_network_answers_is_compiled_once(monkeypatch, caplog):
    """Also where a CPU embeds some observations at a time."""
    monkeypatch.setattr("conqur.regressor.CACHED", 1)
    small = network(Architecture("minatar", (5, 5, 2), 3, (7,)))
    observations = np.random.default_rng(0).random((6, 5, 5, 2), np.float32)
    jax.clear_caches()
    with jax.log_compiles():
        found = small.q_values(observations), small.embed(observations)
        assert "Compiling" in caplog.text
        caplog.clear()
        again = small.q_values(observations), small.embed(observations)
    assert "Compiling" not in caplog.text
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_networks_of_a_path(tmp_path):
    for name in ("b", "a"):
        path = tmp_path / "run" / "networks" / f"{name}.safetensors"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    (path.parent / "c.safetensors.partial").write_bytes(b"")
    folder = tmp_path / "run" / "networks"
    both = [folder / "a.safetensors", folder / "b.safetensors"]
    assert find_networks(tmp_path / "run") == find_networks(folder) == both
    assert find_networks(both[0]) == both[:1]
    os.mkfifo(tmp_path / "pipe")
    for path, words in (
        (tmp_path / "none", "there is no file or run"),
        (tmp_path, r"holds no networks \(yet\)"),
        (tmp_path / "pipe", "is no regular file"),
    ):
        with pytest.raises(ValueError, match=words):
            find_networks(path)


def header(metadata=None, tensors=None):
    about = dict(tensors or {})
    if metadata is not None:
        about["__metadata__"] = metadata
    text = json.dumps(about).encode()
    return struct.pack("<Q", len(text)) + text


def changed(arrays=None, **about):
    """A good network's file, with something in its header, or its arrays, changed."""
    good = network()
    said = {
        "architecture": good.architecture.to_json(),
        "environment": "CartPole-v1",
        "preprocessing": "",
        "origin": {},
    }
    metadata = {"conqur": json.dumps(said | about)}
    return safetensors.numpy.save(flatten(good.regressor) | (arrays or {}), metadata=metadata)


def architecture(**changes):
    return changed(architecture=ARCHITECTURES[0].to_json() | changes)


HUGE = {"dtype": "F32", "shape": [2**38], "data_offsets": [0, 2**40]}
HOSTILE = {
    "nothing": (b"", "holds no network that conqur wrote"),
    "text": (b"import os; os.abort()\n" * 9, "holds no network that conqur wrote"),
    "huge header": (struct.pack("<Q", 2**60) + b"{}", "holds no network that conqur wrote"),
    "long header": (struct.pack("<Q", 90_000_000) + b"{", "holds no network that conqur wrote"),
    "no JSON": (struct.pack("<Q", 4) + b"\xff\xfe{}", "holds no network that conqur wrote"),
    "huge array": (header({"conqur": "{}"}, {"x": HUGE}), "holds no network that conqur wrote"),
    "others' weights": (safetensors.numpy.save({"x": np.zeros(3)}), "its header does not say so"),
    "others' words": (safetensors.numpy.save({"x": np.zeros(3)}, {"a": "b"}), "does not say so"),
    "metadata not JSON": (safetensors.numpy.save({}, {"conqur": "{"}), "holds no network"),
    "metadata too deep": (safetensors.numpy.save({}, {"conqur": "[" * 99999}), "holds no network"),
    "metadata a list": (safetensors.numpy.save({}, {"conqur": "[1]"}), "lacks 'architecture'"),
    "metadata a number": (safetensors.numpy.save({}, {"conqur": "7"}), "lacks 'architecture'"),
    "architecture a word": (changed(architecture="mlp"), "lacks 'architecture'"),
    "environment a number": (changed(environment=7), "lacks 'environment'"),
    "preprocessing null": (changed(preprocessing=None), "lacks 'preprocessing'"),
    "origin a list": (changed(origin=[["seed", 1]]), "lacks 'origin'"),
    "no body": (changed(architecture={"actions": 2}), "its architecture has the fields actions"),
    "strange body": (architecture(body="transformer"), "body must be one of"),
    "body a number": (architecture(body=7), "its architecture has entries of wrong types"),
    "shape a number": (architecture(observation_shape=4), "its architecture's shapes are no lists"),
    "shape of words": (architecture(observation_shape=["4"]), "has entries of wrong types"),
    "shape of fractions": (architecture(observation_shape=[4.5]), "has entries of wrong types"),
    "negative shape": (architecture(observation_shape=[-4]), "must be a whole number"),
    "no actions": (architecture(actions=0), "actions must be a whole number of at least 1"),
    "a huge layer": (architecture(hidden=[2**40]), "its architecture is too large to be true"),
    "huge together": (architecture(hidden=[10**5, 10**5]), "is too large to be true"),
    "many layers": (architecture(hidden=[1] * 10**6), "is too large to be true"),
    "many axes": (architecture(observation_shape=[10**4] * 12), "is too large to be true"),
    "another width": (architecture(hidden=[8, 6]), r"its array .* has shape"),
    "another array": (changed({"more": np.zeros(2, np.float32)}), "its array 'more' has shape"),
    "other numbers": (changed({"head/bias": np.zeros(2)}), "dtype float64"),
    "NaN": (changed({"head/bias": np.float32([0, np.nan])}), "weights that are no finite numbers"),
    "infinity": (changed({"head/bias": np.float32([0, np.inf])}), "are no finite numbers"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_one_sentence(tmp_path, kind):
    content, words = HOSTILE[kind]
    path = tmp_path / "network.safetensors"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path} holds ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_file_that_is_as_large_as_it_says(tmp_path):
    """Of a terabyte, without using any: its array is not that of its architecture."""
    good = changed()
    size = int.from_bytes(good[:8], "little")
    metadata = json.loads(good[8 : 8 + size])["__metadata__"]
    path = tmp_path / "network.safetensors"
    path.write_bytes(header(metadata, {"head/weight": HUGE}))
    os.truncate(path, path.stat().st_size + 2**40)
    with pytest.raises(ValueError, match="has shape"):
        load(path)


def test_paths_that_are_no_files(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    for name in ("loop", "dangling", "nothing", "", "a" * 300, "pipe"):
        with pytest.raises(ValueError, match=r"there is no file|cannot be read|holds no network"):
            load(tmp_path / name)


def test_a_truncated_file(tmp_path):
    whole = to_bytes(network())
    path = tmp_path / "network.safetensors"
    for size in (*range(0, len(whole), 97), len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="holds no network that conqur wrote"):
            load(path)


@given(position=st.integers(0, 2000), value=st.integers(0, 255))
def test_a_changed_byte_is_refused_or_harmless(tmp_path_factory, position, value):
    data = bytearray(to_bytes(network()))
    data[position % len(data)] = value
    path = tmp_path_factory.getbasetemp() / "changed.safetensors"
    path.write_bytes(data)
    with contextlib.suppress(ValueError):
        assert jnp.isfinite(load(path).regressor(jnp.zeros((1, 4)))).all()


def test_some_networks_of_many_answer_as_they_do_among_all():
    networks = [network(seed=seed) for seed in range(5)]
    seen = jax.random.normal(jax.random.key(9), (2, 3, 4))
    both = together(networks).some(np.array([3, 1]))(seen)
    np.testing.assert_array_equal(both, together([networks[3], networks[1]])(seen))
    assert not np.allclose(both, together(networks[:2])(seen))
