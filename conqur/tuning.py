"""All that a tuning run has in memory: a network, its environments and the search's world."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from conqur._memory import device_memory
from conqur.config import PRESETS as TRAIN_PRESETS
from conqur.config import clips_rewards, default_preset
from conqur.environments import load_data, make
from conqur.environments.data import FixedData, is_data
from conqur.pretrained import Pretrained
from conqur.pretrained.playing import Arena, arena
from conqur.regressor import Architecture, Regressor, initial_regressor
from conqur.search.algorithms import (
    beam_search,
    best_first_search,
    depth_first_search,
    independent_search,
    local_search,
)
from conqur.search.approximator import Approximator, LinearTuning, WholeNetwork
from conqur.search.batches import Batches, DataCollector
from conqur.search.compiled import collector
from conqur.search.config import TuneConfig, population
from conqur.search.growing import Grower, Growing
from conqur.search.node import Tree
from conqur.search.refining import Regression
from conqur.search.rollouts import Rollouts
from conqur.search.saving import digest
from conqur.search.scoring import NO_ACTION
from conqur.search.strict import StrictSampler, check_size

EVALUATION, ROLLOUT, CHOICE, FINAL = range(1, 5)
"""What episodes are for: each has fresh starts."""


class Tuning:
    """All that a run has in memory, made from its settings and the network that is tuned.

    Attributes:
        data_digest: of the data set that it learns from; "" if there is none.
    """

    def __init__(self, config: TuneConfig, network: Pretrained) -> None:
        """Make the environments and the search's world.

        Args:
            config: the settings.
            network: the checkpoint.
        """
        self.config, self.network = config, network
        whole = config.approximator == "network"
        regressor = network.regressor
        self.approximator: Approximator = WholeNetwork() if whole else LinearTuning(regressor.body)
        self.root = jax.device_get(regressor if whole else regressor.head)
        if network.architecture.actions >= NO_ACTION:
            raise ValueError(
                f"the network has {network.architecture.actions} actions, where at most "
                f"{NO_ACTION - 1} are possible"
            )
        # Independent nodes differ by their minibatches, and are what they are without sampling.
        children = "max" if config.search == "independent" else config.children
        if children == "strict":
            _check_strict(config, regressor)
        _check_memory(config, self.approximator, network)
        data = load_data(config.environment) if is_data(config.environment) else None
        self.data_digest = "" if data is None else data.digest()
        self.place = _place(config, network)
        self.rollouts = _rollouts(self.approximator, self.place)
        self.grower = Grower(
            self.approximator,
            self.root,
            _collector(config, network, self.approximator, self.place, data),
            growing=Growing(
                children=children,
                boltzmann_every=config.boltzmann_every,
                target_every=config.target_every,
                temperature=config.temperature,
                adapt_temperature=config.adapt_temperature,
                perturbation=config.perturbation,
                scoring=config.scoring,
            ),
            regression=_regression(config),
            population=population(config.buffer),
            kept_levels=_kept_levels(config),
            transitions=config.transitions,
            width=config.nodes,
            seed=config.seed,
            replayed_levels=config.levels if config.data == "replay" else 0,
            # Observations are anything, prices and counters too; features are of a size.
            half_precision=children != "strict" and not whole,
            sampler=_strict_sampler(config) if children == "strict" else None,
            rollouts=self._gains if config.scoring == "rollouts" else None,
        )

    def planted(self) -> Tree:
        """The tree before the first level."""
        roots = self.config.nodes if self.config.search == "independent" else 1
        return Tree.planted(self.grower.roots(roots))

    def search(self, tree: Tree) -> Iterator[Tree]:
        """The search from a tree on."""
        config, world = self.config, self.grower
        levels = config.levels
        if config.search == "beam":
            return beam_search(
                tree,
                world,
                levels=levels,
                frontier_size=config.nodes,
                splitting_factor=config.splitting_factor,
                expanded=config.expanded,
                pool_size=config.pool,
                dive_levels=config.dive_levels,
                calibration=config.calibration,
                backtracking=config.backtracking,
            )
        if config.search == "local":
            return local_search(
                tree, world, levels=levels, splitting_factor=config.splitting_factor
            )
        if config.search == "independent":
            return independent_search(tree, world, levels=levels)
        search = best_first_search if config.search == "best-first" else depth_first_search
        return search(
            tree,
            world,
            levels=levels,
            splitting_factor=config.splitting_factor,
            pool_size=config.pool,
        )

    def watch(self, announce: Callable[[str], None], words: str) -> None:
        """Tell, while nodes play, how far that is.

        Args:
            announce: told the words, with a percentage.
            words: what they play for.
        """
        if self.rollouts is not None:
            self.rollouts.watch = lambda done: announce(f"{words}, {done:.0%}")

    def close(self) -> None:
        """Release the environments."""
        self.grower.close()
        if self.rollouts is not None:
            self.rollouts.close()

    def pretrained(self, theta: Any, origin: dict[str, Any]) -> Pretrained:
        """A node's network, whole."""
        network = self.network
        return Pretrained(
            self.approximator.regressor(theta),
            network.architecture,
            network.environment,
            network.preprocessing,
            network.origin | origin,
        )

    def _gains(self, thetas: Any, level: int) -> list[float]:
        assert self.rollouts is not None
        return self.rollouts.gains(
            self.root,
            thetas,
            episodes=self.config.rollout_episodes,
            seed=starts(ROLLOUT, self.config.seed, level),
        )


