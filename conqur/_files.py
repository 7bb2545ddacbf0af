"""Files that are whole or not there, whatever happens while they are written."""

import contextlib
import os
import re
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PARTIAL = ".partial"
"""How the names of files end that are being written, and of those that were when all ended."""


def is_partial(name: str) -> bool:
    """Whether a file of this name is one that `replacing` did not write to its end."""
    return re.search(rf"\.[0-9a-f]{{16}}{re.escape(PARTIAL)}$", name) is not None


@contextlib.contextmanager
def replacing(path: Path, *, durable: bool = False, follow: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` in the end, or leaves no trace.

    Until then it lies beside it, under the name `file.name`.

    Args:
        path: what is written; a file that is there keeps its mode.
        durable: also after a power cut it is either as before or the whole new one.
        follow: of a link, write the file behind it, not the link.
    """
    target = path.resolve() if follow else path
    partial = target.with_name(f"{target.name[:50]}.{secrets.token_hex(8)}{PARTIAL}")
    mode = _mode(target)
    with open(partial, "xb") as file:
        try:
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
            os.replace(partial, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(partial)
            raise
    if durable:
        sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _mode(path: Path) -> int | None:
    """The permissions of a file; None if it is not there yet, or a link."""
    try:
        found = os.lstat(path).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(found):
        return None
    if not stat.S_ISREG(found):  # a device or a pipe is not to be replaced
        raise OSError(f"{path} is no regular file")
    return stat.S_IMODE(found)
