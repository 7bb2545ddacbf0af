"""Pytrees of arrays as flat dictionaries with names, and back."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


def flatten(tree: Any) -> dict[str, np.ndarray]:
    """The arrays of a pytree, each under its path, such as "params/layers/0/weight".

    Args:
        tree: of JAX and NumPy arrays. Anything that a file could not give back exactly is refused:
            Python numbers, random keys (keep `jax.random.key_data`), and weakly typed JAX arrays.
    """
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    arrays: dict[str, np.ndarray] = {}
    for path, leaf in leaves:
        name = _name(path)
        _check_leaf(name, leaf)
        if name in arrays:
            raise ValueError(f"tree holds two arrays named {name!r}; rename one")
        arrays[name] = np.asarray(leaf, order="C")
    return arrays


def unflatten(template: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The pytree whose arrays `flatten` gave.

    Args:
        template: a pytree of the same structure, shapes and dtypes. Where it holds NumPy arrays
            the result does, too; elsewhere it holds JAX arrays, on the default device.
        arrays: as `flatten` gave them.
    """
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    names = [_name(path) for path, _ in leaves]
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ValueError(f"arrays lacks {missing[0]!r}: it was saved from another kind of state")
    unknown = sorted(set(arrays) - set(names))
    if unknown:
        raise ValueError(f"arrays holds {unknown[0]!r}, which the template does not have")
    for name, (_, leaf) in zip(names, leaves, strict=True):
        _check_alike(name, leaf, arrays[name])
    restored = [_like(leaf, arrays[name]) for name, (_, leaf) in zip(names, leaves, strict=True)]
    return jax.tree_util.tree_unflatten(structure, restored)


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator="/")


def _check_leaf(name: str, leaf: Any) -> None:
    if not isinstance(leaf, np.ndarray | np.generic | jax.Array):
        raise ValueError(f"tree holds a {type(leaf).__name__} at {name!r}; make it an array")
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        raise ValueError(f"tree holds a random key at {name!r}; keep jax.random.key_data of it")
    if leaf.dtype.hasobject:
        raise ValueError(f"tree holds Python objects at {name!r}; make it an array of numbers")
    if getattr(leaf, "weak_type", False):
        raise ValueError(
            f"tree holds a weakly typed array at {name!r}, which would come back strongly typed; "
            "give it a dtype"
        )


def _check_alike(name: str, leaf: Any, array: np.ndarray) -> None:
    if tuple(leaf.shape) != array.shape:
        raise ValueError(
            f"arrays holds {name!r} with shape {list(array.shape)}, "
            f"but the template's has {list(leaf.shape)}"
        )
    if leaf.dtype != array.dtype:
        raise ValueError(
            f"arrays holds {name!r} with dtype {array.dtype}, but the template's has {leaf.dtype}"
        )


def _like(leaf: Any, array: np.ndarray) -> Any:
    if isinstance(leaf, np.ndarray | np.generic):
        return array.copy()
    return jnp.array(array)


def key_data(leaf: Any) -> Any:
    """An array that can be saved: the numbers behind a key, or what is none as it is."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.key_data(leaf) if is_key else leaf


def like_key(leaf: Any, data: Any) -> Any:
    """The inverse of `key_data`; the leaf shows whether it was a key."""
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return jax.random.wrap_key_data(data) if is_key else data
