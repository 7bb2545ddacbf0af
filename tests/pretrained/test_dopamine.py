import os
import pickle
import sys
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from foreign_networks import (
    answers,
    broken,
    dense_layers,
    images,
    nature_layers,
    q_values,
    same_weights,
    weight_spans,
)

from conqur.pretrained.dopamine import Dopamine
from conqur.pretrained.format import Content
from conqur.regressor import Architecture

FORMAT = Dopamine()
LAYERS = nature_layers("SAME")
NAMES = ("Conv_0", "Conv_1", "Conv_2", "Dense_0", "Dense_1")


def parameters(layers=LAYERS, names=NAMES, make=np.asarray):
    return {
        name: {"kernel": make(weight), "bias": make(bias)}
        for name, (weight, bias) in zip(names, layers, strict=True)
    }


def bundle(online, **more):
    """What Dopamine pickles, without a replay buffer, and with a smaller state."""
    return {
        "state": np.zeros((8, 8, 4)),
        "training_steps": 250_000,
        "online_params": online,
        "optimizer_state": optax.adam(1e-3).init(jax.tree.map(lambda x: x * 0, online)),
        "target_params": jax.tree.map(lambda x: x + 1, online),
        "current_iteration": 7,
        "logs": {"iteration_0": {"train_episode_returns": [np.float64(-21.0), 3.5]}},
    } | more


def content(tmp_path, data):
    path = tmp_path / "ckpt.7"
    path.write_bytes(data)
    return Content(path)


