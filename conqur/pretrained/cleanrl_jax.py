"""CleanRL's JAX networks: `.cleanrl_model` files of dqn_atari_jax.py and dqn_jax.py.

They are flax's MessagePack: maps of names to arrays, and an array is a message within the message.
"""

from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np

from conqur.pretrained.assembling import perceptron, taken_apart
from conqur.pretrained.atari_networks import atari_network
from conqur.pretrained.flax_layers import StoredLayer, flax_layers
from conqur.pretrained.format import Content, Format
from conqur.pretrained.network import Pretrained
from conqur.pretrained.stored import StoredArray, patched
from conqur.regressor import Regressor

MOST_ENTRIES = 64
"""Maps and lists with more are not believed in: room for all entries is taken at once."""

MOST_DEPTH = 8
"""Maps that are nested deeper are not believed in."""

_START = b"\x81\xa6params"
_ARRAY = 1


class CleanRLJax(Format):
    """The network is the whole file: there are no optimizer's state and no target network."""

    name = "cleanrl-jax"
    writes = ".cleanrl_model"

    def recognises(self, content: Content) -> bool:
        """Whether it is a map with nothing but "params"."""
        return content.start.startswith(_START)

    def read(self, content: Content) -> Pretrained:
        """The network."""
        stored = flax_layers(_parameters(content.data))
        convolutions, layers = ([(w.array, b.array) for w, b in kind] for kind in stored)
        if convolutions:
            regressor, architecture = atari_network(convolutions, layers, same=False)
        else:
            regressor, architecture = perceptron(layers)
        preprocessing = "cleanrl" if convolutions else ""
        return Pretrained(regressor, architecture, "", preprocessing, {}, self.name)

    def write(self, content: Content, regressor: Regressor) -> bytes:
        """The same file with other weights."""
        convolutions, layers = flax_layers(_parameters(content.data))
        places = _flat([*convolutions, *layers])
        arrays = [array for layer in taken_apart(regressor) for array in layer]
        return patched(content.data, places, arrays)


def _flat(layers: list[StoredLayer]) -> list[StoredArray]:
    return [array for layer in layers for array in layer]


def _parameters(data: bytes) -> Any:
    """What the file calls params: maps with `StoredArray` where flax wrote arrays."""
    unpacker = msgpack.Unpacker(**_limits(len(data)))
    unpacker.feed(data)
    read = _read(unpacker, data, 0)
    if unpacker.tell() != len(data) or not isinstance(read, dict) or set(read) != {"params"}:
        raise ValueError("it holds something else than the parameters of one network")
    return read["params"]


def _tried(read: Callable[..., Any], *arguments: Any, **limits: Any) -> Any:
    try:
        return read(*arguments, **limits)
    except (ValueError, msgpack.UnpackException):
        raise ValueError("its MessagePack is broken or unusual") from None


def _limits(size: int) -> dict[str, Any]:
    bound = max(size, 1)
    return {
        "max_buffer_size": bound,
        "max_array_len": MOST_ENTRIES,
        "max_map_len": MOST_ENTRIES,
        "max_str_len": bound,
        "max_bin_len": bound,
        "max_ext_len": bound,
    }


def _read(unpacker: msgpack.Unpacker, data: bytes, depth: int) -> Any:
    if depth > MOST_DEPTH:
        raise ValueError(f"its maps are nested deeper than {MOST_DEPTH} times")
    first = data[unpacker.tell() : unpacker.tell() + 1]
    if b"\x80" <= first <= b"\x8f" or first in (b"\xde", b"\xdf"):  # how maps begin
        entries: dict[str, Any] = {}
        for _ in range(_tried(unpacker.read_map_header)):
            key = _tried(unpacker.unpack)
            if type(key) is not str or key in entries:
                raise ValueError("its maps have unusual keys")
            entries[key] = _read(unpacker, data, depth + 1)
        return entries
    value = _tried(unpacker.unpack)
    if isinstance(value, msgpack.ExtType) and value.code == _ARRAY:
        return _array(value.data, unpacker.tell())
    return value


def _array(message: bytes, end: int) -> StoredArray:
    """An array from its message, which ends there in the file, and with the array's entries."""
    limits = _limits(len(message))
    del limits["max_buffer_size"]
    parts = _tried(msgpack.unpackb, message, **limits)
    if type(parts) is not list or [type(part) for part in parts] != [list, str, bytes]:
        raise ValueError("it holds an array that is none")
    shape, name, raw = parts
    if name != "float32":
        raise ValueError(f"it holds weights of type {name[:20]!a}, where float32 is expected")
    return StoredArray.checked(raw, end - len(raw), shape, np.dtype("<f4"))
