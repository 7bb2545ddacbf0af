"""Argument checks: one `ValueError` that names the argument and says what is wrong with it."""

from collections.abc import Sequence
from typing import Any

import array_api_compat
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int


def real_array(name: str, value: Any, axes: Sequence[str]) -> Float[np.ndarray, "..."]:
    """Return `value` as a finite, non-empty float64 array with one axis for each of `axes`."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:  # lists of different lengths, for one
        raise ValueError(f"{name} must be an array of real numbers: {error}") from None
    if array.dtype.kind not in "biuf" and not jnp.issubdtype(array.dtype, np.floating):
        raise ValueError(f"{name} must be an array of real numbers, got {array.dtype}")
    array = array.astype(np.float64)
    _check_axes(name, array.shape, axes)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinite entries")
    return array


def index_array(name: str, value: Any, length: int) -> Int[np.ndarray, " length"]:
    """Return `value` as an array of `length` integers of at least 0."""
    array = np.asarray(value)
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must hold integers, got {array.dtype}")
    shape(name, array, (length,))
    if (array < 0).any():
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


def positive(name: str, value: Any) -> None:
    """Refuse anything but a finite number above zero; traced values pass."""
    if not isinstance(value, jax.core.Tracer) and not (np.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a positive number, got {value}")


def non_negative(name: str, value: Any) -> None:
    """Refuse anything but a finite number of at least zero; traced values pass."""
    if not isinstance(value, jax.core.Tracer) and not (np.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a number of at least 0, got {value}")


def discount(value: Any) -> None:
    """Refuse a discount outside [0, 1]; traced values pass."""
    if not isinstance(value, jax.core.Tracer) and not 0 <= value <= 1:
        raise ValueError(f"discount must lie between 0 and 1, got {value}")


def all_positive(name: str, array: Any) -> None:
    """Refuse entries that are not above zero, where they can be read."""
    entries = readable(array)
    if entries is not None and not (entries > 0).all():
        raise ValueError(f"{name} must be positive, got {entries.min():.6g}")


def no_nan(name: str, array: Any) -> None:
    """Refuse NaN entries, where they can be read."""
    entries = readable(array)
    if entries is not None and np.issubdtype(entries.dtype, np.inexact) and np.isnan(entries).any():
        raise ValueError(f"{name} holds NaN entries")


def as_array(value: Any) -> Any:
    """Leave arrays of NumPy, JAX and torch as they are, and make anything else a NumPy array."""
    return value if array_api_compat.is_array_api_obj(value) else np.asarray(value)


def q_values(name: str, value: Any) -> Any:
    """Return `value` [..., A] as an array of its library, refusing what is no set of Q-values."""
    array = as_array(value)
    if array.ndim < 1 or 0 in array.shape:
        raise ValueError(
            f"{name} must have shape [..., A] without empty axes, got {list(array.shape)}"
        )
    no_nan(name, array)
    return array


def assigned(name: str, value: Any, q_values: Any) -> Any:
    """Return `value` [...] as an integer array, one action for each row of `q_values` [..., A].

    A torch tensor comes back with 64 bits, the only integers that torch gathers with.
    """
    array = as_array(value)
    if array_api_compat.is_torch_array(array) != array_api_compat.is_torch_array(q_values):
        raise ValueError(f"{name} must be an array of the same library as the Q-values")
    xp = array_api_compat.array_namespace(array)
    if not xp.isdtype(array.dtype, "integral"):
        raise ValueError(f"{name} must hold integers (actions), got {array.dtype}")
    shape(name, array, tuple(q_values.shape[:-1]))
    entries = readable(array)
    if entries is not None:
        _check_range(name, entries, q_values.shape[-1], "action")
    return array.long() if array_api_compat.is_torch_array(array) else array


def readable(array: Any) -> np.ndarray | None:
    """The entries, where looking at them is free of charge, else None.

    It is not while a function is traced, nor on an accelerator, which the look would wait for.
    """
    if isinstance(array, jax.core.Tracer):
        return None
    device = getattr(array, "device", "cpu")
    if getattr(device, "platform", getattr(device, "type", device)) != "cpu":
        return None
    return np.asarray(array.detach() if hasattr(array, "detach") else array)


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
