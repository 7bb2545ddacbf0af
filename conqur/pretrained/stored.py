"""Arrays that know where in a file they are, so that others can be put in their place."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_AXES = 8
"""Arrays with more are not believed in."""


@dataclass(frozen=True, eq=False)
class StoredArray:
    """An array of a file.

    Attributes:
        array: its entries, in 32 bits.
        start: where in the file they begin; they lie there without gaps.
        order: "C" if the last axis runs fastest there, "F" if the first one does.
    """

    array: np.ndarray
    start: int
    order: str = "C"

    @classmethod
    def checked(
        cls, raw: bytes, start: int, shape: Any, dtype: np.dtype[Any], *, order: str = "C"
    ) -> "StoredArray":
        """One of real numbers of 32 bits.

        Args:
            raw: the bytes of its entries.
            start: where in the file they begin.
            shape: what the file says that it is.
            dtype: of an entry.
            order: see the class.

        Raises:
            ValueError: if the bytes are no such array.
        """
        if dtype.kind != "f" or dtype.itemsize != 4:
            raise ValueError(f"it holds weights of type {dtype}, where float32 is expected")
        plain = isinstance(shape, tuple | list) and all(type(side) is int for side in shape)
        if not plain or not 1 <= len(shape) <= MOST_AXES or any(side < 1 for side in shape):
            raise ValueError("it holds an array whose shape is none")
        if math.prod(shape) * dtype.itemsize != len(raw):
            raise ValueError(f"its array of shape {list(shape)} has {len(raw)} bytes")
        array = np.frombuffer(raw, dtype).reshape(shape, order="F" if order == "F" else "C")
        return cls(array, start, order)


def patched(data: bytes, stored: Sequence[StoredArray], arrays: Sequence[np.ndarray]) -> bytes:
    """A file with other entries in some of its arrays.

    Args:
        data: the file's content.
        stored: those arrays of it.
        arrays: what takes their places, in the same order.

    Raises:
        ValueError: if the arrays have other shapes, or the file has two of its arrays in one place.
    """
    if [place.array.shape for place in stored] != [array.shape for array in arrays]:
        raise ValueError("the network to write has another architecture than that in the file")
    result, end = bytearray(data), 0
    for place, array in sorted(zip(stored, arrays, strict=True), key=lambda pair: pair[0].start):
        if place.start < end:
            raise ValueError("it cannot be written: two of its layers share their weights")
        end = place.start + place.array.nbytes
        raw = array.astype(place.array.dtype).tobytes("F" if place.order == "F" else "C")
        result[place.start : end] = raw
    return bytes(result)
