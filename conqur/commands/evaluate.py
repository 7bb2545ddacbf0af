"""`conqur evaluate`."""

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table
from rich.text import Text

from conqur._files import replacing
from conqur._messages import printable
from conqur.commands.support import (
    Flag,
    UsageError,
    announcer,
    named_as_typed,
    network_name,
    option,
    say,
    say_how_it_sees,
)
from conqur.runs.layout import CONFIG, EVALUATION

if TYPE_CHECKING:
    from conqur.pretrained import Pretrained

EPSILON = 0.001
COPIES = 16
"""Copies of the environment for each network, unless there are fewer episodes."""

OPTIONS = {
    name: f"--{name}"
    for name in ("episodes", "frames", "sticky", "preprocessing", "epsilon", "seed")
}


@dataclass(frozen=True)
class Evaluate:
    """Measure what networks score, by the paper's protocol.

    CHECKPOINT is a network file or a run's folder (all its networks are played side by side, on
    the same starts). Play is ε-greedy with ε = 0.001 and scores are those of the game. Atari games
    begin with up to 30 no-ops, end after 108,000 frames at the latest and have no sticky actions
    unless --sticky says so.

    The table's intervals are over episodes: how well a network's own score is known. Where a run
    has several seeds, a second table has the mean of each λ over its seeds, with intervals over
    seeds, and its lead over λ = 0. With --keep the scores of a training run stay in its folder as
    evaluation.json, in place of earlier ones, and its report shows them.

    Examples:
      conqur evaluate runs/CartPole-v1-dqn --episodes 100 --keep
      conqur evaluate runs/ALE-Pong-v5-dqn --sticky 0.25 --json
    """

    checkpoint: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="CHECKPOINT")]
    """A network file, or a run's folder."""
    env: Annotated[str | None, option("ENV", "what the network was trained on")] = None
    """The environment, by a name that `conqur train` takes."""
    episodes: Annotated[int | None, option("INT", "as many as fill --frames")] = None
    """How many episodes each network plays."""
    frames: Annotated[int | None, option("INT", "500,000 in Atari, else 100 episodes")] = None
    """How many frames each network plays; the episode that crosses the line is played out."""
    sticky: float = 0.0
    """Atari: the probability that the emulator repeats the last action instead."""
    preprocessing: Annotated[str | None, option("NAME", "that of its training")] = None
    """Atari: how pictures are made, see `conqur train --help`."""
    epsilon: float = EPSILON
    """The probability of a random action."""
    seed: int = 0
    """Of the starts and of the random actions."""
    keep: Flag = False
    """Keep the scores in the run's folder, for `conqur report`."""
    json: Flag = False
    """Print everything as one JSON object, with the score of every episode."""

    def run(self, command: str) -> None:
        """Play, and print what came out."""
        with named_as_typed(OPTIONS):
            self._run()

    def _run(self) -> None:
        from conqur import _checks
        from conqur.evaluation import evaluate
        from conqur.pretrained import find_networks, load, together
        from conqur.pretrained.playing import arena

        for name in ("episodes", "frames"):
            if getattr(self, name) is not None:
                _checks.short_count(name, getattr(self, name))
        paths = find_networks(self.checkpoint)
        networks = [load(path) for path in paths]
        if self.keep:
            self._check_kept(networks)
        place = arena(networks, self.env, sticky=self.sticky, preprocessing=self.preprocessing)
        if not self.json and self.preprocessing is None:
            say_how_it_sees(place)
        episodes, frames = self.episodes, self.frames
        if episodes is None and frames is None:
            episodes, frames = (None, 500_000) if place.is_atari else (100, None)
        environment = place.make(min(episodes or COPIES, COPIES) * len(networks))
        try:
            with announcer() as announce:
                results = evaluate(
                    together(networks),
                    environment,
                    policies=len(networks),
                    episodes=episodes,
                    frames=frames,
                    frame_skip=place.frame_skip,
                    epsilon=self.epsilon,
                    seed=self.seed,
                    on_progress=lambda done: announce(f"played {done:.0%}"),
                )
        finally:
            environment.close()
        rows = [
            {
                "network": network.origin,
                **result.to_json(human_normalised=place.normalised(result.mean)),
            }
            for network, result in zip(networks, results, strict=True)
        ]
        about = {
            "environment": place.name,
            "epsilon": self.epsilon,
            "seed": self.seed,
            "sticky": self.sticky if place.is_atari else None,
            "preprocessing": place.preprocessing_name,
        }
        found = json.dumps(about | (rows[0] if len(rows) == 1 else {"networks": rows}))
        if self.json:
            print(found)
        else:
            self._show(place.name, rows, paths)
        if self.keep:
            with replacing(self.checkpoint / EVALUATION, follow=False) as file:
                file.write(f"{found}\n".encode())
            say(f"Next: {shlex.join(['conqur', 'report', str(self.checkpoint)])}")

    def _check_kept(self, networks: "Sequence[Pretrained]") -> None:
        """Refuse to keep what a report, or a study, would take for something else."""
        from conqur.environments.data import is_data
        from conqur.runs.files import Damaged, read_json

        try:
            settings = read_json(self.checkpoint / CONFIG)
        except (Damaged, OSError):
            settings = {}
        if "algorithm" not in settings:
            raise UsageError("--keep is for the folder of a `conqur train` run")
        if self.sticky or self.preprocessing is not None or self.epsilon != EPSILON:
            raise UsageError(
                "--keep is for scores by the rules: leave out --sticky, --preprocessing and "
                "--epsilon"
            )
        trained_in = str(settings.get("environment"))
        if self.env not in (None, trained_in) and not is_data(trained_in):
            raise UsageError("--keep is for scores in the environment of the run's training")
        steps = [network.origin.get("step") for network in networks]
        if any(step is None or step < settings.get("steps", 0) for step in steps):
            raise UsageError("--keep is for a run that is at its end, and this one is not")

    def _show(self, environment: str, rows: list[dict[str, Any]], paths: Sequence[Path]) -> None:
        names = [network_name(row["network"]) for row in rows]
        of_training = len(set(names)) == len(names)
        if not of_training:  # such as the nodes of a search
            names = [printable(path.stem) for path in paths]
        console = Console()
        console.print(_table(environment, names, rows))
        by_weight = _by_weight(rows)
        if of_training and any(len(means) > 1 for means in by_weight.values()):
            console.print(_seeds_table(by_weight))


