"""`conqur demo`."""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

import conqur
from conqur._files import replacing
from conqur.commands.support import Flag, UsageError, announcer, check_writable


@dataclass(frozen=True)
class Demo:
    """Show delusional bias, and what removes it, where everything is known exactly.

    Runs Q-learning, the consistency penalty, Algorithm 1, PCVI and PCQL on the paper's four-state
    example and on a 3×3 grid world with random features, prints the value each one reaches, and
    writes a page that explains it with pictures. Takes about 20 seconds on two cores.
    """

    output: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("conqur-demo.html")
    """The page to write (HTML, self-contained)."""
    seed: int = 1
    """Seed of the grid world's random features (a whole number of at least 0)."""
    json: Flag = False
    """Print the values as one JSON object on the last line instead of as tables."""

    def run(self, command: str) -> None:
        """Measure, print, write the page."""
        from conqur.demo.experiment import run_demo
        from conqur.demo.page import render

        if self.seed < 0:
            raise UsageError(f"--seed must be a whole number of at least 0, got {self.seed}")
        check_writable("--output", self.output)
        console = Console(stderr=self.json)
        started = time.monotonic()
        with announcer() as announce:
            demo = run_demo(self.seed, announce)
        with replacing(self.output) as file:
            file.write(render(demo, command).encode())
        if not self.json:
            console.print(
                _values_table("Four-state example (the paper's appendix A)", demo.four_state)
            )
            console.print(_values_table("3×3 grid world with random features", demo.grid_world))
            starts = demo.random_starts
            console.print(
                f"From {starts.starts} random starts on the four-state example ({starts.begun} of "
                f"them at a best realizable policy), plain regression ended at the best realizable "
                f"value {starts.plain} times, penalised regression {starts.penalised} times."
            )
        console.print(
            f"Took {time.monotonic() - started:.0f} s. Page: {self.output.resolve()}",
            soft_wrap=True,
        )
        if self.json:
            summary = demo.four_state.summary() | {
                "grid_world": demo.grid_world.summary(),
                "random_starts": asdict(demo.random_starts),
                "seed": self.seed,
                "version": conqur.__version__,
            }
            print(json.dumps(summary))


def _values_table(title: str, example: Any) -> Table:
    table = Table(title=title, title_justify="left")
    for name, justify in (("method", "left"), ("value", "right"), ("how", "left")):
        table.add_column(name, justify=justify)  # type: ignore[arg-type]
    for method in example.methods:
        table.add_row(method.name, f"{method.value:.3f}", method.setting)
    table.add_section()
    policies = f"of {len(example.policies)} realizable greedy policies"
    table.add_row("best realizable", f"{example.best_realizable:.3f}", policies)
    table.add_row("unconstrained", f"{example.unconstrained:.3f}", "the optimal policy")
    return table
