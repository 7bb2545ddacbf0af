"""What several commands need."""

import contextlib
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from conqur._messages import printable, stderr_console
from conqur._messages import warn as warn

if TYPE_CHECKING:
    from conqur.pretrained.playing import Arena


class UsageError(Exception):
    """The command was called in a wrong way; the message says what to change."""


def option(metavar: str | None = None, default: str = "") -> Any:
    """How an option is shown that may be left out: `--name METAVAR`, and what it is then."""
    hint = f"(default: {default})" if default else ""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=hint)


Flag = Annotated[bool, option()]
"""An option without a value."""


@contextlib.contextmanager
def named_as_typed(options: Mapping[str, str]) -> Iterator[None]:
    """Make errors about arguments and settings speak of the options that people type.

    A `ValueError` that begins with one of the names is one of wrong use.

    Args:
        options: what is typed, by the name that errors use, such as "--num-envs" by "num_envs".
    """
    try:
        yield
    except ValueError as error:
        if str(error).partition(" ")[0] not in options:
            raise
        raise UsageError(as_typed(str(error), options)) from error


def as_typed(text: str, options: Mapping[str, str]) -> str:
    """`text` with names turned into options: the first word of a line, and all with a `_`."""
    return re.sub(
        r"(^ *|(?<![\w/.-])(?=[a-z]+_))(\w+)",
        lambda found: found[1] + options.get(found[2], found[2]),
        text,
        flags=re.MULTILINE,
    )


def say(line: str) -> None:
    """Say in one line, on stderr, what is good to know."""
    stderr_console().print(line, soft_wrap=True, highlight=False, markup=False)


def say_how_it_sees(place: "Arena") -> None:
    """Say which preprocessing of an Atari game is taken where a network's file names none."""
    if place.is_atari and not all(network.preprocessing for network in place.networks):
        say(
            f"Its file does not say how it sees the game: preprocessing {place.preprocessing_name} "
            "is assumed (conqur evaluate --preprocessing tries others)."
        )


@contextlib.contextmanager
def announcer() -> Iterator[Any]:
    """Says what is going on: a spinner on a terminal, lines elsewhere, both on stderr."""
    console = stderr_console()
    if console.is_terminal:
        with console.status("starting") as status:
            yield status.update
    else:
        said: list[str] = []

        def announce(words: str) -> None:
            if said != [words]:
                said[:] = [words]
                console.print(words, soft_wrap=True)

        yield announce


def network_name(about: Mapping[str, Any]) -> str:
    """What a network is called among those of its run: its λ and seed, where they are known.

    Args:
        about: where it came from, see `conqur.pretrained.Pretrained`.
    """
    parts = (
        f"{word} {about[key]:g}" if isinstance(about[key], float) else f"{word} {about[key]}"
        for word, key in (("λ", "penalty_weight"), ("seed", "seed"))
        if key in about
    )
    return printable(", ".join(parts)) or "network"


def check_writable(option: str, path: Path, *, keep: Sequence[Path] = ()) -> None:
    """Refuse a path that cannot be written before any work is done.

    Args:
        option: what the path was given with.
        path: what is to be written.
        keep: files that are read, and folders in which only pages may be overwritten.
    """
    if str(path).startswith("bundled:"):
        raise UsageError(f"{option} {path}: such names are those of networks in conqur")
    try:
        for kept in keep:
            there = path.exists() and kept.exists()
            inside = kept.is_dir() and path.resolve().is_relative_to(kept.resolve())
            if there and (path.samefile(kept) or (inside and path.suffix != ".html")):
                raise UsageError(f"{option} {path} would overwrite what is read: name another file")
        if path.exists() and not path.is_file():
            raise UsageError(f"{option} {path} is no regular file; name one")
        if not path.parent.is_dir():
            raise UsageError(f"{option} {path}: there is no folder {path.parent}")
        folder = path.resolve().parent
    except (OSError, ValueError) as error:  # a name that no file can have
        raise UsageError(f"{option} {str(path)!r}: {error}") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{option} {path}: the folder {folder} cannot be written to")


def sparkline(values: Sequence[float], width: int = 30) -> str:
    """Numbers as one line of little bars: of every part of them the mean."""
    ends = [i * len(values) // width for i in range(width + 1)]
    parts = [values[a:b] for a, b in itertools.pairwise(ends) if b > a]
    means = [sum(part) / len(part) for part in parts]
    low, span = min(means), (max(means) - min(means)) or 1.0
    return "".join("▁▂▃▄▅▆▇█"[int((mean - low) / span * 7.999)] for mean in means)
