"""Files with named arrays that are read, and overwritten, where they lie."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from conqur.pretrained.assembling import Layer

Names = Sequence[tuple[str, str]]
"""What a file calls the weight and the bias of each layer."""


@dataclass(frozen=True)
class Place:
    """Where an array lies within a file.

    Attributes:
        start: the first of its bytes.
        kind: of its numbers: "<f4", "<f8", or what others are called.
        shape: of the array.
        strides: from one entry to the next along each axis, in entries.
    """

    start: int
    kind: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def within(self, data: bytes | bytearray) -> np.ndarray:
        """The array itself, not a copy, in the file's bytes."""
        if self.kind not in ("<f4", "<f8"):
            raise ValueError(f"it holds weights of type {self.kind}: convert them to float32")
        kind = np.dtype(self.kind)
        strides = tuple(kind.itemsize * stride for stride in self.strides)
        return np.ndarray(self.shape, kind, data, self.start, strides)


@dataclass(frozen=True, eq=False)
class ArrayFile:
    """A file with named arrays.

    Attributes:
        data: all of it.
        places: where its arrays lie, in the file's order.
        sealed: makes a file's checksums right, and bytes of it.
    """

    data: bytes
    places: dict[str, Place]
    sealed: Callable[[bytearray], bytes]

    def layers(self, names: Names) -> list[Layer]:
        """The weights and biases of some layers, as the file has them."""
        return [(self._array(weight), self._array(bias)) for weight, bias in names]

    def with_layers(self, names: Names, layers: Sequence[Layer]) -> bytes:
        """The file with other weights and biases of some layers.

        Numbers that stay the same keep their bytes, also where the file has them more precisely.
        """
        if len(names) != len(layers):
            raise ValueError("the network to be written has other layers than the file's")
        written = bytearray(self.data)
        pairs = zip(names, layers, strict=True)
        new = {name: array for both in pairs for name, array in zip(*both, strict=True)}
        for name, array in new.items():
            old = self.places[name].within(written)
            if old.shape != array.shape or not np.isfinite(array).all():
                raise ValueError(
                    f"the network to be written has other layers than the file's {name!r}, "
                    "or weights that are no finite numbers"
                )
            changed = _bits(old) != _bits(array)
            old[changed] = array[changed]
        for name, array in new.items():
            if (_bits(self.places[name].within(written)) != _bits(array)).any():
                raise ValueError(f"its array {name!r} shares memory with another one")
        return self.sealed(written)

    def _array(self, name: str) -> np.ndarray:
        if name not in self.places:
            raise ValueError(f"it lacks the array {name!r}")
        return self.places[name].within(self.data)


def _bits(array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, np.float32).view(np.uint32)
