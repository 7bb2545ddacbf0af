"""What people see of a search: the level, the frontier's scores, how fast it goes."""

import contextlib
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

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


class Shown(NamedTuple):
    """What there is to see of a search.

    Attributes:
        levels: of the search.
        begun: those of them that were done before.
        by_rollouts: scores are what nodes gained on the checkpoint, with the sign changed.
        learns: nodes are trained on labels.
    """

    levels: int
    begun: int
    by_rollouts: bool
    learns: bool

    def gist(self, found: dict[str, Any]) -> str:
        """What a level was like, in a few words."""
        if not self.learns:
            return f"{found['churn']:.1%} of decisions changed"
        return (
            f"action gap {found['gap']:.3g}, churn {found['churn']:.1%}, "
            f"greedy labels {found['greedy']:.0%}"
        )

    def score_name(self) -> str:
        """What a node is compared by, in words."""
        return "gain on the checkpoint" if self.by_rollouts else "loss (less is better)"

    def score(self, node: Node) -> str:
        """By how much."""
        return f"{0.0 - node.score:+.2f}" if self.by_rollouts else f"{node.score:.5g}"


class Display:
    """Shows nothing."""

    def level(self, tree: Tree, found: dict[str, Any]) -> None:
        """A level is done."""

    def announce(self, words: str) -> None:
        """Something else is going on."""


class Lines(Display):
    """A line now and then."""

    def __init__(self, console: Console, shown: Shown) -> None:
        self._console, self._shown = console, shown
        self._last = self._last_level = -EVERY

    def level(self, tree: Tree, found: dict[str, Any]) -> None:
        """Say how far it is, whatever was announced since the last level that was told."""
        self._last = self._last_level
        best = top(tree.frontier, 1)[0]
        shown = self._shown
        self.announce(
            f"level {tree.level} of {shown.levels}: {len(tree.frontier)} nodes, "
            f"best {shown.score_name()} {shown.score(best)}, {shown.gist(found)}"
        )
        self._last_level = self._last

    def announce(self, words: str) -> None:
        """Say what is going on."""
        now = time.monotonic()
        if now - self._last >= EVERY:
            self._last = now
            self._console.print(words, soft_wrap=True, highlight=False)


class Screen(Display):
    """A bar, and below it the frontier's best nodes."""

    def __init__(self, live: Live, shown: Shown) -> None:
        self._live, self._shown = live, shown
        self._progress = Progress(
            TextColumn("level"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeRemainingColumn(elapsed_when_finished=True),  # nodes are then chosen among
            TextColumn("{task.description}"),
        )
        self._task = self._progress.add_task("starting", total=shown.levels, completed=shown.begun)
        self._table: Any = ""
        self._draw()

    def level(self, tree: Tree, found: dict[str, Any]) -> None:
        """Draw anew."""
        self._progress.update(self._task, completed=tree.level, description=self._shown.gist(found))
        self._table = frontier_table(tree, self._shown)
        self._draw()

    def announce(self, words: str) -> None:
        """Say what is going on beside the bar."""
        self._progress.update(self._task, description=words)
        self._draw()

    def _draw(self) -> None:
        self._live.update(Group(self._progress, self._table))


@contextlib.contextmanager
def display(shown: Shown, *, quiet: bool) -> Iterator[Display]:
    """What a search is shown with: a screen, lines or nothing, on stderr.

    Args:
        shown: what there is to see.
        quiet: show nothing.
    """
    console = stderr_console()
    if quiet:
        yield Display()
    elif not console.is_terminal:
        yield Lines(console, shown)
    else:
        with Live(console=console, refresh_per_second=4) as live:
            yield Screen(live, shown)


def frontier_table(tree: Tree, shown: Shown) -> Table:
    """The frontier's best nodes."""
    labels = ("labels",) if shown.learns else ()
    numbers = () if shown.by_rollouts else ("Bellman error", "penalty")
    table = Table(box=None, pad_edge=False)
    for column in ("node", "parent", *labels, shown.score_name(), *numbers):
        table.add_column(column, justify="right")
    nodes = top(tree.frontier, SHOWN)
    for node in nodes:
        how = (node.assigned_how,) if shown.learns else ()
        more = () if shown.by_rollouts else (f"{node.bellman:.5g}", f"{node.penalty:.5g}")
        table.add_row(str(node.id), str(node.parent), *how, shown.score(node), *more)
    rest, waiting = len(tree.frontier) - len(nodes), len(tree.pool) - len(tree.frontier)
    if rest or waiting:
        table.caption = f"{rest} more in the frontier, {waiting} wait in the pool"
        table.caption_justify = "left"
    return table
