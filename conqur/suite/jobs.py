"""A run of a study: what is typed for it, where it is, and how far it came."""

import enum
import itertools
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conqur.runs.files import Damaged, read_json, reading
from conqur.runs.layout import CONFIG, EVALUATION
from conqur.tuning_run import SUMMARY


class State(enum.StrEnum):
    """How far a run came."""

    WAITING = "waiting"
    BEGUN = "begun"
    FAILED = "failed"
    DONE = "done"


@dataclass(frozen=True)
class Job:
    """One run.

    Attributes:
        name: of its folder.
        arguments: of the command line, without the folder.
        about: what tells it from the others, for tables.
        episodes: with which its networks are evaluated at last; None: the command does that.
    """

    name: str
    arguments: tuple[str, ...]
    about: dict[str, Any]
    episodes: int | None

    @property
    def like(self) -> str:
        """What runs have in common that compile many of the same programs: the game."""
        return str(self.about.get("game", ""))

    def folder(self, study: Path) -> Path:
        """Where the run is, in a study's folder."""
        return study / "runs" / self.name

    def log(self, study: Path) -> Path:
        """What the run's processes said."""
        return study / "logs" / f"{self.name}.txt"

    def failure(self, study: Path) -> Path:
        """A file that is there if the run was given up."""
        return study / "logs" / f"{self.name}.failed"

    def result(self, study: Path) -> Path:
        """The file that a run has when it is at its end."""
        return self.folder(study) / (SUMMARY if self.episodes is None else EVALUATION)

    def start(self, study: Path) -> list[str]:
        """What is typed to begin the run, or to go on with it."""
        folder = self.folder(study)
        where = ["--run-dir", str(folder)]
        if not (folder / CONFIG).exists():
            return [*self.arguments, *where]
        command = self.arguments[0]
        named = ["--env", *self._code()] if command == "tune" and self._code() else self._code()
        return [command, *named, "--resume", *where]

    def evaluation(self, study: Path) -> list[str] | None:
        """What is typed to evaluate its networks; None if there is nothing to do."""
        if self.episodes is None:
            return None
        env = ["--env", *self._code()] if self._code() else []
        return [
            "evaluate",
            str(self.folder(study)),
            *env,
            "--episodes",
            str(self.episodes),
            "--json",
        ]

    def _code(self) -> list[str]:
        """The game if it is somebody's code, or may be: that is not run unless it is named."""
        game = str(self.about.get("game", ""))
        if self.arguments[0] == "tune":  # whose game is perhaps only what its network is called
            game = dict(itertools.pairwise(self.arguments)).get("--env", "")
        return [game] if ":" in game else []


def state(job: Job, study: Path) -> State:
    """How far a run came, by its files."""
    try:
        read_json(job.result(study))
        return State.DONE
    except Damaged:
        pass
    if job.failure(study).exists():
        return State.FAILED
    return State.BEGUN if (job.folder(study) / CONFIG).exists() else State.WAITING


def last_words(job: Job, study: Path) -> str:
    """The last line that the run's processes printed."""
    try:
        with reading(job.log(study)) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 2_000))
            lines = file.read().decode(errors="replace").replace("\r", "\n").split("\n")
    except (OSError, Damaged):
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def described(job: Job) -> str:
    """A job as one line of JSON, to see whether a study's folder is of the same study."""
    return json.dumps([job.name, job.arguments, job.about, job.episodes], sort_keys=True)
