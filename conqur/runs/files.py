"""Files of a run: written whole or not at all, and not trusted when they are read."""

import contextlib
import errno
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from conqur._files import replacing

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_LARGEST_JSON = 64 << 20


class RunError(Exception):
    """A run directory cannot be used or written any more; the message says what to do."""


class Damaged(Exception):
    """A file is not what was written; the message says which one and why, in a few words."""


def canonical(value: Any, *, indent: int | None = None) -> str:
    """`value` as JSON that depends on nothing but the value."""
    separators = (",", ":") if indent is None else None
    return json.dumps(
        value,
        sort_keys=True,
        separators=separators,
        indent=indent,
        ensure_ascii=False,
        allow_nan=False,
    )


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that it is either as before or the whole new one, also after a power cut."""
    with replacing(path, durable=True, follow=False) as file:
        write_all(file.fileno(), data)


def write_all(handle: int, data: bytes) -> None:
    """Write all of `data`; `os.write` alone may stop early."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def open_own(path: Path, flags: int) -> int:
    """Open a file of a run to write to it, or make it; never one that lies elsewhere, or a pipe."""
    flags |= os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    refusal = RunError(f"{path} is no regular file: remove it, or name another folder")
    try:
        handle = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):  # a link, a pipe, a folder
            raise refusal from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise refusal
    return handle


def appending(path: Path) -> BinaryIO:
    """A file of our own, opened to write at its end."""
    return os.fdopen(open_own(path, os.O_WRONLY | os.O_APPEND), "ab")


def reading(path: Path) -> BinaryIO:
    """A file of our own, opened to be read; `Damaged` if it lies elsewhere, or is a pipe."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise Damaged(f"{path.name} is no regular file")
    return os.fdopen(handle, "rb")


def remove(path: Path) -> None:
    """Remove a file; a folder in its place gets another name, since it may hold anything."""
    try:
        os.unlink(path)
    except (IsADirectoryError, PermissionError):  # the latter on macOS
        os.rename(path, path.with_name(f"{path.name}.{secrets.token_hex(4)}.aside"))


def file_size(path: Path) -> int:
    """The size of a regular file; `Damaged` if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise Damaged(f"{path.name} is missing") from None
    except OSError as error:
        if error.errno != errno.ELOOP:  # what cannot be read now may be readable again
            raise
        raise Damaged(f"{path.name} is a link to itself") from None
    if not stat.S_ISREG(found.st_mode):  # a pipe would be waited for
        raise Damaged(f"{path.name} is no regular file")
    return found.st_size


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file; `Damaged` if there is none."""
    if file_size(path) > _LARGEST_JSON:
        raise Damaged(f"{path.name} is too large")
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise Damaged(f"{path.name} is not JSON") from None
    if not isinstance(value, dict):
        raise Damaged(f"{path.name} holds no JSON object")
    return value


@contextlib.contextmanager
def full_disk_explained(
    path: Path, last_step: Callable[[], int | None] | None = None
) -> Iterator[None]:
    """Turn running out of space in the run directory `path` into an error that says what to do.

    Args:
        path: the run directory.
        last_step: the step of the newest checkpoint, if there is one; None: no run is there yet.
    """
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        if last_step is None:
            raise RunError(f"no space left in {path}; free space and begin again") from error
        step = last_step()
        good = "is none yet" if step is None else f"is step {step}"
        raise RunError(
            f"no space left in {path}; the last good checkpoint {good}; "
            "free space and continue with --resume"
        ) from error
