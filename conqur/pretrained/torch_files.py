"""Files of `torch.save`, read and overwritten without torch: zip files, and what came before 1.6.

Both hold a pickle, in which tensors are calls that name a storage (a stretch of numbers), and the
storages' plain bytes. The pickle is read by `unpickling` and never changed.
"""

import io
import itertools
import pickletools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from conqur.pretrained.array_files import ArrayFile, Place
from conqur.pretrained.format import Content
from conqur.pretrained.unpickling import Inert, Names, unpickle
from conqur.pretrained.zip_files import open_archive

MOST_DEPTH = 3
"""Of dicts within dicts in which tensors are looked for."""

_ZIP = b"PK\x03\x04"
_LEGACY = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."
"""A pickle of the number with which older files begin."""

_KINDS = {
    "Float": ("<f4", 4),
    "Double": ("<f8", 8),
    "Half": ("float16", 2),
    "BFloat16": ("bfloat16", 2),
    "Long": ("int64", 8),
    "Int": ("int32", 4),
    "Short": ("int16", 2),
    "Char": ("int8", 1),
    "Byte": ("uint8", 1),
    "Bool": ("bool", 1),
    "ComplexFloat": ("complex64", 8),
    "ComplexDouble": ("complex128", 16),
}


def is_torch(content: Content) -> bool:
    """Whether `torch.save` wrote a file, as far as its beginning tells."""
    if content.start.startswith(_ZIP):
        first = 30 + int.from_bytes(content.data[26:28], "little")
        return content.data[30:first].endswith(b"/data.pkl")
    return content.start.startswith(_LEGACY[:16])


def read_torch(data: bytes) -> ArrayFile:
    """The tensors in a file of `torch.save`.

    Those in dicts within dicts are named with dots in between, as in "model.layer.weight".

    Raises:
        ValueError: if it is no such file, or holds other objects than tensors and plain values.
    """
    return _read_zip(data) if data.startswith(_ZIP) else _read_legacy(data)


@dataclass(frozen=True)
class _Kind:
    """What stands for `torch.FloatStorage` and the like."""

    name: str
    size: int

    def __call__(self, *_: Any) -> Any:
        raise TypeError("storages are not made by calls")


@dataclass(frozen=True)
class _Storage:
    """Numbers that lie together in a file."""

    key: str
    kind: _Kind
    length: int


@dataclass(frozen=True)
class _Tensor:
    """What `torch._utils._rebuild_tensor_v2` was called with."""

    storage: Any
    offset: Any
    shape: Any
    strides: Any


def _rebuild_tensor(storage: Any, offset: Any, shape: Any, strides: Any, *_: Any) -> _Tensor:
    return _Tensor(storage, offset, shape, strides)


def _rebuild_parameter(tensor: Any, *_: Any) -> Any:
    return tensor


def _empty() -> dict[Any, Any]:
    return {}


_STORAGES = {("torch", f"{word}Storage"): _Kind(*kind) for word, kind in _KINDS.items()}
_ALLOWED: Names = {
    **_STORAGES,
    ("collections", "OrderedDict"): _empty,
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch", "Size"): Inert,
    ("torch", "device"): Inert,
    ("argparse", "Namespace"): Inert,
    ("numpy", "*"): Inert,
    ("_codecs", "encode"): Inert,  # how bytes, as in numbers of numpy, are pickled
}


class _Storages:
    """Those that a pickle refers to, by key."""

    def __init__(self) -> None:
        self.known: dict[str, _Storage] = {}

    def __call__(self, identity: Any) -> _Storage:
        """The one that is meant; older files add None, where it is no view of another."""
        word, kind, key, _, length = identity[:5]
        if word != "storage" or not (isinstance(kind, _Kind) and isinstance(key, str)):
            raise TypeError
        if not _sizes((length,)) or identity[5:] not in ((), (None,)):
            raise TypeError
        storage = _Storage(key, kind, length)
        if self.known.setdefault(key, storage) != storage:
            raise TypeError
        return storage


def _unpickled(data: bytes, storages: _Storages) -> Any:
    try:
        return unpickle(data, allowed=_ALLOWED, persistent=storages)
    except ValueError as error:
        names_more = str(error).startswith("its pickle names")
        hint = ": save only the state_dict() of the network" if names_more else ""
        raise ValueError(f"{error}{hint}") from None


