"""What lies where in a run directory."""

import os
import shutil
from pathlib import Path

from conqur._files import is_partial
from conqur.runs.files import RunError, remove

CONFIG = "config.json"
MANIFEST = "manifest.json"
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
    ours = {"lock", MANIFEST, *_FOLDERS}
    if not path.is_dir():
        raise RunError(f"{path} is no folder; name another --run-dir")
    check_no_links(path)
    for entry in path.iterdir():
        known = entry.name in ours or is_partial(entry.name)
        begun = entry.name == NETWORKS and (path / MANIFEST).exists()  # by such a process
        if not known or (entry.is_dir() and any(entry.iterdir()) and not begun):
            raise RunError(
                f"{path} is not empty; continue the run in it with --resume, "
                "or name another --run-dir"
            )


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
