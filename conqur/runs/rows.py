"""Rows of the replay as one compressed file: a segment."""

import json
import os
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from conqur.runs.files import RunError, canonical

_BLOCK = 4 << 20
_LEVEL = 1  # game frames shrink 20 to 50 times at hundreds of MB/s; higher levels gain 10 %
_WORTHWHILE = 0.8  # noise, such as features, is not compressed at all
_MOST_FROM_A_BYTE = 1100  # what deflate can grow to; more is no honest file


def ring_rows(ring: Any, first: int, stop: int, *, axis: int = 0) -> np.ndarray:
    """Rows number `first` to `stop` − 1 of a ring, in order, [stop − first, ...].

    Args:
        ring: an array of NumPy or JAX, with row number i at index i % capacity.
        first: counted from the start of the run, as is `stop`.
        stop: one more than the last one's number.
        axis: of the ring that counts rows; it becomes the first one.
    """
    capacity = ring.shape[axis]
    if not 0 <= first <= stop <= first + capacity:
        raise ValueError(f"ring holds {capacity} rows, got first = {first} and stop = {stop}")
    before = (slice(None),) * axis
    parts = [np.asarray(ring[*before, span]) for span in _spans(capacity, first, stop)]
    return np.moveaxis(np.concatenate(parts, axis), axis, 0)


def put_into_ring(ring: np.ndarray, first: int, part: np.ndarray) -> None:
    """Write rows number `first` and following, [R, ...], into a ring [capacity, ...]."""
    stop = first + len(part)
    part = part[-len(ring) :]
    for span in _spans(len(ring), stop - len(part), stop):
        count = span.stop - span.start
        ring[span], part = part[:count], part[count:]


def _spans(capacity: int, first: int, stop: int) -> tuple[slice, slice]:
    """Where rows number `first` to `stop` − 1 lie in a ring: up to its end, and from its start."""
    start = first % capacity
    end = start + stop - first
    return slice(start, min(end, capacity)), slice(0, max(0, end - capacity))


def encode(rows: Mapping[str, np.ndarray]) -> bytes:
    """A safetensors file with the blocks of each array, compressed where that is worthwhile.

    Args:
        rows: arrays with one row each per time, [R, ...].
    """
    blocks: dict[str, np.ndarray] = {}
    header = {}
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, array in rows.items():
            flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            pieces = [flat[start : start + _BLOCK] for start in range(0, flat.size, _BLOCK)]
            compressed = bool(pieces) and len(_deflate(pieces[0])) < _WORTHWHILE * pieces[0].size
            if compressed:
                pieces = [np.frombuffer(piece, np.uint8) for piece in pool.map(_deflate, pieces)]
            blocks |= {f"{name}/{index}": piece for index, piece in enumerate(pieces)}
            header[name] = {
                "compressed": compressed,
                "dtype": array.dtype.name,
                "shape": list(array.shape),
            }
    return safetensors.numpy.save(blocks, {"arrays": canonical(header)})


def decode(path: Path) -> dict[str, np.ndarray]:
    """The rows that `encode` wrote to a file."""
    try:
        with (
            ThreadPoolExecutor(os.cpu_count()) as pool,
            safetensors.safe_open(path, framework="np") as file,
        ):
            header = json.loads(file.metadata()["arrays"])
            return {
                name: _read(file.get_tensor, name, about, path.stat().st_size, pool)
                for name, about in header.items()
            }
    except (
        *(AttributeError, KeyError, TypeError, ValueError, RecursionError, OverflowError),
        *(zlib.error, safetensors.SafetensorError),
    ) as error:
        raise RunError(f"{path.name} holds no rows of a replay: {error}") from None


def _read(
    block: Callable[[str], np.ndarray],
    name: str,
    about: dict[str, Any],
    file_size: int,
    pool: ThreadPoolExecutor,
) -> np.ndarray:
    dtype, shape = jnp.dtype(about["dtype"]), tuple(about["shape"])
    if dtype.hasobject or not all(type(axis) is int and axis >= 0 for axis in shape):
        raise ValueError(f"{name!r} is no array of numbers")
    total = dtype.itemsize * int(np.prod(shape, dtype=object))
    if total > _MOST_FROM_A_BYTE * file_size:
        raise ValueError(f"{name!r} is said to be larger than its file can hold")
    flat = np.empty(total, np.uint8)
    unpack = _inflate if about["compressed"] else _as_is

    def fill(start: int) -> None:
        goal = flat[start : start + _BLOCK]
        goal[:] = unpack(block(f"{name}/{start // _BLOCK}"), goal.size)

    list(pool.map(fill, range(0, total, _BLOCK)))
    return flat.view(dtype).reshape(shape)


def _deflate(block: np.ndarray) -> bytes:
    return zlib.compress(block.data, _LEVEL)


def _inflate(block: np.ndarray, length: int) -> np.ndarray:
    stream = zlib.decompressobj()
    data = stream.decompress(block.data, length)  # never more, whatever the file holds
    return _as_is(np.frombuffer(data, np.uint8), length)


def _as_is(block: np.ndarray, length: int) -> np.ndarray:
    if block.shape != (length,):
        raise ValueError(f"a block holds {block.size} bytes instead of {length}")
    return block
