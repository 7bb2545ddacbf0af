"""The networks that come with conqur: trained by `conqur train`, each with a card about it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from conqur._guess import did_you_mean

PREFIX = "bundled:"
"""What their names begin with where a file could be named, too."""

DEFAULT = "bundled:MinAtar-Asterix-0"
"""What is tuned if nothing is named."""

_FOLDER = Path(__file__).with_name("bundled")


def is_bundled(path: str | Path) -> bool:
    """Whether this is the name of a network that comes with conqur, or is meant for one."""
    return str(path).startswith(PREFIX)


@cache
def bundled_names() -> tuple[str, ...]:
    """The names of all of them."""
    return tuple(PREFIX + file.stem for file in sorted(_FOLDER.glob("*.safetensors")))


def bundled_file(name: str | Path) -> Path:
    """The file of one, by its name.

    Raises:
        ValueError: if there is none.
    """
    if str(name) not in bundled_names():
        known = [other.removeprefix(PREFIX) for other in bundled_names()]
        guess = did_you_mean(str(name).removeprefix(PREFIX), known, written=PREFIX + "{}")
        raise ValueError(
            f"there is no network {name} in conqur{guess} (`conqur inspect` lists those that are)"
        )
    return _FOLDER / f"{str(name).removeprefix(PREFIX)}.safetensors"


def card(name: str | Path) -> dict[str, Any]:
    """How it was trained and what it scores.

    Keys: `name`, `environment`, `preprocessing`, `command`, `steps`, `frames`, `seed`, `hardware`,
    `conqur` (the version), `precision`, `licence`, `curve` (pairs of a step and the mean return
    while training) and `score` (`command`, `mean`, `interval`, `human_normalised`, `episodes`).
    """
    found: dict[str, Any] = json.loads(bundled_file(name).with_suffix(".json").read_text("utf-8"))
    return found
