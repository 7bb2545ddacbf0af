"""The command line: what each command takes, and how errors reach people."""

import contextlib
import dataclasses
import inspect
import io
import os
import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import groupby
from typing import Any

import tyro

import conqur
from conqur._guess import did_you_mean
from conqur._interrupt import INTERRUPTED, TERMINATED, asked
from conqur._memory import keep_memory
from conqur._messages import printable, stderr_console
from conqur.commands import COMMANDS
from conqur.commands.support import UsageError
from conqur.runs.files import RunError

OVERVIEW = """usage: conqur COMMAND ...

Diagnose and remove delusional bias in Q-learning.

{commands}

conqur COMMAND --help explains a command. conqur --version prints the version;
--debug, with any command, shows the traceback of an error.
"""


def _one_of(found: re.Match[str]) -> str:
    """Choices in order, and without the one that stands for "not given"."""
    given, option, listed = found.groups()
    names = sorted(name for name in re.findall(r"'([^']*)'", listed) if name != "None")
    guess = did_you_mean(given, names)
    return f"{option} must be one of {', '.join(names)}, got '{given}'{guess}"


PLAIN_WORDS: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"invalid choice '(.*)' for argument '(\S+)'\. Expected one of \((.*)\)": _one_of,
    r"Error parsing (\S+): no type matching \{None\}\|INT .* from \[(.*)\]": (
        r"\1 must be a whole number, got \2"
    ),
    r"Error parsing (\S+): no type matching \{None\}\|FLOAT .* from \[(.*)\]": (
        r"\1 must be a number, got \2"
    ),
    r"Error parsing (\S+): invalid literal for int.*: (.*)": r"\1 must be a whole number, got \2",
    r"Error parsing (\S+): could not convert string to float: (.*)": r"\1 must be a number, got \2",
    r"Error parsing (\S+): Could not find valid parse for arguments: \[(.*)\]": (
        r"\1 must be numbers, got \2"
    ),
    r"Missing value for argument '(\S+)'. Expected 1 values": r"\1 needs a value",
    r"[│╭╮╰╯─]+ *": "",  # boxes within the box
    r"Missing from conqur \w+: (\S+) .*": r"\1 is missing",
    r"Unrecognized options: ": "there is no option or further argument ",
}
"""Of tyro's messages, those that people meet, as patterns, and what they are told instead."""


def main() -> None:
    """Run the command line of this process and exit: 0 done, 1 the job failed, 2 wrong use."""
    keep_memory()
    status = run(sys.argv[1:])
    if status in (INTERRUPTED, TERMINATED):
        # At once: the interpreter's own end was seen to crash while JAX still computes.
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:  # as where it was closed
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
        os._exit(status)
    sys.exit(status)


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
        elif arguments in (["--help"], ["-h"]):
            print(_overview())
        else:
            parse(arguments).run(shlex.join(["conqur", *arguments]))
        if sys.stdout is not None:
            sys.stdout.flush()
    except SystemExit as stop:  # --help
        return stop.code if isinstance(stop.code, int) else 1
    except KeyboardInterrupt:
        _complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:  # whoever was reading has stopped, as `| head` does
        sys.stdout = None
        return 1
    except RunError as error:  # may show a difference, line by line
        if debug:
            raise
        _complain(str(error))
        return 1
    except UsageError as error:
        _complain(str(error))
        return 2
    except Exception as error:
        if asked:  # a library turned Ctrl-C into something else
            _complain("interrupted")
            return INTERRUPTED
        if debug:
            raise
        _complain(printable(str(error)) or type(error).__name__)
        return 1
    return 0


def _complain(text: str) -> None:
    """Say on stderr, if there is one, what is wrong."""
    stderr_console().print(
        "conqur: " + "\n".join(printable(line, keep_spaces=True) for line in text.split("\n")),
        soft_wrap=True,
        highlight=False,
        markup=False,
    )


