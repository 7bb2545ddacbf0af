"""`conqur diagnose`: is this network's learning delusional?"""

import json
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from conqur.commands.support import (
    Flag,
    UsageError,
    announcer,
    check_writable,
    named_as_typed,
    option,
)

if TYPE_CHECKING:
    from conqur.diagnosis import Diagnosis
    from conqur.pretrained import Pretrained


@dataclass(frozen=True)
class Diagnose:
    """Measure how delusional a network's learning is.

    Plain Q-learning goes on for some levels with the network's last layer, on features that the
    frozen rest computes, and every action choice behind every label is kept. Then it is measured
    how many of them the greedy policy breaks, how many one head could make together at most, how
    much decisions change from level to level, how little noise flips them, and whether the policy
    earns what the labels promise. A second copy learns from the same batches with the consistency
    penalty, for comparison. The page has pictures of it all.

    With d independent features any choices in up to d states hold together: have many more states
    than features (--levels times --transitions).

    Examples:
      conqur diagnose runs/MinAtar-Breakout-dqn/networks/weight-0-seed-0.safetensors
      conqur diagnose pong.safetensors --learning-rate 0.1 --units gap --json
    """

    checkpoint: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="CHECKPOINT")]
    """A network file, or the folder of a run with one network."""
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
    discount: float = 0.99
    """What a reward is worth one step later."""
    epsilon: float = 0.01
    """Exploration while collecting."""
    episodes: int = 64
    """That each head plays, to see what it earns."""
    num_envs: int = 16
    """Environments stepped together."""
    seed: int = 0
    """Of everything random."""
    output: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("conqur-diagnosis.html")
    """The page to write (HTML, self-contained)."""
    json: Flag = False
    """Print all that was measured as one JSON object."""

    def run(self, command: str) -> None:
        """Measure, write the page, and say what was found."""
        check_writable("--output", self.output)
        started = time.monotonic()
        with named_as_typed(OPTIONS):
            found = self._diagnosed()
        self._write(found, command)
        if self.json:
            from conqur.diagnosis.words import summary

            page = {"page": str(self.output), "summary": summary(found)}
            print(json.dumps(found.to_json() | page))
            return
        print(_words(found))
        print(f"Took {time.monotonic() - started:.0f} s. Page: {self.output.resolve()}")

    def _diagnosed(self) -> "Diagnosis":
        from conqur.diagnosis import diagnose
        from conqur.diagnosis.learning import DiagnosisConfig

        names = {field.name for field in fields(DiagnosisConfig)}
        given = {name: value for name, value in vars(self).items() if name in names}
        config = DiagnosisConfig(**given)
        network = self._network()
        with announcer() as announce:
            return diagnose(network, config, environment=self.env, announce=announce)

    def _network(self) -> "Pretrained":
        from conqur.pretrained import find_networks, load

        found = find_networks(self.checkpoint)
        if len(found) > 1:
            raise UsageError(
                f"{self.checkpoint} holds {len(found)} networks; name one of them, such as "
                f"{found[0]}"
            )
        return load(found[0])

    def _write(self, found: "Diagnosis", command: str) -> None:
        from conqur._files import replacing
        from conqur.report.diagnosis_page import render

        with replacing(self.output) as file:
            file.write(render(found, command).encode())


OPTIONS: dict[str, Any] = {
    field.name: "--" + field.name.replace("_", "-") for field in fields(Diagnose)
} | {"checkpoint": "CHECKPOINT"}
"""What is typed for a setting."""


def _words(found: "Diagnosis") -> str:
    from conqur.diagnosis.words import headline, summary

    return f"{headline(found)}.\n\n{summary(found)}\n"
