"""Files of all formats through one door."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import conqur
from conqur.pretrained import Pretrained, find_networks, to_bytes, write_like, written_suffix
from conqur.pretrained.hub import is_hub_id
from conqur.regressor import Architecture, Dense, initial_regressor


def network(actions=3, seed=0):
    architecture = Architecture("mlp", (4,), actions, (5,))
    regressor = initial_regressor(jax.random.key(seed), architecture)
    return Pretrained(regressor, architecture, "Acrobot-v1", "", {"seed": seed})


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(to_bytes(network()))
    return path


def test_a_network_can_be_asked_for_features_values_and_another_head(saved):
    found = conqur.load(saved)
    seen = jnp.asarray(np.random.default_rng(0).normal(size=(7, 4)), jnp.float32)
    features = found.embed(seen)
    expected = np.asarray(features) @ np.asarray(found.head.weight) + np.asarray(found.head.bias)
    np.testing.assert_allclose(found.q_values(seen), expected, rtol=1e-6)
    twice = found.with_head(Dense(2 * found.head.weight, 2 * found.head.bias))
    np.testing.assert_allclose(twice.q_values(seen), 2 * expected, rtol=1e-6)
    np.testing.assert_array_equal(twice.embed(seen), features)
    np.testing.assert_array_equal(found.q_values(np.asarray(seen)), found.q_values(seen))
    with pytest.raises(ValueError, match=r"observations must have shape \[B, 4\], got \[4\]"):
        found.q_values(seen[0])
    with pytest.raises(ValueError, match=r"head must have weights of shape \[5, 3\]"):
        found.with_head(Dense(jnp.zeros((5, 2)), jnp.zeros(2)))


def test_half_precision_is_read(saved, tmp_path):
    half = jax.tree.map(lambda leaf: np.asarray(leaf, np.float16), network().regressor)
    small = Pretrained(half, network().architecture, "Acrobot-v1", "", {})
    (tmp_path / "half.safetensors").write_bytes(to_bytes(small))
    found = conqur.load(tmp_path / "half.safetensors")
    assert found.head.weight.dtype == np.float32
    np.testing.assert_allclose(found.head.weight, conqur.load(saved).head.weight, atol=1e-3)


def test_a_mapping_can_be_named(tmp_path):
    import safetensors.numpy

    rng = np.random.default_rng(0)
    shapes = {"a.weight": (5, 4), "a.bias": (5,), "b.weight": (2, 5), "b.bias": (2,)}
    arrays = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    path, mapping = tmp_path / "n.safetensors", tmp_path / "m.json"
    safetensors.numpy.save_file(arrays, path)
    with pytest.raises(ValueError, match=r"n\.safetensors cannot be used: .*n\.safetensors\.json"):
        conqur.load(path)
    mapping.write_text(json.dumps({"layers": ["a", "b"], "environment": "CartPole-v1"}))
    found = conqur.load(path, mapping=mapping)
    seen = rng.normal(size=(3, 4)).astype(np.float32)
    hidden = np.maximum(seen @ arrays["a.weight"].T + arrays["a.bias"], 0)
    expected = hidden @ arrays["b.weight"].T + arrays["b.bias"]
    np.testing.assert_allclose(found.q_values(jnp.asarray(seen)), expected, rtol=1e-5, atol=1e-6)
    assert found.environment == "CartPole-v1"
    assert write_like(found, path, mapping=mapping) == path.read_bytes()


def test_only_a_network_of_the_same_architecture_is_written(saved):
    assert write_like(conqur.load(saved), saved) == saved.read_bytes()
    assert written_suffix(saved) == ".safetensors"
    with pytest.raises(ValueError, match="3 actions"):
        write_like(network(actions=2), saved)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "none of the formats"), (b"# hello\n" * 9, "none of the formats"), (None, "no file")],
)
def test_what_holds_no_network_is_refused(tmp_path, content, words):
    path = tmp_path / "x"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        conqur.load(path)


def test_folders_and_links_to_nothing_are_refused(tmp_path):
    with pytest.raises(ValueError, match="it is a folder"):
        conqur.load(tmp_path)
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(ValueError, match="it is a link to nothing"):
        conqur.load(tmp_path / "link")
    with pytest.raises(ValueError, match="holds no networks"):
        find_networks(tmp_path)


@pytest.fixture
def hub(tmp_path, monkeypatch, saved):
    """A cache as the Hugging Face Hub's library lays it out, and no way to the hub itself."""
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    commit = "0123456789abcdef0123456789abcdef01234567"

    def add(model, name, data):
        folder = tmp_path / "hub" / f"models--{model.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True)
        (folder / "refs" / "main").write_text(commit)
        blob = folder / "blobs" / "b10b"
        blob.parent.mkdir()
        blob.write_bytes(data)
        snapshot = folder / "snapshots" / commit
        snapshot.mkdir(parents=True)
        (snapshot / name).symlink_to(f"../../blobs/{blob.name}")

    return add


@pytest.mark.parametrize(
    ("model", "environment"),
    [("sb3/dqn-CartPole-v1", "CartPole-v1"), ("cleanrl/CartPole-v1-dqn_jax-seed1", "CartPole-v1")],
)
def test_models_of_the_hub_come_from_its_cache(hub, monkeypatch, tmp_path, model, environment):
    monkeypatch.chdir(tmp_path)
    silent = Pretrained(network().regressor, network().architecture, "", "", {})
    hub(model, "model.safetensors", to_bytes(silent))
    found = conqur.load(model)
    assert found.environment == environment
    assert find_networks(model)[0].as_posix() == model


def test_models_that_are_not_there_are_refused(hub, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="no such model could be had from the Hugging Face Hub"):
        conqur.load("sb3/dqn-Nothing-v0")
    assert not is_hub_id(Path("models/agent.zip"))  # but a file that is not there
    hub("someone/else", "notes.txt", b"")
    with pytest.raises(ValueError, match="holds no network in a format that conqur reads"):
        conqur.load("someone/else")