def _strict_sampler(config: TuneConfig) -> StrictSampler:
    return StrictSampler(
        config.temperature, adapt=config.adapt_temperature, gap_units=config.units == "gap"
    )


def settings_of(network: Pretrained, environment: str | None = None) -> dict[str, Any]:
    """The settings that a network brings along, for `tune_config`.

    Args:
        network: the checkpoint.
        environment: where it is tuned; None: where it was trained.
    """
    tuned_in = environment or network.environment
    # The rewards of a data set are those of the games that the network has learned.
    learned = (network.environment or tuned_in) if is_data(tuned_in) else tuned_in
    return {
        "clip_rewards": clips_rewards(learned),
        "environment": tuned_in,
        "preprocessing": network.preprocessing,
        "checkpoint": digest(network.regressor),
        "discount": network.discount,
    }


def config_name(config: TuneConfig) -> str | None:
    """The environment to play in, where that is not the data's."""
    return None if is_data(config.environment) else config.environment


def fresh_network(environment: str, seed: int) -> Pretrained:
    """A network with random weights for an environment, as `conqur train` would begin with."""
    preset, changes = default_preset(environment)
    settings = TRAIN_PRESETS[preset] | changes
    preprocessing = settings["preprocessing"]
    made = make(environment, 1, preprocessing=preprocessing or None)
    spec = made.spec
    made.close()
    architecture = Architecture(
        settings["network"], spec.observation_shape, len(spec.actions), settings["hidden"]
    )
    regressor = initial_regressor(jax.random.key(seed), architecture)
    return Pretrained(regressor, architecture, environment, preprocessing, {"seed": seed})


def starts(purpose: int, seed: int, level: int = 0) -> int:
    """A seed of episodes' starts."""
    drawn = np.random.SeedSequence((purpose, seed, level)).generate_state(1)
    return int(drawn[0]) % 2**30


def _place(config: TuneConfig, network: Pretrained) -> Arena | None:
    """Where nodes play; None if all that is known is a data set."""
    name = config_name(config)
    if name is None and is_data(network.environment):
        if config.scoring == "rollouts":
            raise ValueError(
                "scoring rollouts needs an environment to play in, and there is only a data set: "
                "take --preset paper-16, or another scoring"
            )
        return None
    return arena([network], name)


def _rollouts(approximator: Approximator, place: Arena | None) -> Rollouts | None:
    if place is None:
        return None
    return Rollouts(approximator, place.make, frame_skip=place.frame_skip)


