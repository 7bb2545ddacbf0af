"""TensorFlow's checkpoints, read without TensorFlow.

A checkpoint `NAME` is a table `NAME.index` and the files `NAME.data-00000-of-00001` and so on. The
table is sorted, in blocks of entries whose keys share their beginnings, with an index of the
blocks in a last one. It tells for each variable its type and shape, and where in which file it is.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from conqur.pretrained.crc32c import crc32c, masked
from conqur.pretrained.format import MOST_BYTES
from conqur.pretrained.protobuf import as_numbers, fields, varint
from conqur.pretrained.stored import StoredArray

MOST_INDEX_BYTES = 2**22
"""Larger tables are not believed in."""

MOST_NAME_BYTES = 500
"""Longer names are not believed in: entries of four bytes repeat them."""

_MAGIC = bytes.fromhex("57fb808b247547db")
_FOOTER = 48
_TRAILER = 5
_FLOAT = 1


@dataclass(frozen=True)
class Variable:
    """What the table tells of a variable.

    Attributes:
        kind: the number of its type in TensorFlow.
        shape: of it.
        shard: the number of the file that it is in.
        offset: where in that file.
        size: its bytes.
        checksum: of those, masked.
        sliced: whether it is stored in pieces, under other names.
    """

    kind: int
    shape: tuple[int, ...]
    shard: int
    offset: int
    size: int
    checksum: int
    sliced: bool


@dataclass(frozen=True)
class TensorBundle:
    """A checkpoint.

    Attributes:
        prefix: the path that all its files begin with.
        shards: how many files with data there are.
        variables: what the table tells, by name.
    """

    prefix: Path
    shards: int
    variables: dict[str, Variable]

    def read(self, name: str) -> np.ndarray:
        """The values of a variable of 32-bit real numbers.

        Raises:
            ValueError: if it is none, or its data is missing or damaged.
        """
        variable = self.variables.get(name)
        if variable is None:
            raise ValueError(f"it has no variable {name}")
        if variable.sliced or variable.kind != _FLOAT:
            raise ValueError(f"its variable {name} is in pieces, or not of type float32")
        if variable.shard >= self.shards:
            raise ValueError(f"its variable {name} is in file {variable.shard} of {self.shards}")
        ending = f".data-{variable.shard:05d}-of-{self.shards:05d}"
        raw = _part(self.prefix.with_name(self.prefix.name + ending), variable)
        if masked(crc32c(raw)) != variable.checksum:
            raise ValueError(f"its variable {name} is damaged: the checksum is wrong")
        return StoredArray.checked(raw, variable.offset, variable.shape, np.dtype("<f4")).array


def prefix_of(path: Path) -> Path:
    """What all files of a checkpoint begin with, from the path of any of them, or from itself."""
    ending = re.search(r"\.(index|meta|data-\d{5}-of-\d{5})$", path.name)
    return path if ending is None else path.with_name(path.name[: ending.start()])


def index_of(path: Path) -> Path:
    """The table of a checkpoint, from the path of any of its files, or what those begin with."""
    prefix = prefix_of(path)
    return prefix.with_name(prefix.name + ".index")


def is_bundle(path: Path) -> bool:
    """Whether there is a checkpoint's table at `index_of` a path."""
    index = index_of(path)
    try:
        if not index.is_file() or index.stat().st_size < _FOOTER:
            return False
    except OSError:  # the name with what is added is too long
        return False
    with index.open("rb") as file:
        file.seek(-len(_MAGIC), 2)
        return file.read() == _MAGIC


def open_bundle(path: Path) -> TensorBundle:
    """The checkpoint that a file belongs to, or that the path is the prefix of.

    Raises:
        ValueError: if there is none, or its table is damaged.
    """
    if not is_bundle(path):
        raise ValueError("it has no table of a TensorFlow checkpoint (.index) beside it")
    index = index_of(path)
    if index.stat().st_size > MOST_INDEX_BYTES:
        raise ValueError(f"its table is larger than {MOST_INDEX_BYTES // 2**20} MiB")
    entries = dict(_table(index.read_bytes()))
    header = as_numbers(fields(entries.pop(b"", b"")))
    if header.get(2, 0) != 0:
        raise ValueError("it was written on a big-endian machine")
    variables = {name.decode("ascii", "replace"): _variable(v) for name, v in entries.items()}
    return TensorBundle(prefix_of(path), min(header.get(1, 0), 99_999), variables)


def _part(path: Path, variable: Variable) -> bytes:
    if not path.is_file():
        raise ValueError(f"its file {path.name} is missing")
    if variable.offset + variable.size > min(path.stat().st_size, MOST_BYTES):
        raise ValueError(f"its file {path.name} is cut short")
    with path.open("rb") as file:
        file.seek(variable.offset)
        return file.read(variable.size)


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """All entries of a table."""
    footer = data[-_FOOTER:]
    _, position = _handle(footer, 0)  # of blocks with statistics
    place, _ = _handle(footer, position)
    end = 0
    for _, value in _entries(_block(data, place)):
        place, _ = _handle(value, 0)
        if place[0] < end:  # else a small file could name its blocks again and again
            raise ValueError("its table has blocks that overlap")
        end = sum(place)
        yield from _entries(_block(data, place))


def _handle(data: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = varint(data, position)
    size, position = varint(data, position)
    return (offset, size), position


def _block(data: bytes, place: tuple[int, int]) -> bytes:
    offset, size = place
    if offset + size + _TRAILER > len(data) - _FOOTER:
        raise ValueError("its table is cut short")
    end = offset + size
    if data[end] != 0:
        raise ValueError("its table is compressed: save it without compression")
    if masked(crc32c(data[offset : end + 1])) != int.from_bytes(data[end + 1 : end + 5], "little"):
        raise ValueError("its table is damaged: a checksum is wrong")
    return data[offset:end]


def _entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a block, each the length of what its key shares with the one before, first."""
    restarts = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (restarts + 1)
    if len(block) < 4 or end < 0:
        raise ValueError("its table has a broken block")
    position, key = 0, b""
    while position < end:
        shared, position = varint(block, position)
        added, position = varint(block, position)
        size, position = varint(block, position)
        if shared > len(key) or position + added + size > end or shared + added > MOST_NAME_BYTES:
            raise ValueError("its table has a broken block")
        key = key[:shared] + block[position : position + added]
        yield key, block[position + added : position + added + size]
        position += added + size


def _variable(message: bytes) -> Variable:
    parts = list(fields(message))
    numbers = as_numbers(parts)
    shape = []
    for number, value in parts:
        if number == 2 and isinstance(value, bytes):
            sides = [side for tag, side in fields(value) if tag == 2 and isinstance(side, bytes)]
            shape += [as_numbers(fields(side)).get(1, 0) for side in sides]
    return Variable(
        kind=numbers.get(1, 0),
        shape=tuple(shape),
        shard=numbers.get(3, 0),
        offset=numbers.get(4, 0),
        size=numbers.get(5, 0),
        checksum=numbers.get(6, 0),
        sliced=any(number == 7 for number, _ in parts),
    )
