"""Checkpoints with flax's own parameters and optax's state, pickled as Dopamine does."""

import pickle

import equinox as eqx
import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from conqur.pretrained.dopamine import Dopamine
from conqur.pretrained.format import Content

FORMAT = Dopamine()
ANSWER = eqx.filter_jit(lambda regressor, seen: regressor(seen))
SEEN = np.random.default_rng(0).integers(0, 256, (16, 84, 84, 4), np.uint8)


class Nature(nn.Module):
    """For one observation at a time, with flax's default padding."""

    actions: int

    @nn.compact
    def __call__(self, x):
        x = x.astype(jnp.float32) / 255.0
        for width, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            x = nn.relu(nn.Conv(width, (size, size), (stride, stride))(x))
        x = nn.relu(nn.Dense(512)(x.reshape(-1)))
        return nn.Dense(self.actions)(x)


MODEL = Nature(6)
APPLY = jax.jit(jax.vmap(MODEL.apply, in_axes=(None, 0)))


@pytest.mark.parametrize(
    ("frozen", "optimizer"), [(False, optax.adam(1e-3)), (True, optax.rmsprop(1e-3, centered=True))]
)
def test_files_go_both_ways(tmp_path, frozen, optimizer):
    online = MODEL.init(jax.random.key(1), SEEN[0])
    if frozen:
        online = flax.core.freeze(online)
    state = optimizer.init(online)
    gradient = jax.grad(lambda p: (APPLY(p, SEEN)[:, :2] ** 2).sum())(online)
    updates, state = optimizer.update(gradient, state, online)
    trained = optax.apply_updates(online, updates)
    bundle = {
        "state": np.zeros((84, 84, 4)),
        "training_steps": 1,
        "online_params": trained,
        "optimizer_state": state,
        "target_params": online,
        "current_iteration": 0,
    }
    path = tmp_path / "ckpt.0"
    path.write_bytes(pickle.dumps(bundle))
    content = Content(path)
    assert FORMAT.recognises(content)
    network = FORMAT.read(content)
    expected = APPLY(trained, SEEN)
    found = ANSWER(network.regressor, SEEN)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))

    assert FORMAT.write(content, network.regressor) == path.read_bytes()
    changed = jax.tree.map(lambda leaf: leaf * 1.25 - 0.001, network.regressor)
    loaded = pickle.loads(FORMAT.write(content, changed))
    expected = APPLY(loaded["online_params"], SEEN)
    found = ANSWER(changed, SEEN)
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-5)
    np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))
    for name in ("target_params", "optimizer_state"):
        before, after = (jax.tree.leaves(where[name]) for where in (bundle, loaded))
        for one, two in zip(before, after, strict=True):
            np.testing.assert_array_equal(one, two)
