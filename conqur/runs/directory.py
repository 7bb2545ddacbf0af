"""The run directory: everything a run leaves behind, and all it needs to go on after a kill."""

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import numpy as np

from conqur._files import sync_folder
from conqur._messages import warn as to_stderr
from conqur.runs.checkpoint import Checkpoint, Checkpoints
from conqur.runs.files import (
    Damaged,
    RunError,
    canonical,
    full_disk_explained,
    open_own,
    read_json,
    write_atomically,
)
from conqur.runs.layout import (
    CHECKPOINTS,
    CONFIG,
    LOG,
    MANIFEST,
    NETWORKS,
    begin,
    check_new,
    check_no_links,
    end_begin,
    prepare,
    put_aside,
)
from conqur.runs.lock import Lock
from conqur.runs.log import Writers, plain
from conqur.runs.manifest import (
    as_json,
    check_same_config,
    check_unchanged,
    make_manifest,
    manifest_differences,
)


class RunDirectory:
    """A run's folder, held by one process at a time. Made by `create` and `open`.

    Attributes:
        path: the folder.
        config: the run's configuration, as JSON holds it.
        manifest: what the run was made with.
    """

    def __init__(self, path: Path, lock: Lock, warn: Callable[[str], None]) -> None:
        self.path = path
        self.config: dict[str, Any] = {}
        self.manifest: dict[str, Any] = {}
        self._lock = lock
        self._warn = warn
        self._checkpoints = Checkpoints(path / CHECKPOINTS)
        self._open: Writers | None = None

    @classmethod
    def create(
        cls,
        path: str | Path,
        config: Mapping[str, Any],
        *,
        seeds: Sequence[int] = (),
        command: str = "",
        data: str = "",
        networks: Mapping[str, bytes] = MappingProxyType({}),
        warn: Callable[[str], None] = to_stderr,
    ) -> "RunDirectory":
        """Begin a run in a new or empty folder.

        Args:
            path: the folder.
            config: all that decides the run's results, as JSON can hold it.
            seeds: for the manifest.
            command: the command line, for the manifest.
            data: a digest of the data that it learns from, if any: `resume` asks for the same.
            networks: files that the run starts from, by name: where there is a run, they are, too.
            warn: told in one line each of what is wrong without being in the way.
        """
        path, config = Path(path), as_json(config)
        if path.exists():
            check_new(path)
        with full_disk_explained(path):
            path.mkdir(parents=True, exist_ok=True)
            sync_folder(path.parent)
            run = cls(path, Lock(path, warn), warn)
            try:
                check_new(path)  # again, now that nobody else can be about to start
                run.manifest = make_manifest(seeds=seeds, command=command, data=data)
                run.config = config
                prepare(path)
                run._write_json(MANIFEST, run.manifest)
                begin(path, networks)
                run._write_json(CONFIG, run.config)  # last: with it, the run exists
                end_begin(path)
                with run._full_disk_explained():
                    run._begin(None)
            except BaseException:
                run.close()
                raise
        return run

    @classmethod
    def open(cls, path: str | Path, *, warn: Callable[[str], None] = to_stderr) -> "RunDirectory":
        """Take a run's folder to go on with it: `resume` or `load` comes next.

        Args:
            path: the folder.
            warn: told in one line each of what is wrong without being in the way.
        """
        path = Path(path)
        if not (path / CONFIG).exists():
            raise RunError(f"there is no run in {path}; leave out --resume to start one there")
        check_no_links(path)
        run = cls(path, Lock(path, warn), warn)
        try:
            run.config = read_json(path / CONFIG)
        except Damaged as reason:
            run.close()
            raise RunError(
                f"{path} cannot be resumed: {reason}; put it back, or name another --run-dir"
            ) from None
        try:
            run.manifest = read_json(path / MANIFEST)
        except Damaged as reason:
            warn(f"what the run was made with is not known: {reason}")
        return run

    @property
    def networks(self) -> Path:
        """The folder of the networks it saved."""
        return self.path / NETWORKS

    @property
    def saved_rows(self) -> int:
        """How many rows the replay had been given by the newest checkpoint."""
        return self._checkpoints.saved_rows

    @property
    def last_step(self) -> int | None:
        """The step of the newest checkpoint, None if there is none."""
        newest = self._checkpoints.newest()
        return None if newest is None else newest.step

    def resume(
        self,
        config: Mapping[str, Any],
        *,
        may_change: Collection[str] = (),
        command: str = "",
        data: str = "",
    ) -> Checkpoint | None:
        """Go on with the run: check that it is the same one, then `load`.

        Args:
            config: all that decides the run's results; it must be that of the run.
            may_change: fields that may differ, such as "steps"; the new values are kept.
            command: the command line, for the manifest.
            data: as `create` got it.
        """
        config = as_json(config)
        newest = self._checkpoints.newest()
        if newest is not None:
            check_unchanged(newest.config, self.config, may_change=may_change)
        check_same_config(self.config, config, may_change=may_change)
        if self.manifest.get("data", data) != data:
            raise RunError(
                f"the data is not that which the run in {self.path} was started with: put that "
                "back, or name another --run-dir"
            )
        now = make_manifest(seeds=config.get("seeds", ()), command=command, data=data)
        before = self.manifest or now
        changed = manifest_differences(before, now)
        if changed:
            self._warn(
                "results may differ in the last digits from those of an uninterrupted run, "
                f"since something else has changed: {'; '.join(changed)}"
            )
        checkpoint = self.load()
        if changed:
            step = 0 if checkpoint is None else checkpoint.step
            entry = {"changed": changed, "command": now["command"], "step": step}
            resumed = before.get("resumed")
            before = before | {"resumed": [*(resumed if isinstance(resumed, list) else []), entry]}
        with self._full_disk_explained():
            for name, old, new in (
                (CONFIG, self.config, config),
                (MANIFEST, self.manifest, before),
            ):
                if old != new:
                    self._write_json(name, new)
        self.config, self.manifest = config, before
        return checkpoint

    def load(self) -> Checkpoint | None:
        """Go back to the newest checkpoint that is whole, or to the beginning if there is none.

        The log is cut to what it was then.
        """
        self._close_writers()
        with self._full_disk_explained():
            prepare(self.path)
            handle = open_own(self.path / LOG, os.O_RDWR)
            length = os.fstat(handle).st_size
            os.close(handle)
            checkpoint = self._checkpoints.load(length, self._warn)
            if checkpoint is None:
                self._start_over()
            self._begin(checkpoint)
        return checkpoint

    def log(self, step: int, values: Mapping[str, Any], *, member: str = "") -> None:
        """Append a row to the log, and its numbers to the TensorBoard events.

        Args:
            step: counted from the start of the run.
            values: numbers, words, arrays, and lists and dictionaries of these; nothing that the
                clock had a part in. NaN and infinity become null.
            member: whose row it is, such as "seed-1": in TensorBoard a series of its own. The log
                does not hold it, so `values` should say it, too.
        """
        if not re.fullmatch(r"(\w[\w.+-]*)?", member):
            raise ValueError(f"member must be a name of letters, digits and _.+-, got {member!r}")
        row = plain({name: value for name, value in values.items() if name != "step"})
        writers = self._writers()
        with self._full_disk_explained():
            writers.log.write({**row, "step": int(step)})
            writers.events.write(int(step), row, member)

    def log_speed(self, step: int, values: Mapping[str, Any]) -> None:
        """Append a row to `speed.jsonl`, with the time: for all that the clock had a part in."""
        writers = self._writers()
        with self._full_disk_explained():
            writers.speed.write({**values, "step": int(step)})

    def save(
        self,
        step: int,
        arrays: Mapping[str, np.ndarray],
        *,
        appended: Mapping[str, np.ndarray] | None = None,
        total_rows: int = 0,
        keep_rows: int = 0,
    ) -> None:
        """Save a checkpoint; the one before it is kept, too.

        Args:
            step: counted from the start of the run.
            arrays: the state, by name; see `flatten`.
            appended: the rows that the replay was given since the last checkpoint (since number
                `saved_rows`), or the newest `keep_rows` of these, arrays [R, ...].
            total_rows: how many rows the replay was given since the start of the run.
            keep_rows: how many of the newest rows the replay holds when it is full.
        """
        writers = self._writers()
        with self._full_disk_explained():
            self._checkpoints.save(
                step,
                arrays,
                appended=appended or {},
                total_rows=total_rows,
                keep_rows=keep_rows,
                log=writers.log.sync(),
                config=self.config,
            )

    def write_network(self, name: str, data: bytes) -> Path:
        """Write a file into `networks`, whole or not at all."""
        with self._full_disk_explained():
            write_atomically(self.networks / name, data)
        return self.networks / name

    def write_file(self, name: str, data: bytes) -> Path:
        """Write a file beside the log, whole or not at all."""
        with self._full_disk_explained():
            write_atomically(self.path / name, data)
        return self.path / name

    def close(self) -> None:
        """Let go of the folder. May be called twice."""
        self._close_writers()
        self._lock.release()

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _full_disk_explained(self) -> AbstractContextManager[None]:
        return full_disk_explained(self.path, lambda: self._checkpoints.last_step)

    def _write_json(self, name: str, value: dict[str, Any]) -> None:
        write_atomically(self.path / name, (canonical(value, indent=2) + "\n").encode())

    def _start_over(self) -> None:
        if self._checkpoints.steps():
            aside = put_aside(self.path)
            self._warn(
                f"the damaged checkpoints and their log were moved to {aside}, the networks copied"
            )
        else:
            self._warn("there is no checkpoint yet, starting from the beginning")

    def _begin(self, checkpoint: Checkpoint | None) -> None:
        position = None if checkpoint is None else checkpoint.log
        step = -1 if checkpoint is None else checkpoint.step
        self._open = Writers.open(self.path, length=position.size if position else 0, step=step)
        if position is not None and self._open.log.position() != position:
            self._warn(f"{LOG} was changed since it was written: it is not that of the run")
        sync_folder(self.path)

    def _writers(self) -> Writers:
        if self._open is None:
            raise RuntimeError("call resume() or load() before the run is written to")
        return self._open

    def _close_writers(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None
