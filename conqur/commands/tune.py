"""`conqur tune`: search for a better last layer of a trained network."""

import contextlib
import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from conqur.commands.network_files import one_network
from conqur.commands.starting import free_folder, is_code, other_folder
from conqur.commands.support import (
    Flag,
    UsageError,
    as_typed,
    named_as_typed,
    option,
    say,
    say_how_it_sees,
    warn,
)
from conqur.pretrained.bundle import DEFAULT

if TYPE_CHECKING:
    from conqur.pretrained import Pretrained
    from conqur.search.config import TuneConfig
    from conqur.tuning import Tuning
    from conqur.tuning_run import Found

SETTINGS = (
    *("search", "levels", "transitions", "updates", "batch_size", "nodes", "splitting_factor"),
    *("expanded", "pool", "dive_levels", "calibration", "penalty_weight", "over_actions"),
    *("margin", "buffer", "pairs", "minibatches", "children", "perturbation", "temperature"),
    *("boltzmann_every", "target_every", "units", "learning_rate", "refit", "proximal", "data"),
    *("discount", "epsilon", "scoring", "rollout_episodes", "evaluate_every"),
    *("evaluation_episodes", "final_episodes", "num_envs", "seed"),
)
"""Settings of a run that have an option of the same name."""

OPTIONS = {name: "--" + name.replace("_", "-") for name in SETTINGS} | {
    "environment": "--env",
    "approximator": "--whole-network",
    "backtracking": "--no-backtracking",
    "adapt_temperature": "--fixed-temperature",
    "checkpoint": "CHECKPOINT",
}
"""What is typed for a setting."""

Word = Annotated[str | None, option("NAME")]
Whole = Annotated[int | None, option("INT")]
Number = Annotated[float | None, option("FLOAT")]


