"""`conqur diagnose`: is this network's learning delusional?"""

import json
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tyro

from conqur.commands.network_files import one_network
from conqur.commands.starting import free_file, is_code
from conqur.commands.support import (
    Flag,
    UsageError,
    announcer,
    check_writable,
    named_as_typed,
    option,
)


@dataclass(frozen=True)
class Diagnose:
    """Measure how delusional a network's learning is.

    Plain Q-learning goes on for some levels with the network's last layer, on features that the
    frozen rest computes, and every action choice behind every label is kept. Then it is measured
    how many of them the greedy policy breaks, how many any policy could make at most and how many
    the best head that was found makes, how much decisions change from level to level, how little
    noise flips them, and whether the policy earns what the labels promise. A second copy learns
    from the same batches with the consistency penalty, for comparison. All of it is repeated with
    other seeds, for intervals. The page has pictures of it all.

    Of the folder of a `conqur tune` run, the history is read instead (and left as it is): the
    choices that its nodes are committed to, and what the node with the best score makes of them,
    which need not be the node that rollouts chose in the end.

    With d independent features any choices in up to d states hold together: have many more states
    than features (--levels times --transitions).

    Examples:
      conqur diagnose runs/MinAtar-Breakout-dqn/networks/weight-0-seed-0.safetensors
      conqur diagnose pong.safetensors --learning-rate 0.1 --units gap --json
      conqur diagnose runs/tune-MinAtar-Breakout
    """

    checkpoint: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="CHECKPOINT")]
    """A network file, the folder of a run with one network, or that of a tuning run."""
    env: Annotated[str | None, option("ID", "what the network was trained on")] = None
    """The environment, by a name that `conqur train` takes."""
    levels: int = 10
    """How many batches are collected and learned from."""
    transitions: int = 2_000
    """In a level's batch."""
    updates: int = 500
    """Gradient steps in a level."""
    target_every: int = 5
    """Levels between copies to the target head, which labels come from."""
    learning_rate: float = 2.5e-6
    """Step size of RMSProp; the default is the paper's."""
    units: Literal["q", "gap"] = "q"
    """Of the learning rate: as it is, or in action gaps."""
    penalty_weight: Annotated[float, option("λ", "1")] = 1.0
    """Weight of the consistency penalty, for the second copy."""
    discount: Annotated[float | None, option("FLOAT", "that of its training, or 0.99")] = None
    """What a reward is worth one step later."""
    epsilon: float = 0.01
    """Exploration while collecting."""
    episodes: int = 32
    """That each head plays, to see what it earns, in each repetition."""
    num_envs: int = 16
    """Environments stepped together."""
    seeds: int = 3
    """How often all of it is repeated, each time with the next seed."""
    seed: int = 0
    """Of everything random."""
    output: Annotated[
        Path | None, option("FILE", "conqur-diagnosis.html, or the next free name")
    ] = None
    """The page to write (HTML, self-contained)."""
    json: Flag = False
    """Print all that was measured as one JSON object."""

    def run(self, command: str) -> None:
        """Measure, write the page, and say what was found."""
        from conqur._files import replacing
        from conqur.diagnosis import is_tune_run

        output = self.output or free_file("conqur-diagnosis.html")
        check_writable("--output", output, keep=[self.checkpoint])
        started = time.monotonic()
        with named_as_typed(OPTIONS):
            told = self._of_run(command) if is_tune_run(self.checkpoint) else self._told(command)
        with replacing(output) as file:
            file.write(told.page.encode())
        if self.json:
            print(json.dumps(told.values | {"page": str(output), "summary": told.summary}))
            return
        print(f"{told.headline}.\n\n{told.summary}\n")
        print(f"Took {time.monotonic() - started:.0f} s. Page: {output.resolve()}")

    def _told(self, command: str) -> "_Told":
        """Of a network."""
        from conqur.diagnosis import DiagnosisConfig, diagnose
        from conqur.diagnosis.words import headline, summary
        from conqur.report.diagnosis_page import render

        names = {field.name for field in fields(DiagnosisConfig)}
        network = one_network(self.checkpoint, self.env)[1]
        values = {"discount": network.discount} | {
            name: value for name, value in vars(self).items() if name in names and value is not None
        }
        config = DiagnosisConfig(**{n: value for n, value in values.items() if value is not None})
        with announcer() as announce:
            found = diagnose(network, config, environment=self.env, announce=announce)
        return _Told(found.to_json(), headline(found), summary(found), render(found, command))

    def _of_run(self, command: str) -> "_Told":
        """Of a tuning run."""
        from conqur import _checks
        from conqur.diagnosis import diagnose_run, read_run
        from conqur.diagnosis.run_words import run_headline, run_summary
        from conqur.report.history_page import render_run

        _checks.count("episodes", self.episodes)
        _checks.count("seed", self.seed, at_least=0)
        for field in fields(self):
            if field.name in LEARNING and getattr(self, field.name) != field.default:
                raise UsageError(
                    f"leave out {OPTIONS[field.name]}: {self.checkpoint} is a tuning run, whose "
                    "history is read; nothing is learned"
                )
        run = read_run(self.checkpoint)
        if self.env is None and is_code(run.config.environment):
            raise UsageError(
                f"the run is of {run.config.environment!r}, which is code to be loaded: if you "
                "trust it, name it with --env"
            )
        with announcer() as announce:
            found = diagnose_run(
                run,
                environment=self.env,
                episodes=self.episodes,
                seed=self.seed,
                announce=announce,
            )
        page = render_run(found, command)
        return _Told(found.to_json(), run_headline(found), run_summary(found), page)


class _Told(NamedTuple):
    """What was found, in all the ways it is told."""

    values: dict[str, Any]
    headline: str
    summary: str
    page: str


LEARNING = (
    *("levels", "transitions", "updates", "target_every", "learning_rate", "units"),
    *("penalty_weight", "discount", "epsilon", "num_envs", "seeds"),
)
"""Settings of learning that is continued."""
OPTIONS: dict[str, Any] = {
    field.name: "--" + field.name.replace("_", "-") for field in fields(Diagnose)
} | {"checkpoint": "CHECKPOINT"}
"""What is typed for a setting."""
