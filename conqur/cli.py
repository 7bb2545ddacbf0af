"""The command line: what each command takes, and how errors reach people."""

import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

import conqur

DESCRIPTION = """Diagnose and remove delusional bias in Q-learning.

Global options: --version prints the version; --debug shows the traceback of an error.
"""


class UsageError(Exception):
    """The command was called in a wrong way; the message says what to change."""


@dataclass(frozen=True)
class Demo:
    """Show delusional bias, and what removes it, where everything is known exactly.

    Runs Q-learning, the consistency penalty, Algorithm 1, PCVI and PCQL on the paper's four-state
    example and on a 3×3 grid world with random features, prints the value each one reaches, and
    writes a page that explains it with pictures. Takes about 20 seconds on two cores.
    """

    output: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("conqur-demo.html")
    """The page to write (HTML, self-contained)."""
    seed: int = 1
    """Seed of the grid world's random features (a whole number of at least 0)."""
    json: bool = False
    """Print the values as one JSON object on the last line instead of as tables."""

    def run(self, command: str) -> None:
        """Measure, print, write the page."""
        from conqur.demo.experiment import run_demo
        from conqur.demo.page import render

        if self.seed < 0:
            raise UsageError(f"--seed must be a whole number of at least 0, got {self.seed}")
        _check_writable("--output", self.output)
        console = Console(stderr=self.json)
        started = time.monotonic()
        with _announcer() as announce:
            demo = run_demo(self.seed, announce)
        _write(self.output, render(demo, command))
        if not self.json:
            console.print(
                _values_table("Four-state example (the paper's appendix A)", demo.four_state)
            )
            console.print(_values_table("3×3 grid world with random features", demo.grid_world))
            starts = demo.random_starts
            console.print(
                f"From {starts.starts} random starts on the four-state example ({starts.begun} of "
                f"them at a best realizable policy), plain regression ended at the best realizable "
                f"value {starts.plain} times, penalised regression {starts.penalised} times."
            )
        console.print(
            f"Took {time.monotonic() - started:.0f} s. Page: {self.output.resolve()}",
            soft_wrap=True,
        )
        if self.json:
            summary = demo.four_state.summary() | {
                "grid_world": demo.grid_world.summary(),
                "random_starts": asdict(demo.random_starts),
                "seed": self.seed,
                "version": conqur.__version__,
            }
            print(json.dumps(summary))


COMMANDS: dict[str, Any] = {"demo": Demo}


def main() -> None:
    """Run the command line of this process and exit: 0 done, 1 the job failed, 2 wrong use."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run the command line and return its exit status."""
    debug = "--debug" in arguments
    arguments = [argument for argument in arguments if argument != "--debug"]
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # θ on a terminal that has none
    try:
        if arguments == ["--version"]:
            print(f"conqur {conqur.__version__}")
        else:
            _parse(arguments).run(shlex.join(["conqur", *arguments]))
        if sys.stdout is not None:
            sys.stdout.flush()
    except SystemExit as stop:  # --help
        return stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:
        print("conqur: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever was reading has stopped, as `| head` does
        sys.stdout = None
        return 1
    except UsageError as error:
        print(f"conqur: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        if debug:
            raise
        print(f"conqur: {_one_line(str(error)) or type(error).__name__}", file=sys.stderr)
        return 1
    return 0


def _parse(arguments: Sequence[str]) -> Any:
    """The command object. Tyro's boxed messages become one sentence."""
    if arguments and arguments[0] not in COMMANDS and not arguments[0].startswith("-"):
        commands = ", ".join(COMMANDS)
        raise UsageError(f"there is no command {arguments[0]!r} (there is: {commands})")
    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages):
            return tyro.extras.subcommand_cli_from_dict(
                COMMANDS,
                prog="conqur",
                description=DESCRIPTION,
                args=arguments,
                config=(tyro.conf.FlagCreatePairsOff,),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        body = messages.getvalue().splitlines()[1:]  # below the title
        lines = [line.strip("│| ") for line in body]
        parts = groupby(lines, key=lambda line: not line.strip("─╰╯-+"))  # rules between them
        groups = [list(part) for is_rule, part in parts if not is_rule]
        command = " ".join(["conqur", *(a for a in arguments[:1] if a in COMMANDS)])
        sentence = _one_line(" ".join(groups[0] if groups else body)).rstrip(".")
        raise UsageError(f"{sentence} (see {command} --help)") from None


@contextlib.contextmanager
def _announcer() -> Iterator[Any]:
    """Says what is going on: a spinner on a terminal, lines elsewhere, both on stderr."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("starting") as status:
            yield status.update
    else:
        yield lambda words: console.print(words, soft_wrap=True)


def _values_table(title: str, example: Any) -> Table:
    table = Table(title=title, title_justify="left")
    for name, justify in (("method", "left"), ("value", "right"), ("how", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for method in example.methods:
        table.add_row(method.name, f"{method.value:.3f}", method.setting)
    table.add_section()
    policies = f"of {len(example.policies)} realizable greedy policies"
    table.add_row("best realizable", f"{example.best_realizable:.3f}", policies)
    table.add_row("unconstrained", f"{example.unconstrained:.3f}", "the optimal policy")
    return table


def _check_writable(option: str, path: Path) -> None:
    """Refuse a path that cannot be written before any work is done."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{option} {path} is no regular file; name one")
        if not path.parent.is_dir():
            raise UsageError(f"{option} {path}: there is no folder {path.parent}")
        folder = path.resolve().parent
    except (OSError, ValueError) as error:  # a name that no file can have
        raise UsageError(f"{option} {str(path)!r}: {error}") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"{option} {path}: the folder {folder} cannot be written to")


def _write(path: Path, text: str) -> None:
    """Write a file so that it is either the old one or the whole new one."""
    path = path.resolve()  # of a link, the file behind it
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name[:100], suffix=".partial")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        mode = path.stat().st_mode if path.exists() else 0o666 & ~_umask()
        os.chmod(temporary, mode & 0o777)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


if __name__ == "__main__":
    main()
