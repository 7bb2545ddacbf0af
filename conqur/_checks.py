"""Argument checks: one `ValueError` that names the argument and says what is wrong with it."""

from collections.abc import Sequence
from typing import Any

import array_api_compat
import jax
import numpy as np
from jaxtyping import Float, Int


def real_array(name: str, value: Any, axes: Sequence[str]) -> Float[np.ndarray, "..."]:
    """Return `value` as a finite, non-empty float64 array with one axis for each of `axes`."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of real numbers: {error}") from None
    _check_axes(name, array.shape, axes)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinite entries")
    return array


def action_array(
    name: str, value: Any, *, length: int, num_actions: int
) -> Int[np.ndarray, " length"]:
    """Return `value` as an integer array of `length` actions in 0 … `num_actions` − 1."""
    return _index_array(name, value, length=length, count=num_actions, noun="action")


def state_array(name: str, value: Any, *, length: int, num_states: int) -> Int[np.ndarray, " l"]:
    """Return `value` as an integer array of `length` states in 0 … `num_states` − 1."""
    return _index_array(name, value, length=length, count=num_states, noun="state")


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


def as_array(value: Any) -> Any:
    """Leave arrays of NumPy, JAX and torch as they are, and make anything else a NumPy array."""
    return value if array_api_compat.is_array_api_obj(value) else np.asarray(value)


def q_values(name: str, value: Any) -> Any:
    """Return `value` [..., A] as an array of its own library, refusing what is no set of Q-values.

    Shapes and dtypes are always checked; entries are checked where looking at them is free of
    charge, that is not while tracing and not on an accelerator, which the look would wait for.
    """
    array = as_array(value)
    if array.ndim < 1 or 0 in array.shape:
        raise ValueError(
            f"{name} must have shape [..., A] without empty axes, got {list(array.shape)}"
        )
    entries = _readable(array)
    if entries is not None and np.isnan(entries).any():
        raise ValueError(f"{name} holds NaN entries")
    return array


def assigned(name: str, value: Any, q_values: Any) -> Any:
    """Return `value` [...] as an integer array, one action for each row of `q_values` [..., A]."""
    array = as_array(value)
    xp = array_api_compat.array_namespace(array)
    if not xp.isdtype(array.dtype, "integral"):
        raise ValueError(f"{name} must hold integers (actions), got {array.dtype}")
    shape(name, array, tuple(q_values.shape[:-1]))
    entries = _readable(array)
    if entries is not None:
        _check_range(name, entries, q_values.shape[-1], "action")
    return array


def _readable(array: Any) -> np.ndarray | None:
    if isinstance(array, jax.core.Tracer):
        return None
    device = getattr(array, "device", "cpu")
    if getattr(device, "platform", getattr(device, "type", device)) != "cpu":
        return None
    return np.asarray(array.detach() if hasattr(array, "detach") else array)


def _index_array(name: str, value: Any, *, length: int, count: int, noun: str) -> np.ndarray:
    array = np.asarray(value)
    if not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"{name} must hold integers ({noun}s), got {array.dtype}")
    shape(name, array, (length,))
    _check_range(name, array, count, noun)
    return array.astype(np.int64)


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