@dataclass(frozen=True)
class Tune:
    """Search for a better last layer of a trained network, by ConQUR or by random perturbation.

    With --preset paper-16 or paper-8 this is ConQUR's beam search (Algorithm 2): many copies of the
    last layer are trained side by side on features that the frozen rest of the network computes
    once per state. Each has its own action assignments behind its labels, and is kept to them by
    the consistency penalty; the best are expanded, others are come back to. With quick (the
    default) and tuned nothing is learned: copies of the last layer are perturbed at random, and
    rollouts on common starts decide which are kept.

    At the end nodes play against the checkpoint on common fresh starts, and
    networks/best.safetensors in the run's folder is the best one, or the checkpoint itself if none
    is better beyond chance. A network of another tool is also written back in its format:
    networks/best.zip for Stable-Baselines3. Play is by the rules of `conqur evaluate`: in Atari
    games no sticky actions, whatever the network was trained with.

    What no option says is as in --preset; in Atari games, which are long, quick and tuned have
    fewer levels and play fewer episodes (3 levels, 4 episodes of each node; 6 and 8). A run that
    was stopped or killed goes on with `conqur tune --resume --run-dir DIR`. Ctrl-C and SIGTERM save
    first.

    Presets               quick      tuned      paper-16    paper-8
      levels              6          8          100         100
      transitions         2000       2000       10000       10000
      nodes               16         16         16          8
      splitting-factor    4          4          4           2
      expanded            4          4          4           2
      pool                46         46         46          38
      dive-levels         0          0          9           9
      children            random     random     boltzmann   boltzmann
      perturbation        0.3        0.3        1.0         1.0
      target-every        1          1          5           5
      updates             0          0          2500        2500
      learning-rate       0.01       0.01       2.5e-6      2.5e-6
      penalty-weight      0          0          10          10
      units               gap        gap        q           q
      buffer              all        all        all         all
      pairs               32         32         32          32
      batch-size          32         32         32          32
      temperature         1.0        1.0        1.0         1.0
      scoring             rollouts   rollouts   loss        loss
      rollout-episodes    16         32         8           8
      evaluation-episodes 0          0          8           8
      final-episodes      64         200        64          64
      num-envs            16         16         16          16

    Without arguments it tunes one of the networks that come with conqur (a minute or two on two
    cores); `conqur inspect` lists them.

    Examples:
      conqur tune
      conqur tune bundled:Krull
      conqur tune runs/MinAtar-Breakout-dqn/networks/weight-0-seed-0.safetensors
      conqur tune CartPole-v1.zip --env CartPole-v1
      conqur tune NETWORK --preset paper-16 --penalty-weight 1
      conqur tune NETWORK --preset paper-16 --search independent --penalty-weight 0
      conqur tune --env CartPole-v1 --whole-network --preset paper-8
    """

    checkpoint: Annotated[tyro.conf.Positional[Path | None], option("[CHECKPOINT]", DEFAULT)] = None
    """The network to tune, in any format that `conqur inspect --help` names."""
    env: Annotated[str | None, option("ID", "what the network was trained on")] = None
    """The environment, or a data set (.npz, .safetensors, minari:NAME)."""
    preset: Annotated[
        Literal["quick", "tuned", "paper-16", "paper-8"] | None, option("NAME", "quick")
    ] = None
    """quick (minutes on two cores), tuned, paper-16 or paper-8 (the paper's tables)."""
    levels: Whole = None
    """T: how many batches are collected and learned from."""
    transitions: Whole = None
    """In a level's batch."""
    updates: Whole = None
    """Gradient steps in a level."""
    nodes: Whole = None
    """F: the most nodes that are trained in a level."""
    splitting_factor: Whole = None
    """c: children of an expanded node."""
    expanded: Whole = None
    """l: nodes that are expanded."""
    pool: Whole = None
    """m: the most leaves that are kept."""
    dive_levels: Whole = None
    """d: levels between expansions."""
    search: Annotated[
        Literal["beam", "best-first", "depth-first", "local", "independent"] | None, option("NAME")
    ] = None
    """beam is Algorithm 2; independent is the paper's multi-DQN (set --penalty-weight 0)."""
    penalty_weight: Annotated[float | None, option("λ")] = None
    """Weight of the consistency penalty."""
    children: Annotated[Literal["boltzmann", "strict", "random"] | None, option("NAME")] = None
    """How expansions differ: sampled assignments, or random perturbations (the control)."""
    scoring: Word = None
    """loss, training-loss, bellman, label, initial-label or rollouts."""
    units: Annotated[Literal["q", "gap"] | None, option("{q,gap}")] = None
    """Of learning rate, margin, λ and temperature: as they are, or in action gaps."""
    learning_rate: Number = None
    """Step size of RMSProp."""
    temperature: Number = None
    """τ of the Boltzmann assignments."""
    fixed_temperature: Flag = False
    """Do not adapt τ to each state."""
    margin: Number = None
    """Hinge margin of the penalty."""
    over_actions: Annotated[Literal["mean", "sum"] | None, option("{mean,sum}")] = None
    """How a pair's penalty is taken over actions."""
    buffer: Word = None
    """Choices that are penalised: all, window:LEVELS, decay:RATE, subsample:P, widening:P."""
    pairs: Whole = None
    """Of the consistency buffer in a gradient step."""
    batch_size: Whole = None
    """Transitions in a gradient step."""
    minibatches: Annotated[Literal["own", "shared"] | None, option("{own,shared}")] = None
    """Each node draws its own, or all take the same: faster, but more alike."""
    data: Annotated[Literal["newest", "replay"] | None, option("{newest,replay}")] = None
    """Learn from the newest batch, or from all so far."""
    refit: Annotated[Literal["sgd", "lbfgs"] | None, option("{sgd,lbfgs}")] = None
    """lbfgs: --updates quasi-Newton steps on the whole batch."""
    proximal: Number = None
    """Weight of a term that holds heads near the checkpoint's."""
    perturbation: Number = None
    """Of random children: change of Q-values, in action gaps."""
    boltzmann_every: Whole = None
    """Levels; then dives sample, too."""
    target_every: Whole = None
    """Levels between copies to the target regressors."""
    calibration: Number = None
    """How much of the frontier's progress is credited to leaves that wait."""
    no_backtracking: Flag = False
    """Forget leaves that left the frontier."""
    discount: Number = None
    """What a reward is worth one step later; by default that of the network's training."""
    epsilon: Number = None
    """Exploration while collecting."""
    rollout_episodes: Whole = None
    """Of every node in a level, with --scoring rollouts."""
    evaluate_every: Whole = None
    """Levels between evaluations of the frontier."""
    evaluation_episodes: Whole = None
    """Of every node in an evaluation; 0: none."""
    final_episodes: Whole = None
    """With which the chosen node is compared to the checkpoint."""
    num_envs: Whole = None
    """Environments stepped together."""
    whole_network: Flag = False
    """Search over whole networks, not last layers; without CHECKPOINT, from scratch."""
    seed: Whole = None
    """Of everything random."""
    run_dir: Annotated[Path | None, option("DIR", "runs/tune-ENV")] = None
    """The run's folder."""
    resume: Flag = False
    """Go on with the run in --run-dir."""
    save_every: Annotated[float, option("SECONDS", "120")] = 120.0
    """Time between checkpoints; when they are taken has no influence on results."""
    json: Flag = False
    """Show no progress, and print what was found as one JSON object."""

    def run(self, command: str) -> None:
        """Tune, and say what came of it."""
        if not self.save_every > 0:
            raise UsageError(f"--save-every must be above 0 seconds, got {self.save_every:g}")
        folder, found = self._go_on(command) if self.resume else self._start(command)
        self._report(folder, found)
        if found.stopped_by is not None:
            raise SystemExit(128 + found.stopped_by)

    def check(self) -> None:
        """Refuse a network that is none, and settings that make no search."""
        with named_as_typed(OPTIONS):
            _, network = self._network()
            self._config(network)

    def _start(self, command: str) -> tuple[Path, "Found"]:
        from conqur.handing_back import kept_original
        from conqur.pretrained import to_bytes
        from conqur.runs import RunDirectory

        with named_as_typed(OPTIONS):
            original, network = self._network()
            config = self._config(network)
        with _tuning(config, network) as tuning:  # before anything is written: it may refuse
            free, before = free_folder(f"tune-{config.environment}")
            folder = self.run_dir or free
            networks = {"checkpoint.safetensors": to_bytes(network)}
            if original is not None and network.format != "conqur":
                networks |= kept_original(original)
            try:
                created = RunDirectory.create(
                    folder,
                    config.to_json(),
                    seeds=(config.seed,),
                    command=command,
                    data=tuning.data_digest,
                    networks=networks,
                    warn=warn,
                )
            except OSError as error:
                raise UsageError(f"--run-dir {folder} cannot be made: {error.strerror}") from error
            with created as run:
                if not self.json:
                    if before is not None and self.run_dir is None:
                        say(other_folder("tune", before, folder))
                    say(_header(config, f"preset {self.preset or 'quick'}", folder))
                    if tuning.place is not None:
                        say_how_it_sees(tuning.place)
                self._warn_of_what_has_no_effect(config)
                return folder, self._search(tuning, run, None)

    def _warn_of_what_has_no_effect(self, config: "TuneConfig") -> None:
        """Some settings have no effect beside others, as with the default preset."""
        if config.search == "independent" and self.children is not None:
            warn("independent nodes have greedy labels: --children will change nothing")
        if config.search == "independent" and self.minibatches is not None:
            warn("independent nodes have their own: --minibatches will change nothing")
        if self.boltzmann_every is not None and (
            config.children != "boltzmann" or config.search == "independent"
        ):
            warn("dives sample with Boltzmann children only: --boltzmann-every will change nothing")
        if config.children == "random" and config.splitting_factor == 1:
            warn("a node's first child is itself: with one child each nothing is perturbed")
        if config.updates:
            drawn = ("learning_rate", "batch_size", "pairs", "minibatches")
            if config.refit == "lbfgs" and (named := self._named(drawn)):
                warn(f"--refit lbfgs takes whole batches: {named} will change nothing")
            return
        if config.search == "independent":
            warn("there are no gradient steps: independent nodes stay copies of the checkpoint")
        idle: tuple[str, ...] = (
            "learning_rate",
            "batch_size",
            "minibatches",
            "pairs",
            "refit",
            "proximal",
        )
        if config.scoring != "loss":
            idle = ("penalty_weight", *idle)
        if named := self._named(idle):
            warn(
                f"there are no gradient steps: {named} will change nothing "
                "(--preset paper-16 learns)"
            )

    def _named(self, settings: Sequence[str]) -> str:
        """Those of some settings that were given, other than 0, as they are typed."""
        given = [OPTIONS[name] for name in settings if getattr(self, name)]
        return " and ".join(part for part in (", ".join(given[:-1]), *given[-1:]) if part)

    def _go_on(self, command: str) -> tuple[Path, "Found"]:
        from conqur.pretrained import load
        from conqur.runs import RunDirectory, RunError
        from conqur.search.config import TuneConfig
        from conqur.search.saving import digest
        from conqur.tuning_run import Found

        if self.run_dir is None:
            raise UsageError("--resume needs --run-dir: which run is to go on?")
        if self.preset is not None:
            raise UsageError("leave out --preset with --resume: the run has its settings")
        if self.checkpoint is not None:
            raise UsageError("leave out CHECKPOINT with --resume: the run has its network")
        named = self._given()
        same = named.pop("environment", None)  # code has to be named again
        summary = None if named else _finished(self.run_dir)
        if summary is not None and same in (None, summary["environment"]):
            say("The run is finished: there is nothing left to do.")
            return self.run_dir, Found(summary["levels"], summary, None)
        with RunDirectory.open(self.run_dir, warn=warn) as run:
            with named_as_typed(OPTIONS):
                config = TuneConfig.from_json(run.config | self._given())
            if self.env is None and is_code(config.environment):
                raise UsageError(
                    f"the run is of {config.environment!r}, which is code to be loaded: if you "
                    "trust it, name it with --env"
                )
            network = load(run.networks / "checkpoint.safetensors")
            if digest(network.regressor) != config.checkpoint:
                raise RunError(f"{run.networks / 'checkpoint.safetensors'} is not the run's own")
            with _tuning(config, network) as tuning:
                try:
                    checkpoint = run.resume(
                        config.to_json(), command=command, data=tuning.data_digest
                    )
                except RunError as error:
                    raise RunError(as_typed(str(error), OPTIONS)) from None
                return self.run_dir, self._search(tuning, run, checkpoint)

    def _search(self, tuning: "Tuning", run: Any, checkpoint: Any) -> "Found":
        from conqur.search.display import Shown, display
        from conqur.tuning_run import run_tuning

        config = tuning.config
        seen = Shown(
            levels=config.levels,
            begun=run.last_step or 0,
            by_rollouts=config.scoring == "rollouts",
            learns=config.updates > 0,
        )
        try:
            with display(seen, quiet=self.json) as shown:
                return run_tuning(
                    tuning,
                    run,
                    checkpoint,
                    warn=warn,
                    show=shown.level,
                    announce=shown.announce,
                    save_every=self.save_every,
                )
        except KeyboardInterrupt:  # the second one, or one while the best node is chosen
            resume = _resume(run.path, config.environment)
            if run.last_step is None:
                say(f"No level was saved yet. Begin again in its folder with: {resume}")
            else:
                say(f"Level {run.last_step} was saved last. Go on with: {resume}")
            raise

    def _network(self) -> "tuple[Path | None, Pretrained]":
        """The network, and the file it comes from."""
        from conqur.tuning import fresh_network

        if self.checkpoint is None and self.env is None and not self.whole_network:
            say(f"No network was named: tuning {DEFAULT}, which comes with conqur.")
            return one_network(Path(DEFAULT), None)
        if self.checkpoint is None:
            if not (self.whole_network and self.env):
                raise UsageError(
                    "name a CHECKPOINT to tune, or --whole-network and --env to start from scratch"
                )
            return None, fresh_network(self.env, self.seed or 0)
        return one_network(self.checkpoint, self.env)

    def _given(self) -> dict[str, Any]:
        """The settings that were given."""
        given = {name: getattr(self, name) for name in SETTINGS if getattr(self, name) is not None}
        given |= {"environment": self.env} if self.env else {}
        given |= {"approximator": "network"} if self.whole_network else {}
        given |= {"backtracking": False} if self.no_backtracking else {}
        given |= {"adapt_temperature": False} if self.fixed_temperature else {}
        return given

    def _config(self, network: "Pretrained") -> "TuneConfig":
        from conqur.environments.atari import is_atari
        from conqur.search.config import tune_config
        from conqur.tuning import settings_of

        own = settings_of(network, self.env)
        atari = is_atari(own["environment"])
        return tune_config(self.preset or "quick", atari=atari, **own | self._given())

    def _report(self, folder: Path, found: "Found") -> None:
        from conqur.environments.data import is_data
        from conqur.handing_back import BEST
        from conqur.report.pages import PAGE
        from conqur.report.run_page import verdict, write_page
        from conqur.report.tuned_run import read_tuned, summary_of
        from conqur.runs.files import read_json
        from conqur.runs.layout import CONFIG, NETWORKS

        if self.json:
            about = {"finished": found.summary is not None, "level": found.level}
            print(json.dumps((found.summary or {}) | about | {"run_dir": str(folder)}))
        tell = say if self.json else print
        if found.summary is None:
            resume = _resume(folder, read_json(folder / CONFIG)["environment"])
            tell(f"Stopped after level {found.level}; all is saved. Go on with: {resume}")
            return
        tell(verdict(summary_of(found.summary)))
        best = folder / NETWORKS / BEST
        tell(f"Network: {best}")
        if found.summary["written_back"] is not None:
            tell(f"The same, as it came: {best.with_name(found.summary['written_back'])}")
        try:
            tell(f"Report: {write_page(read_tuned(folder), folder / PAGE)}")
        except OSError as error:
            warn(f"{folder / PAGE} cannot be written: {error.strerror}")
        if not is_data(found.summary["environment"]):
            tell(f"Next: {shlex.join(['conqur', 'play', str(best)])}")


