"""Whatever happens to a run directory, it gives back an exact state, and says what was lost."""

import contextlib
import errno
import os
import random
import resource
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from runs import toy_run

from conqur.runs import RunDirectory, RunError

CONFIG = {"steps": 1000}


class Crash(BaseException):
    """The process is dead: nothing it would do afterwards happens."""


class Disk:
    """Fails in every file operation from the k-th on; a write that fails has written half."""

    def __init__(self, monkeypatch, names, failing_from, error):
        self.calls = 0
        for name in names:
            monkeypatch.setattr(os, name, self._failing(getattr(os, name), failing_from, error))

    def _failing(self, real, failing_from, error):
        def call(*arguments):
            self.calls += 1
            if self.calls < failing_from:
                return real(*arguments)
            if real is REAL_WRITE and self.calls == failing_from:
                real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            raise error

        return call


REAL_WRITE = os.write
WRITES_PER_STEP = 5  # log, events, state, rows, checkpoint
OPERATIONS = ("write", "fsync", "replace", "unlink", "ftruncate", "mkdir", "open")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A run at step 9: its replay is full and its rows lie in several segments."""
    path = tmp_path_factory.mktemp("saved") / "run"
    with RunDirectory.create(path, CONFIG) as run:
        toy_run.train(run, 0, 9)
    return path


@pytest.fixture
def run_folder(saved, tmp_path):
    return shutil.copytree(saved, tmp_path / "run")


def test_kill_at_any_instant(tmp_path):
    RunDirectory.create(tmp_path / "run", CONFIG).close()
    done = subprocess.run(
        [sys.executable, Path(toy_run.__file__), tmp_path / "run", "15"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_crash_between_any_two_file_operations(saved, tmp_path, fast_disk):
    """In going on with a run, in saving, and in going on again."""
    steps = []
    for k in range(1, 1000):
        path = shutil.copytree(saved, tmp_path / str(k))
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, OPERATIONS, k, Crash())
            run = None
            with contextlib.suppress(Crash):
                run = RunDirectory.open(path, warn=[].append)
                run.load()
                toy_run.train(run, 9, 10)
        if run is not None:
            run.close()
        warnings = []
        steps.append(toy_run.check_folder(path, warnings))
        assert warnings == []
        shutil.rmtree(path)
        if disk.calls < k:
            break
    assert steps == sorted(steps)
    assert set(steps) == {9, 10}
    assert len(steps) > 30


def test_crash_while_the_run_is_made(tmp_path, fast_disk):
    for k in range(1, 1000):
        path = tmp_path / str(k)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, OPERATIONS, k, Crash())
            with contextlib.suppress(Crash):
                RunDirectory.create(path, CONFIG).close()
        if (path / "config.json").exists():
            assert toy_run.check_folder(path) == 0
        else:
            RunDirectory.create(path, CONFIG).close()
        if disk.calls < k:
            break
    assert k > 15


def test_full_disk_at_any_write(saved, tmp_path, fast_disk):
    for k in range(1, WRITES_PER_STEP + 2):
        path = shutil.copytree(saved, tmp_path / str(k))
        run = RunDirectory.open(path, warn=[].append)
        run.load()
        toy_run.advance(run, 10)
        with pytest.MonkeyPatch.context() as patch:
            disk = Disk(patch, ["write"], k, OSError(errno.ENOSPC, "No space left on device"))
            if k <= WRITES_PER_STEP:
                with pytest.raises(RunError) as caught:
                    toy_run.advance(run, 11)
            else:
                toy_run.advance(run, 11)
        run.close()
        if k > WRITES_PER_STEP:
            assert disk.calls == WRITES_PER_STEP
            assert toy_run.check_folder(path) == 11
            break
        assert str(caught.value) == (
            f"no space left in {path}; the last good checkpoint is step 10; "
            "free space and continue with --resume"
        )
        names = os.listdir(path / "checkpoints")
        assert not [name for name in names if name.endswith(".partial")]
        assert not [name for name in names if "0011" in name or "000030" in name]
        assert toy_run.check_folder(path) == 10


def test_full_disk_of_the_operating_system(run_folder):
    """The limit on the size of files is as near to one as a process can have on its own."""
    run = RunDirectory.open(run_folder, warn=[].append)
    run.load()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (450, before[1]))
    try:
        with pytest.raises(RunError, match="the last good checkpoint is step 9;"):
            toy_run.advance(run, 10)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    run.close()
    assert toy_run.check_folder(run_folder) == 9


def test_a_log_row_that_did_not_fit_leaves_no_trace(run_folder, monkeypatch):
    with RunDirectory.open(run_folder) as run:
        run.load()
        with monkeypatch.context() as patch:
            Disk(patch, ["write"], 1, OSError(errno.EDQUOT, "Disk quota exceeded"))
            with pytest.raises(RunError, match="no space left"):
                run.log(10, toy_run.log_row(10))
        toy_run.advance(run, 10)
    assert toy_run.check_folder(run_folder) == 10


def test_everything_is_durable_before_the_checkpoint_exists(run_folder, monkeypatch):
    """No rename before the file is on the disk, and no checkpoint before all that it names is."""
    unsynced, unsynced_names = set(), set()

    def identity(handle):
        return os.fstat(handle).st_ino

    def write(handle, data, real=os.write):
        unsynced.add(identity(handle))
        return real(handle, data)

    def fsync(handle):
        unsynced.discard(identity(handle))
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            unsynced_names.clear()

    def replace(source, target, real=os.replace):
        assert os.stat(source).st_ino not in unsynced
        if Path(target).name.startswith("checkpoint"):
            assert unsynced_names == set()
            assert os.stat(run_folder / "log.jsonl").st_ino not in unsynced
            checkpoints.append(target)
        unsynced_names.add(target)
        real(source, target)

    checkpoints = []
    with RunDirectory.open(run_folder) as run:
        run.load()
        for name, function in {"write": write, "fsync": fsync, "replace": replace}.items():
            monkeypatch.setattr(os, name, function)
        toy_run.train(run, 9, 11)
    assert len(checkpoints) == 2
    assert unsynced_names == set()


def flip(path, rng):
    data = bytearray(path.read_bytes())
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def truncate(path, rng):
    os.truncate(path, rng.randrange(path.stat().st_size))


def remove(path, rng):
    path.unlink()


def replace_by_a_folder(path, rng):
    path.unlink()
    path.mkdir()


def replace_by_a_loop(path, rng):
    path.unlink()
    path.symlink_to(path)


DAMAGES = [flip] * 6 + [truncate] * 3 + [remove, replace_by_a_folder, replace_by_a_loop]


@pytest.mark.parametrize("pattern", ["checkpoint-*9.json", "state-*9-*", "rows-*24-*"])
def test_the_previous_checkpoint_is_used_when_one_is_damaged(saved, tmp_path, pattern, fast_disk):
    rng = random.Random(pattern)
    for number, damage in enumerate(DAMAGES):
        path = shutil.copytree(saved, tmp_path / str(number))
        (victim,) = (path / "checkpoints").glob(pattern)
        damage(victim, rng)
        warnings = []
        assert toy_run.check_folder(path, warnings) == 8
        if not (damage is remove and victim.suffix == ".json"):  # without it, there never was one
            (line,) = warnings
            assert line.startswith("checkpoint 9 is damaged (")
            assert line.endswith("), using 8")
        warnings = []
        assert toy_run.check_folder(path, warnings) == 8
        assert warnings == []
        with RunDirectory.open(path) as run:
            run.load()
            toy_run.train(run, 8, 10)
        assert toy_run.check_folder(path, warnings) == 10


@pytest.mark.parametrize("damage", [flip, truncate, remove, replace_by_a_folder])
def test_a_damaged_segment_that_both_need(run_folder, damage):
    """It starts from the beginning, and destroys nothing."""
    (run_folder / "networks" / "best.safetensors").write_bytes(b"old")
    os.mkfifo(run_folder / "networks" / "pipe")
    victim = next((run_folder / "checkpoints").glob("rows-*18-*"))
    damage(victim, random.Random(0))
    names = {path.name for path in (run_folder / "checkpoints").iterdir()}
    warnings = []
    assert toy_run.check_folder(run_folder, warnings) == 0
    assert [line.partition(" (")[0] for line in warnings[:2]] == [
        "checkpoint 9 is damaged",
        "checkpoint 8 is damaged",
    ]
    assert all(line.endswith(", starting from the beginning") for line in warnings[:2])
    aside = run_folder / "damaged-1"
    assert warnings[2:] == [
        f"the damaged checkpoints and their log were moved to {aside}, the networks copied"
    ]
    assert {path.name for path in (aside / "checkpoints").iterdir()} == names
    assert (aside / "log.jsonl").read_bytes() == toy_run.log_text(9)
    with RunDirectory.open(run_folder, warn=[].append) as run:
        run.load()
        run.write_network("best.safetensors", b"new")
        toy_run.train(run, 0, 2)
    assert (aside / "networks" / "best.safetensors").read_bytes() == b"old"
    assert toy_run.check_folder(run_folder) == 2


def test_a_log_that_is_too_short(run_folder):
    lengths = [len(toy_run.log_text(step)) for step in (8, 9)]
    os.truncate(run_folder / "log.jsonl", lengths[1] - 1)
    warnings = []
    assert toy_run.check_folder(run_folder, warnings) == 8
    assert warnings == ["checkpoint 9 is damaged (the log has become shorter), using 8"]
    os.truncate(run_folder / "log.jsonl", lengths[0] - 1)
    assert toy_run.check_folder(run_folder, warnings) == 0
    (run_folder / "log.jsonl").unlink()
    assert toy_run.check_folder(run_folder, warnings) == 0


def test_a_log_that_was_changed_does_not_stop_the_run(run_folder):
    flip(run_folder / "log.jsonl", random.Random(0))
    warnings = []
    with RunDirectory.open(run_folder, warn=warnings.append) as run:
        toy_run.same(run.load().arrays, toy_run.state(9))
    assert warnings == ["log.jsonl was changed since it was written: it is not that of the run"]


def test_lines_that_no_checkpoint_knows_are_cut(run_folder):
    with RunDirectory.open(run_folder) as run:
        run.load()
        for step in (10, 11):
            run.log(step, toy_run.log_row(step))
            run.log_speed(step, {"steps_per_second": 5.0})
    with open(run_folder / "log.jsonl", "ab") as file:
        file.write(b'{"loss":')
    with open(run_folder / "speed.jsonl", "ab") as file:
        file.write(b'{"time":')
    warnings = []
    assert toy_run.check_folder(run_folder, warnings) == 9
    assert warnings == []
    speed = (run_folder / "speed.jsonl").read_text()
    assert speed.count("\n") == 2
    assert speed.endswith("}\n")


def test_leftovers_are_removed_and_other_files_are_left_alone(run_folder):
    folder = run_folder / "checkpoints"
    before = {path.name for path in folder.iterdir()}
    for name in ("state-000000000010-0123456789abcdef.safetensors", "x.partial"):
        (folder / name).write_bytes(b"part")
    (folder / "notes.txt").write_text("mine")
    assert toy_run.check_folder(run_folder) == 9
    assert {path.name for path in folder.iterdir()} == before | {"notes.txt"}


def test_files_of_a_killed_process_are_removed(run_folder, tmp_path):
    begun = tmp_path / "begun"
    begun.mkdir()
    for folder in (run_folder, begun):
        for name in ("config.json", "manifest.json"):
            (folder / f"{name}.{'1a' * 8}.partial").write_bytes(b"part")
    (run_folder / "networks" / f"best.safetensors.{'2b' * 8}.partial").write_bytes(b"part")
    (run_folder / "notes.partial").write_bytes(b"of somebody else")
    RunDirectory.create(begun, {}).close()
    assert toy_run.check_folder(run_folder) == 9
    left = [path.name for path in tmp_path.rglob("*.partial")]
    left += [path.name for path in run_folder.rglob("*.partial")]
    assert set(left) == {"notes.partial"}


def test_an_unreadable_disk_is_no_damage(run_folder, monkeypatch):
    """What cannot be read now may be readable again: nothing may be given up for it."""

    def read_bytes(path):
        raise OSError(errno.EIO, "Input/output error")

    before = sorted(run_folder.rglob("*"))
    with RunDirectory.open(run_folder) as run:
        monkeypatch.setattr(Path, "read_bytes", read_bytes)
        with pytest.raises(OSError, match="Input/output error"):
            run.load()
    assert sorted(run_folder.rglob("*")) == before


def test_a_network_that_does_not_fit_leaves_the_old_one(run_folder, monkeypatch):
    with RunDirectory.open(run_folder) as run:
        run.load()
        path = run.write_network("best.safetensors", b"old")
        with monkeypatch.context() as patch:
            Disk(patch, ["write"], 1, OSError(errno.ENOSPC, "No space left on device"))
            with pytest.raises(RunError, match="the last good checkpoint is step 9;"):
                run.write_network("best.safetensors", b"new")
        assert path.read_bytes() == b"old"
        assert os.listdir(run.networks) == ["best.safetensors"]


def test_folders_in_the_place_of_leftovers_are_left_alone(run_folder):
    names = [
        run_folder / "checkpoints" / "state-000000000010-0123456789abcdef.safetensors",
        run_folder / "networks" / f"best.safetensors.{'2b' * 8}.partial",
    ]
    for path in names:
        path.mkdir()
        (path / "thesis.txt").write_text("mine")
    assert toy_run.check_folder(run_folder) == 9
    assert not any(path.exists() for path in names)
    assert len(list(run_folder.rglob("*.aside/thesis.txt"))) == 2
