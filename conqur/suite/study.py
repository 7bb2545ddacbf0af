"""A study: one small TOML file, which stands for many runs.

    command = "train"                            # or "tune"
    games = ["MinAtar/Breakout", "MinAtar/Asterix"]
    algorithms = ["dqn", "ddqn"]
    penalty_weights = [0, 0.5]
    seeds = 5
    episodes = 100                               # of the evaluation after training

    [settings]                                   # of all runs: options of the command
    steps = 1_000_000

Every combination is trained. With `command = "tune"`, `networks` takes the place of games, and the
algorithms are those in `conqur.suite.algorithms`. A network that does not say which game it plays
is named with it:
`{ file = "checkpoints/Pong/tf_ckpt-199.index", env = "ALE/Pong-v5" }`. Studies that come with
conqur are in the folder `studies` beside this file, and known by their names.
"""

import math
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from conqur import _checks
from conqur._guess import did_you_mean
from conqur.suite.algorithms import ALGORITHMS
from conqur.suite.jobs import Job

LISTS: dict[str, type] = {
    "games": str,
    "algorithms": str,
    "presets": str,
    "penalty_weights": float,
}
NUMBERS = ("seeds", "first_seed", "episodes", "retries")
DECIDED = (
    *("algorithm", "env", "environment", "json", "penalty_weight", "preset", "resume", "run_dir"),
    *("seed", "seeds"),
)
"""Options of the commands that are no settings."""
OF_ALGORITHMS = ("children", "help", "refit", "scoring", "search")
"""Settings that make an algorithm what it is."""
MOST_RUNS = 100_000
KEYS = ("command", *LISTS, "networks", *NUMBERS, "together", "settings")


class Network(NamedTuple):
    """What is tuned: a file, or what else `conqur tune` takes, and the game if it does not say."""

    file: str
    env: str = ""


@dataclass(frozen=True)
class Study:
    """What is to be run.

    Attributes:
        name: of the study, from its file.
        command: "train" or "tune".
        games: environments to train on.
        networks: to tune.
        algorithms: dqn and ddqn, or names in `ALGORITHMS`.
        penalty_weights: λ.
        presets: of the command; "" for its own. A file of tuning that names none has paper-16.
        seeds: how many.
        first_seed: the first of them.
        episodes: with which trained networks are evaluated.
        together: whether seeds and weights of a training are one run; None: where the environment
            compiles, which makes that much faster.
        retries: how often a run that failed is tried again.
        settings: further options of the command, by name.
    """

    name: str
    command: str
    games: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    algorithms: tuple[str, ...] = ()
    penalty_weights: tuple[float, ...] = (0.0,)
    presets: tuple[str, ...] = ("",)
    seeds: int = 1
    first_seed: int = 0
    episodes: int = 100
    together: bool | None = None
    retries: int = 2
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.command not in ("train", "tune"):
            guess = did_you_mean(self.command, ("train", "tune"))
            raise ValueError(f"command must be train or tune, got {self.command!r}{guess}")
        wanted, other = ("games", "networks")[:: 1 if self.command == "train" else -1]
        if not getattr(self, wanted):
            raise ValueError(f"{wanted} must name at least one for command {self.command!r}")
        if getattr(self, other):
            raise ValueError(f"{other} are for the other command: leave them out")
        known = ("dqn", "ddqn") if self.command == "train" else tuple(ALGORITHMS)
        object.__setattr__(self, "algorithms", self.algorithms or known[:1])
        for name in self.algorithms:
            if name not in known:
                raise ValueError(f"algorithms must be of {', '.join(known)}, got {name!r}")
        for name in (*LISTS, "networks"):
            if len(set(getattr(self, name))) < len(getattr(self, name)):
                raise ValueError(f"{name} must not repeat a value")
        for name in (*self.games, *self.presets, *(part for n in self.networks for part in n)):
            if name.startswith("-"):
                raise ValueError(f"{name!r} is an option, and no game, network or preset")
        if not self.penalty_weights or not self.presets:
            raise ValueError("penalty_weights and presets must not be empty")
        for preset, name in product(self.presets, self.algorithms):
            learns = self.command == "tune" and ALGORITHMS[name].learns
            if learns and preset in ("", "quick", "tuned"):
                raise ValueError(
                    f"algorithm {name} learns, and preset {preset or 'quick'} makes no gradient "
                    "steps: it goes with random-rollouts"
                )
        for weight in self.penalty_weights:
            _checks.number("penalty_weights", weight, at_least=0)
        for name in self.settings:
            if name.replace("-", "_") in (*DECIDED, *OF_ALGORITHMS):
                raise ValueError(f"settings must not have {name}: the study itself says it")
            value = self.settings[name]
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, str) and each.startswith("-"):
                    raise ValueError(f"settings must have values, and {each!r} is an option")
        for name, at_least in (("seeds", 1), ("first_seed", 0), ("episodes", 1), ("retries", 0)):
            _checks.short_count(name, getattr(self, name), at_least=at_least)
        lists = (*(getattr(self, name) or (0,) for name in (*LISTS, "networks")), range(self.seeds))
        if math.prod(map(len, lists)) > MOST_RUNS:
            raise ValueError(f"a study has at most {MOST_RUNS:,} runs")
        for name, count in Counter(job.name for job in self.jobs()).items():
            if count > 1:
                raise ValueError(f"two runs would be called {name}: their names are too much alike")

    def jobs(self) -> tuple[Job, ...]:
        """All runs; no two have the same name."""
        return tuple(_training(self) if self.command == "train" else _tuning(self))

    @property
    def options(self) -> tuple[str, ...]:
        """The settings as they are typed."""
        typed: list[str] = []
        for name, value in self.settings.items():
            option = "--" + name.replace("_", "-")
            if value is True:
                typed.append(option)
            elif value is not False:
                values = value if isinstance(value, list) else [value]
                typed += [option, *(str(each) for each in values)]
        return tuple(typed)


