"""Files of a run: written whole or not at all, and not trusted when they are read."""

import contextlib
import errno
import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

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
    with replacing(path, durable=True) as file:
        write_all(file.fileno(), data)


def write_all(handle: int, data: bytes) -> None:
    """Write all of `data`; `os.write` alone may stop early."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def file_size(path: Path) -> int:
    """The size of a regular file; `Damaged` if there is none."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise Damaged(f"{path.name} is missing") from None
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
def full_disk_explained(path: Path, last_step: Callable[[], int | None]) -> Iterator[None]:
    """Turn running out of space in the run directory `path` into an error that says what to do."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        step = last_step()
        good = "is none yet" if step is None else f"is step {step}"
        raise RunError(
            f"no space left in {path}; the last good checkpoint {good}; "
            "free space and continue with --resume"
        ) from error
