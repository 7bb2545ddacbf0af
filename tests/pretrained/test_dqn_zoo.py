import os
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from foreign_networks import (
    answers,
    broken,
    images,
    nature_layers,
    q_values,
    same_weights,
    weight_spans,
)

from conqur.pretrained.dqn_zoo import DQNZoo
from conqur.pretrained.format import Content
from conqur.regressor import Architecture

FORMAT = DQNZoo()
LAYERS = nature_layers("VALID")
TORSO, HEAD = "sequential/sequential/", "sequential/sequential_1/"
NAMES = (*(f"{TORSO}conv2_d{end}" for end in ("", "_1", "_2")), f"{HEAD}linear", f"{HEAD}linear_1")


def parameters(layers=LAYERS, make=np.asarray):
    return {
        name: {"w": make(weight), "b": make(bias)}
        for name, (weight, bias) in zip(NAMES, layers, strict=True)
    }


def agent(online, **more):
    """The state of an agent."""
    return {
        "rng_key": jax.random.PRNGKey(0),
        "frame_t": 1000,
        "opt_state": optax.rmsprop(1e-3, centered=True).init(online),
        "online_params": online,
        "target_params": jax.tree.map(lambda x: x + 1, online),
    } | more


def content(tmp_path, data):
    path = tmp_path / "agent.pkl"
    path.write_bytes(data)
    return Content(path)


WAYS = {
    "parameters": parameters(),
    "agent": agent(parameters(make=jnp.asarray)),
    "actor": {"rng_key": jax.random.PRNGKey(0), "network_params": parameters()},
    "both": {
        "iteration": 3,
        "train_agent": agent(parameters()),
        "eval_agent": {"network_params": parameters(nature_layers("VALID", seed=5))},
        "random_state": np.random.RandomState(1),
    },
}


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize("way", WAYS)
def test_a_pickle(tmp_path, way, protocol):
    data = pickle.dumps(WAYS[way], protocol)
    seen = content(tmp_path, data)
    assert FORMAT.recognises(seen)
    network = FORMAT.read(seen)
    assert network.architecture == Architecture("nature", (84, 84, 4), 6, (8,))
    assert (network.format, network.preprocessing, network.environment) == (
        "dqn_zoo",
        "dqn_zoo",
        "",
    )
    assert network.origin == ({"agent_steps": 1000} if way in ("agent", "both") else {})
    assert same_weights(network.regressor, LAYERS)
    assert FORMAT.write(seen, network.regressor) == data


def test_q_values(tmp_path):
    network = FORMAT.read(content(tmp_path, pickle.dumps(parameters())))
    found = answers(network.regressor, images())
    np.testing.assert_allclose(found, q_values(LAYERS, images()), atol=1e-5)


def test_only_the_online_network_is_written(tmp_path):
    before = WAYS["agent"]
    seen = content(tmp_path, pickle.dumps(before))
    other = jax.tree.map(lambda leaf: -2 * leaf, FORMAT.read(seen).regressor)
    after = pickle.loads(FORMAT.write(seen, other))
    expected = before | {"online_params": jax.tree.map(lambda x: -2 * x, before["online_params"])}
    for one, two in zip(jax.tree.leaves(after), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, two)


def test_one_bias_for_all_actions(tmp_path):
    """As double Q-learning has it there."""
    shared = parameters()
    del shared[NAMES[-1]]["b"]
    shared["sequential/sequential_1"] = {"b": np.float32([0.25])}
    data = pickle.dumps(shared)
    seen = content(tmp_path, data)
    network = FORMAT.read(seen)
    expected = [*LAYERS[:-1], (LAYERS[-1][0], np.full(6, 0.25, np.float32))]
    assert same_weights(network.regressor, expected)
    assert FORMAT.write(seen, network.regressor) == data
    doubled = jax.tree.map(lambda leaf: 2 * leaf, network.regressor)
    written = FORMAT.write(seen, doubled)
    assert pickle.loads(written)["sequential/sequential_1"]["b"] == 0.5
    head = network.head
    uneven = network.with_head(type(head)(head.weight, head.bias.at[2].set(1.0))).regressor
    with pytest.raises(ValueError, match="one bias for all actions"):
        FORMAT.write(seen, uneven)


class Evil:
    def __reduce__(self):
        return os.system, ("touch hacked",)


def changed(name, **layer):
    return pickle.dumps(parameters() | {name: layer})


SMALL = np.float32([1, 2])
HOSTILE = {
    "a list": (pickle.dumps(["conv2_d"]), "no state of an agent"),
    "nothing": (pickle.dumps({}), "is missing"),
    "a call": (pickle.dumps([parameters(), Evil()]), "names posix.system"),
    "a missing layer": (changed(NAMES[4]), "linear_1 is missing"),
    "a layer of numbers": (pickle.dumps({NAMES[0]: 3}), "other things than arrays"),
    "scalars": (changed(NAMES[4], w=np.zeros((), np.float32), b=SMALL), "shape"),
    "other networks": (changed("sequential/mu", w=SMALL), "part 'sequential/mu'"),
    "distributions": (pickle.dumps(parameters(nature_layers("VALID", actions=306))), "306 outputs"),
    "one bias too small": (changed(NAMES[3], w=LAYERS[3][0], b=SMALL[:1]), "shape"),
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
    for data in (b"", b"conv2_d", pickle.dumps({"online_params": {"Conv_0": 1}})):
        assert not FORMAT.recognises(content(tmp_path, data))


def test_broken_files_are_refused_or_harmless(tmp_path):
    data = pickle.dumps({"frame_t": 5, "online_params": parameters()})
    read = 0
    for copy in broken(data, 250, keep=weight_spans(data, LAYERS)):
        try:
            network = FORMAT.read(content(tmp_path, copy))
        except ValueError:
            continue
        read += 1
        assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(network.regressor))
    assert read < 50
