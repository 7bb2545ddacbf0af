"""Networks as other people's code has them, what they answer, and broken copies of their files."""

import itertools

import equinox as eqx
import jax
import numpy as np

answers = eqx.filter_jit(lambda regressor, seen: regressor(seen))
"""The Q-values of a regressor, compiled once for each architecture."""

FLAT = {"SAME": 7744, "VALID": 3136}


def dense_layers(sizes, seed=0):
    """Weights [I, O] and biases [O]."""
    rng = np.random.default_rng(seed)
    return [
        (
            rng.normal(size=(inputs, outputs), scale=inputs**-0.5).astype(np.float32),
            rng.normal(size=outputs, scale=0.1).astype(np.float32),
        )
        for inputs, outputs in itertools.pairwise(sizes)
    ]


def nature_layers(padding, *, hidden=8, actions=6, seed=0):
    """Three convolutions, weights [h, w, I, O], and two dense layers."""
    rng = np.random.default_rng(seed)
    convolutions = []
    for size, inputs, outputs in ((8, 4, 32), (4, 32, 64), (3, 64, 64)):
        weight = rng.normal(size=(size, size, inputs, outputs), scale=(size**2 * inputs) ** -0.5)
        bias = rng.normal(size=outputs, scale=0.1)
        convolutions.append((weight.astype(np.float32), bias.astype(np.float32)))
    return [*convolutions, *dense_layers((FLAT[padding], hidden, actions), seed + 1)]


def q_values(layers, observations, padding="VALID"):
    """What a network answers to images [B, 84, 84, 4] of bytes or to vectors [B, I]."""
    x = np.asarray(observations, np.float32)
    if x.ndim == 4:
        x = x / 255
        for (weight, bias), stride in zip(layers[:3], (4, 2, 1), strict=True):
            names = ("NHWC", "HWIO", "NHWC")
            x = jax.lax.conv_general_dilated(
                x, weight, (stride, stride), padding, dimension_numbers=names
            )
            x = np.maximum(np.asarray(x) + bias[None, None, None], 0)
        layers, x = layers[3:], x.reshape(len(x), -1)
    for weight, bias in layers[:-1]:
        x = np.maximum(x @ weight + bias[None], 0)
    return x @ layers[-1][0] + layers[-1][1][None]


def images(count=3, seed=7):
    return np.random.default_rng(seed).integers(0, 256, (count, 84, 84, 4), np.uint8)


def same_weights(regressor, layers):
    """Whether a regressor has exactly these layers' weights."""
    expected = [array for layer in layers for array in layer]
    found = [np.asarray(leaf) for leaf in jax.tree.leaves(regressor)]
    return len(found) == len(expected) and all(
        one.dtype == np.float32 and np.array_equal(one, other)
        for one, other in zip(found, expected, strict=True)
    )


def broken(data, count, *, keep=(), seed=0):
    """Copies of a file with bits flipped, cut short, and with spans doubled and swapped.

    Args:
        data: a good file's content.
        count: how many.
        keep: spans (start, end) without changes, such as weights, which are most of a file.
        seed: which.
    """
    rng = np.random.default_rng(seed)
    begins, ends = [0, *(end for _, end in keep)], [*(start for start, _ in keep), len(data)]
    places = np.concatenate([np.arange(a, b) for a, b in zip(begins, ends, strict=True)])
    for number in range(count):
        copy = bytearray(data)
        at, other = (int(places[i]) for i in rng.integers(0, len(places), 2))
        length = int(rng.integers(1, 40))
        if number % 4 == 0:
            for place in places[rng.integers(0, len(places), int(rng.integers(1, 4)))]:
                copy[place] ^= 1 << int(rng.integers(0, 8))
        elif number % 4 == 1:
            del copy[at:]
        elif number % 4 == 2:
            copy[at:at] = copy[at : at + length]
        else:
            copy[at : at + length], copy[other : other + length] = (
                copy[other : other + length], copy[at : at + length])  # fmt: skip
        yield bytes(copy)


def weight_spans(data, layers):
    """Where the weights are in a file, each array in one place."""
    spans = []
    for array in (array for layer in layers for array in layer):
        start = data.index(array.tobytes())
        spans.append((start, start + array.nbytes))
    return sorted(spans)
