"""conqur's own files: safetensors whose header says what the network is and where it comes from."""

import json
import os
import stat
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy
from jax.tree_util import keystr
from jaxtyping import Array, Float, Int

from conqur.policies import Policies
from conqur.pretrained.format import Content, Format
from conqur.pretrained.network import Pretrained
from conqur.regressor import Architecture, Regressor, initial_regressor
from conqur.runs import flatten, unflatten

MOST_WEIGHTS = 2**29
"""Networks with more are not believed in."""

MOST_HEADER = 10**8
"""Bytes; the format itself has no longer ones."""

_NOT_OURS = (ValueError, TypeError, KeyError, OverflowError, RecursionError, AttributeError)
"""What other people's files lead to."""


def to_bytes(network: Pretrained, *, half: bool = False) -> bytes:
    """The content of a file that `load` reads.

    Args:
        network: what is written.
        half: in half precision, if that loses nothing.
    """
    about = {
        "architecture": network.architecture.to_json(),
        "environment": network.environment,
        "preprocessing": network.preprocessing,
        "origin": network.origin,
    }
    header = {"conqur": json.dumps(about, sort_keys=True)}
    arrays = {name: np.asarray(array) for name, array in flatten(network.regressor).items()}
    with np.errstate(over="ignore"):
        halves = {name: array.astype(np.float16) for name, array in arrays.items()}
    if half and all((halves[name] == array).all() for name, array in arrays.items()):
        arrays = halves
    return safetensors.numpy.save(arrays, metadata=header)


class Native(Format):
    """conqur's own files."""

    name = "conqur"
    writes = ".safetensors"

    def recognises(self, content: Content) -> bool:
        """Whether it is a safetensors file that speaks of conqur."""
        length = int.from_bytes(content.start[:8], "little")
        if content.start[8:9] != b"{" or length > MOST_HEADER:
            return False
        with content.path.open("rb") as file:
            return b'"conqur"' in file.read(8 + length)

    def read(self, content: Content) -> Pretrained:
        """The network."""
        return read_native(content.path)

    def write(self, content: Content, regressor: Regressor) -> bytes:
        """The file with another network."""
        there = read_native(content.path)
        return to_bytes(replace(there, regressor=regressor), half=_is_half(content.path))


def read_native(path: Path) -> Pretrained:
    """Read a network that conqur wrote.

    Args:
        path: the file.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # a pipe would be waited for
            raise OSError("it is no regular file")
        with safetensors.safe_open(path, framework="np") as file:
            about = _about(file.metadata())
            architecture = _architecture(about["architecture"])
            template = jax.eval_shape(lambda: initial_regressor(jax.random.key(0), architecture))
            _check_size(template)
            stored = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            _check_shapes(template, {name: tuple(s.get_shape()) for name, s in stored.items()})
            # Those that come with the package are kept in half the precision.
            arrays = {name: _single(np.asarray(file.get_tensor(name))) for name in stored}
        regressor = unflatten(template, arrays)
        network = Pretrained(
            regressor,
            architecture,
            str(about["environment"]),
            str(about["preprocessing"]),
            dict(about["origin"]),
        )
    except FileNotFoundError:
        raise ValueError(f"there is no file {path}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}") from None
    except (*_NOT_OURS, safetensors.SafetensorError) as error:
        raise ValueError(f"{path} holds no network that conqur wrote: {error}") from None
    if not all(bool(np.isfinite(array).all()) for array in arrays.values()):
        raise ValueError(f"{path} holds weights that are no finite numbers")
    return network


class Together(Policies):
    """K regressors of one architecture that answer side by side."""

    regressors: Regressor
    """With a leading axis K."""

    def __call__(self, observations: Array) -> Float[Array, "K E A"]:
        """Q-values of observations [K, E, ...]: regressor k answers for [k]."""
        return jax.vmap(lambda regressor, seen: regressor(seen))(self.regressors, observations)

    def some(self, places: Int[np.ndarray, " J"]) -> "Together":
        """Those in these places."""
        return Together(jax.tree.map(lambda leaf: leaf[places], self.regressors))


def together(networks: Sequence[Pretrained]) -> Together:
    """Networks of one architecture as one function, see `conqur.evaluation.evaluate`."""
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *(n.regressor for n in networks))
    return Together(stacked)


def _about(metadata: dict[str, str] | None) -> dict[str, Any]:
    """What the header says, with all that has to be there."""
    if "conqur" not in (metadata or {}):
        raise ValueError("its header does not say so")
    about = json.loads((metadata or {})["conqur"])
    wanted = {"architecture": dict, "environment": str, "preprocessing": str, "origin": dict}
    for name, kind in wanted.items():
        if not (isinstance(about, dict) and isinstance(about.get(name), kind)):
            raise ValueError(f"its header lacks {name!r}, or has something else there")
    return about


def _architecture(values: dict[str, Any]) -> Architecture:
    if set(values) != {field.name for field in fields(Architecture)}:
        raise ValueError(f"its architecture has the fields {', '.join(sorted(values))}")
    shape, hidden, actions = values["observation_shape"], values["hidden"], values["actions"]
    if not (isinstance(shape, list) and isinstance(hidden, list)):
        raise ValueError("its architecture's shapes are no lists")
    sizes = (*shape, *hidden, actions)
    if not (all(isinstance(size, int) for size in sizes) and isinstance(values["body"], str)):
        raise ValueError("its architecture has entries of wrong types")
    if len(sizes) > 50 or max(sizes) > 100_000:
        raise ValueError("its architecture is too large to be true")
    return Architecture(values["body"], tuple(shape), actions, tuple(hidden))


def _is_half(path: Path) -> bool:
    with safetensors.safe_open(path, framework="np") as file:
        return all(file.get_slice(name).get_dtype() == "F16" for name in file.keys())  # noqa: SIM118


def _single(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if array.dtype == np.float16 else array


def _check_size(template: Regressor) -> None:
    if sum(leaf.size for leaf in jax.tree.leaves(template)) > MOST_WEIGHTS:
        raise ValueError("its architecture is too large to be true")


def _check_shapes(template: Regressor, stored: dict[str, tuple[int, ...]]) -> None:
    """Refuse other arrays than the architecture's before they are read: they may be huge."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(template)
    wanted = {keystr(path, simple=True, separator="/"): leaf.shape for path, leaf in leaves}
    for name in sorted(wanted.keys() | stored.keys()):
        if wanted.get(name) != stored.get(name):
            raise ValueError(
                f"its array {name!r} has shape {stored.get(name)}, "
                f"but the architecture's has {wanted.get(name)}"
            )
