"""What lies where in a run directory."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from conqur._files import is_partial
from conqur.runs.files import Damaged, RunError, canonical, read_json, remove, write_atomically

CONFIG = "config.json"
MANIFEST = "manifest.json"
STARTING = "starting.json"
"""There while a run is begun."""
LOG = "log.jsonl"
SPEED = "speed.jsonl"
EVALUATION = "evaluation.json"
"""What a training run's networks scored on fresh episodes."""
CHECKPOINTS = "checkpoints"
EVENTS = "events"
NETWORKS = "networks"
_FOLDERS = (CHECKPOINTS, EVENTS, NETWORKS)


def prepare(path: Path) -> None:
    """Make the folders of a run that are not there, and remove what was never written to its end.

    That of checkpoints is removed with the old ones of these.
    """
    for name in _FOLDERS:
        (path / name).mkdir(exist_ok=True)
    for entry in (*path.iterdir(), *(path / NETWORKS).iterdir()):
        if is_partial(entry.name):
            remove(entry)


def check_new(path: Path) -> None:
    """Refuse a folder with anything in it but what a process left that was killed on its start."""
    ours = {"lock", MANIFEST, STARTING, *_FOLDERS}
    if not path.is_dir():
        raise RunError(f"{path} is no folder; name another --run-dir")
    check_no_links(path)
    for entry in path.iterdir():
        known = entry.name in ours or is_partial(entry.name)
        within = {file.name for file in entry.iterdir()} if entry.is_dir() else set()
        if entry.name == NETWORKS:
            within -= _begun(path)
        if not known or within:
            raise RunError(
                f"{path} is not empty; continue the run in it with --resume, "
                "or name another --run-dir"
            )


def begin(path: Path, networks: Mapping[str, bytes]) -> None:
    """Write the networks that a run starts from, in place of those of a start that was broken off.

    Their names are kept until `end_begin`, so that what is left of this start is known to be ours.
    """
    for name in _begun(path):
        remove(path / NETWORKS / name)
    (path / STARTING).unlink(missing_ok=True)
    if networks:
        write_atomically(path / STARTING, canonical({"networks": sorted(networks)}).encode())
    for name, content in networks.items():
        write_atomically(path / NETWORKS / name, content)


def end_begin(path: Path) -> None:
    """The run is there: nothing of its start can be broken off any more."""
    (path / STARTING).unlink(missing_ok=True)


def _begun(path: Path) -> set[str]:
    """Names of the networks that were written by a start that was broken off."""
    try:
        names = set(read_json(path / STARTING)["networks"])
    except (Damaged, KeyError, TypeError):
        return set()
    there = (path / NETWORKS).iterdir() if (path / NETWORKS).is_dir() else ()
    return {file.name for file in there if file.name in names and file.is_file()}


def check_no_links(path: Path) -> None:
    """Refuse to write through a folder of a run that is a link to elsewhere."""
    for name in _FOLDERS:
        if (path / name).is_symlink():
            raise RunError(
                f"{path / name} is a link, and what is behind it would be written to: remove it, "
                "or name another --run-dir"
            )


def put_aside(path: Path) -> Path:
    """Move checkpoints and log away, and copy the networks.

    Damaged as they are, they may still be of use to somebody.
    """
    number = 1
    while (path / f"damaged-{number}").exists():
        number += 1
    aside = path / f"damaged-{number}"
    aside.mkdir()
    (aside / NETWORKS).mkdir()
    for file in (path / NETWORKS).iterdir():
        if file.is_file() and not file.is_symlink():
            shutil.copy2(file, aside / NETWORKS / file.name)
    for name in (LOG, CHECKPOINTS):  # in this order: without checkpoints, nothing is put aside
        if (path / name).exists():
            os.replace(path / name, aside / name)
    prepare(path)
    return aside
