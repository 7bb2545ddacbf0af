"""Fixed data sets: transitions that somebody else collected, to learn from without playing."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from jaxtyping import Array, Bool, Float, Int, Key

from conqur import _checks
from conqur._files import replacing
from conqur.environments.data_files import read_minari, read_npz, read_safetensors
from conqur.environments.frames import frame_layout
from conqur.environments.interface import Spec, Transitions

SUFFIXES = (".npz", ".safetensors")
"""Of files with data."""

MOST_ACTIONS = 100_000
"""Data sets with more are not believed in."""


def is_data(name: str) -> bool:
    """Whether a name is that of a data set that `load_data` reads, not of an environment.

    Args:
        name: "data.npz", "data.safetensors", "minari:NAME" or a Minari data set's directory.
    """
    if Path(name).suffix.lower() in SUFFIXES or name.startswith("minari:"):
        return True
    # Any other directory may just have the name of an environment.
    return any((Path(name) / part / "metadata.json").is_file() for part in ("", "data"))


class FixedData(eqx.Module):
    """n transitions. A pytree, so that it goes into compiled functions as an argument.

    Observations that are images (bytes or booleans with two or three axes) stay as they are;
    others become vectors of float32, as the frames of environments do.
    """

    observations: Array
    """s, [n, ...]."""
    actions: Int[Array, " n"]
    rewards: Float[Array, " n"]
    next_observations: Array
    """s', [n, ...]; of no meaning where terminal."""
    terminals: Bool[Array, " n"]
    """Whether nothing follows that has value: not where an episode was only cut short."""
    num_actions: int = eqx.field(static=True)

    def __init__(
        self,
        observations: Any,
        actions: Any,
        rewards: Any,
        next_observations: Any,
        terminals: Any,
        *,
        num_actions: int | None = None,
    ) -> None:
        """Check the arrays and take them over.

        Args:
            observations: s, [n, ...].
            actions: a, integers of at least 0, [n].
            rewards: r, [n].
            next_observations: s', [n, ...].
            terminals: booleans, [n].
            num_actions: how many actions there are; if not given, up to the highest in `actions`.
        """
        observations = _frames("observations", observations)
        count = len(observations)
        next_observations = _frames("next_observations", next_observations)
        _checks.shape("next_observations", next_observations, observations.shape)
        if next_observations.dtype != observations.dtype:
            raise ValueError(
                f"next_observations must be of {observations.dtype} as observations are, got "
                f"{next_observations.dtype}"
            )
        terminals = _checks.flags("terminals", terminals)
        _checks.shape("terminals", terminals, (count,))
        actions = _checks.index_array("actions", actions, count)
        highest = int(actions.max())
        if num_actions is None:
            num_actions = highest + 1
        elif _checks.count("num_actions", num_actions) <= highest:
            raise ValueError(f"actions holds action {highest}, but num_actions is {num_actions}")
        if num_actions > MOST_ACTIONS:
            raise ValueError(
                f"actions must be at most {MOST_ACTIONS:,}, but these are {num_actions:,}"
            )
        rewards = _float32("rewards", _checks.real_array("rewards", rewards, ["n"]))
        _checks.shape("rewards", rewards, (count,))
        self.observations = jnp.asarray(observations)
        self.actions = jnp.asarray(actions, jnp.int32)
        self.rewards = jnp.asarray(rewards)
        self.next_observations = jnp.asarray(next_observations)
        self.terminals = jnp.asarray(terminals)
        self.num_actions = int(num_actions)

    def __len__(self) -> int:
        return self.actions.shape[0]

    def spec(self, name: str) -> Spec:
        """What the environment looked like that the data came from, under a name."""
        actions = tuple(str(action) for action in range(self.num_actions))
        dtype = self.observations.dtype.name
        return Spec(name, tuple(self.observations.shape[1:]), dtype, actions)

    def digest(self) -> str:
        """SHA-256 of all that is learned from, however it was stored."""
        content = hashlib.sha256(f"{self.spec('')}".encode())
        for array in jax.tree.leaves(self):
            content.update(np.ascontiguousarray(array).data)
        return content.hexdigest()

    def sample(self, key: Key[Array, ""], size: int, time: Any = None) -> Transitions:
        """Draw `size` transitions, uniformly and with replacement; at any time the same ones."""
        rows = jax.random.randint(key, (size,), 0, len(self))
        return Transitions(
            self.observations[rows],
            self.actions[rows],
            self.rewards[rows],
            self.next_observations[rows],
            self.terminals[rows],
        )


