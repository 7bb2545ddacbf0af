"""What has been played to choose a node, so that a run that is killed then goes on from there."""

import contextlib
import json
import math
import os
from collections.abc import Sequence
from typing import Any

from conqur.runs import RunDirectory, RunError
from conqur.runs.files import Damaged, read_json
from conqur.search.rollouts import Round
from conqur.search.saving import digest

FILE = "choosing.json"


class Choosing:
    """The rounds that a run's folder knows of.

    Attributes:
        rounds: played before.
        seconds: that they took.
    """

    def __init__(self, run: RunDirectory, among: Any) -> None:
        """Read what there is.

        Args:
            run: the run's directory.
            among: the regressors, and whatever else rounds depend on, as numbers and arrays; what
                was played with others is of no use.
        """
        path = run.path / FILE
        if os.path.lexists(path) and not path.is_file():
            raise RunError(f"{path} is no regular file: remove it, and go on")
        self._run, self._among = run, digest(among)
        self.rounds: Sequence[Round] = ()
        self.seconds = 0.0
        try:
            found = read_json(run.path / FILE)
            if found["among"] == self._among:
                rounds = [
                    Round([[_number(score) for score in own] for own in scores], _count(frames))
                    for scores, frames in found["rounds"]
                ]
                self.rounds, self.seconds = rounds, max(0.0, _number(found["seconds"]))
        except (Damaged, ValueError, TypeError, KeyError, OverflowError):
            pass  # there is none, or none that can be used: all is played

    def keep(self, rounds: Sequence[Round], seconds: float) -> None:
        """Write what has been played so far."""
        found = {"among": self._among, "rounds": list(rounds), "seconds": seconds}
        self._run.write_file(FILE, json.dumps(found).encode())


def _number(value: Any) -> float:
    if not math.isfinite(value):
        raise ValueError
    return float(value)


def _count(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 2**53:
        raise ValueError
    return value


def forget(run: RunDirectory) -> None:
    """Remove what a run has written to choose a node: it is chosen."""
    with contextlib.suppress(OSError):
        (run.path / FILE).unlink()
