"""Q-regressors Q_θ(s, ·): a body that embeds states and a linear head that predicts their values.

    embed    s ↦ φ(s)       the body: Nature's convolutions, MinAtar's, a perceptron
    predict  φ ↦ Q_θ(s, ·)  the head: the last layer, which search and tuning change

Observations come as environments give them, images with their channels last, and in batches.
"""

import abc
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from conqur import _checks

BODIES = ("nature", "nature-same", "minatar", "mlp")
CACHED = 8 << 20
"""Bytes of a convolution's patches at a time on a CPU, whose caches have no room for more: it would
take several times as long."""


class Dense(eqx.Module):
    """x W + b."""

    weight: Float[Array, "I O"]
    bias: Float[Array, " O"]

    @classmethod
    def initial(cls, key: Key[Array, ""], inputs: int, outputs: int) -> "Dense":
        """Uniform weights and biases within ±1/√inputs."""
        return cls(*_initial(key, (inputs, outputs), fan_in=inputs))

    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
        """Apply it to the last axis."""
        return _plus(x @ self.weight, self.bias)


class Convolution(eqx.Module):
    """A convolution of images [B, H, W, I]."""

    weight: Float[Array, "h w I O"]
    bias: Float[Array, " O"]
    stride: int = eqx.field(static=True)
    padding: str = eqx.field(static=True)

    @classmethod
    def initial(
        cls, key: Key[Array, ""], size: int, inputs: int, outputs: int, stride: int, padding: str
    ) -> "Convolution":
        """Uniform weights and biases within ±1/√(size² inputs)."""
        shape = (size, size, inputs, outputs)
        return cls(*_initial(key, shape, fan_in=size * size * inputs), stride, padding)

    def __call__(self, x: Float[Array, "B H W I"]) -> Float[Array, "B H2 W2 O"]:
        """Convolve."""
        # As a product of matrices, which, unlike the compilers' convolutions, is as fast inside
        # loops and for many regressors at once.
        return _plus(self.patches(x) @ self.weight.reshape(-1, self.weight.shape[-1]), self.bias)

    def patches(self, x: Float[Array, "B H W I"]) -> Float[Array, "B H2 W2 hwI"]:
        """What each output sees."""
        return _patches(x, self.weight.shape[0], self.stride, self.padding)


class Body(eqx.Module):
    """From observations to features φ."""

    @abc.abstractmethod
    def __call__(self, observations: Array) -> Float[Array, "B F"]:
        """φ(s) of observations [B, ...]."""


