"""The settings of a search, and presets: the paper's tables and what we found to help."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from conqur import _checks
from conqur.consistency import Decay, Everything, Population, Subsample, Widening, Window
from conqur.environments.data import is_data


@dataclass(frozen=True)
class TuneConfig:
    """Everything that decides what a search computes. Symbols are the paper's.

    Attributes:
        environment: its name, see `conqur.environments.make`; or a data set.
        checkpoint: the digest of the network that is tuned; "" for a cold start.
        preprocessing: of Atari games.
        approximator: "head", a linear head on frozen features, or "network", all of it.
        search: "beam" (Algorithm 2), "best-first", "depth-first", "local" or "independent" (F
            copies side by side: the paper's multi-DQN).
        levels: T.
        transitions: in a level's batch D_k.
        updates: gradient steps in a level.
        batch_size: transitions in a gradient step.
        nodes: F, the most nodes that are trained in a level.
        splitting_factor: c, children of an expanded node.
        expanded: ℓ, nodes that are expanded.
        pool: m, the most leaves that are kept.
        dive_levels: d, between expansions.
        calibration: this times Δ is added to scores of leaves that were not trained.
        backtracking: whether leaves that left the frontier may be expanded later.
        penalty_weight: λ.
        over_actions: "mean" or "sum", of a pair's penalty.
        margin: the hinge margin of the penalty.
        buffer: whose choices are penalised: "all", "window:LEVELS", "decay:RATE",
            "subsample:FRACTION" or "widening:FRACTION".
        pairs: of the consistency buffer in a gradient step.
        minibatches: "own": every node draws its transitions and pairs itself; "shared": all nodes
            take the same, which is faster, and makes them more alike. Independent nodes have their
            own.
        children: "boltzmann", "strict" (Boltzmann, made consistent exactly: small heads only) or
            "random" (perturbed copies of their parents: the control).
        perturbation: of "random" children, see `conqur.search.growing.Growing`.
        temperature: τ.
        adapt_temperature: for each state, as in the paper.
        boltzmann_every: levels; then dives sample, too.
        target_every: levels between copies to the target regressors.
        units: "q": learning rate, margin, λ and τ are what they are; "gap": in units of the action
            gap, so that the scale of Q-values makes less difference.
        learning_rate: α.
        refit: "sgd" (RMSProp) or "lbfgs".
        proximal: weight of ½‖θ − θ₀‖².
        data: "newest" batch, or "replay": as many transitions drawn from all batches so far.
        discount: γ.
        epsilon: of the policy that collects.
        clip_rewards: to [−1, 1], for learning.
        scoring: "loss" (Bellman error + λC), "training-loss", "bellman", "label", "initial-label"
            or "rollouts" (on common starts).
        rollout_episodes: of every node, with scoring by rollouts.
        evaluate_every: levels between evaluations of the frontier.
        evaluation_episodes: of every node in such an evaluation; 0: there is none.
        final_episodes: with which the network that is handed back is compared to the checkpoint.
        num_envs: environments stepped together.
        seed: of everything random.
    """

    environment: str
    checkpoint: str
    preprocessing: str
    approximator: str
    search: str
    levels: int
    transitions: int
    updates: int
    batch_size: int
    nodes: int
    splitting_factor: int
    expanded: int
    pool: int
    dive_levels: int
    calibration: float
    backtracking: bool
    penalty_weight: float
    over_actions: str
    margin: float
    buffer: str
    pairs: int
    minibatches: str
    children: str
    perturbation: float
    temperature: float
    adapt_temperature: bool
    boltzmann_every: int
    target_every: int
    units: str
    learning_rate: float
    refit: str
    proximal: float
    data: str
    discount: float
    epsilon: float
    clip_rewards: bool
    scoring: str
    rollout_episodes: int
    evaluate_every: int
    evaluation_episodes: int
    final_episodes: int
    num_envs: int
    seed: int

    def __post_init__(self) -> None:
        for field in fields(self):
            kind = field.type if field.type in (str, bool) else None
            if kind and type(getattr(self, field.name)) is not kind:
                wrong = getattr(self, field.name)
                raise ValueError(f"{field.name} must be a {kind.__name__}, got {wrong!r}")
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name} must be one of {', '.join(choices)}, got {getattr(self, name)!r}"
                )
        for name in COUNTS:
            _checks.short_count(name, getattr(self, name))
        for name in ("updates", "dive_levels", "evaluation_episodes", "seed"):
            _checks.short_count(name, getattr(self, name), at_least=0)
        for name in ("learning_rate", "temperature"):
            _checks.number(name, getattr(self, name), above=0, at_most=HUGE)
        for name in ("penalty_weight", "margin", "proximal", "perturbation", "calibration"):
            _checks.number(name, getattr(self, name), at_least=0, at_most=HUGE)
        for name in ("discount", "epsilon"):
            _checks.number(name, getattr(self, name), at_least=0, at_most=1)
        _checks.short_count("final_episodes", self.final_episodes, at_least=2)
        if self.num_envs > MOST_ENVS:
            raise ValueError(f"num_envs must be at most {MOST_ENVS:,}, got {self.num_envs:,}")
        self._check_sizes()
        population(self.buffer)

    def _check_sizes(self) -> None:
        keeps_a_pool = self.search not in ("local", "independent")
        checked = ("nodes", "expanded") if self.search == "beam" else ("nodes",)
        for name in checked if keeps_a_pool else ():
            if getattr(self, name) > self.pool:
                raise ValueError(
                    f"{name} ({getattr(self, name)}) must be at most pool ({self.pool})"
                )
        children = self.expanded * self.splitting_factor
        if self.search == "beam" and children > self.nodes:
            raise ValueError(
                f"nodes ({self.nodes}) must be at least {children}: {self.expanded} nodes are "
                f"expanded, each into splitting_factor ({self.splitting_factor}); lower these, too"
            )
        if self.search != "independent" and self.splitting_factor > self.nodes:
            raise ValueError(
                f"splitting_factor ({self.splitting_factor}) must be at most nodes ({self.nodes})"
            )
        if self.units == "gap" and self.approximator == "network":
            raise ValueError(
                "units gap is for a linear head: with --whole-network take --units q, or a preset "
                "of the paper"
            )
        if self.scoring == "training-loss" and self.updates == 0:
            raise ValueError("scoring training-loss needs updates: there are none")
        if self.scoring == "initial-label" and is_data(self.environment):
            raise ValueError(
                "scoring initial-label needs first states of episodes, and a data set does not say "
                "which they are: take another scoring"
            )
        if self.refit == "lbfgs" and self.approximator == "network":
            raise ValueError("refit lbfgs is for a linear head: leave out --whole-network")

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "TuneConfig":
        """The inverse of `to_json`."""
        names = {field.name for field in fields(cls)}
        if set(values) != names:
            unknown = ", ".join(sorted(set(values) ^ names))
            raise ValueError(
                f"settings of another version of conqur (they differ in {unknown}): read the run "
                "with the version that made it, which manifest.json names, or make it again"
            )
        try:
            return cls(**values)
        except (TypeError, AttributeError) as error:
            raise ValueError(f"settings that no run has: {error}") from None


HUGE = 1e30
"""What 32 bits can count with."""
MOST_ENVS = 10_000
"""More would only take memory."""

CHOICES = {
    "approximator": ("head", "network"),
    "search": ("beam", "best-first", "depth-first", "local", "independent"),
    "over_actions": ("mean", "sum"),
    "minibatches": ("own", "shared"),
    "children": ("boltzmann", "strict", "random"),
    "units": ("q", "gap"),
    "refit": ("sgd", "lbfgs"),
    "data": ("newest", "replay"),
    "scoring": ("loss", "training-loss", "bellman", "label", "initial-label", "rollouts"),
}
COUNTS = (
    *("levels", "transitions", "batch_size", "nodes", "splitting_factor", "expanded", "pool"),
    *("pairs", "boltzmann_every", "target_every", "rollout_episodes", "evaluate_every"),
    "num_envs",
)

_PAPER_16: dict[str, Any] = {
    "approximator": "head",
    "search": "beam",
    "levels": 100,
    "transitions": 10_000,
    "updates": 2_500,
    "batch_size": 32,
    "nodes": 16,
    "splitting_factor": 4,
    "expanded": 4,
    "pool": 46,
    "dive_levels": 9,
    "calibration": 2.5,
    "backtracking": True,
    "penalty_weight": 10.0,
    "over_actions": "mean",
    "margin": 0.0,
    "buffer": "all",
    "pairs": 32,
    "minibatches": "own",
    "children": "boltzmann",
    "perturbation": 1.0,
    "temperature": 1.0,
    "adapt_temperature": True,
    "boltzmann_every": 5,
    "target_every": 5,
    "units": "q",
    "learning_rate": 2.5e-6,
    "refit": "sgd",
    "proximal": 0.0,
    "data": "newest",
    "discount": 0.99,
    "epsilon": 0.01,
    "clip_rewards": True,
    "scoring": "loss",
    "rollout_episodes": 8,
    "evaluate_every": 10,
    "evaluation_episodes": 8,
    "final_episodes": 64,
    "num_envs": 16,
    "seed": 0,
}

_QUICK = _PAPER_16 | {
    "levels": 6,
    "transitions": 2_000,
    "updates": 0,
    "dive_levels": 0,
    "backtracking": False,
    "penalty_weight": 0.0,
    "children": "random",
    "perturbation": 0.3,
    "target_every": 1,
    "units": "gap",
    "learning_rate": 0.01,
    "scoring": "rollouts",
    "rollout_episodes": 16,
    "evaluation_episodes": 0,
}

PRESETS: dict[str, dict[str, Any]] = {
    "quick": _QUICK,
    "tuned": _QUICK | {"levels": 8, "rollout_episodes": 32, "final_episodes": 200},
    "paper-16": _PAPER_16,
    "paper-8": _PAPER_16 | {"nodes": 8, "splitting_factor": 2, "expanded": 2, "pool": 38},
}
"""Settings under names. "paper-16" and "paper-8" are the paper's tables. "quick" and "tuned" are
small perturbations of the head, kept if they score more on common starts: what gained most of eight
settings on four networks (results/tuning), and gains on fifty others (results/studies)."""


_SHORTER_IN_ATARI: dict[str, dict[str, Any]] = {
    "quick": {"levels": 3, "rollout_episodes": 4, "final_episodes": 24},
    "tuned": {"levels": 6, "rollout_episodes": 8, "final_episodes": 64},
}
"""What presets with rollouts change in Atari games, which are long and slow to play."""


def tune_config(preset: str, *, atari: bool = False, **changes: Any) -> TuneConfig:
    """The settings of a preset with changes; those that are None keep the preset's value.

    Args:
        preset: a name in `PRESETS`.
        atari: whether an Atari game is played.
        changes: settings.
    """
    if preset not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
    given = {name: value for name, value in changes.items() if value is not None}
    shorter = _SHORTER_IN_ATARI.get(preset, {}) if atari else {}
    return TuneConfig(**PRESETS[preset] | shorter | given)


def population(name: str) -> Population:
    """How a consistency buffer is populated, from words such as "window:5"."""
    kind, _, number = name.partition(":")
    makers: dict[str, Any] = {
        "window": lambda: Window(_checks.short_count("window", int(number))),
        "decay": lambda: Decay(float(number)),
        "subsample": lambda: Subsample(float(number)),
        "widening": lambda: Widening(float(number)),
    }
    if name == "all":
        return Everything()
    if kind not in makers:
        raise ValueError(
            "buffer must be all, window:LEVELS, decay:RATE, subsample:FRACTION or "
            f"widening:FRACTION, got {name!r}"
        )
    try:
        made: Population = makers[kind]()
    except ValueError as error:
        raise ValueError(f"buffer {name!r} is not possible: {error}") from None
    return made