def _table(environment: str, names: Sequence[str], rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"Scores in {environment}", title_justify="left")
    table.add_column("network")
    human = any(row["human_normalised"] is not None for row in rows)
    interval = "95 % interval over episodes"
    for column in ("episodes", "mean", interval, "median", *["human"] * human):
        table.add_column(column, justify="right")
    for name, row in zip(names, rows, strict=True):
        cells: list[str | Text] = [
            Text(name),  # of a file: no markup
            str(len(row["episodes"])) + ("" if row["finished"] else " (some broken off)"),
            f"{row['mean']:.2f}",
            _interval(row["interval"]),
            f"{row['median']:.2f}",
        ]
        if human:
            cells.append(f"{row['human_normalised']:.0%}")
        table.add_row(*cells)
    return table


def _by_weight(rows: list[dict[str, Any]]) -> dict[float, list[float]]:
    """The means of each λ, one for each seed; nothing where the networks are not such a grid."""
    found: dict[float, dict[int, float]] = {}
    for row in rows:
        weight, seed = (row["network"].get(key) for key in ("penalty_weight", "seed"))
        if not (isinstance(weight, float) and isinstance(seed, int)):  # what files say
            return {}
        found.setdefault(weight, {})[seed] = row["mean"]
    algorithms = {str(row["network"].get("algorithm")) for row in rows}
    if sum(map(len, found.values())) < len(rows) or len(algorithms) > 1:
        return {}
    return {weight: list(means.values()) for weight, means in found.items()}


def _seeds_table(by_weight: dict[float, list[float]]) -> Table:
    """Every λ over its seeds, and against λ = 0."""
    from conqur.statistics import difference, student_interval

    table = Table(title="Over seeds", title_justify="left")
    plain = by_weight.get(0.0)
    lead = ["lead over λ 0", "its 95 % interval"] if plain and len(by_weight) > 1 else []
    for column in ("λ", "seeds", "mean", "95 % interval over seeds", *lead):
        table.add_column(column, justify="right")
    for weight, means in sorted(by_weight.items()):
        mean = sum(means) / len(means)
        cells = [f"{weight:g}", str(len(means)), f"{mean:.2f}", _interval(student_interval(means))]
        if plain and lead and weight:
            ahead = difference(means, plain)
            cells += [f"{ahead.mean:+.2f}", _interval(ahead.interval)]
        table.add_row(*cells)
    return table


def _interval(bounds: Sequence[float | None]) -> str:
    known = [f"{bound:.2f}" for bound in bounds if bound is not None and not math.isnan(bound)]
    return " to ".join(known) or "–"
