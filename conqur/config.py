"""The settings of a training run, and presets that name those of others."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from itertools import product
from typing import Any, get_args, get_origin

from conqur import _checks
from conqur.environments.atari import is_atari
from conqur.environments.data import is_data
from conqur.regressor import BODIES


@dataclass(frozen=True)
class TrainConfig:
    """Everything that decides what a training run computes.

    Steps are those of the agent, summed over its environments: of an Atari game, each is four
    frames.

    Attributes:
        environment: its name, see `conqur.environments.make`.
        algorithm: "dqn" or "ddqn".
        penalty_weights: λ; every one of them is trained with every seed.
        seeds: of the networks' initial weights, exploration, minibatches and environments.
        steps: how long to train.
        num_envs: environments stepped together, for each member.
        preprocessing: of Atari games; a name in `conqur.environments.atari.PREPROCESSING`.
        network: the regressor's body, see `conqur.regressor.Architecture`.
        hidden: the widths of the dense layers.
        optimizer: "rmsprop", centred, as TF1 computes it, or "adam".
        learning_rate: α.
        optimizer_epsilon: the constant in the optimizer's denominator.
        loss: "huber" or "squared".
        discount: γ.
        batch_size: B.
        replay_size: transitions remembered.
        learning_starts: steps with random actions before the first update.
        update_every: steps between updates.
        target_every: updates between copies of θ to the target network θ⁻.
        epsilon_final: where ε-greedy exploration ends.
        epsilon_steps: how many steps it takes to get there.
        clip_rewards: to [−1, 1], for learning only.
        anneal_halfway: updates after which half of λ is reached.
        log_every: steps between rows of the log.
    """

    environment: str
    algorithm: str
    penalty_weights: tuple[float, ...]
    seeds: tuple[int, ...]
    steps: int
    num_envs: int
    preprocessing: str
    network: str
    hidden: tuple[int, ...]
    optimizer: str
    learning_rate: float
    optimizer_epsilon: float
    loss: str
    discount: float
    batch_size: int
    replay_size: int
    learning_starts: int
    update_every: int
    target_every: int
    epsilon_final: float
    epsilon_steps: int
    clip_rewards: bool
    anneal_halfway: float
    log_every: int

    def __post_init__(self) -> None:
        for name in ("penalty_weights", "seeds", "hidden"):
            object.__setattr__(self, name, tuple(getattr(self, name)))
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}"
                )
        for name in ("steps", "num_envs", "batch_size", "replay_size", "update_every"):
            _checks.short_count(name, getattr(self, name))
        for name in ("target_every", "log_every"):
            _checks.short_count(name, getattr(self, name))
        for name in ("learning_starts", "epsilon_steps"):
            _checks.short_count(name, getattr(self, name), at_least=0)
        for name in ("learning_rate", "optimizer_epsilon", "anneal_halfway"):
            _checks.number(name, getattr(self, name), above=0)
        _checks.number("discount", self.discount, at_least=0, at_most=1)
        _checks.number("epsilon_final", self.epsilon_final, at_least=0, at_most=1)
        self._check_members()
        self._check_sizes()

    def _check_sizes(self) -> None:
        for name in ("batch_size", "learning_starts"):
            if getattr(self, name) > self.replay_size:
                raise ValueError(
                    f"{name} ({getattr(self, name)}) must be at most replay_size "
                    f"({self.replay_size})"
                )
        if 3 * self.num_envs > self.replay_size:  # before so many environments are made
            raise ValueError(
                f"replay_size ({self.replay_size}) must be at least three times num_envs "
                f"({self.num_envs})"
            )
        if self.num_envs % self.update_every and self.update_every % self.num_envs:
            raise ValueError(
                f"num_envs ({self.num_envs}) must be a multiple or a divisor of update_every "
                f"({self.update_every})"
            )

    def _check_members(self) -> None:
        if not (self.penalty_weights and self.seeds):
            raise ValueError("penalty_weights and seeds must each name at least one")
        for weight in self.penalty_weights:
            _checks.number("penalty_weights", weight, at_least=0)
        for seed in self.seeds:
            _checks.short_count("seeds", seed, at_least=0)
        if len(set(self.members)) < len(self.members):
            raise ValueError("penalty_weights and seeds must not repeat a value")

    @property
    def members(self) -> tuple[tuple[float, int], ...]:
        """(λ, seed) of every network that is trained."""
        return tuple(product(self.penalty_weights, self.seeds))

    @property
    def steps_per_update(self) -> int:
        """How many times all environments are stepped before the network is updated."""
        return max(1, self.update_every // self.num_envs)

    @property
    def updates_at_once(self) -> int:
        """How many updates are then made."""
        return max(1, self.num_envs // self.update_every)

    def to_json(self) -> dict[str, Any]:
        """As plain values: tuples become lists."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "TrainConfig":
        """The inverse of `to_json`. The values may come from any file, and are not trusted."""
        kinds = {field.name: field.type for field in fields(cls)}
        try:
            if set(values) != kinds.keys():
                unknown = ", ".join(sorted(set(values) ^ kinds.keys()))
                raise ValueError(f"settings of another version of conqur: they differ in {unknown}")
            for name, kind in kinds.items():
                if not _is_of(kind, values[name]):
                    raise ValueError(f"{name} cannot be {str(values[name])[:50]!r}")
            tuples = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
            return cls(**dict[str, Any](tuples))
        except ValueError as error:
            raise ValueError(f"config.json: {error}") from None