def _read_zip(data: bytes) -> ArrayFile:
    archive = open_archive(data)
    pickles = [name for name in archive.entries if name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise ValueError("it is a zip file, but torch.save did not write it")
    folder = pickles[0].removesuffix("data.pkl")
    if folder + "constants.pkl" in archive.entries:
        raise ValueError("it is a TorchScript program: save only the state_dict() of the network")
    order = folder + "byteorder"
    if order in archive.entries and bytes(archive.read(order)) != b"little":
        raise ValueError("it was written on a machine with another order of bytes")
    root = _unpickled(bytes(archive.read(pickles[0])), _Storages())
    named = dict(_tensors(root))
    starts = {}
    for storage in _used(named.values()):
        content = archive.read(f"{folder}data/{storage.key}")
        if storage.length * storage.kind.size > len(content):
            raise ValueError(f"its storage {storage.key!r} is shorter than its tensors")
        starts[storage.key] = archive.entries[f"{folder}data/{storage.key}"].start
    return ArrayFile(data, _places(named, starts), archive.sealed)


def _read_legacy(data: bytes) -> ArrayFile:
    if not data.startswith(_LEGACY):
        raise ValueError("torch.save did not write it")
    objects, position, storages = [], len(_LEGACY), _Storages()
    for _ in range(4):  # the protocol's version, the machine, what was saved, storages' keys
        objects.append(_unpickled(data[position:], storages))
        position = _pickle_end(data, position)
    version, machine, root, keys = objects
    if version != 1001 or not (isinstance(machine, dict) and machine.get("little_endian") is True):
        raise ValueError("it is an old torch file of an unknown kind")
    named = dict(_tensors(root))
    starts = _legacy_starts(data, position, keys, storages.known)
    return ArrayFile(data, _places(named, starts), bytes)


def _legacy_starts(
    data: bytes, position: int, keys: Any, storages: dict[str, _Storage]
) -> dict[str, int]:
    """Where storages begin that follow each other, each with its length before it."""
    if not (isinstance(keys, list) and all(isinstance(key, str) for key in keys)) or (
        set(keys) != storages.keys()
    ):
        raise ValueError("its storages are not those of its tensors")
    starts = {}
    for key in keys:
        length = int.from_bytes(data[position : position + 8], "little")
        starts[key] = position + 8
        position += 8 + length * storages[key].kind.size
        if position > len(data) or length < storages[key].length:
            raise ValueError(f"its storage {key!r} is shorter than its tensors")
    return starts


def _pickle_end(data: bytes, start: int) -> int:
    """Where a pickle that has been read ends."""
    stream = io.BytesIO(data)
    stream.seek(start)
    for _ in pickletools.genops(stream):
        pass
    return stream.tell()


MOST_NAMES, MOST_LETTERS = 10_000, 200
"""In a dict of tensors; others would only take memory."""


def _tensors(root: Any) -> Iterator[tuple[str, _Tensor]]:
    """All tensors in dicts, with their names, in order; a dict that comes twice counts once."""
    seen: set[int] = set()

    def within(value: Any, names: tuple[str, ...]) -> Iterator[tuple[str, _Tensor]]:
        if isinstance(value, _Tensor) and names:
            yield ".".join(names), value
        elif isinstance(value, dict) and len(names) < MOST_DEPTH and id(value) not in seen:
            seen.add(id(value))
            words = [(name, item) for name, item in value.items() if isinstance(name, str)]
            if len(words) > MOST_NAMES or any(len(name) > MOST_LETTERS for name, _ in words):
                raise ValueError("its names are too many or too long to be those of a network")
            yield from itertools.chain.from_iterable(within(v, (*names, n)) for n, v in words)

    return within(root, ())


def _used(tensors: Iterable[_Tensor]) -> set[_Storage]:
    return {tensor.storage for tensor in tensors if isinstance(tensor.storage, _Storage)}


def _places(named: dict[str, _Tensor], starts: dict[str, int]) -> dict[str, Place]:
    return {name: _place(name, tensor, starts) for name, tensor in named.items()}


def _place(name: str, tensor: _Tensor, starts: dict[str, int]) -> Place:
    """Where a tensor lies; refused if it is not within its storage, or its entries overlap."""
    storage, offset, shape, strides = tensor.storage, tensor.offset, tensor.shape, tensor.strides
    if not (isinstance(storage, _Storage) and _sizes((offset,)) and _sizes(shape)):
        raise ValueError(f"its tensor {name!r} is no usual one")
    if not _sizes(strides) or len(shape) != len(strides):
        raise ValueError(f"its tensor {name!r} is no usual one")
    extent = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size > 1 and stride < extent:
            raise ValueError(f"its tensor {name!r} has entries that share memory")
        extent += stride * max(size - 1, 0)
    if 0 not in shape and offset + extent > storage.length:
        raise ValueError(f"its tensor {name!r} is larger than what is stored")
    start = starts[storage.key] + offset * storage.kind.size
    return Place(start, storage.kind.name, shape, strides)


def _sizes(values: Any) -> bool:
    short = isinstance(values, tuple) and len(values) <= 8
    return short and all(type(value) is int and 0 <= value < 2**40 for value in values)
