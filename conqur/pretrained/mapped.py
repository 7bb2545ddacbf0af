"""Networks of people's own code: state dicts of torch, and safetensors.

What such a file lacks is told by a small JSON file beside it, named like it with ".json" at the
end: for DQN_Pong.pth this is DQN_Pong.pth.json. Only "layers" has to be there.

    {
      "layers": ["net.0", "net.2", "net.4", "net.7", "net.9"],
      "body": "nature",
      "layout": "torch",
      "observation_shape": [84, 84, 4],
      "preprocessing": "sb3",
      "environment": "PongNoFrameskip-v4"
    }

"layers" are named in the order of their use, each by what stands before ".weight" and ".bias" in
the names of its arrays, or by both names: {"weight": "w1", "bias": "b1"}. A rectifier follows each
but the last. "body" is one of `conqur.regressor.BODIES`. "layout" is "torch" (weights [O, I, h, w]
and [O, I], flattened with channels first) or "jax" ([h, w, I, O] and [I, O], channels last).
Observations that are bytes are scaled to [0, 1], and shapes have their channels last.

Without such a file, state dicts that hold Nature's network and nothing else are read as well.
"""

import json
import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from conqur.environments.atari import preprocessing_named
from conqur.pretrained.array_files import ArrayFile, Names, Place
from conqur.pretrained.assembling import (
    Layer,
    convolutional,
    from_torch,
    perceptron,
    taken_apart,
    to_torch,
)
from conqur.pretrained.atari_networks import MOST_ACTIONS
from conqur.pretrained.format import Content, Format
from conqur.pretrained.network import Pretrained
from conqur.pretrained.stored import MOST_AXES
from conqur.pretrained.torch_files import is_torch, read_torch
from conqur.regressor import BODIES, Architecture, Regressor

MOST_MAPPING_BYTES = 2**20
"""Larger mapping files are not believed in."""

_LAYOUTS = ("torch", "jax")
_KINDS = {"F32": "<f4", "F64": "<f8", "F16": "float16", "BF16": "bfloat16"}


@dataclass(frozen=True)
class Mapping:
    """What a file's arrays are, see above.

    Attributes:
        layers: the names of each layer's weight and bias.
        body: what they make up; "" for Nature's, where there are convolutions.
        layout: "torch" or "jax".
        observation_shape: of an observation; () for the usual one of the body.
        preprocessing: how Atari pictures were made.
        environment: its name.
    """

    layers: tuple[tuple[str, str], ...]
    body: str = ""
    layout: str = "torch"
    observation_shape: tuple[int, ...] = ()
    preprocessing: str = ""
    environment: str = ""

    def __post_init__(self) -> None:
        arrays = [name for layer in self.layers for name in layer]
        if not arrays or len(set(arrays)) != len(arrays):
            raise ValueError("'layers' must name at least one layer, and each array only once")
        if self.body not in ("", *BODIES):
            raise ValueError(f"'body' must be one of {', '.join(BODIES)}, got {self.body!r}")
        if self.layout not in _LAYOUTS:
            raise ValueError(f"'layout' must be one of {', '.join(_LAYOUTS)}, got {self.layout!r}")
        if self.preprocessing:
            preprocessing_named(self.preprocessing)


class Mapped(Format):
    """State dicts of torch and safetensors, with a mapping or obvious without one.

    Attributes:
        mapping: the mapping file; the one beside the network's if not given.
    """

    name = "mapped"
    writes = ".pth"

    def __init__(self, mapping: Path | None = None) -> None:
        self.mapping = mapping

    def recognises(self, content: Content) -> bool:
        """Whether it is a file of torch, or safetensors."""
        return is_torch(content) or _is_safetensors(content)

    def read(self, content: Content) -> Pretrained:
        """The network."""
        file = _file(content)
        mapping = self._mapping(content, file)
        layers = file.layers(mapping.layers)
        regressor, architecture = _assembled(mapping, layers)
        return Pretrained(
            regressor,
            architecture,
            mapping.environment,
            mapping.preprocessing,
            {"arrays": [weight for weight, _ in mapping.layers]},
            self.name,
        )

    def write(self, content: Content, regressor: Regressor) -> bytes:
        """The file with another network; the mapping fits it as before."""
        file = _file(content)
        mapping = self._mapping(content, file)
        layers = to_torch(regressor) if mapping.layout == "torch" else taken_apart(regressor)
        return file.with_layers(mapping.layers, layers)

    def _mapping(self, content: Content, file: ArrayFile) -> Mapping:
        path = self.mapping or _beside(content)
        if self.mapping is not None or has_mapping(content):
            try:
                return _read_mapping(path)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"its mapping {path.name} cannot be used: {error}") from None
        names = _obvious(file)
        if not names:
            raise ValueError(
                "it does not say what network its arrays make up: write a mapping file "
                f'{path.name} beside it, such as {{"layers": ["fc1", "fc2"]}}'
            )
        return Mapping(tuple(names), "nature")


