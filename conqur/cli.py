"""The command line: what each command takes, and how errors reach people."""

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import tyro

import conqur
from conqur.commands import COMMANDS
from conqur.commands.support import UsageError
from conqur.runs.files import RunError

DESCRIPTION = """Diagnose and remove delusional bias in Q-learning.

Global options: --version prints the version; --debug shows the traceback of an error.
"""


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
    except RunError as error:  # may show a difference, line by line
        if debug:
            raise
        print(f"conqur: {error}", file=sys.stderr)
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


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


if __name__ == "__main__":
    main()
