"""Q-networks built and saved as CleanRL's scripts do, by torch itself."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from conqur.pretrained.cleanrl_torch import CleanRLTorch
from conqur.pretrained.format import Content

nn = torch.nn

CLEANRL = CleanRLTorch()


class QNetwork(nn.Module):
    """A sequence called `network`, on scaled images or on vectors."""

    def __init__(self, *layers, scale=1.0):
        super().__init__()
        self.network, self.scale = nn.Sequential(*layers), scale

    def forward(self, x):
        return self.network(x / self.scale)


def atari():
    sizes = [(4, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1)]
    layers = [layer for size in sizes for layer in (nn.Conv2d(*size), nn.ReLU())]
    layers += [nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 6)]
    return QNetwork(*layers, scale=255.0)


def vectors():
    return QNetwork(nn.Linear(4, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 2))


q_values = jax.jit(lambda regressor, seen: regressor(seen))


def changed(regressor, seen):
    """Another network, with about the same mean value of each action, so that all are chosen."""
    rng = np.random.default_rng(1)
    noisy = jax.tree.map(
        lambda leaf: leaf + jnp.asarray(0.02 * rng.normal(size=leaf.shape), jnp.float32), regressor
    )
    means = q_values(noisy, seen).mean(0)
    return eqx.tree_at(lambda r: r.head.bias, noisy, noisy.head.bias - means)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
@pytest.mark.parametrize("make", [atari, vectors])
def test_the_same_values_there_and_back(tmp_path, make, zipped):
    torch.manual_seed(0)
    made, rng = make(), np.random.default_rng(0)
    path = tmp_path / "dqn.cleanrl_model"
    torch.save(made.state_dict(), path, _use_new_zipfile_serialization=zipped)
    file = Content(path)
    assert CLEANRL.recognises(file)
    network = CLEANRL.read(file)
    if make is atari:
        theirs = rng.integers(0, 256, (16, 4, 84, 84)).astype(np.uint8)
        ours = jnp.asarray(theirs.transpose(0, 2, 3, 1))
    else:
        theirs = rng.normal(size=(64, 4)).astype(np.float32)
        ours = jnp.asarray(theirs)
    check(made, theirs, q_values(network.regressor, ours))
    assert CLEANRL.write(file, network.regressor) == file.data

    other = changed(network.regressor, ours)
    path.write_bytes(CLEANRL.write(file, other))
    fresh = make()
    fresh.load_state_dict(torch.load(path, weights_only=True))
    check(fresh, theirs, q_values(other, ours))


def check(made, seen, found):
    with torch.no_grad():
        expected = made(torch.as_tensor(seen)).numpy()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(np.argmax(found, 1), expected.argmax(1))