def _collector(
    config: TuneConfig,
    network: Pretrained,
    approximator: Approximator,
    place: Arena | None,
    data: FixedData | None,
) -> Batches:
    if data is not None:
        _check_data(config, data, network.architecture)
        return DataCollector(
            approximator,
            data,
            config.environment,
            transitions=config.transitions,
            clip_rewards=config.clip_rewards,
            seed=config.seed,
        )
    assert place is not None
    place.make(1).close()  # refuses a network of another game
    # Networks of other tools have this also for pictures that are none of Atari games.
    preprocessing = config.preprocessing if place.is_atari else ""
    return collector(
        approximator,
        lambda copies: make(config.environment, copies, preprocessing=preprocessing or None),
        config.num_envs,
        transitions=config.transitions,
        epsilon=config.epsilon,
        clip_rewards=config.clip_rewards,
        seed=config.seed,
    )


def _check_data(config: TuneConfig, data: FixedData, wanted: Architecture) -> None:
    """Refuse data that the network cannot learn from."""
    shape, actions = tuple(data.observations.shape[1:]), int(data.actions.max()) + 1
    if shape != wanted.observation_shape:
        raise ValueError(
            f"{config.environment} holds observations of shape {list(shape)}, but the network "
            f"takes {list(wanted.observation_shape)}"
        )
    if actions > wanted.actions:
        raise ValueError(
            f"{config.environment} has {actions} actions, but the network chooses among "
            f"{wanted.actions}"
        )
    if len(data) < config.transitions:
        raise ValueError(
            f"transitions must be at most {len(data):,}, which is what {config.environment} holds, "
            f"got {config.transitions:,}"
        )


def _check_memory(config: TuneConfig, approximator: Approximator, network: Pretrained) -> None:
    """Refuse what no memory holds: the features of all levels."""
    shape = (1, *network.architecture.observation_shape)
    dtype = jnp.uint8 if len(shape) > 2 else jnp.float32
    example = jax.eval_shape(approximator.embed, jnp.zeros(shape, dtype))
    half = jnp.issubdtype(example.dtype, jnp.floating) and config.approximator == "head"
    state = math.prod(example.shape) * (2 if half else example.dtype.itemsize)
    copies = _kept_levels(config) + (2 * config.levels if config.data == "replay" else 0)
    needed, there = config.transitions * copies * state, device_memory()
    if needed > 0.9 * there:
        raise ValueError(
            f"transitions of all levels take {needed / 1e9:,.1f} GB, but there are "
            f"{there / 1e9:,.1f} GB of memory: lower --transitions or --levels, or set --buffer "
            "window:LEVELS"
        )


def _check_strict(config: TuneConfig, regressor: Regressor) -> None:
    if config.approximator == "network":
        raise ValueError("children strict is for a linear head: leave out --whole-network")
    features, actions = regressor.head.weight.shape
    check_size((features + 1) * actions, config.levels * config.transitions)


def _regression(config: TuneConfig) -> Regression:
    return Regression(
        updates=config.updates,
        batch_size=config.batch_size,
        pairs=config.pairs,
        scored_pairs=min(20_000, _kept_levels(config) * config.transitions),
        discount=config.discount,
        learning_rate=config.learning_rate,
        penalty_weight=config.penalty_weight,
        margin=config.margin,
        over_actions=config.over_actions,
        proximal=config.proximal,
        own_minibatches=config.minibatches == "own" or config.search == "independent",
        refit=config.refit,
        gap_units=config.units == "gap",
    )


def _kept_levels(config: TuneConfig) -> int:
    kind, _, number = config.buffer.partition(":")
    return min(int(number), config.levels) if kind == "window" else config.levels


def saved_levels(config: TuneConfig) -> int:
    """How many of the newest levels' rows a checkpoint needs."""
    return config.levels if config.data == "replay" else _kept_levels(config)
