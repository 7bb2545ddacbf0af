"""Argument checks: one `ValueError` that names the argument and says what is wrong with it."""

import operator
import sys
from collections.abc import Sequence
from typing import Any

import array_api_compat
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int


def real_array(name: str, value: Any, axes: Sequence[str]) -> Float[np.ndarray, "..."]:
    """Return `value` as a finite, non-empty float64 array with one axis for each of `axes`."""
    array = np.asarray(as_array(name, value))
    if not _is_real(array.dtype):
        raise ValueError(f"{name} must be an array of real numbers, got {array.dtype}")
    array = array.astype(np.float64)
    _check_axes(name, array.shape, axes)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinite entries")
    return array


def index_array(name: str, value: Any, length: int) -> Int[np.ndarray, " length"]:
    """Return `value` as an array of `length` integers of at least 0."""
    array = np.asarray(as_array(name, value))
    if not np.issubdtype(array.dtype, np.integer) and array.size:
        raise ValueError(f"{name} must hold integers, got {array.dtype}")
    shape(name, array, (length,))
    if (array < 0).any() or (array > np.iinfo(np.int64).max).any():
        raise ValueError(f"{name} holds {array.min()}, but numbers start at 0")
    return array.astype(np.int64)


def action_array(
    name: str, value: Any, *, length: int, num_actions: int
) -> Int[np.ndarray, " length"]:
    """Return `value` as an integer array of `length` actions in 0 … `num_actions` − 1."""
    array = index_array(name, value, length)
    _check_range(name, array, num_actions, "action")
    return array


def state_array(
    name: str, value: Any, *, length: int, num_states: int
) -> Int[np.ndarray, " length"]:
    """Return `value` as an integer array of `length` states in 0 … `num_states` − 1."""
    array = index_array(name, value, length)
    _check_range(name, array, num_states, "state")
    return array


def shape(name: str, array: Any, expected: tuple[int, ...]) -> None:
    """Refuse an array whose shape is not `expected`."""
    if tuple(array.shape) != expected:
        raise ValueError(f"{name} must have shape {list(expected)}, got {list(array.shape)}")


def number(
    name: str,
    value: Any,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
) -> None:
    """Refuse anything but one finite number within bounds; what is traced passes."""
    if isinstance(value, jax.core.Tracer):
        return
    bounds = {"above": above, "of at least": at_least, "below": below, "of at most": at_most}
    words = " and ".join(f"{word} {bound}" for word, bound in bounds.items() if bound is not None)
    wanted = f"{name} must be a number {words}".rstrip()
    try:
        read = np.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{wanted}, got {value!r}") from None
    if not (
        np.isfinite(read)
        and (above is None or read > above)
        and (at_least is None or read >= at_least)
        and (below is None or read < below)
        and (at_most is None or read <= at_most)
    ):
        raise ValueError(f"{wanted}, got {value}")


def count(name: str, value: Any, *, at_least: int = 1) -> int:
    """Return `value` as an int, refusing anything but a whole number of at least `at_least`."""
    try:
        whole = operator.index(value)
    except TypeError:
        whole = at_least - 1
    if whole < at_least:
        raise ValueError(f"{name} must be a whole number of at least {at_least}, got {value!r}")
    return whole


def short_count(name: str, value: Any, *, at_least: int = 1) -> int:
    """As `count`, of what programs count in 32 bits."""
    whole = count(name, value, at_least=at_least)
    if whole >= 2**31:
        raise ValueError(f"{name} must be below 2³¹, got {value}")
    return whole


def all_positive(name: str, array: Any) -> None:
    """Refuse entries that are not above zero, where they can be read."""
    entries = readable(array)
    if entries is not None and not (entries > 0).all():
        raise ValueError(f"{name} must be positive, got {entries.min():.6g}")


def no_nan(name: str, array: Any) -> None:
    """Refuse NaN entries, where they can be read."""
    entries = readable(array)
    if entries is None or not jnp.issubdtype(entries.dtype, np.inexact):
        return
    if np.isnan(entries.astype(np.float64)).any():
        raise ValueError(f"{name} holds NaN entries")


def as_array(name: str, value: Any) -> Any:
    """Leave arrays of NumPy, JAX and torch as they are, and make anything else a NumPy array."""
    if array_api_compat.is_array_api_obj(value):
        return value
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:  # lists of different lengths, for one
        raise ValueError(f"{name} must be an array: {error}") from None