def ready_studies() -> dict[str, str]:
    """The studies that come with conqur: names, and what their files say in the first line."""
    folder = resources.files("conqur.suite").joinpath("studies")
    files = sorted(folder.iterdir(), key=lambda file: ("minatar" in file.name, file.name))
    return {
        Path(file.name).stem: file.read_text("utf-8").partition("\n")[0].removeprefix("# ")
        for file in files
    }


def study_text(path: Path) -> str:
    """What is in a study's file, or in the one that comes with conqur under that name.

    Raises:
        ValueError: if there is none.
    """
    if not path.exists() and str(path) in ready_studies():
        folder = resources.files("conqur.suite").joinpath("studies")
        return folder.joinpath(f"{path}.toml").read_text("utf-8")
    try:
        return path.read_text("utf-8")
    except FileNotFoundError:
        guess = did_you_mean(str(path), list(ready_studies())) or "; see `conqur suite list`"
        raise ValueError(f"there is no study {path}{guess}") from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no TOML: {error}") from None


def read_study(path: Path) -> Study:
    """Read a study's file, or one that comes with conqur, by its name.

    Raises:
        ValueError: if it is none, with what is wrong in it.
    """
    try:
        values = tomllib.loads(study_text(path))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"{path} is no TOML: {error}") from None
    try:
        return Study(path.stem, **_typed(values))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{path}: {error}") from None


def _typed(values: dict[str, Any]) -> dict[str, Any]:
    """The values of a file, if they are of the right types."""
    typed: dict[str, Any] = {}
    if "command" not in values:
        raise ValueError("command is missing: train or tune")
    for name, value in values.items():
        if name not in KEYS:
            there = f" (there are {', '.join(KEYS)})"
            raise ValueError(f"there is no key {name!r}{did_you_mean(name, KEYS) or there}")
        if name in LISTS:
            kind = LISTS[name]
            entries = value if isinstance(value, list) else [value]
            fits = (int, float) if kind is float else (str,)
            if not all(type(entry) in fits for entry in entries):
                raise ValueError(f"{name} must be a list of {kind.__name__}, got {value!r}")
            typed[name] = tuple(kind(entry) for entry in entries)
        elif name == "networks":
            typed[name] = tuple(map(_network, value if isinstance(value, list) else [value]))
        elif name in NUMBERS and type(value) is not int:
            raise ValueError(f"{name} must be a whole number, got {value!r}")
        elif name == "command" and not isinstance(value, str):
            raise ValueError(f"command must be train or tune, got {value!r}")
        else:
            typed[name] = value
    if not isinstance(typed.get("settings", {}), dict):
        raise ValueError("settings must be a table: [settings]")
    if typed["command"] == "tune":
        typed.setdefault("presets", ("paper-16",))  # the command's own makes no gradient steps
    if not isinstance(typed.get("together"), bool | None):
        raise ValueError("together must be true or false")
    return typed


