"""Checkpoints: exact state at any step, with the replay saved only as far as it is new.

A checkpoint is a small JSON file that names the files of its state and of its rows. It is written
last: a checkpoint exists when that file does. The files it names are called after their content and
never change, so that checkpoints can share them.
"""

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from conqur import _checks
from conqur._files import PARTIAL
from conqur.runs import rows
from conqur.runs.files import Damaged, read_json, remove, write_atomically
from conqur.runs.record import DATA_NAME, DataFile, LogPosition, Record

_KEPT = 2
_NAME = re.compile(r"checkpoint-(\d{12,20})\.json")
_DTYPES = {
    "BOOL": "bool",
    "BF16": "bfloat16",
    **{f"F{bits}": f"float{bits}" for bits in (16, 32, 64)},
    **{f"I{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"U{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
}


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """A checkpoint that was read back and found whole.

    Read its rows before the next one is saved, which may remove their files.

    Attributes:
        step: when it was taken.
        arrays: the state, by name; see `unflatten`.
        total_rows: how many rows the replay had been given since the start of the run.
        log: how far the log had come.
        files: the number of its first row, and the file, of each segment, oldest first.
    """

    step: int
    arrays: dict[str, np.ndarray]
    total_rows: int
    log: LogPosition
    files: tuple[tuple[int, Path], ...]

    def segments(self) -> Iterator[tuple[int, dict[str, np.ndarray]]]:
        """The newest rows, oldest first, in parts: the first one's number, and arrays [R, ...]."""
        for first, path in self.files:
            yield first, rows.decode(path)

    def rings(self, capacity: int) -> dict[str, np.ndarray]:
        """The rows in ring arrays [capacity, ...]: number i at i % capacity, zero if never set."""
        _checks.count("capacity", capacity)
        rings: dict[str, np.ndarray] = {}
        for first, segment in self.segments():
            for name, part in segment.items():
                if name not in rings:
                    rings[name] = np.zeros((capacity, *part.shape[1:]), part.dtype)
                rows.put_into_ring(rings[name], first, part)
        return rings


class Checkpoints:
    """The checkpoints in a folder: the last two of a run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._last: Record | None = None

    @property
    def last_step(self) -> int | None:
        """The step of the newest checkpoint, None if there is none."""
        return None if self._last is None else self._last.step

    @property
    def saved_rows(self) -> int:
        """How many rows the replay had been given by the newest checkpoint."""
        return 0 if self._last is None else self._last.total_rows

    def save(
        self,
        step: int,
        arrays: Mapping[str, np.ndarray],
        *,
        appended: Mapping[str, np.ndarray],
        total_rows: int,
        keep_rows: int,
        log: LogPosition,
        config: Mapping[str, Any],
    ) -> None:
        """Write a checkpoint; when this fails, the one before it is as it was."""
        self._check(step, arrays)
        count = self._count_new(appended, total_rows, keep_rows)
        oldest = total_rows - keep_rows
        old = () if self._last is None else self._last.segments
        try:
            state = {name: np.asarray(array, order="C") for name, array in arrays.items()}
            state_file = self._write(f"state-{step:012d}", safetensors.numpy.save(state))
            segments = [segment for segment in old if segment.first + segment.rows > oldest]
            if count:
                first = total_rows - count
                data = rows.encode({name: np.asarray(part) for name, part in appended.items()})
                segment = self._write(f"rows-{first:012d}", data)
                segments.append(replace(segment, first=first, rows=count))
            record = Record(step, state_file, tuple(segments), total_rows, log, dict(config))
            write_atomically(self._path(step), record.to_json())
        except BaseException:
            with contextlib.suppress(OSError):
                self._prune()
            raise
        self._last = record
        self._prune()

    def load(self, log_size: int, warn: Callable[[str], None]) -> Checkpoint | None:
        """The newest checkpoint that is whole; newer ones are removed.

        Args:
            log_size: how long the log is now; a checkpoint that knew a longer one is damaged.
            warn: told of each damaged checkpoint, in one line.
        """
        damaged: dict[int, str] = {}
        found = None
        for step in self.steps():
            try:
                record = self._read(step)
                if record.log.size > log_size:
                    raise Damaged("the log has become shorter")
                found = self._verified(record)
                self._last = record
                break
            except Damaged as error:
                damaged[step] = str(error)
        instead = "starting from the beginning" if found is None else f"using {found.step}"
        for step, reason in damaged.items():
            warn(f"checkpoint {step} is damaged ({reason}), {instead}")
        if found is not None:
            for step in damaged:
                remove(self._path(step))
        if found is not None or not damaged:
            self._prune()
        return found

    def newest(self) -> Record | None:
        """What the newest checkpoint that can be read says; its files may be damaged."""
        for step in self.steps():
            with contextlib.suppress(Damaged):
                return self._read(step)
        return None

    def steps(self) -> list[int]:
        """The steps of all checkpoints, damaged or not, newest first."""
        names = os.listdir(self._folder) if self._folder.is_dir() else []
        matches = [_NAME.fullmatch(name) for name in names]
        steps = {int(match[1]): match[0] for match in matches if match}
        return sorted(
            (step for step in steps if self._path(step).name == steps[step]), reverse=True
        )

    def _check(self, step: int, arrays: Mapping[str, np.ndarray]) -> None:
        _checks.count("step", step, at_least=0)
        if step < (self.last_step or 0):
            raise ValueError(f"step must not go back, got {step} after {self.last_step}")
        for name, array in arrays.items():
            if array.dtype.name not in _DTYPES.values():
                raise ValueError(f"arrays holds {name!r} of dtype {array.dtype}: no such file type")

    def _count_new(
        self, appended: Mapping[str, np.ndarray], total_rows: int, keep_rows: int
    ) -> int:
        new = total_rows - self.saved_rows
        if new < 0:
            raise ValueError(
                f"total_rows must not go back, got {total_rows} after {self.saved_rows}"
            )
        count = min(new, _checks.count("keep_rows", keep_rows, at_least=1 if new else 0))
        wrong = [list(part.shape) for part in appended.values() if part.shape[:1] != (count,)]
        if wrong or (count and not appended):
            raise ValueError(
                f"appended must hold the {count} newest rows, got {wrong[0] if wrong else 'none'}"
            )
        return count

    def _write(self, stem: str, data: bytes) -> DataFile:
        digest = hashlib.sha256(data).hexdigest()
        name = f"{stem}-{digest[:16]}.safetensors"
        write_atomically(self._folder / name, data)
        return DataFile(name, len(data), digest)

    def _read(self, step: int) -> Record:
        record = Record.from_json(read_json(self._path(step)))
        if record.step != step:
            raise Damaged("it is of another step")
        return record

    def _verified(self, record: Record) -> Checkpoint:
        for segment in record.segments:
            segment.verify(self._folder)
        arrays = _arrays(record.state.read(self._folder))
        files = tuple((segment.first, self._folder / segment.name) for segment in record.segments)
        return Checkpoint(record.step, arrays, record.total_rows, record.log, files)

    def _prune(self) -> None:
        """Remove all but the last checkpoints, then the files that none of these names."""
        kept: set[str] = set()
        for step in self.steps()[:_KEPT]:
            with contextlib.suppress(Damaged):
                record = self._read(step)
                kept |= {self._path(step).name}
                kept |= {file.name for file in (record.state, *record.segments)}
        names = os.listdir(self._folder)
        ours = [name for name in names if _NAME.fullmatch(name)]  # before what they name
        ours += [name for name in names if name.endswith(PARTIAL) or DATA_NAME.fullmatch(name)]
        for name in ours:
            if name not in kept:
                remove(self._folder / name)

    def _path(self, step: int) -> Path:
        return self._folder / f"checkpoint-{step:012d}.json"


def _arrays(data: bytes) -> dict[str, np.ndarray]:
    try:
        return {
            name: np.frombuffer(about["data"], jnp.dtype(_DTYPES[about["dtype"]])).reshape(
                about["shape"]
            )
            for name, about in safetensors.deserialize(data)  # type: ignore[no-untyped-call]
        }
    except (KeyError, ValueError, safetensors.SafetensorError):
        raise Damaged("its state holds no arrays") from None