def floating(name: str, value: Any) -> Any:
    """Return `value` as an array of floating-point numbers of its own library, without NaN."""
    array = as_array(name, value)
    if array_api_compat.is_torch_array(array):
        array = array if array.is_floating_point() else array.float()
    elif not _is_real(array.dtype):
        raise ValueError(f"{name} must be an array of real numbers, got {array.dtype}")
    elif not jnp.issubdtype(array.dtype, np.floating):
        array = array.astype(float)
    no_nan(name, array)
    return array


def flags(name: str, value: Any) -> Any:
    """Return `value` as an array of booleans, refusing what is neither boolean nor 0 and 1."""
    array = as_array(name, value)
    if not array_api_compat.is_torch_array(array) and not _is_real(array.dtype):
        raise ValueError(f"{name} must hold booleans, got {array.dtype}")
    entries = readable(array)
    if entries is not None and not ((entries == 0) | (entries == 1)).all():
        raise ValueError(f"{name} must hold booleans, or 0 and 1")
    return array != 0


def q_values(name: str, value: Any) -> Any:
    """Return `value` [..., A] as an array of its library, refusing what is no set of Q-values."""
    array = floating(name, value)
    if array.ndim < 1 or 0 in array.shape:
        raise ValueError(
            f"{name} must have shape [..., A] without empty axes, got {list(array.shape)}"
        )
    return array


def assigned(name: str, value: Any, q_values: Any) -> Any:
    """Return `value` [...] as an integer array, one action for each row of `q_values` [..., A].

    A torch tensor comes back with 64 bits, the only integers that torch gathers with.
    """
    array = as_array(name, value)
    same_library(name, array, q_values)
    xp = array_api_compat.array_namespace(array)
    if not xp.isdtype(array.dtype, "integral"):
        raise ValueError(f"{name} must hold integers (actions), got {array.dtype}")
    shape(name, array, tuple(q_values.shape[:-1]))
    entries = readable(array)
    if entries is not None:
        _check_range(name, entries, q_values.shape[-1], "action")
    return array.long() if array_api_compat.is_torch_array(array) else array


def same_library(name: str, array: Any, q_values: Any) -> None:
    """Refuse a torch tensor beside arrays of another library, and the other way round."""
    if array_api_compat.is_torch_array(array) != array_api_compat.is_torch_array(q_values):
        raise ValueError(f"{name} must be an array of the same library as the Q-values")


def discount(value: Any, rows: tuple[int, ...]) -> None:
    """Refuse what is neither one number in [0, 1] nor one for each row."""
    if getattr(value, "ndim", 0) == 0:
        number("discount", value, at_least=0, at_most=1)
        return
    shape("discount", value, rows)
    entries = readable(value)
    if entries is not None and not ((entries >= 0) & (entries <= 1)).all():
        raise ValueError("discount must lie between 0 and 1")


def readable(array: Any) -> np.ndarray | None:
    """The entries, where looking at them is free of charge, else None.

    It is not while a function is traced or compiled, nor on an accelerator, which the look would
    wait for.
    """
    if isinstance(array, jax.core.Tracer):
        return None
    if array_api_compat.is_torch_array(array):
        return _readable_tensor(array)
    platforms = {device.platform for device in getattr(array, "devices", set)()}
    return np.asarray(array) if platforms <= {"cpu"} else None


def _readable_tensor(tensor: Any) -> np.ndarray | None:
    if sys.modules["torch"].compiler.is_compiling() or tensor.device.type != "cpu":
        return None
    tensor = tensor.detach()
    try:
        return np.asarray(tensor.float() if tensor.is_floating_point() else tensor)
    except RuntimeError:  # inside torch.func.grad or vmap
        return None


def _is_real(dtype: Any) -> bool:
    return dtype.kind in "biuf" or jnp.issubdtype(dtype, np.floating)  # bfloat16 has kind V


def _check_range(name: str, entries: np.ndarray, count: int, noun: str) -> None:
    outside = entries[(entries < 0) | (entries >= count)]
    if outside.size:
        raise ValueError(
            f"{name} holds {noun} {outside[0]}, but there are {count} {noun}s (0 to {count - 1})"
        )


def _check_axes(name: str, actual: tuple[int, ...], axes: Sequence[str]) -> None:
    wanted = f"[{', '.join(axes)}]"
    if len(actual) != len(axes):
        raise ValueError(f"{name} must have shape {wanted}, got {list(actual)}")
    if 0 in actual:
        raise ValueError(f"{name} must have shape {wanted} without empty axes, got {list(actual)}")
