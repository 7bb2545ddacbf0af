"""A process that makes runs one after another: much of what one compiled, the next finds ready.

The process reads orders from its standard input, a line of JSON each: what is typed, and where what
is printed goes. It answers each with a line, the exit status. When its input is closed, its parent
is gone, however it went, and somebody else may be about to make the same run: the process saves
and ends.
"""

import contextlib
import gc
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from conqur._memory import keep_memory
from conqur.runs import StopRequest
from conqur.runs.files import appending

PATIENCE = 60.0
"""Seconds that a process has to save and end."""


class Worker:
    """The parent's side. The process is begun when there is something to do, and again if it died.

    Args:
        environment: the process's variables.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._heard = b""

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one."""
        return None if self._process is None else self._process.pid

    def obey(
        self, arguments: Sequence[str], *, log: Path, out: Path | None, stop: StopRequest
    ) -> Generator[None, None, bool]:
        """Have a command run to its end, or, when all is stopped, until it has saved.

        Args:
            arguments: what is typed.
            log: where to append what it prints.
            out: where to append what it prints as its result, if that is not the log.
            stop: set when it is to be saved and left.

        Returns:
            Whether it ended well.
        """
        process = self._ready(log)
        order = {"arguments": list(arguments), "log": str(log), "out": str(out or log)}
        with contextlib.suppress(BrokenPipeError):
            _piped(process.stdin).write(json.dumps(order).encode() + b"\n")
            _piped(process.stdin).flush()
        deadline = None
        while (status := self._answer(process)) is None:
            if stop and deadline is None:
                process.terminate()
                deadline = time.monotonic() + PATIENCE
            if deadline is not None and time.monotonic() > deadline:
                process.kill()
            yield
        if status:
            self.close()  # whatever was wrong, the next one begins with a process of its own
        return status == 0

    def close(self) -> None:
        """Have the process end, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        with process:
            with contextlib.suppress(BrokenPipeError):
                _piped(process.stdin).close()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()

    def _ready(self, log: Path) -> "subprocess.Popen[bytes]":
        if self._process is not None and self._process.poll() is None:
            return self._process
        self.close()
        with appending(log) as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", "from conqur.suite.worker import main; main()"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=self._environment,
                start_new_session=True,  # Ctrl-C is passed on once, by us
            )
        os.set_blocking(_piped(self._process.stdout).fileno(), False)
        self._heard = b""
        return self._process

    def _answer(self, process: "subprocess.Popen[bytes]") -> int | None:
        """The exit status of the command, if it has ended."""
        dead = process.poll() is not None
        self._heard += _piped(process.stdout).read() or b""
        line, ends, self._heard = self._heard.partition(b"\n")
        if ends:
            return int(line)
        self._heard = line
        return process.returncode or 1 if dead else None


def _piped(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def main() -> None:
    """The process's side."""
    keep_memory()
    orders: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
    answers = os.dup(1)
    os.dup2(2, 1)
    threading.Thread(target=_listen, args=(orders,), daemon=True).start()
    while (order := orders.get()) is not None:
        with _printing(order["out"], order["log"]):
            status = _run(order["arguments"])
        gc.collect()  # what a run held on the device is not there for the next one before
        with contextlib.suppress(BrokenPipeError):  # the parent is gone
            os.write(answers, f"{status}\n".encode())


def _listen(orders: "queue.SimpleQueue[dict[str, Any] | None]") -> None:
    for line in sys.stdin:
        orders.put(json.loads(line))
    orders.put(None)
    os.kill(os.getpid(), signal.SIGTERM)  # a run that is being made saves


@contextlib.contextmanager
def _printing(out: str, log: str) -> Iterator[None]:
    """Have all that is printed appended to files, whoever prints it."""
    before = os.dup(1), os.dup(2)
    with appending(Path(out)) as first, appending(Path(log)) as second:
        os.dup2(first.fileno(), 1)
        os.dup2(second.fileno(), 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, kept in enumerate(before, 1):
            os.dup2(kept, number)
            os.close(kept)


def _run(arguments: list[str]) -> int:
    from conqur import cli

    try:
        return cli.run(arguments)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 1
    except Exception:
        traceback.print_exc()
        return 1


if __name__ == "__main__":
    main()