def whole_number(text: str) -> int:
    """A whole number as people write it: 500000, 5e5, 500k or 0.5M."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?:e\+?(\d{1,2})|([kM]))", text)
    if match is not None:
        zeros = int(match[2]) if match[2] else {"k": 3, "M": 6}[match[3]]
        value = Fraction(match[1]) * 10**zeros
        if value.denominator == 1:
            return int(value)
    return int(text)


SYNONYMS = {"lambda": "penalty-weight", "lr": "learning-rate"}
"""What options are called elsewhere."""

NUMBERS = tyro.constructors.ConstructorRegistry()
"""How options are read where tyro is too strict."""


@NUMBERS.primitive_rule
def _whole_numbers(
    info: tyro.constructors.PrimitiveTypeInfo,
) -> tyro.constructors.PrimitiveConstructorSpec[int] | None:
    if info.type is not int:
        return None
    return tyro.constructors.PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=lambda words: whole_number(words[0]),
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    )


def parse(arguments: Sequence[str]) -> Any:
    """The command object. Tyro's boxed messages become one sentence."""
    commands = ", ".join(COMMANDS)
    if not arguments:
        raise UsageError(f"name a command: {commands} (see conqur --help)")
    name, *options = arguments
    if name not in COMMANDS:
        guess = did_you_mean(name, list(COMMANDS))
        raise UsageError(f"there is no command {name!r}{guess} (there is: {commands})")
    if {"-h", "--help"} & set(options):
        print(_description(COMMANDS[name]), end="\n\n")  # tyro would not wrap it
    messages = io.StringIO()
    try:
        with contextlib.redirect_stderr(messages):
            return tyro.cli(
                COMMANDS[name],
                prog=f"conqur {name}",
                description="",
                args=options,
                config=(tyro.conf.FlagCreatePairsOff,),
                registry=NUMBERS,
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        plain = re.sub(r"\x1b\[[0-9;]*m", "", messages.getvalue())  # no colours, as on terminals
        body = plain.splitlines()[1:]  # below the title
        lines = [line.strip("│| ") for line in body]
        parts = groupby(lines, key=lambda line: not line.strip("─╰╯-+"))  # rules between them
        groups = [list(part) for is_rule, part in parts if not is_rule]
        sentence = _plainly(_one_line(" ".join(groups[0] if groups else body)).rstrip("."))
        sentence = _unknown(COMMANDS[name], options) or sentence
        raise UsageError(f"{sentence} (see conqur {name} --help)") from None


def _unknown(command: Any, given: Sequence[str]) -> str:
    """What is wrong with the first option that there is not, and which one was meant."""
    known = [field.name.replace("_", "-") for field in dataclasses.fields(command)]
    names = (word[2:].partition("=")[0] for word in given if word.startswith("--"))
    for name in names:
        if name.replace("_", "-") not in known:
            guess = did_you_mean(SYNONYMS.get(name, name), known, written="--{}")
            return f"there is no option --{name}{guess}"
    return ""


def _plainly(sentence: str) -> str:
    """What tyro says, without the types that it speaks of."""
    for pattern, words in PLAIN_WORDS.items():
        sentence = re.sub(pattern, words, sentence)
    return sentence


def _overview() -> str:
    width = max(len(name) for name in COMMANDS) + 4
    lines = []
    for name, command in COMMANDS.items():
        summary = inspect.cleandoc(command.__doc__).partition("\n\n")[0]
        first = f"  {name}".ljust(width)
        lines.append(_wrapped(summary, first, " " * width))
    return OVERVIEW.format(commands="\n".join(lines)).rstrip()


def _description(command: Any) -> str:
    """A command's docstring, wrapped."""
    paragraphs = inspect.cleandoc(command.__doc__).split("\n\n")
    return "\n\n".join(
        paragraph if "\n  " in paragraph else _wrapped(paragraph)  # examples stay as they are
        for paragraph in paragraphs
    )


def _wrapped(text: str, first: str = "", others: str = "") -> str:
    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        _one_line(text),
        min(max(width, 40), 100),
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
        break_long_words=False,
    )


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


if __name__ == "__main__":
    main()
