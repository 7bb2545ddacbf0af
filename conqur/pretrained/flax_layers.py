"""The layers of flax's networks, by the names that flax gives them."""

import re
from collections.abc import Mapping
from typing import Any

from conqur.pretrained.stored import StoredArray

StoredLayer = tuple[StoredArray, StoredArray]
"""The weight and the bias of a layer."""


def flax_layers(parameters: Any) -> tuple[list[StoredLayer], list[StoredLayer]]:
    """The convolutions and the dense layers of a network, each in the order of their use.

    Args:
        parameters: "Conv_0", "Dense_0" and so on, each with "kernel" and "bias".

    Raises:
        ValueError: if it has any other part.
    """
    if not isinstance(parameters, Mapping) or not parameters:
        raise ValueError("it holds no layers")
    found: dict[str, dict[int, StoredLayer]] = {"Conv": {}, "Dense": {}}
    for name, layer in parameters.items():
        match = re.fullmatch(r"(Conv|Dense)_(\d{1,3})", str(name))
        if match is None:
            raise ValueError(f"it has a part {str(name)[:60]!a}, which no plain DQN has")
        found[match[1]][int(match[2])] = _stored_layer(str(name), layer)
    convolutions, layers = ([kind[k] for k in sorted(kind)] for kind in found.values())
    return convolutions, layers


def _stored_layer(name: str, layer: Any) -> StoredLayer:
    if not isinstance(layer, Mapping) or set(layer) != {"kernel", "bias"}:
        raise ValueError(f"its layer {name} has other parts than a kernel and a bias")
    kernel, bias = layer["kernel"], layer["bias"]
    if not (isinstance(kernel, StoredArray) and isinstance(bias, StoredArray)):
        raise ValueError(f"its layer {name} has no arrays")
    return kernel, bias
