"""How far a training loop has come, for people to see."""

import abc
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from types import TracebackType

import rich.progress
from rich.console import Console

from conqur import _checks
from conqur._messages import stderr_console

_WINDOW = 30.0
_EVERY = 5.0


class Pace:
    """How fast a loop goes, and the latest it had to say.

    The rate is that of the last half minute. The time before the first step, and so most of
    compilation, does not count; what else was slow is forgotten. Steps before learning begins are
    faster than those that follow, and say nothing about the time that is left.

    Attributes:
        total: how many steps there will be.
        step: how many there have been.
        learning_starts: how many come before learning begins.
    """

    def __init__(self, total: int, start: int, learning_starts: int = 0) -> None:
        self.total = total
        self.step = start
        self.learning_starts = learning_starts
        self._seen: deque[tuple[float, int]] = deque()
        self._latest: dict[str, float] = {}

    def update(self, now: float, step: int, values: Mapping[str, float | None]) -> None:
        """Note that `step` was reached `now` (seconds)."""
        if self.step <= self.learning_starts < step:
            self._seen.clear()
        self.step = step
        self._seen.append((now, step))
        # The oldest that is kept lies just outside the window.
        while len(self._seen) > 2 and self._seen[1][0] <= now - _WINDOW:
            self._seen.popleft()
        self._latest |= {name: value for name, value in values.items() if value is not None}

    @property
    def rate(self) -> float:
        """Steps per second, NaN while it is not known."""
        if not self._seen:
            return math.nan
        (started, first), (now, last) = self._seen[0], self._seen[-1]
        return (last - first) / (now - started) if now > started else math.nan

    @property
    def count(self) -> str:
        """Steps so far, of all."""
        return f"{self.step:,} of {self.total:,}"

    @property
    def words(self) -> str:
        """Rate, remaining time, and the latest values."""
        parts = []
        if self.rate > 0:
            left = timedelta(seconds=round((self.total - self.step) / self.rate))
            digits = ",.0f" if self.rate >= 10 else ".2g"
            learning = self.step > self.learning_starts
            parts = [
                f"{self.rate:{digits}} steps/s",
                f"{left} left" if learning else "not learning yet",
            ]
        return ", ".join([*parts, *(f"{name} {v:.4g}" for name, v in self._latest.items())])


class Progress(abc.ABC):
    """Shows a training loop's progress: `with progress(total) as shown: shown.update(step)`."""

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @abc.abstractmethod
    def update(
        self, step: int, *, mean_return: float | None = None, loss: float | None = None
    ) -> None:
        """Say that `step` was reached.

        Args:
            step: counted from the start of the run.
            mean_return: the latest one; as before if not given.
            loss: likewise.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Show the last state, and end."""


class Quiet(Progress):
    """Shows nothing."""

    def update(
        self, step: int, *, mean_return: float | None = None, loss: float | None = None
    ) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class Lines(Progress):
    """A line at once, then one every few seconds."""

    def __init__(
        self,
        total: int,
        start: int,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        *,
        learning_starts: int = 0,
    ) -> None:
        pace = Pace(total, start, learning_starts)
        self._pace, self._console, self._clock = pace, console, clock
        self._print("starting")

    def update(
        self, step: int, *, mean_return: float | None = None, loss: float | None = None
    ) -> None:
        """Print a line if the last one is old enough."""
        now = self._clock()
        self._pace.update(now, step, {"return": mean_return, "loss": loss})
        if now >= self._when + _EVERY:
            self._print(self._pace.words)

    def close(self) -> None:
        """Print the last state, unless it was."""
        if self._pace.step != self._shown:
            self._print(self._pace.words)

    def _print(self, words: str) -> None:
        self._when, self._shown = self._clock(), self._pace.step
        line = ": ".join(part for part in (f"step {self._pace.count}", words) if part)
        self._console.print(line, soft_wrap=True, highlight=False)


class Bar(Progress):
    """A bar on a terminal."""

    def __init__(
        self,
        total: int,
        start: int,
        console: Console,
        clock: Callable[[], float] = time.monotonic,
        *,
        learning_starts: int = 0,
    ) -> None:
        pace = Pace(total, start, learning_starts)
        self._pace, self._clock = pace, clock
        self._bar = rich.progress.Progress(
            rich.progress.SpinnerColumn(),
            # Two lines: in one, on a terminal of 80 columns, no room is left for the bar.
            rich.progress.TextColumn("{task.description}\n{task.fields[words]}"),
            rich.progress.BarColumn(bar_width=None),
            console=console,
            expand=True,
        )
        self._task = self._bar.add_task(
            f"step {pace.count}", total=pace.total, completed=pace.step, words="starting"
        )
        self._bar.start()

    def update(
        self, step: int, *, mean_return: float | None = None, loss: float | None = None
    ) -> None:
        """Move the bar."""
        self._pace.update(self._clock(), step, {"return": mean_return, "loss": loss})
        self._bar.update(
            self._task,
            completed=step,
            description=f"step {self._pace.count}",
            words=self._pace.words,
        )

    def close(self) -> None:
        """Leave the bar as it is."""
        self._bar.stop()


def progress(
    total: int, *, start: int = 0, learning_starts: int = 0, quiet: bool = False
) -> Progress:
    """Progress of a training loop on stderr: a bar on a terminal, lines elsewhere.

    Args:
        total: how many steps there will be.
        start: how many there have been, when a run is resumed.
        learning_starts: how many of them, faster than the rest, come before learning begins.
        quiet: show nothing.
    """
    _checks.count("total", total)
    if quiet:
        return Quiet()
    console = stderr_console()
    kind = Bar if console.is_terminal else Lines
    return kind(total, start, console, learning_starts=learning_starts)
