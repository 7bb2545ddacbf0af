"""Q-learning that goes on with two copies of a head, and keeps every choice behind its labels."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from conqur import _checks
from conqur.consistency import Everything
from conqur.diagnosis.measures import predicted
from conqur.environments import make
from conqur.pretrained import Pretrained
from conqur.pretrained.playing import Arena
from conqur.regressor import Dense
from conqur.search.approximator import LinearTuning
from conqur.search.batches import Batch, Batches
from conqur.search.compiled import collector
from conqur.search.config import HUGE, MOST_ENVS
from conqur.search.growing import Grower, Growing
from conqur.search.node import Tree, dive
from conqur.search.refining import Regression


@dataclass(frozen=True)
class DiagnosisConfig:
    """How learning is continued and what is played.

    Attributes:
        levels: K, how many batches are collected and learned from.
        transitions: n, in a batch.
        updates: gradient steps in a level.
        batch_size: B, transitions in a step.
        target_every: levels between copies of the head to the target, which labels come from.
        learning_rate: α of RMSProp.
        units: "q": the learning rate is what it is; "gap": in units of the action gap.
        penalty_weight: λ of the second copy.
        discount: γ.
        epsilon: of the policy that collects.
        episodes: that each head plays, in each repetition.
        num_envs: environments stepped together.
        seeds: R, how often all of it is repeated, for intervals.
        seed: of everything random in the first repetition; the next has the next seed.
    """

    levels: int = 10
    transitions: int = 2_000
    updates: int = 500
    batch_size: int = 32
    target_every: int = 5
    learning_rate: float = 2.5e-6
    units: str = "q"
    penalty_weight: float = 1.0
    discount: float = 0.99
    epsilon: float = 0.01
    episodes: int = 32
    num_envs: int = 16
    seeds: int = 3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("levels", "transitions", "updates", "batch_size", "target_every"):
            _checks.short_count(name, getattr(self, name))
        for name in ("episodes", "seeds"):
            _checks.short_count(name, getattr(self, name))
        if self.levels <= self.target_every:
            raise ValueError(
                f"levels must be more than target_every, {self.target_every}, got {self.levels}: "
                "choices of a single target head are all made by that head"
            )
        if _checks.count("num_envs", self.num_envs) > MOST_ENVS:
            raise ValueError(f"num_envs must be at most {MOST_ENVS:,}, got {self.num_envs:,}")
        _checks.short_count("seed", self.seed, at_least=0)
        _checks.number("learning_rate", self.learning_rate, above=0, at_most=HUGE)
        _checks.number("penalty_weight", self.penalty_weight, above=0, at_most=HUGE)
        for name in ("discount", "epsilon"):
            _checks.number(name, getattr(self, name), at_least=0, at_most=1)
        if self.units not in ("q", "gap"):
            raise ValueError(f"units must be q or gap, got {self.units!r}")
        if self.seed + self.seeds > 2**31:
            raise ValueError(f"seed and all that follow must be below 2³¹, got {self.seed}")


class Lineage(NamedTuple):
    """A copy that learned.

    Attributes:
        heads: the checkpoint's, and that after each of K levels.
        assigned: σ, its choices, [S].
        labels: the mean Q-label in each level, [K].
    """

    heads: tuple[Dense, ...]
    assigned: Int[np.ndarray, " S"]
    labels: tuple[float, ...]


class Learned(NamedTuple):
    """What continued learning left.

    Attributes:
        features: φ(s') of all states that labels counted on, [S, F].
        level: in which, [S].
        plain: the copy without the penalty.
        penalised: the copy with it.
    """

    features: Float[np.ndarray, "S F"]
    level: Int[np.ndarray, " S"]
    plain: Lineage
    penalised: Lineage


def learn(
    network: Pretrained,
    place: Arena,
    config: DiagnosisConfig,
    *,
    seed: int,
    clip_rewards: bool,
    announce: Callable[[str], None] = lambda words: None,
) -> Learned:
    """Continue Q-learning with two copies of the head, from the same batches.

    Batches come from the ε-greedy policy of the plain copy.

    Args:
        network: the checkpoint.
        place: the environment.
        config: the settings.
        seed: of this repetition.
        clip_rewards: to [−1, 1].
        announce: told in words what is going on.
    """
    place.make(1).close()  # refuses a network of another game
    approximator = LinearTuning(network.regressor.body)
    root = jax.device_get(network.regressor.head)
    batches = collector(
        approximator,
        lambda copies: make(place.name, copies, preprocessing=network.preprocessing or None),
        config.num_envs,
        transitions=config.transitions,
        epsilon=config.epsilon,
        clip_rewards=clip_rewards,
        seed=seed,
    )
    weights = (0.0, config.penalty_weight)
    growers = [_grower(approximator, root, batches, config, weight, seed) for weight in weights]
    trees = [Tree.planted(grower.roots()) for grower in growers]
    heads: list[list[Dense]] = [[root], [root]]
    labels: list[list[float]] = [[], []]
    features, alive = [], []
    try:
        for level in range(config.levels):
            announce(f"level {level + 1} of {config.levels}")
            batch = batches.collect(trees[0].frontier[0].weights.theta)
            features.append(np.asarray(batch.transitions.successors))
            alive.append(~np.asarray(batch.transitions.terminal))
            for i, grower in enumerate(growers):
                children = grower.train(dive(trees[i].frontier), trees[i], batch)
                trees[i] = trees[i].after(children, children)
                heads[i].append(children[0].weights.theta)
                labels[i].append(_label(children[0].weights.target, batch, config.discount))
    finally:
        batches.close()
    kept = np.concatenate(alive)
    if not np.isfinite([label for mine in labels for label in mine]).all():
        raise ValueError("learning_rate is too high here: the head diverged")
    plain, penalised = (
        Lineage(tuple(heads[i]), _assigned(trees[i])[kept], tuple(labels[i])) for i in range(2)
    )
    level = np.repeat(np.arange(config.levels), config.transitions)[kept]
    if len(np.unique(level)) < config.levels:
        raise ValueError(
            f"transitions must be more than {config.transitions}: a level was without choices"
        )
    return Learned(np.concatenate(features)[kept], level, plain, penalised)


def _label(target: Dense, batch: Batch, discount: float) -> float:
    """The mean of the Q-labels that a target gives."""
    rows = batch.transitions
    best = jnp.max(predicted(target, rows.successors), axis=-1)
    return float(jnp.mean(rows.rewards + discount * jnp.where(rows.terminal, 0.0, best)))


def _assigned(tree: Tree) -> Int[np.ndarray, " S"]:
    history = [assigned for assigned in tree.frontier[0].history if assigned is not None]
    return np.concatenate(history).astype(np.int64)


def _grower(
    approximator: LinearTuning,
    root: Dense,
    batches: Batches,
    config: DiagnosisConfig,
    penalty_weight: float,
    seed: int,
) -> Grower:
    """Trains one copy with max labels."""
    return Grower(
        approximator,
        root,
        batches,
        growing=Growing(
            children="max",
            boltzmann_every=1,
            target_every=config.target_every,
            temperature=1.0,
            adapt_temperature=False,
            perturbation=0.0,
            scoring="bellman",
        ),
        regression=Regression(
            updates=config.updates,
            batch_size=config.batch_size,
            pairs=config.batch_size,
            scored_pairs=config.batch_size,
            discount=config.discount,
            learning_rate=config.learning_rate,
            penalty_weight=penalty_weight,
            margin=0.0,
            over_actions="mean",
            proximal=0.0,
            own_minibatches=False,
            refit="sgd",
            gap_units=config.units == "gap",
        ),
        population=Everything(),
        kept_levels=config.levels,
        transitions=config.transitions,
        width=1,
        seed=seed,
        half_precision=False,
    )
