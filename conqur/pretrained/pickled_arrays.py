"""What stands for the arrays of NumPy and JAX in pickles; see `unpickling`."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from conqur.pretrained.stored import StoredArray
from conqur.pretrained.unpickling import Inert, Located


class PickledDtype:
    """A type of numbers, if it is one.

    Attributes:
        dtype: it; None for types that are not plain numbers.
    """

    def __init__(self, name: Any, *_: Any) -> None:
        plain = type(name) is str and re.fullmatch(r"[<>|=]?(b1|[iu][1248]|f[248])", name)
        self.dtype = np.dtype(name) if plain else None

    def __setstate__(self, state: Any) -> None:
        """Take the byte order."""
        order = state[1]
        if self.dtype is not None and type(order) is str and order in ("<", ">", "=", "|"):
            self.dtype = self.dtype.newbyteorder(order)


class PickledArray:
    """An array, as its pickle says."""

    def __init__(self, state: Any = None) -> None:
        self._state = state

    def __setstate__(self, state: Any) -> None:
        """Take what there is to know."""
        self._state = state

    def stored(self) -> StoredArray:
        """The array, if it is a good one of 32-bit real numbers.

        Raises:
            ValueError: if it is not.
        """
        if type(self._state) is not tuple or len(self._state) != 5:
            raise ValueError("it holds an array that is none")
        _, shape, dtype, by_column, raw = self._state
        if type(raw) is not Located or type(dtype) is not PickledDtype or dtype.dtype is None:
            raise ValueError("it holds an array without plain numbers")
        order = "F" if by_column is True else "C"
        return StoredArray.checked(raw, raw.start, shape, dtype.dtype, order=order)


def _reconstruct(*_: Any) -> PickledArray:
    return PickledArray()


def _from_jax(_function: Any, _arguments: Any, state: Any, _more: Any) -> PickledArray:
    return PickledArray(state)


def _from_buffer(raw: Any, dtype: Any, shape: Any, order: Any, *_: Any) -> PickledArray:
    if order not in ("C", "F"):
        raise ValueError
    return PickledArray((1, shape, dtype, order == "F", raw))


def _scalar(dtype: Any, raw: Any = None) -> Any:
    if type(dtype) is not PickledDtype or dtype.dtype is None or type(raw) is not Located:
        return Inert()
    return np.frombuffer(raw[: dtype.dtype.itemsize], dtype.dtype)[0].item()


ARRAYS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): Inert,
    ("numpy", "dtype"): PickledDtype,
    ("jax._src.array", "_reconstruct_array"): _from_jax,
    ("jax._src.device_array", "reconstruct_device_array"): _from_jax,
    **{
        (f"numpy.{core}.{module}", name): function
        for core in ("core", "_core")
        for module, name, function in (
            ("multiarray", "_reconstruct", _reconstruct),
            ("multiarray", "scalar", _scalar),
            ("numeric", "_frombuffer", _from_buffer),
        )
    },
}
"""What pickles of arrays name, for `unpickle`: arrays come as `PickledArray`."""


def whole_number(value: Any) -> int | None:
    """A count that a file tells, if it is one."""
    return value if type(value) is int and 0 <= value < 2**60 else None