def _is_of(kind: Any, value: Any) -> bool:
    """Whether a value from a JSON file is of a field's type."""
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(_is_of(get_args(kind)[0], part) for part in value)
    return type(value) in ((int, float) if kind is float else (kind,))


CHOICES = {
    "algorithm": ("dqn", "ddqn"),
    "optimizer": ("rmsprop", "adam"),
    "loss": ("huber", "squared"),
    "network": BODIES,
}

_TF_AGENTS: dict[str, Any] = {
    "steps": 50_000_000,
    "num_envs": 64,
    "preprocessing": "dopamine",
    "network": "nature",
    "hidden": (512,),
    "optimizer": "rmsprop",
    "learning_rate": 2.5e-4,
    "optimizer_epsilon": 1e-5,
    "loss": "huber",
    "discount": 0.99,
    "batch_size": 32,
    "replay_size": 1_000_000,
    "learning_starts": 20_000,
    "update_every": 4,
    "target_every": 2_000,
    "epsilon_final": 0.01,
    "epsilon_steps": 250_000,
    "clip_rewards": True,
    "anneal_halfway": 2e6,
    "log_every": 50_000,
}

PRESETS: dict[str, dict[str, Any]] = {
    "tf-agents": _TF_AGENTS,
    "dopamine": _TF_AGENTS | {"network": "nature-same"},
    "nature": _TF_AGENTS
    | {
        "preprocessing": "nature",
        "optimizer_epsilon": 0.01,
        "learning_starts": 50_000,
        "target_every": 10_000,
        "epsilon_final": 0.1,
        "epsilon_steps": 1_000_000,
    },
    "minatar": _TF_AGENTS
    | {
        "steps": 5_000_000,
        "network": "minatar",
        "hidden": (128,),
        "optimizer": "adam",
        "optimizer_epsilon": 3.125e-4,
        "replay_size": 100_000,
        "learning_starts": 1_000,
        "target_every": 1_000,
        "clip_rewards": False,
    },
    "control": _TF_AGENTS
    | {
        "steps": 500_000,
        "num_envs": 4,
        "network": "mlp",
        "hidden": (120, 84),
        "optimizer": "adam",
        "optimizer_epsilon": 1e-8,
        "loss": "squared",
        "batch_size": 128,
        "replay_size": 10_000,
        "learning_starts": 10_000,
        "update_every": 8,
        "target_every": 64,
        "epsilon_final": 0.05,
        "epsilon_steps": 240_000,
        "clip_rewards": False,
        "anneal_halfway": 2e4,
        "log_every": 5_000,
    },
}
"""Settings under names: of TF-Agents, which the paper's DQN(λ) was trained with, of Dopamine, which
its checkpoints come from, of Nature's DQN, of Dopamine for MinAtar, and for control with few
numbers."""


def train_config(preset: str, **changes: Any) -> TrainConfig:
    """The settings of a preset with changes; those that are None keep the preset's value."""
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    given = {name: value for name, value in changes.items() if value is not None}
    return TrainConfig(**PRESETS[preset] | given)


def default_preset(environment: str) -> tuple[str, dict[str, Any]]:
    """The preset for an environment, and what has to be changed in it."""
    if is_data(environment):
        # All steps are updates.
        return "control", {
            "num_envs": 64,
            "update_every": 1,
            "learning_starts": 0,
            "preprocessing": "",
        }
    if environment.lower().startswith("minatar"):
        return "minatar", {"preprocessing": ""}
    if is_atari(environment):
        return "tf-agents", {}
    return "control", {"preprocessing": ""}


def clips_rewards(environment: str) -> bool:
    """Whether networks learn an environment from clipped rewards, as `conqur train` does."""
    preset, changes = default_preset(environment)
    return bool((PRESETS[preset] | changes)["clip_rewards"])
