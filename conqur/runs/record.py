"""What a checkpoint's JSON file says: the names, sizes and digests of its files."""

import hashlib
import re
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from conqur.runs.files import Damaged, canonical, file_size

DATA_NAME = re.compile(r"(state|rows)-\d{12,20}-[0-9a-f]{16}\.safetensors")
_FORMAT = 2


@dataclass(frozen=True)
class LogPosition:
    """How far the log had come.

    Attributes:
        size: its length in bytes.
        sha256: digest of all of it.
    """

    size: int
    sha256: str


@dataclass(frozen=True)
class DataFile:
    """A file that a checkpoint names.

    Attributes:
        name: in the folder of checkpoints.
        size: its length in bytes.
        sha256: digest of all of it.
        first: of a segment, the number of its first row, counted from the start of the run.
        rows: of a segment, how many rows it holds.
    """

    name: str
    size: int
    sha256: str
    first: int = 0
    rows: int = 0

    def read(self, folder: Path) -> bytes:
        """All of it, as it was written; `Damaged` otherwise."""
        self._check_size(folder)
        data = (folder / self.name).read_bytes()
        self._compare(hashlib.sha256(data).hexdigest())
        return data

    def verify(self, folder: Path) -> None:
        """Raise `Damaged` if it is not as it was written."""
        self._check_size(folder)
        with open(folder / self.name, "rb") as file:
            self._compare(hashlib.file_digest(file, "sha256").hexdigest())

    def _check_size(self, folder: Path) -> None:
        found = file_size(folder / self.name)
        if found != self.size:
            raise Damaged(f"{self.name} has {found} bytes instead of {self.size}")

    def _compare(self, digest: str) -> None:
        if digest != self.sha256:
            raise Damaged(f"{self.name} was changed")


@dataclass(frozen=True)
class Record:
    """What a checkpoint consists of.

    Attributes:
        step: when it was taken.
        state: the file of the state.
        segments: the files of the replay's rows, oldest first.
        total_rows: how many rows the replay had been given.
        log: how far the log had come.
        config: the run's configuration.
    """

    step: int
    state: DataFile
    segments: tuple[DataFile, ...]
    total_rows: int
    log: LogPosition
    config: dict[str, Any]

    def to_json(self) -> bytes:
        """With a digest of itself."""
        content = asdict(self) | {"format": _FORMAT}
        return canonical(content | {"sha256": _digest(content)}).encode()

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> "Record":
        """Checks everything, since the file may come from anywhere; `Damaged` if it is wrong."""
        content = dict(content)
        if content.pop("sha256", None) != _digest(content):
            raise Damaged("its digest does not fit")
        if content.pop("format", None) != _FORMAT:
            raise Damaged("it was written by another version of conqur")
        segments = content.get("segments")
        if not (isinstance(segments, list) and isinstance(content.get("config"), dict)):
            raise Damaged("it lacks fields")
        content["state"] = _checked(DataFile, content.get("state"))
        content["segments"] = tuple(_checked(DataFile, segment) for segment in segments)
        content["log"] = _checked(LogPosition, content.get("log"))
        record: Record = _checked(cls, content)
        if not all(DATA_NAME.fullmatch(file.name) for file in (record.state, *record.segments)):
            raise Damaged("it names files that are not its own")
        return record


def _checked(kind: Any, content: Any) -> Any:
    wanted = {field.name: field.type for field in fields(kind)}
    if not isinstance(content, dict) or content.keys() != wanted.keys():
        raise Damaged("it lacks fields")
    for name, value in content.items():
        if wanted[name] in (int, str) and type(value) is not wanted[name]:
            raise Damaged(f"its {name} is impossible")
        if wanted[name] is int and value < 0:
            raise Damaged(f"its {name} is impossible")
    return kind(**content)


def _digest(content: dict[str, Any]) -> str:
    try:
        return hashlib.sha256(canonical(content).encode()).hexdigest()
    except ValueError:  # NaN, or half a character
        raise Damaged("it holds what no JSON file can") from None