def _network(entry: Any) -> Network:
    if isinstance(entry, str):
        return Network(entry)
    fits = isinstance(entry, dict) and set(entry) == {"file", "env"}
    if not fits or not all(isinstance(value, str) for value in entry.values()):
        raise ValueError(f'networks must be "FILE" or {{ file = ..., env = ... }}, got {entry!r}')
    return Network(**entry)


def _training(study: Study) -> list[Job]:
    jobs = []
    for preset, game, algorithm in product(study.presets, study.games, study.algorithms):
        basis = ["train", game, "--algorithm", algorithm, *study.options]
        basis += ["--preset", preset] if preset else []
        about = {"game": game, "algorithm": algorithm, "preset": preset}
        name = _name(game, algorithm, preset)
        if study.together if study.together is not None else _compiles(game):
            weights = [written(weight) for weight in study.penalty_weights]
            own = [*("--penalty-weight", *weights), "--seeds", str(study.seeds)]
            own += ["--seed", str(study.first_seed)]
            jobs.append(Job(name, (*basis, *own), about, study.episodes))
            continue
        for number, weight in product(range(study.seeds), study.penalty_weights):
            seed = study.first_seed + number
            own = ["--penalty-weight", written(weight), "--seed", str(seed)]
            one = f"{name}-weight-{written(weight)}-seed-{seed}"
            jobs.append(Job(one, (*basis, *own), about, study.episodes))
    return jobs


def _tuning(study: Study) -> list[Job]:
    jobs = []
    labels = _labels(study.networks)
    for number, preset, network, algorithm in product(
        range(study.seeds), study.presets, study.networks, study.algorithms
    ):
        seed = study.first_seed + number
        weights = study.penalty_weights if ALGORITHMS[algorithm].penalised else (0.0,)
        for weight in weights:
            options = ALGORITHMS[algorithm].options  # come last, and so they count
            arguments = ["tune", network.file, *study.options, *options]
            arguments += ["--seed", str(seed)]
            arguments += ["--env", network.env] if network.env else []
            arguments += ["--preset", preset] if preset else []
            if ALGORITHMS[algorithm].penalised:
                arguments += ["--penalty-weight", written(weight)]
            about = {
                "network": network.file,
                "game": network.env or re.sub(r"[-_]?\d+$", "", labels[network]),
                "algorithm": algorithm,
                "preset": preset,
                "penalty_weight": weight,
                "seed": seed,
            }
            name = _name(labels[network], algorithm, preset)
            name = f"{name}-weight-{written(weight)}-seed-{seed}"
            jobs.append(Job(name, tuple(arguments), about, None))
    return jobs


def _labels(networks: Sequence[Network]) -> dict[Network, str]:
    """What networks are called in names of folders: as short as they still differ."""
    ways: tuple[Callable[[Network], str], ...] = (
        lambda network: Path(network.file.removeprefix("bundled:")).stem,
        lambda network: network.env.removeprefix("ALE/"),
        lambda network: network.file,
        lambda network: f"{network.file}-{network.env}",
    )
    for way in ways:
        labels = {network: way(network) for network in networks}
        if len({_name(label) for label in labels.values()}) == len(labels):
            break
    return labels


def written(weight: float) -> str:
    """λ with all of its digits, and no more."""
    return np.format_float_positional(weight, trim="-")


def _name(*parts: str) -> str:
    """What a run's folder is called."""
    words = "-".join(part for part in parts if part)
    return "".join(c if c.isalnum() or c in "-._" else "-" for c in words)


def _compiles(game: str) -> bool:
    return game.startswith("jax:") or game.lower().startswith("minatar")
