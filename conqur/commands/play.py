"""`conqur play`."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from conqur.commands.starting import free_file
from conqur.commands.support import (
    Flag,
    UsageError,
    announcer,
    check_writable,
    named_as_typed,
    network_name,
    option,
    say,
)

OPTIONS = {
    "max_steps": "--steps",
    "path": "--output",
    **{name: f"--{name}" for name in ("fps", "sticky", "preprocessing", "epsilon", "seed")},
}


@dataclass(frozen=True)
class Play:
    """Record a video of a network at play, with its Q-values drawn beside the game.

    Of a run's folder the first network plays. For another, name its file: they are called after
    their penalty weight λ and seed.

    Examples:
      conqur play runs/MinAtar-Breakout-dqn --output breakout.gif
      conqur play runs/MinAtar-Breakout-dqn/networks/weight-0.5-seed-3.safetensors
    """

    checkpoint: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="CHECKPOINT")]
    """A network file, or a run's folder (of several networks, the first)."""
    env: Annotated[str | None, option("ENV", "what the network was trained on")] = None
    """The environment, by a name that `conqur train` takes."""
    output: Annotated[Path | None, option("FILE", "conqur-play.mp4, or the next free name")] = None
    """The video to write: .mp4 or .gif."""
    steps: int = 3000
    """The game is cut after so many steps."""
    fps: int = 30
    """Steps shown in a second."""
    sticky: float = 0.0
    """Atari: the probability that the emulator repeats the last action instead."""
    preprocessing: Annotated[str | None, option("NAME", "that of its training")] = None
    """Atari: how pictures are made, see `conqur train --help`."""
    epsilon: float = 0.001
    """The probability of a random action."""
    seed: int = 0
    """Of the start and of the random actions."""
    json: Flag = False
    """Print what was recorded as one JSON object."""

    def run(self, command: str) -> None:
        """Play one game and write the video."""
        with named_as_typed(OPTIONS):
            self._run()

    def _run(self) -> None:
        from conqur import _checks
        from conqur.pretrained import find_networks, load, together
        from conqur.pretrained.playing import arena
        from conqur.video import record

        output = self.output or free_file("conqur-play.mp4")
        if output.suffix.lower() not in (".gif", ".mp4"):
            raise UsageError(f"--output must end in .mp4 or .gif, got {output}")
        check_writable("--output", output)
        _checks.count("max_steps", self.steps)
        _checks.count("fps", self.fps)
        _checks.number("epsilon", self.epsilon, at_least=0, at_most=1)
        _checks.count("seed", self.seed, at_least=0)
        paths = find_networks(self.checkpoint)
        network = load(paths[0])
        place = arena([network], self.env, sticky=self.sticky, preprocessing=self.preprocessing)
        environment = place.make(1, render=True)
        if len(paths) > 1:
            say(
                f"Filming {network_name(network.origin)}, the first of {len(paths)} networks; "
                f"for another, name its file, such as {paths[-1]}"
            )
        try:
            with announcer() as announce:
                announce(f"playing {place.name}")
                recording = record(
                    together([network]),
                    environment,
                    path=output,
                    max_steps=self.steps,
                    epsilon=self.epsilon,
                    fps=self.fps,
                    seed=self.seed,
                )
        finally:
            environment.close()
        end = "" if recording.finished else " (cut)"
        print(
            f"Score {recording.score:g} in {recording.steps:,} steps{end}, in this one episode. "
            f"Video: {recording.path.resolve()}",
            file=sys.stderr if self.json else sys.stdout,
        )
        if self.json:
            print(
                json.dumps(
                    {
                        "environment": place.name,
                        "finished": recording.finished,
                        "network": network.origin,
                        "score": recording.score,
                        "steps": recording.steps,
                        "video": str(recording.path),
                    }
                )
            )