class ConvolutionalBody(Body):
    """Convolutions, then dense layers, a rectifier after each; bytes are scaled to [0, 1]."""

    convolutions: tuple[Convolution, ...]
    layers: tuple[Dense, ...]

    def __call__(self, observations: Array) -> Float[Array, "B F"]:
        """φ(s)."""
        tile = self._tile(observations.shape[1:])
        if len(observations) <= 2 * tile:
            return self._embed(observations)
        return jax.lax.platform_dependent(
            observations,
            cpu=lambda rows: jax.lax.map(self._embed_one, rows, batch_size=tile),
            default=lambda rows: self._embed(rows),
        )

    def _embed(self, observations: Array) -> Float[Array, "B F"]:
        x = _as_float(observations)
        for convolution in self.convolutions:
            x = jax.nn.relu(convolution(x))
        x = x.reshape(x.shape[0], -1)
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x

    def _embed_one(self, observation: Array) -> Float[Array, " F"]:
        return self._embed(observation[None])[0]

    def _tile(self, shape: tuple[int, ...]) -> int:
        """How many observations a CPU embeds at a time: a power of two."""
        patches = jax.eval_shape(lambda: self.convolutions[0].patches(jnp.zeros((1, *shape))))
        fitting = max(1, CACHED // (patches.size * patches.dtype.itemsize))
        return 1 << (fitting.bit_length() - 1)


class Perceptron(Body):
    """Dense layers with a rectifier after each, on flattened observations."""

    layers: tuple[Dense, ...]

    def __call__(self, observations: Array) -> Float[Array, "B F"]:
        """φ(s)."""
        x = _as_float(observations).reshape(observations.shape[0], -1)
        for layer in self.layers:
            x = jax.nn.relu(layer(x))
        return x


@dataclass(frozen=True)
class Architecture:
    """What a regressor is made of; enough to build it again around saved weights.

    Attributes:
        body: "nature" (VALID convolutions, 3136 units when flattened), "nature-same" (Dopamine's
            SAME convolutions, 7744), "minatar" or "mlp".
        observation_shape: of one observation.
        actions: how many.
        hidden: the widths of the dense layers; the last one is F, the number of features. A
            perceptron without any is linear in its observations.
    """

    body: str
    observation_shape: tuple[int, ...]
    actions: int
    hidden: tuple[int, ...] = field(default=(512,))

    def __post_init__(self) -> None:
        if self.body not in BODIES:
            raise ValueError(f"body must be one of {', '.join(BODIES)}, got {self.body!r}")
        object.__setattr__(self, "observation_shape", tuple(self.observation_shape))
        object.__setattr__(self, "hidden", tuple(self.hidden))
        for width in (*self.observation_shape, *self.hidden):
            _checks.count("the sizes of an architecture", width)
        _checks.count("actions", self.actions)
        if self.body != "mlp" and len(self.observation_shape) != 3:
            raise ValueError(
                f"a {self.body} body needs images [height, width, channels], "
                f"got observations of shape {list(self.observation_shape)}"
            )
        if not self.hidden and self.body != "mlp":
            raise ValueError(f"hidden must name at least one layer's width for a {self.body} body")

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


class Regressor(eqx.Module):
    """Q_θ(s, ·) = head(body(s))."""

    body: Body
    head: Dense

    def embed(self, observations: Array) -> Float[Array, "B F"]:
        """φ(s), the features the head is linear in."""
        return self.body(observations)

    def predict(self, features: Float[Array, "B F"]) -> Float[Array, "B A"]:
        """Q_θ(s, ·) from φ(s)."""
        return self.head(features)

    def __call__(self, observations: Array) -> Float[Array, "B A"]:
        """Q_θ(s, ·) of observations [B, ...]."""
        return self.predict(self.embed(observations))


def initial_regressor(key: Key[Array, ""], architecture: Architecture) -> Regressor:
    """A regressor with fresh random weights."""
    shape, padding = architecture.observation_shape, "VALID"
    keys = iter(jax.random.split(key, 8 + len(architecture.hidden)))
    if architecture.body == "mlp":
        layers, features = _dense_layers(keys, math.prod(shape), architecture.hidden)
        return Regressor(
            Perceptron(layers), Dense.initial(next(keys), features, architecture.actions)
        )
    if architecture.body == "minatar":
        plan: Sequence[tuple[int, int, int]] = ((3, 16, 1),)
    else:
        plan = ((8, 32, 4), (4, 64, 2), (3, 64, 1))
        padding = "SAME" if architecture.body == "nature-same" else "VALID"
    convolutions, (height, width, channels) = [], shape
    for size, filters, stride in plan:
        convolutions.append(
            Convolution.initial(next(keys), size, channels, filters, stride, padding)
        )
        lost = size - 1 if padding == "VALID" else 0
        height, width = (-((lost - side) // stride) for side in (height, width))
        channels = filters
    if min(height, width) < 1:
        raise ValueError(
            f"observations of shape {list(shape)} are too small for a {architecture.body} body"
        )
    layers, features = _dense_layers(keys, height * width * channels, architecture.hidden)
    body = ConvolutionalBody(tuple(convolutions), layers)
    return Regressor(body, Dense.initial(next(keys), features, architecture.actions))


def _plus(x: Float[Array, "*B O"], bias: Float[Array, " O"]) -> Float[Array, "*B O"]:
    return x + jnp.broadcast_to(bias, x.shape)


def _patches(
    x: Float[Array, "B H W I"], size: int, stride: int, padding: str
) -> Float[Array, "B H2 W2 hwI"]:
    """What each output of a convolution sees."""
    if padding == "SAME":
        pads = [_same_padding(side, size, stride) for side in x.shape[1:3]]
        x = jnp.pad(x, [(0, 0), *pads, (0, 0)])
    height, width = (side - size + 1 for side in x.shape[1:3])
    places = [(i, j) for i in range(size) for j in range(size)]
    views = [x[:, i : i + height : stride, j : j + width : stride] for i, j in places]
    return jnp.concatenate(views, axis=-1)


def _same_padding(side: int, size: int, stride: int) -> tuple[int, int]:
    total = max((math.ceil(side / stride) - 1) * stride + size - side, 0)
    return total // 2, total - total // 2


def _dense_layers(keys: Any, inputs: int, widths: Sequence[int]) -> tuple[tuple[Dense, ...], int]:
    layers = []
    for width in widths:
        layers.append(Dense.initial(next(keys), inputs, width))
        inputs = width
    return tuple(layers), inputs


def _initial(key: Key[Array, ""], shape: tuple[int, ...], *, fan_in: int) -> tuple[Array, Array]:
    bound = 1 / math.sqrt(fan_in)
    weight_key, bias_key = jax.random.split(key)
    return (
        jax.random.uniform(weight_key, shape, minval=-bound, maxval=bound),
        jax.random.uniform(bias_key, shape[-1:], minval=-bound, maxval=bound),
    )


def _as_float(observations: Array) -> Float[Array, "..."]:
    scale = 255.0 if observations.dtype == jnp.uint8 else 1.0
    return observations.astype(jnp.float32) / scale
