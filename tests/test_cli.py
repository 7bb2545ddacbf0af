"""The command line, run as people run it."""

import contextlib
import dataclasses
import gc
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import conqur
from conqur import _interrupt, cli
from conqur.commands import COMMANDS, support


def conqur_command(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "conqur", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        check=False,
    )


def test_demo_end_to_end(tmp_path):
    done = conqur_command("demo", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    values = json.loads(done.stdout.splitlines()[-1])
    grid = values.pop("grid_world")
    starts = values.pop("random_starts")
    assert values.pop("seed") == 1
    assert values.pop("version") == conqur.__version__
    assert values == {
        "q_learning": pytest.approx(0.3),
        "regression": pytest.approx(0.3),
        "penalised": pytest.approx(0.5),
        "algorithm_1": pytest.approx(0.5),
        "pcvi": pytest.approx(0.5),
        "pcql": pytest.approx(0.5),
        "unconstrained": pytest.approx(2.0),
        "best_realizable": pytest.approx(0.5),
    }
    assert grid.keys() == values.keys()
    assert starts["plain"] < starts["penalised"] <= starts["starts"]
    assert grid["pcvi"] == pytest.approx(grid["best_realizable"])
    assert grid["algorithm_1"] == pytest.approx(grid["best_realizable"])
    assert grid["q_learning"] <= grid["best_realizable"] <= grid["unconstrained"]
    page = (tmp_path / "conqur-demo.html").read_text()
    assert "conqur demo --json" in page
    assert [path.name for path in tmp_path.iterdir()] == ["conqur-demo.html"]
    assert "grid world: PCVI" in done.stderr  # progress, line by line where there is no terminal


def test_version(capsys):
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"conqur {conqur.__version__}\n"


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_the_overview_has_a_line_for_every_command(capsys, flag, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run([flag]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    for name, command in COMMANDS.items():
        (line,) = [line for line in lines if line.startswith(f"  {name} ")]
        assert line.split()[1] in command.__doc__.splitlines()[0]


POSITIONAL = ("environment", "checkpoint", "file", "folder", "folders", "action", "study")


@pytest.mark.parametrize("command", COMMANDS)
def test_help_teaches(capsys, command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.run([command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert max(map(len, out.splitlines())) <= 80
    assert "None" not in out  # how "not given" is kept is nobody's business
    flat = re.sub(r"[\s│]+", " ", out)
    for field in dataclasses.fields(COMMANDS[command]):
        if "--" + field.name.replace("_", "-") not in flat:
            assert field.name in POSITIONAL
    for example in re.findall(r"^  (conqur .*)$", out, re.MULTILINE):
        assert cli.parse(shlex.split(example)[1:])
    if command == "demo":
        for words in ("--output FILE", "(default: conqur-demo.html)", "--seed INT", "(default: 1)"):
            assert words in flat
    else:
        assert "Examples:" in out


def on_a_terminal(*arguments, interrupt=""):
    """The status of `conqur` on a terminal of its own, and what it says there.

    Ctrl-C is pressed once it says `interrupt`.
    """
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "conqur", *arguments]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    said = ""
    with contextlib.suppress(OSError):  # the terminal is gone with the process
        while found := os.read(ours, 4096):
            said += found.decode(errors="replace")
            if interrupt and interrupt in said:
                os.killpg(process.pid, signal.SIGINT)
                interrupt = ""
    os.close(ours)
    return process.wait(), said


@pytest.mark.parametrize(
    "arguments", [("tune", "--prset", "x"), ("tune", "--levels", "abc"), ("diagnose",)]
)
def test_a_terminal_shows_the_sentence_that_a_file_has(arguments, capsys):
    status, said = on_a_terminal(*arguments)
    assert cli.run(arguments) == status == 2
    assert said.replace("\r", "") == capsys.readouterr().err


def test_ctrl_c_while_something_computes_is_no_crash():
    status, said = on_a_terminal("demo", interrupt="Q-learning")
    assert status == 130
    assert "conqur: interrupted" in said


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], f"name a command: {', '.join(COMMANDS)} (see conqur --help)"),
        (["dmo"], "there is no command 'dmo'"),
        (["demo", "--sed", "3"], "--sed"),
        (["demo", "--seed", "x"], "--seed must be a whole number, got 'x' (see conqur demo"),
        (["demo", "--seed", "1.5"], "--seed must be a whole number, got '1.5'"),
        (["demo", "--seed"], "--seed needs a value"),
        (["train", "x", "--penalty-weights", "1"], "weights; did you mean --penalty-weight? (see"),
        (["train", "x", "--step", "1"], "option --step; did you mean --steps? (see"),
        (["tune", "x", "--num_envs", "64", "--levls", "3"], "; did you mean --levels? (see conqur"),
        (["train", "x", "--lambda=1"], "; did you mean --penalty-weight? (see conqur"),
        (["train", "x", "--nonsense", "1"], "there is no option --nonsense (see conqur"),
        (["diagnose", "--epsiodes", "3"], "no option --epsiodes; did you mean --episodes? (see"),
        (["tune", "--LEVELS", "3"], "there is no option --LEVELS; did you mean --levels? (see"),
        (["trian"], "there is no command 'trian'; did you mean train? (there is: train,"),
        (["demo", "further"], "there is no option or further argument further"),
        (["play"], "CHECKPOINT is missing (see conqur play --help)"),
        (["train", "x", "--steps", "y"], "--steps must be a whole number, got 'y'"),
        (["train", "x", "--discount", "y"], "--discount must be a number, got 'y'"),
        (["train", "x", "--penalty-weight", "y"], "--penalty-weight must be numbers, got 'y'"),
        (
            ["train", "x", "--loss", "y"],
            "--loss must be one of huber, squared, got 'y' (see conqur",
        ),
        (
            ["tune", "x", "--preset", "tunde"],
            "paper-8, quick, tuned, got 'tunde'; did you mean tuned?",
        ),
        (["evaluate", "x", "--epsilon", "y"], "--epsilon must be a number, got 'y'"),
        (["demo", "--seed", "-1"], "--seed must be a whole number of at least 0"),
        (["demo", "--output", "/nowhere/page.html"], "there is no folder /nowhere"),
        (["demo", "--output", "/"], "is no regular file"),
        (["demo", "--output", "/dev/full"], "is no regular file"),
        (["demo", "--output", "a\0b"], "--output"),
        (["demo", "--output", "a" * 300], "--output"),
    ],
)
def test_wrong_use_is_one_sentence_and_status_2(arguments, words, capsys):
    assert cli.run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("conqur: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err


@pytest.mark.parametrize(
    ("written", "meant"),
    [("500000", 500_000), ("5e5", 500_000), ("5e+5", 500_000), ("1.5k", 1_500), ("0.5M", 500_000)],
)
def test_whole_numbers_as_people_write_them(written, meant):
    assert cli.parse(["train", "x", "--steps", written]).steps == meant
    assert cli.parse(["demo", "--seed", written]).seed == meant


@pytest.mark.parametrize(
    "written", ["1.5", "1e-1", "1.55e1", "k", "1m", "1e999999999", "inf", "M5"]
)
def test_what_is_no_whole_number_is_refused(written):
    with pytest.raises(support.UsageError, match=r"^--steps must be a whole number, got '"):
        cli.parse(["train", "x", "--steps", written])


def test_a_failed_job_is_one_sentence_and_status_1(capsys, monkeypatch, tmp_path):
    def fail(seed, announce):
        raise OSError("No space left on device")

    monkeypatch.setattr("conqur.demo.experiment.run_demo", fail)
    arguments = ["demo", "--output", str(tmp_path / "page.html")]
    assert cli.run(arguments) == 1
    assert capsys.readouterr().err == "conqur: No space left on device\n"
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError, match="No space left"):
        cli.run(["--debug", *arguments])


def test_ascii_terminals_lose_letters_but_no_results(tmp_path):
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C", "TERM": "dumb"}
    command = [sys.executable, "-m", "conqur", "demo"]
    helped = subprocess.run([*command, "--help"], capture_output=True, env=environment, check=True)
    assert b"--output FILE" in helped.stdout
    wrong = subprocess.run([*command, "--seed", "x"], capture_output=True, env=environment)
    assert wrong.returncode == 2
    assert wrong.stderr.count(b"\n") == 1
    assert b"---" not in wrong.stderr


def test_an_interrupt_is_said(capsys, monkeypatch, tmp_path):
    def interrupt(seed, announce):
        raise KeyboardInterrupt

    monkeypatch.setattr("conqur.demo.experiment.run_demo", interrupt)
    assert cli.run(["demo", "--output", str(tmp_path / "page.html")]) == 130
    assert capsys.readouterr().err == "conqur: interrupted\n"


INTERRUPTED = """
import signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name in ("jax", "numpy", "rich", "tyro"):
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Interrupt())
from {module} import {function}
{function}()
"""


def test_an_interrupt_while_it_starts_is_said():
    """As the installed program starts: Ctrl-C in the first import that takes its time."""
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    module, function = project["project"]["scripts"]["conqur"].split(":")
    code = INTERRUPTED.format(module=module, function=function)
    command = [sys.executable, "-c", code, "demo"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "conqur: interrupted\n")


WHILE_GARBAGE_IS_COLLECTED = """
import gc, signal, time
from conqur import _interrupt

def {name}(phase, info):
    if phase == "start":
        gc.callbacks.clear()
        signal.raise_signal(signal.SIGINT)

_interrupt.heed(_interrupt.by_exception)
gc.callbacks.append({name})
try:
    gc.collect()
    time.sleep(10)
except KeyboardInterrupt:
    print("heard")
"""


def test_an_interrupt_that_jax_would_drop_is_heard():
    assert _interrupt.DROPPING in [callback.__name__ for callback in gc.callbacks]  # JAX's own
    code = WHILE_GARBAGE_IS_COLLECTED.format(name=_interrupt.DROPPING)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("heard\n", "")


def test_an_interrupt_that_a_library_turns_into_an_error_is_said(capsys, monkeypatch, tmp_path):
    def fail(seed, announce):
        raise ImportError("while the extension was initialised")

    monkeypatch.setattr("conqur.demo.experiment.run_demo", fail)
    monkeypatch.setattr(_interrupt.asked, "signal", signal.SIGINT)
    assert cli.run(["demo", "--output", str(tmp_path / "page.html")]) == 130
    assert capsys.readouterr().err == "conqur: interrupted\n"


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_process_whose_output_is_closed_can_be_stopped(number, status, tmp_path):
    command = [sys.executable, "-m", "conqur", "demo", "--output", str(tmp_path / "page.html")]
    with subprocess.Popen(
        ["sh", "-c", 'exec "$@" >&-', "sh", *command], stderr=subprocess.PIPE, text=True
    ) as process:
        assert "Q-learning" in process.stderr.readline() + process.stderr.readline()
        process.send_signal(number)
        assert process.wait() == status


def test_errors_do_nothing_to_a_terminal(capsys, monkeypatch, tmp_path):
    def fail(seed, announce):
        raise OSError("\x1b]0;a title\x07 of\n\x9b2Jthe file [bold]")

    monkeypatch.setattr("conqur.demo.experiment.run_demo", fail)
    assert cli.run(["demo", "--output", str(tmp_path / "page.html")]) == 1
    assert capsys.readouterr().err == "conqur: ]0;a title of 2Jthe file [bold]\n"


def test_errors_speak_of_options():
    options = {"num_envs": "--num-envs", "steps": "--steps"}
    text = "num_envs (3) must divide steps\n  steps: 1 -> 2\nmy/num_envs and steps_x stay"
    told = "--num-envs (3) must divide steps\n  --steps: 1 -> 2\nmy/num_envs and steps_x stay"
    assert support.as_typed(text, options) == told
    with pytest.raises(support.UsageError) as caught, support.named_as_typed(options):
        raise ValueError("steps must be few")
    assert str(caught.value) == "--steps must be few"
    with pytest.raises(ValueError, match="the steps are many"), support.named_as_typed(options):
        raise ValueError("the steps are many")
