"""`python -m conqur._tied ...` is `conqur ...` in a process that does not outlive its parent.

The parent holds the other end of its standard input and never writes. Once that is closed the
parent is gone, however it went, and somebody else may be about to make the same run: the process
is then asked to save and end.
"""

import os
import signal
import threading


def end_with_parent() -> None:
    """Watch standard input, and send this process SIGTERM when it is closed."""
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    end_with_parent()

    from conqur.__main__ import main

    main()