def has_mapping(content: Content) -> bool:
    """Whether there is a mapping file beside a file."""
    beside = _beside(content)
    if os.path.lexists(beside) and not beside.is_file():
        raise ValueError(f"its mapping {beside.name} is no regular file")
    return beside.is_file()


def _beside(content: Content) -> Path:
    return content.path.with_name(content.path.name + ".json")


def _read_mapping(path: Path) -> Mapping:
    try:
        with path.open("rb") as file:
            text = file.read(MOST_MAPPING_BYTES + 1)
    except OSError as error:
        raise ValueError(str(error.strerror or error)) from None
    if len(text) > MOST_MAPPING_BYTES:
        raise ValueError("it is too long")
    values = json.loads(text)
    known = {field.name for field in fields(Mapping)}
    if not isinstance(values, dict) or not isinstance(values.get("layers"), list):
        raise ValueError("it must be an object with a list 'layers'")
    if values.keys() - known:
        raise ValueError(f"it knows no {sorted(values.keys() - known)[0][:60]!r}")
    shape = values.get("observation_shape", [])
    if not isinstance(shape, list) or not all(type(n) is int and 0 < n < 2**20 for n in shape):
        raise ValueError("'observation_shape' must be a list of whole numbers above 0")
    for name in ("body", "layout", "preprocessing", "environment"):
        if not isinstance(values.get(name, ""), str):
            raise ValueError(f"{name!r} must be a word")
    values["layers"] = tuple(_layer_names(layer) for layer in values["layers"])
    values["observation_shape"] = tuple(shape)
    return Mapping(**values)


def _layer_names(layer: Any) -> tuple[str, str]:
    if isinstance(layer, str):
        return f"{layer}.weight", f"{layer}.bias"
    if isinstance(layer, dict) and layer.keys() == {"weight", "bias"}:
        weight, bias = layer["weight"], layer["bias"]
        if isinstance(weight, str) and isinstance(bias, str):
            return weight, bias
    raise ValueError("each of 'layers' must be a name, or an object with 'weight' and 'bias'")


def _obvious(file: ArrayFile) -> Names:
    """The layers of a file that holds Nature's network and nothing else; none otherwise."""
    weights = [name for name in file.places if name.endswith("weight")]
    names = [(name, name.removesuffix("weight") + "bias") for name in weights]
    if {name for both in names for name in both} != set(file.places):
        return []
    axes = [len(file.places[weight].shape) for weight in weights]
    is_nature = len(axes) > 4 and axes == [4, 4, 4] + [2] * (len(axes) - 3)
    if is_nature and file.places[weights[-1]].shape[0] > MOST_ACTIONS:
        return []  # no values of actions, but distributions of returns perhaps
    return names if is_nature else []


def _assembled(mapping: Mapping, layers: list[Layer]) -> tuple[Regressor, Architecture]:
    if mapping.layout == "torch":
        convolutions, dense = from_torch(layers)
    else:
        convolutions = [layer for layer in layers if np.ndim(layer[0]) == 4]
        dense = layers[len(convolutions) :]
    body = mapping.body or ("nature" if convolutions else "mlp")
    shape = mapping.observation_shape
    if body == "mlp":
        if convolutions:
            raise ValueError("it has convolutions, but 'body' says mlp")
        return perceptron(dense, observation_shape=shape or None)
    size = shape[:2] or ((10, 10) if body == "minatar" else (84, 84))
    regressor, architecture = convolutional(body, convolutions, dense, size=(size[0], size[-1]))
    if shape not in ((), architecture.observation_shape):
        raise ValueError(
            f"its first convolution is for observations of shape "
            f"{list(architecture.observation_shape)}, not {list(shape)}"
        )
    return regressor, architecture


def _file(content: Content) -> ArrayFile:
    return read_torch(content.data) if is_torch(content) else _read_safetensors(content.data)


def _is_safetensors(content: Content) -> bool:
    length = int.from_bytes(content.start[:8], "little")
    return content.start[8:9] == b"{" and 8 + length <= content.path.stat().st_size


def _read_safetensors(data: bytes) -> ArrayFile:
    try:
        # Of no use but that it refuses whatever is wrong with the file.
        safetensors.deserialize(data)  # type: ignore[no-untyped-call]
    except safetensors.SafetensorError as error:
        raise ValueError(f"it is no whole safetensors file: {error}") from None
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    places = {}
    for name, array in header.items():
        shape, strides = tuple(array["shape"]), [1]
        if len(shape) > MOST_AXES:
            raise ValueError(f"its array {name[:60]!r} has {len(shape)} axes")
        for size in reversed(shape[1:]):
            strides.insert(0, strides[0] * size)
        start = 8 + length + array["data_offsets"][0]
        kind = _KINDS.get(array["dtype"], array["dtype"])
        places[name] = Place(start, kind, shape, tuple(strides[: len(shape)]))
    return ArrayFile(data, places, bytes)