def _resume(folder: Path, environment: str) -> str:
    """What is typed to go on with a run."""
    named = ["--env", environment] if is_code(environment) else []
    return shlex.join(["conqur", "tune", *named, "--resume", "--run-dir", str(folder)])


def _finished(folder: Path) -> dict[str, Any] | None:
    """The summary of a run that is at its end and has all that it hands back; None of others."""
    from conqur.handing_back import BEST
    from conqur.pretrained import load
    from conqur.report.tuned_run import summary_of
    from conqur.runs.files import Damaged, read_json
    from conqur.runs.layout import CONFIG, NETWORKS
    from conqur.search.config import TuneConfig
    from conqur.tuning_run import SUMMARY

    try:
        summary, settings = read_json(folder / SUMMARY), read_json(folder / CONFIG)
        TuneConfig.from_json(settings)
        summary_of(summary)
        back = summary["written_back"]
        whole = back is None or (Path(back).name == back and (folder / NETWORKS / back).is_file())
        load(folder / NETWORKS / BEST)
        known = all(summary[name] == settings[name] for name in ("environment", "levels"))
        known &= isinstance(summary["handed_back"], str)
    except (OSError, Damaged, KeyError, TypeError, ValueError):
        return None
    return summary if whole and known else None


def _header(config: "TuneConfig", settings: str, folder: Path) -> str:
    """What is about to be searched."""
    import jax

    how = f"{config.search} search"
    if config.children == "random" and not config.updates:
        how = "random perturbations"
        how += ", kept by rollouts," if config.scoring == "rollouts" else ""
    return (
        f"{how} on {config.environment}: {config.nodes} nodes, {config.levels} "
        f"levels of {config.transitions:,} transitions, λ {config.penalty_weight:g}, {settings}, "
        f"on {jax.devices()[0].device_kind}, in {folder}"
    )


@contextlib.contextmanager
def _tuning(config: "TuneConfig", network: "Pretrained") -> Iterator["Tuning"]:
    from conqur.tuning import Tuning

    with named_as_typed(OPTIONS):
        tuning = Tuning(config, network)
    with contextlib.closing(tuning):
        yield tuning
