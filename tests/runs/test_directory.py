"""The run directory: starting, going on, and what it says when it must not."""

import errno
import fcntl
import json
import math
import os
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from runs import toy_run
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.record_writer import masked_crc32c

import conqur
from conqur.runs import RunDirectory, RunError, directory, layout, manifest
from conqur.runs.manifest import check_same_config

CONFIG = {"environment": "ALE/Pong-v5", "learning_rate": 0.00025, "seeds": [1, 2], "steps": 100}


@pytest.fixture
def run_folder(tmp_path, fast_disk):
    with RunDirectory.create(tmp_path / "run", CONFIG, seeds=[1, 2]) as run:
        toy_run.train(run, 0, 3)
    return tmp_path / "run"


def files(path):
    return {file: file.read_bytes() for file in path.rglob("*") if file.is_file()}


def test_what_a_new_one_holds(tmp_path):
    with RunDirectory.create(tmp_path / "a" / "run", CONFIG, seeds=[1, 2]) as run:
        assert {entry.name for entry in run.path.iterdir()} == {
            *("config.json", "manifest.json", "log.jsonl", "speed.jsonl", "lock"),
            *("checkpoints", "events", "networks"),
        }
        assert json.loads((run.path / "config.json").read_text()) == CONFIG == run.config
        assert run.load() is None


def test_config_files_do_not_depend_on_the_order_of_fields(tmp_path):
    texts = []
    for name, config in (("a", CONFIG), ("b", dict(reversed(CONFIG.items())))):
        RunDirectory.create(tmp_path / name, config).close()
        texts.append((tmp_path / name / "config.json").read_text())
    assert texts[0] == texts[1]


def test_a_folder_that_is_not_empty_is_refused_and_left_alone(tmp_path, run_folder):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    before = files(tmp_path)
    for path in (tmp_path / "other", run_folder):
        with pytest.raises(
            RunError, match=r"is not empty; .* --resume, or name another --run-dir$"
        ):
            RunDirectory.create(path, CONFIG)
    with pytest.raises(RunError, match="file is no folder; name another --run-dir"):
        RunDirectory.create(tmp_path / "file", CONFIG)
    assert files(tmp_path) == before


def test_an_empty_folder_is_taken(tmp_path):
    RunDirectory.create(tmp_path, CONFIG).close()


def test_no_run_to_resume(tmp_path):
    with pytest.raises(RunError, match=r"there is no run in .*; leave out --resume to start one"):
        RunDirectory.open(tmp_path / "nothing")


def test_a_damaged_configuration(run_folder):
    (run_folder / "config.json").write_text("{")
    with pytest.raises(RunError, match=r"cannot be resumed: config\.json is not JSON; put it back"):
        RunDirectory.open(run_folder)


def test_a_damaged_manifest_is_made_anew(run_folder):
    (run_folder / "manifest.json").write_text("{")
    warnings = []
    with RunDirectory.open(run_folder, warn=warnings.append) as run:
        assert run.resume(CONFIG).step == 3
    assert warnings == ["what the run was made with is not known: manifest.json is not JSON"]
    assert json.loads((run_folder / "manifest.json").read_text())["conqur"] == conqur.__version__


def test_configurations_must_be_json(tmp_path):
    for value in (math.nan, {1}, Path("x"), "\udcff"):
        with pytest.raises(ValueError, match="config must hold what JSON can"):
            RunDirectory.create(tmp_path / "run", {"x": value})
    assert not (tmp_path / "run").exists()


def test_two_processes(run_folder):
    """The other one is told which process it is, and gets in when this one has let go."""
    code = "import sys; from conqur.runs import RunDirectory; RunDirectory.open(sys.argv[1]).load()"
    command = [sys.executable, "-c", code, run_folder]
    with RunDirectory.open(run_folder):
        refused = subprocess.run(command, capture_output=True, text=True, check=False)
    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1].endswith(
        f"RunError: {run_folder} is in use by process {os.getpid()}; "
        "wait until it ends, or name another --run-dir"
    )
    subprocess.run(command, check=True)


