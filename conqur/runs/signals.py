"""Being asked to stop."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Whether this process was asked to stop.

    Attributes:
        signal: the one that asked, None as long as nobody has.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextlib.contextmanager
def stop_requested(answer: str = "") -> Iterator[StopRequest]:
    """Turn the first Ctrl-C or SIGTERM into a flag, so that a loop can save and end.

    The second one acts as it would have without this. Outside the main thread, which alone gets
    signals, the flag is never set.

    Args:
        answer: said at once on stderr, where it takes long until the loop looks.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    # What is ignored (Ctrl-C in a background job) or handled outside Python stays so.
    taken = {number: old for number, old in before.items() if old not in (None, signal.SIG_IGN)}

    def restore() -> None:
        for number, handler in taken.items():
            signal.signal(number, handler)

    def ask(number: int, frame: FrameType | None) -> None:
        request.signal = signal.Signals(number)
        restore()
        if answer:
            with contextlib.suppress(OSError):  # nobody may be there to read it
                os.write(2, f"\n{answer}\n".encode())  # whatever else is being written just now

    for number in taken:
        signal.signal(number, ask)
    try:
        yield request
    finally:
        restore()