def load_data(path: str | os.PathLike[str], *, num_actions: int | None = None) -> FixedData:
    """Read transitions from a file, or from a Minari data set.

    A file is `.npz` or `.safetensors` and holds arrays named `observations`, `actions`, `rewards`,
    `next_observations`, `terminals` and, if wanted, `num_actions`. Without `next_observations`
    the rows are episodes one after the other, as in D4RL: the successor of a row is the next row's
    observation. A last row of an episode has none, and stays only if it is terminal; `timeouts`
    says where an episode was cut short.

    Args:
        path: the file, a Minari data set's directory, or "minari:NAME" for one in Minari's own.
        num_actions: how many actions there are; if not given, as the data set says or, if it does
            not, up to the highest action in it.
    """
    path = os.fspath(path)
    if path.startswith("minari:") or Path(path).is_dir():
        arrays = read_minari(path)
    else:
        readers = {".npz": read_npz, ".safetensors": read_safetensors}
        suffix = Path(path).suffix.lower()
        if suffix not in readers:
            raise ValueError(
                f"{path} is no data set: that is a file .npz or .safetensors, a Minari directory, "
                "or minari:NAME"
            )
        if not Path(path).is_file():
            raise ValueError(f"there is no file {path}")
        arrays = readers[suffix](path)
    try:
        return _from_arrays(arrays, num_actions)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def save_data(path: str | os.PathLike[str], data: FixedData) -> None:
    """Write transitions to a file that `load_data` reads; it is whole or not there at all.

    Args:
        path: the file, `.npz` or `.safetensors`.
        data: the transitions.
    """
    path = Path(path)
    arrays = {
        "observations": np.asarray(data.observations),
        "actions": np.asarray(data.actions),
        "rewards": np.asarray(data.rewards),
        "next_observations": np.asarray(data.next_observations),
        "terminals": np.asarray(data.terminals),
        "num_actions": np.array(data.num_actions),
    }
    suffix = path.suffix.lower()
    if suffix not in (".npz", ".safetensors"):
        raise ValueError(f"path must end in .npz or .safetensors, got {path}")
    with replacing(path) as file:
        if suffix == ".npz":
            np.savez(file, allow_pickle=False, **arrays)
        else:
            file.write(safetensors.numpy.save(arrays))


def _from_arrays(arrays: Mapping[str, np.ndarray], num_actions: int | None) -> FixedData:
    for name in ("observations", "actions", "rewards", "terminals"):
        if name not in arrays:
            raise ValueError(f"the array {name} is missing")
    arrays = dict(arrays)
    stored = arrays.pop("num_actions", None)
    if stored is not None:
        if stored.size != 1 or stored.dtype.kind not in "iu":
            raise ValueError("num_actions must be one whole number")
        if num_actions not in (None, stored.item()):
            raise ValueError(f"num_actions is {stored.item()} in the data, but {num_actions} given")
        num_actions = stored.item()
    timeouts = arrays.pop("timeouts", None)
    if "next_observations" not in arrays:
        arrays = _with_successors(arrays, timeouts)
    return FixedData(**arrays, num_actions=num_actions)


def _with_successors(
    arrays: Mapping[str, np.ndarray], timeouts: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Take successors from the next row; drop rows that have none and are not terminal."""
    count = len(np.atleast_1d(arrays["observations"]))
    for name, array in arrays.items():
        if array.ndim == 0 or len(array) != count:
            raise ValueError(f"{name} must have {count} rows, as observations has")
    terminals = _checks.flags("terminals", arrays["terminals"])
    cut = np.zeros(count, bool) if timeouts is None else _checks.flags("timeouts", timeouts)
    for name, flags in (("terminals", terminals), ("timeouts", cut)):
        _checks.shape(name, flags, (count,))
    has_successor = ~cut & (np.arange(count) < count - 1)
    rows = np.flatnonzero(terminals | has_successor)
    if not rows.size:
        raise ValueError("no row has a successor and none is terminal, so nothing can be learned")
    # A terminal row's successor is not in the data, and nobody looks at it: repeat the row.
    successors = np.where(terminals[rows], rows, rows + 1)
    kept = {name: array[rows] for name, array in arrays.items()}
    return kept | {"next_observations": arrays["observations"][successors]}


def _frames(name: str, value: Any) -> np.ndarray:
    array = np.asarray(_checks.as_array(name, value))
    if array.ndim == 0 or 0 in array.shape:
        raise ValueError(f"{name} must have shape [n, ...] without empty axes")
    shape, dtype = frame_layout(name, array.shape[1:], array.dtype)
    array = array.reshape(len(array), *shape)
    return _float32(name, array) if dtype == "float32" else array


def _float32(name: str, array: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        array = array.astype(np.float32)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds NaN or infinite entries, or too large ones for float32")
    return array
