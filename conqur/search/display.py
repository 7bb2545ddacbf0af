"""What people see of a search: the level, the frontier's scores, how fast it goes."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from conqur._messages import stderr_console
from conqur.search.node import Node, Tree, top

SHOWN = 8
"""The most nodes in the table."""
EVERY = 5.0
"""Seconds between lines where there is no terminal."""


class Display:
    """Shows nothing."""

    def level(self, tree: Tree, found: dict[str, Any]) -> None:
        """A level is done."""

    def announce(self, words: str) -> None:
        """Something else is going on."""


class Lines(Display):
    """A line now and then."""

    def __init__(self, console: Console, levels: int, *, by_rollouts: bool) -> None:
        self._console, self._levels, self._by_rollouts = console, levels, by_rollouts
        self._last = -EVERY

    def level(self, tree: Tree, found: dict[str, Any]) -> None:
        """Say how far it is."""
        best = top(tree.frontier, 1)[0]
        words = f"best {_score_name(self._by_rollouts)} {_score(best, self._by_rollouts)}"
        self.announce(
            f"level {tree.level} of {self._levels}: {len(tree.frontier)} nodes, {words}, "
            f"{_gist(found)}"
        )

    def announce(self, words: str) -> None:
        """Say what is going on."""
        now = time.monotonic()
        if now - self._last >= EVERY:
            self._last = now
            self._console.print(words, soft_wrap=True, highlight=False)


class Screen(Display):
    """A bar, and below it the frontier's best nodes."""

    def __init__(self, live: Live, levels: int, *, by_rollouts: bool) -> None:
        self._live, self._by_rollouts = live, by_rollouts
        self._progress = Progress(
            TextColumn("level"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
        )
        self._task = self._progress.add_task("starting", total=levels)
        self._table: Any = ""
        self._draw()

    def level(self, tree: Tree, found: dict[str, Any]) -> None:
        """Draw anew."""
        self._progress.update(self._task, completed=tree.level, description=_gist(found))
        self._table = frontier_table(tree, by_rollouts=self._by_rollouts)
        self._draw()

    def announce(self, words: str) -> None:
        """Say what is going on beside the bar."""
        self._progress.update(self._task, description=words)
        self._draw()

    def _draw(self) -> None:
        self._live.update(Group(self._progress, self._table))


@contextlib.contextmanager
def display(levels: int, *, by_rollouts: bool, quiet: bool) -> Iterator[Display]:
    """What a search is shown with: a screen, lines or nothing, on stderr.

    Args:
        levels: of the search.
        by_rollouts: scores are what nodes gained on the checkpoint, with the sign changed.
        quiet: show nothing.
    """
    console = stderr_console()
    if quiet:
        yield Display()
    elif not console.is_terminal:
        yield Lines(console, levels, by_rollouts=by_rollouts)
    else:
        with Live(console=console, refresh_per_second=4) as live:
            yield Screen(live, levels, by_rollouts=by_rollouts)


def frontier_table(tree: Tree, *, by_rollouts: bool) -> Table:
    """The frontier's best nodes."""
    numbers = () if by_rollouts else ("Bellman error", "penalty")
    table = Table(box=None, pad_edge=False)
    for column in ("node", "parent", "labels", _score_name(by_rollouts), *numbers):
        table.add_column(column, justify="right")
    nodes = top(tree.frontier, SHOWN)
    for node in nodes:
        more = () if by_rollouts else (f"{node.bellman:.5g}", f"{node.penalty:.5g}")
        score = _score(node, by_rollouts)
        table.add_row(str(node.id), str(node.parent), node.assigned_how, score, *more)
    rest = len(tree.frontier) - len(nodes)
    if rest or len(tree.pool) > len(tree.frontier):
        waiting = len(tree.pool) - len(tree.frontier)
        table.add_row("", "", f"{rest} more, {waiting} wait", "", *("" for _ in numbers))
    return table


def _score_name(by_rollouts: bool) -> str:
    """What a node is compared by, in words."""
    return "gain on the checkpoint" if by_rollouts else "loss (less is better)"


def _score(node: Node, by_rollouts: bool) -> str:
    return f"{0.0 - node.score:+.5g}" if by_rollouts else f"{node.score:.5g}"


def _gist(found: dict[str, Any]) -> str:
    return (
        f"action gap {found['gap']:.3g}, churn {found['churn']:.1%}, "
        f"greedy labels {found['greedy']:.0%}"
    )