@pytest.fixture
def frozen(monkeypatch):
    """flax's FrozenDict, as far as pickles know it."""

    class FrozenDict:
        def __init__(self, entries):
            self.entries = entries

        def __reduce__(self):
            return FrozenDict, (self.entries,)

    FrozenDict.__module__, FrozenDict.__qualname__ = "flax.core.frozen_dict", "FrozenDict"
    for name in ("flax", "flax.core", "flax.core.frozen_dict"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["flax.core.frozen_dict"].FrozenDict = FrozenDict
    return FrozenDict


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize("make", [np.asarray, jnp.asarray, np.asfortranarray])
def test_a_checkpoint(tmp_path, protocol, make):
    data = pickle.dumps(bundle({"params": parameters(make=make)}), protocol)
    seen = content(tmp_path, data)
    assert FORMAT.recognises(seen)
    network = FORMAT.read(seen)
    assert network.architecture == Architecture("nature-same", (84, 84, 4), 6, (8,))
    assert (network.format, network.preprocessing, network.environment) == (
        "dopamine",
        "dopamine",
        "",
    )
    assert network.origin == {"iteration": 7, "steps": 250_000}
    assert same_weights(network.regressor, LAYERS)
    assert FORMAT.write(seen, network.regressor) == data


def test_q_values(tmp_path):
    network = FORMAT.read(content(tmp_path, pickle.dumps(bundle({"params": parameters()}))))
    found = answers(network.regressor, images())
    np.testing.assert_allclose(found, q_values(LAYERS, images(), "SAME"), atol=1e-5)


def test_a_frozen_dict(tmp_path, frozen):
    stored = bundle({"params": parameters()}) | {"online_params": frozen({"params": parameters()})}
    network = FORMAT.read(content(tmp_path, pickle.dumps(stored)))
    assert same_weights(network.regressor, LAYERS)


def test_names_of_the_first_versions(tmp_path):
    old = parameters(names=("Conv_0", "Conv_1", "Conv_2", "Dense_3", "Dense_4"))
    network = FORMAT.read(content(tmp_path, pickle.dumps(bundle(old))))
    assert same_weights(network.regressor, LAYERS)


def test_only_the_online_network_is_written(tmp_path):
    before = bundle({"params": parameters(make=jnp.asarray)})
    seen = content(tmp_path, pickle.dumps(before))
    other = jax.tree.map(lambda leaf: -2 * leaf, FORMAT.read(seen).regressor)
    after = pickle.loads(FORMAT.write(seen, other))
    expected = before | {"online_params": jax.tree.map(lambda x: -2 * x, before["online_params"])}
    assert jax.tree.structure(after) == jax.tree.structure(expected)
    for one, two in zip(jax.tree.leaves(after), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, two)


def test_one_network_for_both(tmp_path):
    online = {"params": parameters()}
    data = pickle.dumps(bundle(online, target_params=online))
    seen = content(tmp_path, data)
    regressor = FORMAT.read(seen).regressor
    assert FORMAT.write(seen, regressor) == data
    after = pickle.loads(FORMAT.write(seen, jax.tree.map(lambda leaf: leaf + 1, regressor)))
    assert after["target_params"] is after["online_params"]


def test_layers_that_share_their_weights_are_not_written(tmp_path):
    shared = parameters()
    shared["Conv_2"]["bias"] = shared["Conv_1"]["bias"]
    seen = content(tmp_path, pickle.dumps(bundle({"params": shared})))
    with pytest.raises(ValueError, match="share their weights"):
        FORMAT.write(seen, FORMAT.read(seen).regressor)


class Evil:
    def __reduce__(self):
        return os.system, ("touch hacked",)


def online(parameters):
    return pickle.dumps({"training_steps": 3, "online_params": parameters})


def last(kernel, bias, name="Dense_1"):
    """A network with another last layer, or one more."""
    return online({"params": parameters() | {name: {"kernel": kernel, "bias": bias}}})


SMALL, (KERNEL, BIAS) = np.float32([1, 2]), LAYERS[-1]
HOSTILE = {
    "not said": (pickle.dumps({"training_steps": 3}), "no online_params"),
    "a list": (pickle.dumps([1]), "no online_params"),
    "a number": (online(3), "no parameters"),
    "no layers": (online({"params": {}}), "no layers"),
    "a call": (online({"params": {}, "x": Evil()}), "names posix.system"),
    "a call first": (pickle.dumps({"x": Evil(), "online_params": {}}), "names posix.system"),
    "a layer of numbers": (online(parameters() | {"Dense_1": 3}), "other things than arrays"),
    "an array of numbers": (last(1, 2), "other things than arrays"),
    "no bias": (online(parameters() | {"Dense_1": {"kernel": SMALL}}), "a kernel and a bias"),
    "other parts": (last(SMALL, SMALL, "NoisyNetwork_0"), "part 'NoisyNetwork_0'"),
    "too many layers": (last(SMALL, SMALL, "Dense_2"), "3 dense layers"),
    "other shapes": (last(SMALL, SMALL), "has shape"),
    "double precision": (last(KERNEL.astype(float), BIAS), "float64"),
    "objects": (last(np.array([{}]), BIAS), "without plain numbers"),
    "infinity": (last(KERNEL, BIAS * np.float32(np.inf)), "finite"),
    "distributions": (online(parameters(nature_layers("SAME", actions=306))), "306 outputs"),
    "other padding": (online(parameters(nature_layers("VALID"))), "has shape"),
    "control": (last(SMALL, SMALL, "final_layer"), "classic control"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_one_sentence(tmp_path, monkeypatch, kind):
    monkeypatch.chdir(tmp_path)
    data, words = HOSTILE[kind]
    with pytest.raises(ValueError, match=words) as caught:
        FORMAT.read(content(tmp_path, data))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert not (tmp_path / "hacked").exists()


def test_other_files_are_not_recognised(tmp_path):
    zoo = pickle.dumps({"online_params": {"sequential/sequential/conv2_d": {}}})
    for data in (b"", b"\x80", b"\x80\x07online_params", b"online_params", zoo, pickle.dumps({})):
        assert not FORMAT.recognises(content(tmp_path, data))


def test_counts_that_are_none_are_left_out(tmp_path):
    odd = bundle({"params": parameters()}, training_steps=[1], current_iteration=10**5000)
    assert FORMAT.read(content(tmp_path, pickle.dumps(odd))).origin == {}


def test_broken_files_are_refused_or_harmless(tmp_path):
    data = pickle.dumps({"online_params": {"params": parameters()}})
    read = 0
    for copy in broken(data, 250, keep=weight_spans(data, LAYERS)):
        try:
            network = FORMAT.read(content(tmp_path, copy))
        except ValueError:
            continue
        read += 1
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(network.regressor))
    assert read < 50


def test_dense_layers_alone_are_no_network_for_atari(tmp_path):
    names = ("Dense_0", "Dense_1")
    online = parameters(dense_layers((4, 3, 2)), names)
    with pytest.raises(ValueError, match="0 convolutions and 2 dense layers"):
        FORMAT.read(content(tmp_path, pickle.dumps({"online_params": online})))
