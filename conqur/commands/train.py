"""`conqur train`."""

import json
import re
import shlex
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console

from conqur.commands.support import UsageError, warn

if TYPE_CHECKING:
    from conqur.config import TrainConfig
    from conqur.training_run import Outcome

SETTINGS = (
    *("environment", "algorithm", "steps", "num_envs", "preprocessing", "optimizer"),
    *("learning_rate", "loss", "discount", "batch_size", "replay_size", "learning_starts"),
    *("update_every", "target_every", "epsilon_final", "epsilon_steps", "anneal_halfway"),
    "log_every",
)


@dataclass(frozen=True)
class Train:
    """Train DQN(λ) or DDQN(λ): deep Q-learning with the consistency penalty, from scratch.

    ENV is an Atari game (ALE/Pong-v5), a MinAtar game (MinAtar/Breakout), a Gymnasium id
    (CartPole-v1), jax:module:attribute for an environment written in JAX, or a data set (.npz,
    .safetensors, minari:NAME). All seeds and penalty weights train together; on MinAtar and other
    JAX environments the whole run is one compiled program.

    The run's folder holds its settings, log, checkpoints and networks. A run that was stopped or
    killed goes on with `conqur train --resume --run-dir DIR` and ends exactly as if it had not
    been.

    Examples:
      conqur train CartPole-v1 --seeds 5
      conqur train MinAtar/Breakout --penalty-weight 0 0.5 --seeds 10
      conqur train ALE/Pong-v5 --algorithm ddqn --penalty-weight 0.5
    """

    environment: Annotated[tyro.conf.Positional[str | None], tyro.conf.arg(metavar="ENV")] = None
    """What to learn; with --resume, that of the run."""
    algorithm: Literal["dqn", "ddqn"] | None = None
    """dqn (default) or ddqn."""
    penalty_weight: Annotated[tuple[float, ...], tyro.conf.arg(metavar="λ ...")] = ()
    """Weight of the consistency penalty, one or several; 0 (default) is plain DQN or DDQN."""
    preset: Literal["tf-agents", "dopamine", "nature", "minatar", "control"] | None = None
    """All settings that are not given: tf-agents for Atari, minatar for MinAtar, else control."""
    steps: int | None = None
    """Steps of the agent, summed over its environments (four frames each in Atari)."""
    seed: int | None = None
    """The first seed (default 0)."""
    seeds: int | None = None
    """How many seeds (default 1): seed, seed + 1, ..."""
    run_dir: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """The run's folder; runs/ENV-ALGORITHM if not given."""
    resume: bool = False
    """Go on with the run in --run-dir. Only --steps may be changed."""
    num_envs: int | None = None
    """Environments stepped together, for each network."""
    preprocessing: str | None = None
    """Of Atari games: paper, dopamine, nature, sb3, cleanrl or dqn_zoo."""
    optimizer: Literal["rmsprop", "adam"] | None = None
    """rmsprop is centred, as TF1 computes it."""
    learning_rate: float | None = None
    loss: Literal["huber", "squared"] | None = None
    discount: float | None = None
    batch_size: int | None = None
    replay_size: int | None = None
    """Transitions remembered; at most as many as fit into the accelerator's memory."""
    learning_starts: int | None = None
    """Steps with random actions before the first update."""
    update_every: int | None = None
    """Steps between updates."""
    target_every: int | None = None
    """Updates between copies to the target network."""
    epsilon_final: float | None = None
    """Where ε-greedy exploration ends."""
    epsilon_steps: int | None = None
    """How many steps it takes to get there."""
    anneal_halfway: float | None = None
    """Updates after which half of the penalty weight is reached."""
    log_every: int | None = None
    """Steps between rows of the log."""
    save_every: float = 300.0
    """Seconds between checkpoints; they have no influence on results."""
    json: bool = False
    """Show no progress, and print what came out as one JSON object."""

    def run(self, command: str) -> None:
        """Train, and say where things are."""
        from conqur.runs import RunDirectory
        from conqur.training_run import make_trainer, run_training

        if self.save_every <= 0:
            raise UsageError(f"--save-every must be above 0 seconds, got {self.save_every:g}")
        if self.resume:
            if self.run_dir is None:
                raise UsageError("--resume needs --run-dir: which run is to go on?")
            with RunDirectory.open(self.run_dir, warn=warn) as run:
                config = self._resumed(run.config)
                trainer = make_trainer(config)
                checkpoint = run.resume(config.to_json(), may_change={"steps"}, command=command)
                outcome = run_training(
                    config, trainer, run, checkpoint, warn=warn, **self._how_to_run()
                )
        else:
            config = self._config()
            trainer = make_trainer(config)  # before anything is written: it may refuse
            folder = self.run_dir or _free_folder(config)
            seeds = config.seeds
            with RunDirectory.create(
                folder, config.to_json(), seeds=seeds, command=command, warn=warn
            ) as run:
                outcome = run_training(config, trainer, run, None, warn=warn, **self._how_to_run())
        trainer.close()
        self._report(config, run.path, outcome)

    def _how_to_run(self) -> dict[str, Any]:
        return {"quiet": self.json, "save_every": self.save_every}

    def _given(self) -> dict[str, Any]:
        """The settings that were given, and None for those that were not."""
        given = {name: getattr(self, name) for name in SETTINGS}
        first = None if self.seed is None and self.seeds is None else self.seed or 0
        given["seeds"] = None if first is None else tuple(range(first, first + (self.seeds or 1)))
        given["penalty_weights"] = self.penalty_weight or None
        return given

    def _config(self) -> "TrainConfig":
        from conqur.config import train_config
        from conqur.training_run import default_preset

        if self.environment is None:
            raise UsageError("name what to learn: conqur train ENV (see conqur train --help)")
        if self.seeds is not None and self.seeds < 1:
            raise UsageError(f"--seeds must be at least 1, got {self.seeds}")
        preset, changes = default_preset(self.environment)
        given = {name: value for name, value in self._given().items() if value is not None}
        basis = {"algorithm": "dqn", "penalty_weights": (0.0,), "seeds": (0,)}
        return train_config(self.preset or preset, **basis | changes | given)

    def _resumed(self, saved: dict[str, Any]) -> "TrainConfig":
        from conqur.config import TrainConfig

        if self.preset is not None:
            raise UsageError("leave out --preset with --resume: the run has its settings")
        given = {name: value for name, value in self._given().items() if value is not None}
        return TrainConfig.from_json(saved | given)

    def _report(self, config: "TrainConfig", folder: Path, outcome: "Outcome") -> None:
        if self.json:
            members = [
                {"penalty_weight": weight, "seed": seed, "return": value}
                for (weight, seed), value in zip(config.members, outcome.returns, strict=True)
            ]
            print(
                json.dumps(
                    {
                        "finished": outcome.finished,
                        "members": members,
                        "run_dir": str(folder),
                        "step": outcome.step,
                    }
                )
            )
        console = Console(stderr=self.json)
        if not outcome.finished:
            resume = shlex.join(["conqur", "train", "--resume", "--run-dir", str(folder)])
            console.print(
                f"Stopped at step {outcome.step:,}; all is saved. Go on with: {resume}",
                soft_wrap=True,
            )
            return
        console.print(
            f"Trained {outcome.step:,} steps. Networks: {folder / 'networks'}. Next: "
            f"{shlex.join(['conqur', 'evaluate', str(folder)])}",
            soft_wrap=True,
        )


def _free_folder(config: "TrainConfig") -> Path:
    stem = re.sub(r"[^\w.-]+", "-", f"{config.environment}-{config.algorithm}").strip("-")
    names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
    return next(path for path in (Path("runs") / name for name in names) if not path.exists())
