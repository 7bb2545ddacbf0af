"""What a run writes while it goes on: the log, its TensorBoard events, and how fast it was."""

import contextlib
import hashlib
import math
import os
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c

from conqur.runs.files import canonical, open_own, write_all
from conqur.runs.layout import EVENTS, LOG, SPEED
from conqur.runs.record import LogPosition


class Log:
    """`log.jsonl`: one JSON object per line, without times, the same in every run of a kind.

    Args:
        path: of the file; made if it is not there.
        length: cut it to so many bytes.
    """

    def __init__(self, path: Path, length: int) -> None:
        self._handle = open_own(path, os.O_RDWR | os.O_APPEND)
        os.ftruncate(self._handle, length)
        self._length = length
        with open(self._handle, "rb", closefd=False) as file:
            self._hash = hashlib.file_digest(file, "sha256")

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a line; either all of it or nothing."""
        line = (canonical(row) + "\n").encode()
        try:
            write_all(self._handle, line)
        except BaseException:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, self._length)
            raise
        self._length += len(line)
        self._hash.update(line)

    def position(self) -> LogPosition:
        """How far it has come."""
        return LogPosition(self._length, self._hash.hexdigest())

    def sync(self) -> LogPosition:
        """Make it durable as far as it has come."""
        os.fsync(self._handle)
        return self.position()

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


class Events:
    """The log's numbers as TensorBoard events, one series of files for each member of the run.

    Args:
        folder: of the files.
        purge_from: TensorBoard drops what earlier files hold from this step on.
    """

    def __init__(self, folder: Path, purge_from: int) -> None:
        self._folder = folder
        self._purge_from = purge_from
        self._handles: dict[str, int] = {}

    def write(self, step: int, row: Mapping[str, Any], member: str) -> None:
        """Add a row's numbers: those in lists and objects under "name/index" and "name/key"."""
        if member not in self._handles:
            self._begin(member)
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in _numbers("", row)]
        self._write(member, Event(step=step, summary=Summary(value=values)))

    def close(self) -> None:
        """Close the files."""
        for handle in self._handles.values():
            os.close(handle)

    def _begin(self, member: str) -> None:
        """Begin a new file: a file that lacks its end is none that TensorBoard can read on in."""
        folder = self._folder / member
        folder.mkdir(exist_ok=True)
        # Sorted by name, as TensorBoard reads them.
        numbers = [int(path.suffix[1:]) for path in folder.glob("events.out.tfevents.[0-9]*[0-9]")]
        path = folder / f"events.out.tfevents.{max(numbers, default=0) + 1:06d}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._handles[member] = os.open(path, flags, 0o666)
        start = SessionLog(status=SessionLog.START)
        self._write(member, Event(file_version="brain.Event:2"))
        self._write(member, Event(step=self._purge_from, session_log=start))

    def _write(self, member: str, event: Event) -> None:
        event.wall_time = time.time()
        data = event.SerializeToString()
        length = struct.pack("<Q", len(data))
        record = b"".join((length, _checksum(length), data, _checksum(data)))
        write_all(self._handles[member], record)


class Speed:
    """`speed.jsonl`: what the clock says; not part of a run's result.

    Args:
        path: of the file; made if it is not there. A line that was never finished is removed.
    """

    def __init__(self, path: Path) -> None:
        self._handle = open_own(path, os.O_RDWR | os.O_APPEND)
        with open(self._handle, "rb", closefd=False) as file:
            os.ftruncate(self._handle, file.read().rfind(b"\n") + 1)

    def write(self, row: Mapping[str, Any]) -> None:
        """Append a line."""
        line = canonical(plain({"time": round(time.time(), 3), **row})) + "\n"
        write_all(self._handle, line.encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)


@dataclass(frozen=True, eq=False)
class Writers:
    """All that a run writes while it goes on.

    Attributes:
        log: the results.
        events: the same for TensorBoard.
        speed: what the clock says.
    """

    log: Log
    events: Events
    speed: Speed

    @classmethod
    def open(cls, path: Path, *, length: int, step: int) -> "Writers":
        """Those of the run directory `path`, gone back to a log of `length` bytes at `step`."""
        return cls(Log(path / LOG, length), Events(path / EVENTS, step + 1), Speed(path / SPEED))

    def close(self) -> None:
        """Close all files."""
        self.log.close()
        self.events.close()
        self.speed.close()


def _checksum(data: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(data))


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: arrays as lists, numbers in the fewest digits, NaN as null."""
    if isinstance(value, Mapping):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if value is None or isinstance(value, str | bool | int):
        return value
    array = np.asarray(value)
    if array.dtype == object:
        raise ValueError(f"a row of the log must hold numbers and words, got {value!r}")
    if array.ndim:
        return [plain(entry) for entry in array]
    if array.dtype.kind in "biu":
        return array.item()
    number = float(str(array))  # float32 0.1 is 0.1, not 0.10000000149011612
    return number if math.isfinite(number) else None


def _numbers(tag: str, value: Any) -> Iterator[tuple[str, float]]:
    if isinstance(value, int | float):
        yield tag, float(value)
    elif isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, entry in entries:
            yield from _numbers(f"{tag}/{key}" if tag else str(key), entry)
