"""The command line, run as people run it."""

import json
import re
import subprocess
import sys

import pytest

import conqur
from conqur import cli


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
    four_state = {key: value for key, value in values.items() if key != "grid_world"}
    assert four_state == {
        "q_learning": pytest.approx(0.3),
        "penalised": pytest.approx(0.5),
        "algorithm_1": pytest.approx(0.5),
        "pcvi": pytest.approx(0.5),
        "pcql": pytest.approx(0.5),
        "unconstrained": pytest.approx(2.0),
        "best_realizable": pytest.approx(0.5),
    }
    grid = values["grid_world"]
    assert grid.keys() == four_state.keys()
    assert grid["pcvi"] == pytest.approx(grid["best_realizable"])
    assert grid["algorithm_1"] == pytest.approx(grid["best_realizable"])
    assert grid["q_learning"] <= grid["best_realizable"] <= grid["unconstrained"]
    page = (tmp_path / "conqur-demo.html").read_text()
    assert "conqur demo --json" in page
    assert [path.name for path in tmp_path.iterdir()] == ["conqur-demo.html"]
    assert "grid world: PCVI" in done.stderr  # progress, line by line where there is no terminal


def test_version_and_help(capsys):
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"conqur {conqur.__version__}\n"
    assert cli.run(["--help"]) == 0
    assert "demo" in capsys.readouterr().out
    assert cli.run(["demo", "--help"]) == 0
    text = re.sub(r"[\s│]+", " ", capsys.readouterr().out)  # as if on one line
    for words in ("--output FILE", "(default: conqur-demo.html)", "--seed INT", "(default: 1)"):
        assert words in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Expected one of {demo}"),
        (["dmo"], "dmo"),
        (["demo", "--sed", "3"], "--sed"),
        (["demo", "--seed", "x"], "--seed"),
        (["demo", "--seed"], "--seed"),
        (["demo", "--seed", "-1"], "--seed must be a whole number of at least 0"),
        (["demo", "--output", "/nowhere/page.html"], "there is no folder /nowhere"),
        (["demo", "--output", "/"], "is a folder"),
    ],
)
def test_wrong_use_is_one_sentence_and_status_2(arguments, words, capsys):
    assert cli.run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("conqur: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err


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


def test_an_interrupt_is_said(capsys, monkeypatch, tmp_path):
    def interrupt(seed, announce):
        raise KeyboardInterrupt

    monkeypatch.setattr("conqur.demo.experiment.run_demo", interrupt)
    assert cli.run(["demo", "--output", str(tmp_path / "page.html")]) == 130
    assert capsys.readouterr().err == "conqur: interrupted\n"
