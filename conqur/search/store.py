"""All batches so far, to learn from more than the newest one."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from conqur.environments.interface import Transitions
from conqur.search.batches import Batch


class Store:
    """Keeps T batches of n transitions, features in half the precision."""

    def __init__(
        self, levels: int, transitions: int, example: Any, *, half_precision: bool
    ) -> None:
        """Make room.

        Args:
            levels: T.
            transitions: n.
            example: the shape and dtype of φ(s).
            half_precision: of features.
        """
        size = (levels, transitions)
        features = jnp.zeros((*size, *example.shape), stored_dtype(example.dtype, half_precision))
        self._rows = {
            "states": features,
            "successors": jnp.copy(features),
            "actions": jnp.zeros(size, jnp.int32),
            "rewards": jnp.zeros(size, jnp.float32),
            "terminal": jnp.zeros(size, bool),
            "initial": jnp.zeros(size, bool),
        }

    def add(self, batch: Batch, level: int) -> None:
        """Keep D_k."""
        new = {**batch.transitions._asdict(), "initial": batch.initial}
        self._rows = _put((self._rows, new, jnp.int32(level)))

    def draw(self, key: Key[Array, ""], level: int) -> tuple[Transitions, Array]:
        """As many transitions as a batch has, out of all up to D_k, and which are initial."""
        drawn = _drawn(self._rows, key, jnp.int32(level))
        initial = drawn.pop("initial")
        return Transitions(**drawn), initial

    def levels(self, first: int, stop: int) -> dict[str, np.ndarray]:
        """The batches of some levels, as arrays [K, n, ...]."""
        return {name: np.asarray(rows[first:stop]) for name, rows in self._rows.items()}

    def restore(self, levels: dict[str, np.ndarray]) -> None:
        """Put all back; `levels` holds them in order."""
        self._rows = {
            name: rows.at[: len(levels[name])].set(levels[name])
            for name, rows in self._rows.items()
        }


def stored_dtype(dtype: Any, half_precision: bool) -> Any:
    """What features are kept as."""
    return jnp.float16 if half_precision and jnp.issubdtype(dtype, jnp.floating) else dtype


def as_stored(values: Array, dtype: Any) -> Array:
    """Features in that dtype; what half the precision has no room for becomes its largest."""
    if dtype == jnp.float16 and values.dtype != dtype:
        most = float(np.finfo(np.float16).max)
        values = jnp.clip(values, -most, most)
    return values.astype(dtype)


@eqx.filter_jit(donate="all")
def _put(given: Any) -> dict[str, Array]:
    rows, new, level = given
    return {
        name: ring.at[level].set(as_stored(new[name], ring.dtype)) for name, ring in rows.items()
    }


@eqx.filter_jit
def _drawn(rows: dict[str, Array], key: Key[Array, ""], level: Array) -> dict[str, Array]:
    size = rows["actions"].shape[1]
    places = jax.random.randint(key, (size,), 0, (level + 1) * size)
    drawn = {name: ring[places // size, places % size] for name, ring in rows.items()}
    for name in ("states", "successors"):
        if drawn[name].dtype == jnp.float16:
            drawn[name] = drawn[name].astype(jnp.float32)
    return drawn
