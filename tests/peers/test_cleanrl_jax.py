"""Networks that flax made, trained a little and wrote as CleanRL does."""

import equinox as eqx
import flax
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from conqur.pretrained.cleanrl_jax import CleanRLJax
from conqur.pretrained.format import Content

FORMAT = CleanRLJax()
ANSWER = eqx.filter_jit(lambda regressor, seen: regressor(seen))
RNG = np.random.default_rng(0)


class Control(nn.Module):
    """Two hidden layers."""

    actions: int

    @nn.compact
    def __call__(self, x):
        for width in (120, 84):
            x = nn.relu(nn.Dense(width)(x))
        return nn.Dense(self.actions)(x)


class Atari(nn.Module):
    """Images come with their channels first."""

    actions: int

    @nn.compact
    def __call__(self, x):
        x = jnp.moveaxis(x, 1, -1) / 255.0
        for width, size, stride in ((32, 8, 4), (64, 4, 2), (64, 3, 1)):
            x = nn.relu(nn.Conv(width, (size, size), (stride, stride), padding="VALID")(x))
        x = nn.relu(nn.Dense(512)(x.reshape(x.shape[0], -1)))
        return nn.Dense(self.actions)(x)


KINDS = {
    "control": (Control(4), RNG.normal(size=(64, 8)).astype(np.float32), lambda x: x),
    "atari": (
        Atari(6),
        RNG.integers(0, 256, (16, 4, 84, 84), np.uint8),
        lambda x: np.moveaxis(x, 1, -1),
    ),
}


@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_files_go_both_ways(tmp_path, kind, frozen):
    model, theirs, ours = KINDS[kind]
    apply = jax.jit(model.apply)
    parameters = model.init(jax.random.key(1), theirs[:1])
    # A step of training, so that biases are not zero.
    gradient = jax.grad(lambda p: (apply(p, theirs)[:, :2] ** 2).sum())(parameters)
    parameters = optax.apply_updates(parameters, jax.tree.map(lambda g: -1e-3 * g, gradient))
    if frozen:
        parameters = flax.core.freeze(parameters)
    path = tmp_path / "dqn.cleanrl_model"
    path.write_bytes(flax.serialization.to_bytes(parameters))
    content = Content(path)
    assert FORMAT.recognises(content)
    network = FORMAT.read(content)
    expected = apply(parameters, theirs)
    found = ANSWER(network.regressor, ours(theirs))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))

    assert FORMAT.write(content, network.regressor) == path.read_bytes()
    changed = jax.tree.map(lambda leaf: leaf * 1.25 - 0.001, network.regressor)
    written = FORMAT.write(content, changed)
    fresh = jax.tree.map(lambda leaf: leaf * 0, parameters)
    loaded = flax.serialization.from_bytes(fresh, written)
    expected = apply(loaded, theirs)
    found = ANSWER(changed, ours(theirs))
    np.testing.assert_allclose(found, expected, atol=1e-5)
    np.testing.assert_array_equal(found.argmax(1), expected.argmax(1))