def test_the_lock_is_one_of_the_operating_system(run_folder):
    with open(run_folder / "lock", "r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        held.truncate(0)
        with pytest.raises(RunError, match="is in use by another process"):
            RunDirectory.open(run_folder)
    with RunDirectory.open(run_folder), open(run_folder / "lock") as other:
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        with pytest.raises(RunError, match="is in use"):
            RunDirectory.open(run_folder)


def test_a_file_system_without_locks(run_folder, monkeypatch):
    def flock(handle, operation):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", flock)
    warnings = []
    RunDirectory.open(run_folder, warn=warnings.append).close()
    (line,) = warnings
    assert "cannot be locked (Function not implemented): start only one process in it" in line


def test_nothing_is_written_before_it_was_loaded(run_folder):
    with RunDirectory.open(run_folder) as run:
        before = files(run_folder)
        for write in (run.log, run.log_speed, run.save):
            with pytest.raises(RuntimeError, match=r"call resume\(\) or load\(\) before"):
                write(4, {})
        assert files(run_folder) == before


def test_resume_with_more_steps(run_folder):
    with RunDirectory.open(run_folder) as run:
        checkpoint = run.resume(CONFIG | {"steps": 200}, may_change={"steps"})
        assert toy_run.check(run, checkpoint) == 3
        assert run.config["steps"] == 200
    assert json.loads((run_folder / "config.json").read_text())["steps"] == 200


def test_resume_with_another_configuration_is_refused_and_changes_nothing(run_folder):
    with RunDirectory.open(run_folder) as run:
        before = files(run_folder)
        with pytest.raises(RunError) as caught:
            run.resume(CONFIG | {"learning_rate": 1e-4, "steps": 200}, may_change={"steps"})
        assert files(run_folder) == before
    assert str(caught.value) == (
        "the run was started with another configuration:\n"
        "  learning_rate: 0.00025 -> 0.0001\n"
        "Give --resume the options it was started with, or name another --run-dir."
    )


def test_what_differs_between_configurations():
    old = {"a": {"x": 1, "y": [1, 2]}, "b": True, "c": 1.0, "gone": None, "e": {}}
    new = {"a": {"x": 2, "y": (1, 3)}, "b": 1, "c": 1, "new": "word", "e": {"f": 1}}
    assert manifest.differences(old, new) == [
        "a.x: 1 -> 2",
        "a.y: [1,2] -> [1,3]",
        "b: true -> 1",
        "e: {} -> (not set)",
        "e.f: (not set) -> 1",
        "gone: null -> (not set)",
        'new: (not set) -> "word"',
    ]
    check_same_config(old, new, may_change={"a", "b", "e", "gone", "new"})
    check_same_config({"a": {"x": 1}}, {"a": {"x": 2}}, may_change=["a.x"])
    with pytest.raises(RunError, match="ab: 1 -> 2"):
        check_same_config({"ab": 1}, {"ab": 2}, may_change=["a"])


def test_a_changed_configuration_file_is_refused_and_changes_nothing(run_folder):
    """Also if what is asked for is what the file says."""
    changed = CONFIG | {"learning_rate": 0.1, "steps": 200}
    (run_folder / "config.json").write_text(json.dumps(changed))
    for asked in (changed, CONFIG):
        with RunDirectory.open(run_folder) as run:
            before = files(run_folder)
            with pytest.raises(RunError) as caught:
                run.resume(asked, may_change={"steps"})
            assert files(run_folder) == before
        assert str(caught.value) == (
            "config.json was changed since the last checkpoint:\n"
            "  learning_rate: 0.00025 -> 0.1\n"
            "Put it back, or name another --run-dir."
        )
    (run_folder / "config.json").write_text(json.dumps(CONFIG | {"steps": 200}))
    with RunDirectory.open(run_folder) as run:
        assert run.resume(CONFIG, may_change={"steps"}).step == 3


@pytest.mark.parametrize("manifest", [{"seeds": ["x"]}, {"seeds": 7, "resumed": 5}])
def test_a_strange_manifest_does_not_stop_the_run(run_folder, manifest):
    (run_folder / "manifest.json").write_text(json.dumps(manifest))
    with RunDirectory.open(run_folder, warn=[].append) as run:
        assert run.resume(CONFIG).step == 3
    assert len(json.loads((run_folder / "manifest.json").read_text())["resumed"]) == 1


def test_another_version_only_warns_and_is_written_down(run_folder, monkeypatch):
    monkeypatch.setattr(conqur, "__version__", "9.9")
    warnings = []
    with RunDirectory.open(run_folder, warn=warnings.append) as run:
        run.resume(CONFIG, command="conqur train --resume")
    (line,) = warnings
    assert line.startswith("results may differ in the last digits")
    assert line.endswith(': conqur: "0.1.0" -> "9.9"')
    found = json.loads((run_folder / "manifest.json").read_text())
    assert found["conqur"] == "0.1.0"
    assert found["resumed"] == [
        {"changed": ['conqur: "0.1.0" -> "9.9"'], "command": "conqur train --resume", "step": 3}
    ]


def test_the_manifest_names_what_matters_but_no_machine(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_a=true --xla_dump_to=/home/me/dump")
    words = ["conqur", "train", "ALE/Pong-v5", "--run-dir", "/home/me/my runs/1", "--to=~/x"]
    found = manifest.make_manifest(seeds=[3], command=shlex.join(words))
    assert found["command"] == "conqur train ALE/Pong-v5 --run-dir .../1 --to=.../x"
    assert found["environment"]["XLA_FLAGS"] == "--xla_a=true --xla_dump_to=.../dump"
    assert found["packages"]["jax"] == jax.__version__
    assert found["packages"]["numpy"] == np.__version__
    assert {"jaxlib", "equinox", "optax", "gymnasium"} < found["packages"].keys()
    assert found["device"]["kind"] == jax.devices()[0].device_kind
    assert found["device"]["count"] == len(jax.devices())
    assert found["seeds"] == [3]
    text = json.dumps(found)
    assert "/home" not in text
    found = manifest.make_manifest(seeds=[], command="conqur " + os.fsdecode(b"run-\xff"))
    assert found["command"] == "conqur 'run-?'"
    assert os.uname().nodename not in text


def test_the_commit_is_that_of_the_package_and_of_nothing_around_it(tmp_path):
    def git(*words):
        names = ["-c", "user.name=x", "-c", "user.email=x@x", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", "-C", tmp_path, *names, *words], check=True, text=True, stdout=-1
        )
        return done.stdout.strip()

    for name in ("package", "site-packages"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("")
    assert manifest._commit(tmp_path / "package") is None
    git("init", "--quiet")
    git("add", "package")
    git("commit", "--quiet", "--no-verify", "--message", "first")
    head = git("rev-parse", "HEAD")
    assert manifest._commit(tmp_path / "package") == head
    assert manifest._commit(tmp_path / "site-packages") is None
    (tmp_path / "package" / "__init__.py").write_text("changed")
    assert manifest._commit(tmp_path / "package") == f"{head}-dirty"


def test_rows_of_the_log(tmp_path, fast_disk):
    with RunDirectory.create(tmp_path / "run", {}) as run:
        run.log(7, {"b": np.float32(0.1), "a": jnp.array([1.5, jnp.inf]), "game": "Pöng"})
        run.log(8, {"x": {"n": np.int64(3), "f": True}, "y": None, "z": (1, 1e-7), "w": math.nan})
        run.log(9, {"h": jnp.bfloat16(0.1), "d": 0.1, "flags": np.array([True])})
        with pytest.raises(ValueError, match="must hold numbers and words"):
            run.log(10, {"o": object()})
    assert (tmp_path / "run" / "log.jsonl").read_text().splitlines() == [
        '{"a":[1.5,null],"b":0.1,"game":"Pöng","step":7}',
        '{"step":8,"w":null,"x":{"f":true,"n":3},"y":null,"z":[1,1e-07]}',
        '{"d":0.1,"flags":[true],"h":0.100098,"step":9}',
    ]


def read_events(path):
    """As the format says: length, its checksum, data, its checksum."""
    data = path.read_bytes()
    while data:
        length, length_sum = struct.unpack("<QI", data[:12])
        content = data[12 : 12 + length]
        (content_sum,) = struct.unpack("<I", data[12 + length : 16 + length])
        assert (length_sum, content_sum) == (masked_crc32c(data[:8]), masked_crc32c(content))
        yield Event.FromString(content)
        data = data[16 + length :]


def tensorboard(folder):
    """What TensorBoard shows: a restart drops what earlier files hold from its step on."""
    shown = []
    for path in sorted(folder.iterdir()):
        assert "tfevents" in path.name
        for event in read_events(path):
            if event.session_log.status == SessionLog.START:
                shown = [point for point in shown if point[0] < event.step]
            for value in event.summary.value:
                shown.append((event.step, value.tag, value.simple_value))
    return shown


def test_tensorboard_shows_the_log_and_nothing_that_was_taken_back(tmp_path, fast_disk):
    warnings = []
    with RunDirectory.create(tmp_path / "run", {}, warn=warnings.append) as run:
        run.log(1, {"loss": 0.5, "return": [1.0, None, 3.0], "word": "x"})
        run.save(1, {})
        run.log(2, {"loss": 9.0})
    expected = [(1, "loss", 0.5), (1, "return/0", 1.0), (1, "return/2", 3.0)]
    assert tensorboard(run.path / "events") == [*expected, (2, "loss", 9.0)]
    with RunDirectory.open(run.path, warn=warnings.append) as run:
        run.load()
        run.log(2, {"loss": 0.25})
    assert tensorboard(run.path / "events") == [*expected, (2, "loss", 0.25)]
    assert warnings == []


def test_members_have_series_of_their_own_in_tensorboard(tmp_path, fast_disk):
    with RunDirectory.create(tmp_path / "run", {}) as run:
        for seed in (1, 2):
            run.log(1, {"step": 1, "loss": seed / 4, "seed": seed}, member=f"seed-{seed}")
        run.save(1, {})
        run.log(2, {"loss": 9.0}, member="seed-2")
        for name in ("../x", ".."):
            with pytest.raises(ValueError, match="member must be a name of letters, digits"):
                run.log(3, {}, member=name)
    with RunDirectory.open(run.path) as run:
        run.load()
        run.log(2, {"loss": 0.125}, member="seed-2")
    assert tensorboard(run.path / "events" / "seed-1") == [(1, "loss", 0.25), (1, "seed", 1.0)]
    second = [(1, "loss", 0.5), (1, "seed", 2.0), (2, "loss", 0.125)]
    assert tensorboard(run.path / "events" / "seed-2") == second
    assert (run.path / "log.jsonl").read_text().count("\n") == 3


def test_speed_has_the_time(tmp_path, fast_disk):
    with RunDirectory.create(tmp_path / "run", {}) as run:
        run.log_speed(5, {"steps_per_second": np.float32(1.5)})
    row = json.loads((run.path / "speed.jsonl").read_text())
    assert row.pop("time") > 1.7e9
    assert row == {"step": 5, "steps_per_second": 1.5}


def test_networks(tmp_path, fast_disk):
    with RunDirectory.create(tmp_path / "run", {}) as run:
        path = run.write_network("member-0.safetensors", b"data")
    assert path == run.networks / "member-0.safetensors"
    assert path.read_bytes() == b"data"
    assert len(list(run.networks.iterdir())) == 1


def test_warnings_go_to_stderr_unless_somebody_takes_them(tmp_path, capsys):
    RunDirectory.create(tmp_path / "run", {}).close()
    with RunDirectory.open(tmp_path / "run") as run:
        run.load()
    line = "conqur: there is no checkpoint yet, starting from the beginning\n"
    assert capsys.readouterr() == ("", line)


@pytest.mark.parametrize("name", ["checkpoints", "events", "networks"])
def test_folders_that_lie_elsewhere_are_not_written_to(run_folder, tmp_path, name):
    (tmp_path / "outside").mkdir()
    shutil.rmtree(run_folder / name)
    (run_folder / name).symlink_to(tmp_path / "outside")
    with pytest.raises(RunError, match=f"{name} is a link, .*: remove it, or name another"):
        RunDirectory.open(run_folder)
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / name).symlink_to(tmp_path / "outside")
    with pytest.raises(RunError, match=f"{name} is a link"):
        RunDirectory.create(tmp_path / "new", CONFIG)
    assert not any((tmp_path / "outside").iterdir())


def test_a_run_begins_with_its_networks_or_can_be_begun_again(tmp_path, monkeypatch):
    """Wherever the disk was full."""
    folder, networks = tmp_path / "run", {"a.safetensors": b"1", "b.safetensors": b"2"}
    written = directory.write_atomically
    for broken in ("manifest.json", "starting.json", *networks, "config.json"):

        def full(path, data, name=broken):
            if path.name == name:
                raise OSError(errno.ENOSPC, "no space left")
            written(path, data)

        with monkeypatch.context() as patch:
            patch.setattr(directory, "write_atomically", full)
            patch.setattr(layout, "write_atomically", full)
            with pytest.raises(RunError, match=r"no space left in .*; free space and begin again"):
                RunDirectory.create(folder, CONFIG, networks=networks)
    other = {"b.safetensors": b"3"}  # and nothing is left of the others
    with RunDirectory.create(folder, CONFIG, networks=other) as run:
        assert {file.name: file.read_bytes() for file in run.networks.iterdir()} == other
        assert not (folder / "starting.json").exists()


def test_a_run_without_space_for_its_log_can_go_on(tmp_path, monkeypatch):
    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(directory.Writers, "open", full)
        with pytest.raises(RunError, match=r"no space left in .*continue with --resume"):
            RunDirectory.create(tmp_path, CONFIG, networks={"a.safetensors": b"1"})
    with RunDirectory.open(tmp_path) as run:
        assert run.load() is None
        assert (run.networks / "a.safetensors").read_bytes() == b"1"


def test_networks_of_somebody_are_left_alone(tmp_path):
    (tmp_path / "networks").mkdir()
    (tmp_path / "networks" / "a.safetensors").write_text("mine")
    (tmp_path / "manifest.json").write_text('{"networks": ["a.safetensors"]}')
    with pytest.raises(RunError, match="is not empty"):
        RunDirectory.create(tmp_path, CONFIG, networks={"a.safetensors": b"1"})
    assert (tmp_path / "networks" / "a.safetensors").read_text() == "mine"


@pytest.mark.parametrize("name", ["lock", "log.jsonl", "speed.jsonl"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_only_files_of_its_own_are_written_to(run_folder, tmp_path, name, kind):
    """A run directory may come from anybody."""
    outside, victim = tmp_path / "outside", run_folder / name
    outside.write_text("mine")
    victim.unlink()
    makers = {"link": lambda: victim.symlink_to(outside), "folder": victim.mkdir}
    makers.get(kind, lambda: os.mkfifo(victim))()
    before = files(run_folder)
    with (
        pytest.raises(RunError, match=f"{name} is no regular file: remove it, or name another"),
        RunDirectory.open(run_folder) as run,
    ):
        run.load()
    assert outside.read_text() == "mine"
    assert files(run_folder).keys() == before.keys()


def test_links_are_replaced_not_followed(run_folder, tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("mine")
    with RunDirectory.open(run_folder) as run:
        run.load()
        for name in ("config.json", "networks/x.safetensors"):
            (run_folder / name).unlink(missing_ok=True)
            (run_folder / name).symlink_to(outside)
        run.write_network("x.safetensors", b"new")
        run.resume(CONFIG | {"steps": 8}, may_change={"steps"})
    assert outside.read_text() == "mine"
    assert (run_folder / "networks" / "x.safetensors").read_bytes() == b"new"
    assert json.loads((run_folder / "config.json").read_text())["steps"] == 8
