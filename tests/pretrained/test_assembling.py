"""Regressors made of arrays: numbers by hand, and torch's order of them against plain sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conqur.pretrained.assembling import (
    convolutional,
    from_torch,
    nature,
    perceptron,
    taken_apart,
    to_torch,
)
from conqur.regressor import Architecture


def layer(*shape, value=0.5, kind=np.float32):
    return np.full(shape, value, kind), np.full(shape[-1:], value, kind)


NATURE = [layer(8, 8, 4, 32), layer(4, 4, 32, 64), layer(3, 3, 64, 64)]
DENSE = [layer(3136, 5), layer(5, 6)]


def test_a_perceptron_by_hand():
    first = np.array([[1.0, -1.0], [2.0, 1.0]]), np.array([0.5, 0.0])
    head = np.array([[1.0, 10.0, 0.0], [1.0, 0.0, -1.0]]), np.array([0.0, 1.0, 2.0])
    regressor, architecture = perceptron([first, head])
    assert architecture == Architecture("mlp", (2,), 3, (2,))
    # (3, 1) ↦ relu(5.5, −2) = (5.5, 0); (0, 1) ↦ (2.5, 1)
    found = regressor(jnp.array([[3.0, 1.0], [0.0, 1.0]]))
    np.testing.assert_allclose(found, [[5.5, 56.0, 2.0], [3.5, 26.0, 1.0]], rtol=1e-6)
    assert {leaf.dtype for leaf in jax.tree.leaves(regressor)} == {np.dtype("float32")}


def test_a_perceptron_of_one_layer_is_linear():
    regressor, architecture = perceptron([(np.eye(2), np.zeros(2))])
    assert architecture == Architecture("mlp", (2,), 2, ())
    np.testing.assert_allclose(regressor(jnp.array([[-3.0, 4.0]])), [[-3.0, 4.0]])


def test_observations_of_a_perceptron_may_have_axes():
    regressor, architecture = perceptron([layer(6, 3)], observation_shape=(2, 3))
    assert architecture.observation_shape == (2, 3)
    assert regressor(jnp.ones((1, 2, 3))).shape == (1, 3)
    with pytest.raises(ValueError, match=r"weight of its layer 1 has shape \[6, 3\].* \[8, 3\]"):
        perceptron([layer(6, 3)], observation_shape=(2, 4))


@pytest.mark.parametrize(("same", "flat"), [(False, 3136), (True, 7744)])
def test_natures_network(same, flat):
    _, architecture = nature(NATURE, [layer(flat, 5), layer(5, 6)], same=same)
    body = "nature-same" if same else "nature"
    assert architecture == Architecture(body, (84, 84, 4), 6, (5,))


def test_sizes_and_channels_of_images():
    convolutions = [layer(8, 8, 1, 32), *NATURE[1:]]
    dense = [layer(2 * 1 * 64, 7), layer(7, 5), layer(5, 2)]
    _, architecture = nature(convolutions, dense, same=False, size=(44, 36))
    assert architecture == Architecture("nature", (44, 36, 1), 2, (7, 5))


def test_minatars_network():
    dense = [layer(1024, 8), layer(8, 3)]
    _, architecture = convolutional("minatar", [layer(3, 3, 4, 16)], dense, size=(10, 10))
    assert architecture == Architecture("minatar", (10, 10, 4), 3, (8,))


def q_values_of_torch(layers, image):
    """The same network as torch computes it, channels first, with plain sums."""
    x = image.astype(np.float64)
    for (weight, bias), stride in zip(layers[:3], (4, 2, 1), strict=True):
        size = weight.shape[-1]
        windows = np.lib.stride_tricks.sliding_window_view(x, (size, size), axis=(1, 2))
        x = np.einsum("chwij,ocij->ohw", windows[:, ::stride, ::stride], weight)
        x = np.maximum(x + bias[:, None, None], 0)
    x = x.reshape(-1)
    for weight, bias in layers[3:-1]:
        x = np.maximum(weight @ x + bias, 0)
    return layers[-1][0] @ x + layers[-1][1]


def test_torchs_order_of_weights():
    rng = np.random.default_rng(0)
    shapes = [(32, 2, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (9, 2 * 3 * 64), (4, 9)]
    layers = [
        ((rng.normal(size=s) / np.sqrt(np.prod(s[1:]))).astype(np.float32), rng.normal(size=s[0]))
        for s in shapes
    ]
    convolutions, dense = from_torch(layers)
    regressor, _ = nature(convolutions, dense, same=False, size=(44, 52))
    image = rng.normal(size=(2, 44, 52)).astype(np.float32)
    found = jax.jit(lambda r, x: r(x))(regressor, image.transpose(1, 2, 0)[None])[0]
    np.testing.assert_allclose(found, q_values_of_torch(layers, image), rtol=1e-4, atol=1e-5)


def test_to_torch_and_back():
    rng = np.random.default_rng(0)
    shapes = [(8, 8, 3, 32), (4, 4, 32, 64), (3, 3, 64, 64), (3 * 2 * 64, 6), (6, 5), (5, 4)]
    layers = [(rng.normal(size=s).astype(np.float32), rng.normal(size=s[-1])) for s in shapes]
    regressor, _ = nature(layers[:3], layers[3:], same=False, size=(52, 44))
    theirs = to_torch(regressor)
    assert [weight.shape for weight, _ in theirs] == [
        (32, 3, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (6, 384), (5, 6), (4, 5)
    ]  # fmt: skip
    # Row 1 of ours is place (0, 0) of channel 1, which is number 1 · 6 + 0 of theirs.
    np.testing.assert_array_equal(theirs[3][0][:, 6], layers[3][0][1])
    back = [layer for kind in from_torch(theirs) for layer in kind]
    for one, other in zip(taken_apart(regressor), back, strict=True):
        np.testing.assert_array_equal(one[0], other[0])
        np.testing.assert_array_equal(one[1], other[1])


@pytest.mark.parametrize(
    ("convolutions", "layers", "message"),
    [
        ([], DENSE, "lacks the convolutions"),
        ([layer(8, 32)], DENSE, "lacks the convolutions"),
        (NATURE, [], "lacks dense layers"),
        (NATURE[:2], DENSE, "it has 4 layers"),
        (NATURE, [layer(3136, 5), layer(4, 6)], r"layer 5 has shape \[4, 6\], .* \[5, 6\]"),
        (NATURE, [layer(7744, 5), layer(5, 6)], r"layer 4 has shape \[7744, 5\], .* \[3136, 5\]"),
        ([layer(5, 5, 4, 32), *NATURE[1:]], DENSE, "weight of its layer 1 has shape"),
        (NATURE, [*DENSE[:1], (np.ones((5, 6)), np.ones((6, 1)))], "no proper bias"),
        (NATURE, [*DENSE[:1], layer(5, 0)], "no proper bias"),
        (NATURE, [*DENSE[:1], layer(5, 6, value=np.nan)], "no finite numbers"),
        (NATURE, [*DENSE[:1], layer(5, 6, value=1e39, kind=np.float64)], "no finite numbers"),
        (NATURE, [*DENSE[:1], layer(5, 6, kind=np.int32)], "of type int32"),
        (NATURE, DENSE * 40, "more than 50 layers"),
    ],
)
def test_what_is_no_such_network_is_refused(convolutions, layers, message):
    with pytest.raises(ValueError, match=message):
        nature(convolutions, layers, same=False)


def test_no_network_at_all():
    for layers in ([], [(np.ones(()), np.ones(1))]):
        with pytest.raises(ValueError, match=r"it lacks dense layers|weight of its layer 1"):
            perceptron(layers)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ([(4, 2), (8, 4, 3, 3)], "other layers than convolutions"),
        ([(8, 4, 3)], "other layers than convolutions"),
        ([(8, 4, 3, 3), (5, 63)], "takes 63 numbers, but .* give 8 channels"),
        ([(0, 4, 3, 3), (5, 63)], "give 0 channels"),
    ],
)
def test_layers_that_torch_would_not_put_together(shapes, message):
    with pytest.raises(ValueError, match=message):
        from_torch([(np.zeros(shape, np.float32), np.zeros(shape[0])) for shape in shapes])
