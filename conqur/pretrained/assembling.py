"""From the arrays in a file to a regressor, and back to arrays for a file."""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from conqur.regressor import Architecture, Regressor, initial_regressor

Layer = tuple[np.ndarray, np.ndarray]
"""The weight and the bias of a layer: [h, w, I, O] of a convolution, [I, O] of others, and [O]."""

MOST_LAYERS = 50
"""Networks with more are not believed in."""


def nature(
    convolutions: Sequence[Layer],
    layers: Sequence[Layer],
    *,
    same: bool,
    size: tuple[int, int] = (84, 84),
) -> tuple[Regressor, Architecture]:
    """A regressor with Nature's convolutions.

    Args:
        convolutions: the three of them.
        layers: the dense ones, the last of which gives Q-values; the first one takes what the
            last convolution gives, flattened with its channels last (H·W·C).
        same: whether the convolutions are padded ("nature-same").
        size: height and width of an observation.

    Raises:
        ValueError: if they are no such network's, with what is wrong.
    """
    return convolutional("nature-same" if same else "nature", convolutions, layers, size=size)


def convolutional(
    body: str, convolutions: Sequence[Layer], layers: Sequence[Layer], *, size: tuple[int, int]
) -> tuple[Regressor, Architecture]:
    """A regressor with the convolutions of a body; see `nature`."""
    if not convolutions or np.ndim(convolutions[0][0]) != 4:
        raise ValueError(f"it lacks the convolutions of a {body} body")
    return _assembled(body, convolutions, layers, (*size, int(convolutions[0][0].shape[2])))


def perceptron(
    layers: Sequence[Layer], *, observation_shape: tuple[int, ...] | None = None
) -> tuple[Regressor, Architecture]:
    """A regressor of dense layers only.

    Args:
        layers: all of them; the last one gives Q-values.
        observation_shape: of an observation; one axis of the first layer's inputs if not given.

    Raises:
        ValueError: if they do not fit together, with what is wrong.
    """
    if observation_shape is None and layers and np.ndim(layers[0][0]) == 2:
        observation_shape = (int(layers[0][0].shape[0]),)
    return _assembled("mlp", (), layers, observation_shape or ())


def taken_apart(regressor: Regressor) -> list[Layer]:
    """The layers of a regressor in the order of their use, convolutions first, the head last."""
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(regressor)]
    return list(zip(leaves[::2], leaves[1::2], strict=True))


def from_torch(layers: Sequence[Layer]) -> tuple[list[Layer], list[Layer]]:
    """The convolutions and the dense layers of a network in torch's layout, in ours.

    Args:
        layers: with weights [O, I, h, w] of convolutions, which come first, and [O, I] of others,
            the first of which takes what the convolutions give with its channels first (C·H·W).
    """
    convolutions = [(w.transpose(2, 3, 1, 0), b) for w, b in layers if np.ndim(w) == 4]
    dense = layers[len(convolutions) :]
    if any(np.ndim(weight) != 2 for weight, _ in dense):
        raise ValueError(
            "it has other layers than convolutions of images and dense ones after them"
        )
    matrices = [weight.T for weight, _ in dense]
    if convolutions and matrices:
        matrices[0] = _channels_moved(matrices[0], convolutions[-1][0].shape[-1], last=True)
    return convolutions, [(w, b) for w, (_, b) in zip(matrices, dense, strict=True)]


def to_torch(regressor: Regressor) -> list[Layer]:
    """The layers of a regressor in torch's layout, the reverse of `from_torch`."""
    layers = taken_apart(regressor)
    convolutions = [(w.transpose(3, 2, 0, 1), b) for w, b in layers if w.ndim == 4]
    dense = layers[len(convolutions) :]
    matrices = [weight for weight, _ in dense]
    if convolutions:
        matrices[0] = _channels_moved(matrices[0], convolutions[-1][0].shape[0], last=False)
    return convolutions + [(w.T, b) for w, (_, b) in zip(matrices, dense, strict=True)]


def _channels_moved(weight: np.ndarray, channels: int, *, last: bool) -> np.ndarray:
    """The rows of a weight [C·H·W, O] or [H·W·C, O] in the order of the other."""
    if channels < 1 or weight.shape[0] % channels:
        raise ValueError(
            f"its first dense layer takes {weight.shape[0]} numbers, but the convolutions before "
            f"it give {channels} channels"
        )
    split = (channels, -1) if last else (-1, channels)
    moved = weight.reshape(*split, weight.shape[1]).swapaxes(0, 1)
    return moved.reshape(weight.shape)


def _assembled(
    body: str,
    convolutions: Sequence[Layer],
    layers: Sequence[Layer],
    observation_shape: tuple[int, ...],
) -> tuple[Regressor, Architecture]:
    if not layers or any(np.ndim(bias) != 1 or 0 in np.shape(bias) for _, bias in layers):
        raise ValueError("it lacks dense layers, or one of them has no proper bias")
    if len(convolutions) + len(layers) > MOST_LAYERS:
        raise ValueError(f"it has more than {MOST_LAYERS} layers")
    *hidden, actions = (int(bias.shape[0]) for _, bias in layers)
    architecture = Architecture(body, observation_shape, actions, tuple(hidden))
    template = jax.eval_shape(lambda: initial_regressor(jax.random.key(0), architecture))
    wanted, structure = jax.tree.flatten(template)
    arrays = [array for layer in (*convolutions, *layers) for array in layer]
    _check_shapes(body, arrays, [leaf.shape for leaf in wanted])
    leaves = [jnp.asarray(_as_float32(array)) for array in arrays]
    return jax.tree.unflatten(structure, leaves), architecture


def _check_shapes(
    body: str, arrays: Sequence[np.ndarray], wanted: Sequence[tuple[int, ...]]
) -> None:
    if len(arrays) != len(wanted):
        raise ValueError(f"it has {len(arrays) // 2} layers, where a {body} body and a head differ")
    for position, (array, shape) in enumerate(zip(arrays, wanted, strict=True)):
        if np.shape(array) != shape:
            noun = "bias" if position % 2 else "weight"
            raise ValueError(
                f"the {noun} of its layer {position // 2 + 1} has shape {list(np.shape(array))}, "
                f"where this network with a {body} body has {list(shape)}"
            )


def _as_float32(array: np.ndarray) -> np.ndarray:
    if array.dtype.kind != "f":
        raise ValueError(f"it holds weights of type {array.dtype}, which are no real numbers")
    with np.errstate(over="ignore"):
        converted = array.astype(np.float32)
    if not np.isfinite(converted).all():
        raise ValueError("it holds weights that are no finite numbers")
    return converted
