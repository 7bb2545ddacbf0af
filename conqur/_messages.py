"""What people are told besides results."""

import contextlib
import os
import sys
from typing import IO, Any, cast

from rich.console import Console


def warn(line: str) -> None:
    """Say in one line, on stderr, what is wrong without being in the way."""
    print(f"conqur: {line}", file=_Heedless(sys.stderr))


def stderr_console() -> Console:
    """A console on stderr for what is nice to know: once nobody can read it, it says nothing."""
    return Console(file=cast(IO[str], _Heedless(sys.stderr)))


def printable(text: str, *, keep_spaces: bool = False) -> str:
    """`text` in one line, without what would do something to a terminal."""
    line = text if keep_spaces else " ".join(text.split())
    return "".join(letter for letter in line if letter.isprintable())


def duration(seconds: float) -> str:
    """A time for people."""
    for unit, size in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} seconds"


class _Heedless:
    """A stream that may break, such as a pipe to `head`, without stopping what writes to it.

    Args:
        stream: a file, or what stands for one; None if there is none.
    """

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.encoding = getattr(stream, "encoding", None)

    def isatty(self) -> bool:
        return self._stream is not None and self._stream.isatty()

    def write(self, text: str) -> None:
        if self._stream is not None:
            try:
                self._stream.write(text)
            except OSError:
                self._give_up(self._stream)

    def flush(self) -> None:
        if self._stream is not None:
            try:
                self._stream.flush()
            except OSError:
                self._give_up(self._stream)

    def _give_up(self, stream: Any) -> None:
        self._stream = None
        # What it still holds would make the end of the process fail, too.
        with contextlib.suppress(OSError), open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), stream.fileno())
