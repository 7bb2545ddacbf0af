"""`conqur train`."""

import contextlib
import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from conqur.commands.starting import free_folder, header, is_code, other_folder
from conqur.commands.support import Flag, UsageError, as_typed, named_as_typed, option, say, warn

if TYPE_CHECKING:
    from conqur.config import TrainConfig
    from conqur.training import Trainer
    from conqur.training_run import Outcome

SETTINGS = (
    *("environment", "algorithm", "steps", "num_envs", "preprocessing", "optimizer"),
    *("learning_rate", "loss", "discount", "batch_size", "replay_size", "learning_starts"),
    *("update_every", "target_every", "epsilon_final", "epsilon_steps", "anneal_halfway"),
    "log_every",
)
"""Settings of a run that have an option of the same name."""

OPTIONS = {name: "--" + name.replace("_", "-") for name in SETTINGS} | {
    "environment": "ENV",
    "penalty_weights": "--penalty-weight",
    "seeds": "--seed",
    "network": "the --preset's network",
}
"""What is typed for a setting."""

MOST_SEEDS = 10_000


@dataclass(frozen=True)
class Train:
    """Train DQN(λ) or DDQN(λ): deep Q-learning with the consistency penalty, from scratch.

    ENV is an Atari game (ALE/Pong-v5), a MinAtar game (MinAtar/Breakout), a Gymnasium id
    (CartPole-v1), jax:module:attribute for an environment written in JAX, or a data set (.npz,
    .safetensors, minari:NAME). All seeds and penalty weights train together, each network with
    environments and a replay of its own; on MinAtar and other JAX environments the whole run is
    one compiled program.

    The run's folder holds its settings, log, checkpoints and networks. A run that was stopped or
    killed goes on with `conqur train --resume --run-dir DIR` and ends exactly as if it had not
    been. Ctrl-C and SIGTERM save first. Progress shows the mean return of the latest episodes and
    the latest loss, both averaged over all networks; the log has them of each.

    What no option says is as in --preset (with a data set: control with num-envs 64, update-every
    1 and learning-starts 0). Of the preprocessings, dopamine is what Dopamine and TF-Agents train
    with (sticky actions), conqur what the paper searches and evaluates with (no-op starts). Whole
    numbers may be written as 500000, 5e5, 500k or 0.5M.

    Presets            tf-agents, dopamine   nature     minatar   control
      steps            50M                   50M        5M        500k
      num-envs         64                    64         64        4
      preprocessing    dopamine              nature     -         -
      optimizer        rmsprop               rmsprop    adam      adam
      learning-rate    0.00025               0.00025    0.00025   0.00025
      loss             huber                 huber      huber     squared
      discount         0.99                  0.99       0.99      0.99
      batch-size       32                    32         32        128
      replay-size      1M                    1M         100k      10k
      learning-starts  20k                   50k        1k        10k
      update-every     4                     4          4         8
      target-every     2k                    10k        1k        64
      epsilon-final    0.01                  0.1        0.01      0.05
      epsilon-steps    250k                  1M         250k      240k
      anneal-halfway   2e6                   2e6        2e6       2e4
      log-every        50k                   50k        50k       5k

    Examples:
      conqur train CartPole-v1 --steps 50k --run-dir runs/first-try
      conqur train CartPole-v1 --seeds 5
      conqur train MinAtar/Breakout --penalty-weight 0 0.5 --seeds 10
      conqur train ALE/Pong-v5 --algorithm ddqn --penalty-weight 0.5
      conqur train --resume --run-dir runs/CartPole-v1-dqn --steps 1M
    """

    environment: Annotated[
        tyro.conf.Positional[str | None], option("[ENV]", "with --resume, that of the run")
    ] = None
    """What to learn."""
    algorithm: Annotated[Literal["dqn", "ddqn"] | None, option("{dqn,ddqn}", "dqn")] = None
    """ddqn is Double DQN, with a buffer of its recent choices for the penalty."""
    penalty_weight: Annotated[tuple[float, ...], option("λ [λ ...]", "0")] = ()
    """Weight of the consistency penalty; of several, each is trained. 0 is plain DQN or DDQN."""
    steps: Annotated[int | None, option("INT")] = None
    """Steps of the agent, summed over its environments (in Atari, each is four frames)."""
    seeds: Annotated[int | None, option("INT", "1")] = None
    """How many seeds to train: --seed, --seed + 1, ..."""
    seed: Annotated[int | None, option("INT", "0")] = None
    """The first seed."""
    preset: Annotated[
        Literal["tf-agents", "dopamine", "nature", "minatar", "control"] | None,
        option("NAME", "tf-agents for Atari, minatar for MinAtar, else control"),
    ] = None
    """tf-agents, dopamine (its network pads pictures), nature, minatar or control, see above."""
    run_dir: Annotated[Path | None, option("DIR", "runs/ENV-ALGORITHM")] = None
    """The run's folder."""
    resume: Flag = False
    """Go on with the run in --run-dir. Of its settings, only --steps may be changed."""
    learning_rate: Annotated[float | None, option("FLOAT")] = None
    """Step size of the optimizer."""
    optimizer: Annotated[Literal["rmsprop", "adam"] | None, option("{rmsprop,adam}")] = None
    """rmsprop is centred, as TF1 computes it."""
    loss: Annotated[Literal["huber", "squared"] | None, option("{huber,squared}")] = None
    """Of the Bellman error."""
    discount: Annotated[float | None, option("FLOAT")] = None
    """What a reward is worth one step later."""
    batch_size: Annotated[int | None, option("INT")] = None
    """Transitions in an update."""
    replay_size: Annotated[int | None, option("INT")] = None
    """Transitions each network remembers, in the accelerator's memory."""
    learning_starts: Annotated[int | None, option("INT")] = None
    """Steps with random actions before the first update; on a data set there are none."""
    update_every: Annotated[int | None, option("INT")] = None
    """Steps between updates."""
    target_every: Annotated[int | None, option("INT")] = None
    """Updates between copies to the target network."""
    epsilon_final: Annotated[float | None, option("FLOAT")] = None
    """Where ε-greedy exploration ends."""
    epsilon_steps: Annotated[int | None, option("INT")] = None
    """How many steps it takes to get there."""
    anneal_halfway: Annotated[float | None, option("FLOAT")] = None
    """Updates until half of the penalty weight is reached."""
    num_envs: Annotated[int | None, option("INT")] = None
    """Environments stepped together, for each network."""
    preprocessing: Annotated[str | None, option("NAME")] = None
    """Of Atari games: dopamine, conqur, nature, sb3, cleanrl or dqn_zoo, see above."""
    log_every: Annotated[int | None, option("INT")] = None
    """Steps between rows of the log."""
    save_every: Annotated[float, option("SECONDS", "300")] = 300.0
    """Time between checkpoints; when they are taken has no influence on results."""
    json: Flag = False
    """Show no progress, and print what came out as one JSON object."""

    def run(self, command: str) -> None:
        """Train, and say where things are."""
        if not self.save_every > 0:
            raise UsageError(f"--save-every must be above 0 seconds, got {self.save_every:g}")
        folder, config, outcome = self._go_on(command) if self.resume else self._start(command)
        self._report(config, folder, outcome)
        if outcome.stopped_by is not None:
            raise SystemExit(128 + outcome.stopped_by)  # as shells count it

    def check(self) -> None:
        """Refuse settings that make no training."""
        with named_as_typed(OPTIONS):
            self._config()

    def _start(self, command: str) -> tuple[Path, "TrainConfig", "Outcome"]:
        from conqur.runs import RunDirectory

        with named_as_typed(OPTIONS):
            config = self._config()
        with _trainer(config) as trainer:  # before anything is written: it may refuse
            free, before = free_folder(f"{config.environment}-{config.algorithm}")
            folder = self.run_dir or free
            try:
                created = RunDirectory.create(
                    folder,
                    config.to_json(),
                    seeds=config.seeds,
                    command=command,
                    data=trainer.data_digest,
                    warn=warn,
                )
            except OSError as error:
                raise UsageError(f"--run-dir {folder} cannot be made: {error.strerror}") from error
            with created as run:
                if not self.json:
                    if self.run_dir is None and before is not None:
                        say(other_folder("train", before, folder))
                    self._say_which_game(config)
                    say(header(config, f"preset {self._preset()[0]}", folder))
                _warn_of_shortness(config)
                outcome = self._trained(trainer, run, None)
        return folder, config, outcome

    def _trained(self, trainer: "Trainer", run: Any, checkpoint: Any) -> "Outcome":
        from conqur.training_run import run_training

        try:
            return run_training(trainer, run, checkpoint, warn=warn, **self._how_to_run())
        except KeyboardInterrupt:  # the second one, or one while programs are compiled
            resume = _resume(trainer.config, run.path)
            if run.last_step is None:
                say(f"Nothing was saved yet. Begin again in its folder with: {resume}")
            else:
                say(f"Step {run.last_step:,} was saved last. Go on with: {resume}")
            raise

    def _go_on(self, command: str) -> tuple[Path, "TrainConfig", "Outcome"]:
        from conqur.runs import RunDirectory, RunError
        from conqur.training import HostTrainer

        if self.run_dir is None:
            raise UsageError("--resume needs --run-dir: which run is to go on?")
        if self.preset is not None:
            raise UsageError("leave out --preset with --resume: the run has its settings")
        with RunDirectory.open(self.run_dir, warn=warn) as run:
            with named_as_typed(OPTIONS):
                config = self._resumed(run.config)
            self._check_going_on(config, run.last_step or 0)
            with _trainer(config) as trainer:
                try:
                    checkpoint = run.resume(
                        config.to_json(),
                        may_change={"steps"},
                        command=command,
                        data=trainer.data_digest,
                    )
                except RunError as error:
                    raise RunError(as_typed(str(error), OPTIONS)) from None
                if not self.json:
                    say(header(config, "settings of the run", self.run_dir))
                    if (run.last_step or 0) >= config.steps:
                        say("The run has all its steps: --steps with a larger number goes on.")
                    elif isinstance(trainer, HostTrainer):
                        say("Games are first played again up to where they were.")
                outcome = self._trained(trainer, run, checkpoint)
        return self.run_dir, config, outcome

    def _say_which_game(self, config: "TrainConfig") -> None:
        """Some names are those of two games."""
        from conqur.environments.making import MINATAR

        wanted = f"minatar/{self.environment}".lower()
        other = next((name for name in MINATAR if name.lower() == wanted), None)
        if other is not None:
            say(f"{self.environment} is {config.environment} here; MinAtar's is {other}.")

    def _how_to_run(self) -> dict[str, Any]:
        return {"quiet": self.json, "save_every": self.save_every}

    def _given(self) -> dict[str, Any]:
        """The settings that were given, and None for those that were not."""
        from conqur.environments.atari import full_name
        from conqur.environments.data import is_data

        given = {name: getattr(self, name) for name in SETTINGS}
        if self.environment is not None and not is_data(self.environment):
            given["environment"] = full_name(self.environment)
        first = None if self.seed is None and self.seeds is None else self.seed or 0
        given["seeds"] = None if first is None else tuple(range(first, first + (self.seeds or 1)))
        given["penalty_weights"] = self.penalty_weight or None
        return given

    def _preset(self) -> tuple[str, dict[str, Any]]:
        """The preset's name, and what its environment changes in it."""
        from conqur.config import default_preset

        name, changes = default_preset(self.environment or "")
        return self.preset or name, changes

    def _config(self) -> "TrainConfig":
        from conqur.config import train_config

        if self.environment is None:
            raise UsageError("name what to learn: conqur train ENV (see conqur train --help)")
        self._check_seeds()
        preset, changes = self._preset()
        given = {name: value for name, value in self._given().items() if value is not None}
        basis = {"algorithm": "dqn", "penalty_weights": (0.0,), "seeds": (0,)}
        return train_config(preset, **basis | changes | given)

    def _resumed(self, saved: dict[str, Any]) -> "TrainConfig":
        from conqur.config import TrainConfig

        self._check_seeds()
        given = {name: value for name, value in self._given().items() if value is not None}
        return replace(TrainConfig.from_json(saved), **given)

    def _check_going_on(self, config: "TrainConfig", done: int) -> None:
        """Refuse code that only the run's folder speaks of, and an end that lies behind."""
        if self.environment is None and is_code(config.environment):
            raise UsageError(
                f"the run is of {config.environment!r}, which is code to be loaded: if you trust "
                "it, name it as in conqur train ENV --resume"
            )
        if done - config.num_envs >= config.steps:  # the last step is one of all environments
            raise UsageError(
                f"--steps {config.steps} is less than the {done} that the run has done: ask for "
                "more, or name another --run-dir"
            )

    def _check_seeds(self) -> None:
        """Refuse numbers of seeds before there are so many of them."""
        if self.seeds is not None and not 1 <= self.seeds <= MOST_SEEDS:
            raise UsageError(f"--seeds must be between 1 and {MOST_SEEDS:,}, got {self.seeds}")

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
        if outcome.finished:
            line = (
                f"Trained {outcome.step:,} steps. Networks: {folder / 'networks'}. "
                f"Next: {shlex.join(['conqur', 'evaluate', str(folder)])}"
            )
        else:
            resume = _resume(config, folder)
            line = f"Stopped at step {outcome.step:,}; all is saved. Go on with: {resume}"
        print(line, file=sys.stderr if self.json else sys.stdout)


def _resume(config: "TrainConfig", folder: Path) -> str:
    """What is typed to go on with a run."""
    named = [config.environment] if is_code(config.environment) else []
    return shlex.join(["conqur", "train", *named, "--resume", "--run-dir", str(folder)])


@contextlib.contextmanager
def _trainer(config: "TrainConfig") -> Iterator["Trainer"]:
    from conqur.training_run import make_trainer

    with named_as_typed(OPTIONS):
        trainer = make_trainer(config)
    with contextlib.closing(trainer):
        yield trainer


def _warn_of_shortness(config: "TrainConfig") -> None:
    from conqur.environments.data import is_data

    if config.steps <= config.learning_starts and not is_data(config.environment):
        warn(
            f"nothing will be learned: --steps ({config.steps}) ends before --learning-starts "
            f"({config.learning_starts})"
        )
    if config.steps < config.log_every:
        warn(
            f"nothing will be logged: --steps ({config.steps}) ends before --log-every "
            f"({config.log_every})"
        )
