"""Training runs of seconds, for the tests: settings, fixtures, and what has to stay as it is."""

import hashlib

import pytest

from conqur import cli

CARTPOLE = (
    *("CartPole-v1", "--num-envs", "4", "--replay-size", "400", "--learning-starts", "40"),
    *("--batch-size", "4", "--log-every", "80", "--steps", "160", "--learning-rate", "0.0007"),
)
MINATAR = ("MinAtar/Breakout", *CARTPOLE[1:], "--update-every", "1")


@pytest.fixture(scope="session")
def cartpole(tmp_path_factory):
    """A run that was never interrupted."""
    return trained(tmp_path_factory.mktemp("runs") / "cartpole", CARTPOLE)


@pytest.fixture(scope="session")
def minatar(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "minatar"
    return trained(folder, (*MINATAR, "--seeds", "2", "--penalty-weight", "0", "0.5"))


@pytest.fixture
def conqur(capsys):
    """The command line in this process: status, stdout and stderr."""

    def run(*arguments):
        capsys.readouterr()
        status = cli.run([str(argument) for argument in arguments])
        return status, *capsys.readouterr()

    return run


def trained(folder, arguments):
    assert cli.run(["train", *arguments, "--run-dir", str(folder), "--json"]) == 0
    return folder


def results(folder):
    """All that is promised to be the same in runs of the same settings."""
    paths = [folder / "log.jsonl", *sorted((folder / "networks").iterdir())]
    return {path.name: path.read_bytes() for path in paths}


def digests(folder):
    """Of all files below a folder."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def sentence(words, err):
    """One line that begins with the program's name and says these words."""
    assert err.startswith("conqur: ")
    assert err.count("\n") == 1
    assert words in err
    assert "Traceback" not in err
