"""Networks that haiku made with the modules of DQN Zoo, and their pickles."""

import pickle

import equinox as eqx
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from conqur.pretrained.dqn_zoo import DQNZoo
from conqur.pretrained.format import Content

FORMAT = DQNZoo()
ANSWER = eqx.filter_jit(lambda regressor, seen: regressor(seen))
SEEN = np.random.default_rng(0).integers(0, 256, (16, 84, 84, 4), np.uint8)
RANDOM = hk.initializers.RandomUniform(-0.05, 0.05)


def torso(x):
    layers = [lambda y: y.astype(jnp.float32) / 255.0]
    for width, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
        layers += [convolution(width, size, stride), jax.nn.relu]
    return hk.Sequential([*layers, hk.Flatten()])(x)


def convolution(width, size, stride):
    return lambda x: hk.Conv2D(
        width, size, stride, padding="VALID", w_init=RANDOM, b_init=RANDOM)(x)  # fmt: skip


def linear(width):
    return lambda x: hk.Linear(width, w_init=RANDOM, b_init=RANDOM)(x)


def one_bias(width):
    def layer(x):
        y = hk.Linear(width, with_bias=False, w_init=RANDOM)(x)
        return y + jnp.broadcast_to(hk.get_parameter("b", [1], x.dtype, init=RANDOM), y.shape)

    return layer


def model(last):
    def head(x):
        return hk.Sequential([linear(512), jax.nn.relu, last(6)])(x)

    return hk.without_apply_rng(hk.transform(lambda x: hk.Sequential([torso, head])(x)))


@pytest.mark.parametrize("way", ["parameters", "agent", "old"])
@pytest.mark.parametrize("last", [linear, one_bias])
def test_files_go_both_ways(tmp_path, last, way):
    transformed = model(last)
    apply = jax.jit(transformed.apply)
    parameters = transformed.init(jax.random.key(1), SEEN[:1])
    stored = parameters
    if way == "old":
        stored = hk.data_structures.to_immutable_dict(parameters)
    if way == "agent":
        state = optax.rmsprop(1e-3, decay=0.95, centered=True).init(parameters)
        stored = {"rng_key": jax.random.PRNGKey(0), "frame_t": 4, "opt_state": state,
                  "online_params": parameters, "target_params": parameters}  # fmt: skip
    path = tmp_path / "agent.pkl"
    path.write_bytes(pickle.dumps(stored))
    content = Content(path)
    assert FORMAT.recognises(content)
    network = FORMAT.read(content)
    expected = apply(parameters, SEEN)
    found = ANSWER(network.regressor, SEEN)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))

    assert FORMAT.write(content, network.regressor) == path.read_bytes()
    changed = jax.tree.map(lambda leaf: leaf * 1.25 - 0.001, network.regressor)
    loaded = pickle.loads(FORMAT.write(content, changed))
    expected = apply(loaded["online_params"] if way == "agent" else loaded, SEEN)
    found = ANSWER(changed, SEEN)
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-5)
    np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))
