"""One process at a time in a run directory."""

import contextlib
import fcntl
import os
import time
import weakref
from collections.abc import Callable
from pathlib import Path

from conqur.runs.files import RunError, open_own


class Lock:
    """A lock on a run directory; the operating system releases it when the process ends.

    Args:
        folder: the run directory.
        warn: told if the file system has no locks.
    """

    def __init__(self, folder: Path, warn: Callable[[str], None]) -> None:
        self._handle = open_own(folder / "lock", os.O_RDWR)
        try:
            self._take(folder, warn)
            with contextlib.suppress(OSError):  # a full disk; it is only for the message
                os.ftruncate(self._handle, 0)
                os.pwrite(self._handle, str(os.getpid()).encode(), 0)
        except BaseException:
            self.release()
            raise
        _held.add(self)

    def release(self) -> None:
        """Let others in. May be called twice."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _take(self, folder: Path, warn: Callable[[str], None]) -> None:
        try:
            _flock(self._handle)
        except BlockingIOError:
            holder = _holder(self._handle)
            raise RunError(
                f"{folder} is in use by {holder}; wait until it ends, or name another --run-dir"
            ) from None
        except OSError as error:  # some network file systems
            warn(f"{folder} cannot be locked ({error.strerror}): start only one process in it")


def _flock(handle: int) -> None:
    """Take the lock; somebody who only looks whether it is free holds it for an instant."""
    for _ in range(5):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.02)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _holder(handle: int) -> str:
    pid = os.pread(handle, 20, 0)
    return f"process {pid.decode()}" if pid.isdigit() else "another process"


def in_use(folder: Path) -> bool:
    """Whether a process holds the lock on a run directory, or on what may become one."""
    try:
        handle = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # no locks: nobody can tell
        return False
    finally:
        os.close(handle)
    return False


_held: weakref.WeakSet[Lock] = weakref.WeakSet()


def _release_in_child() -> None:
    """A forked child shares the lock and could outlive a process that is killed."""
    for lock in list(_held):
        with contextlib.suppress(OSError):
            lock.release()


os.register_at_fork(after_in_child=_release_in_child)
