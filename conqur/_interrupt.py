"""Ctrl-C and SIGTERM, whatever a process is doing."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

INTERRUPTED, TERMINATED = 130, 143
"""Exit statuses, as shells have them."""

DROPPING = "_xla_gc_callback"
"""A function of JAX's that garbage collection calls, where exceptions are dropped."""
AGAIN = 0.05
"""Seconds until a signal is sent again that came there."""


class Asked:
    """Whether somebody asked this process to stop. What fails then fails for that."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


asked = Asked()


def at_once(number: int, frame: FrameType | None) -> None:
    """End the process: nothing has been begun, and libraries are being loaded."""
    with contextlib.suppress(OSError):  # nobody may be there to read it
        os.write(2, b"conqur: interrupted\n")
    os._exit(128 + number)


def by_exception(number: int, frame: FrameType | None) -> None:
    """Raise what ends the process as soon as all is put in order."""
    asked.signal = number
    if frame is not None and frame.f_code.co_name == DROPPING:
        threading.Timer(AGAIN, os.kill, (os.getpid(), number)).start()
        return
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(TERMINATED)


def heed(handler: Callable[[int, FrameType | None], Any]) -> None:
    """Have both signals handled, but for those that are ignored or handled outside Python."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) not in (None, signal.SIG_IGN):
            signal.signal(number, handler)
