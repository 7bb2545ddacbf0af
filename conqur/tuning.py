"""A tuning run: the loop around a search that logs, evaluates, saves, stops and goes on."""

import hashlib
import json
import math
import time as clock
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from signal import Signals
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from conqur._programs import keep_programs
from conqur.config import PRESETS as TRAIN_PRESETS
from conqur.environments import load_data, make
from conqur.environments.data import is_data
from conqur.pretrained import Pretrained, to_bytes
from conqur.pretrained.playing import Arena, arena
from conqur.regressor import Architecture, Regressor, initial_regressor
from conqur.runs import Checkpoint, RunDirectory, stop_requested
from conqur.search.algorithms import (
    beam_search,
    best_first_search,
    depth_first_search,
    independent_search,
    local_search,
)
from conqur.search.approximator import Approximator, LinearTuning, WholeNetwork
from conqur.search.batches import Batches, DataCollector
from conqur.search.collecting import Collector, in_groups
from conqur.search.config import TuneConfig, population
from conqur.search.growing import Grower, Growing
from conqur.search.node import Tree, top
from conqur.search.records import (
    Records,
    against,
    finite,
    json_lines,
    level_row,
    records_from_arrays,
)
from conqur.search.refining import Regression
from conqur.search.rollouts import Rollouts, is_finite
from conqur.search.saving import pick, tree_from_arrays, tree_to_arrays
from conqur.search.strict import StrictSampler, check_size
from conqur.training_run import default_preset, device_memory

SAVE_EVERY = 120.0
"""Seconds between checkpoints. When they are taken has no influence on results."""

EVALUATION, ROLLOUT, CHOICE, FINAL = range(1, 5)
"""What episodes are for: each has fresh starts."""

TREE, EVALUATIONS, SUMMARY = "tree.jsonl", "evaluations.jsonl", "summary.json"


@dataclass(frozen=True, eq=False)
class Found:
    """How a run ended.

    Attributes:
        level: how far it came.
        summary: what was found; None if it was stopped before its end.
        stopped_by: the signal that asked it to stop.
    """

    level: int
    summary: dict[str, Any] | None
    stopped_by: Signals | None


class Tuning:
    """All that a run has in memory, made from its settings and the network that is tuned."""

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
        if config.children == "strict":
            _check_strict(config, regressor)
        _check_memory(config, self.approximator, network)
        self.place = None if is_data(network.environment) else arena([network], config_name(config))
        self.rollouts = _rollouts(self.approximator, self.place)
        self.grower = Grower(
            self.approximator,
            self.root,
            _collector(config, network, self.approximator, self.place),
            growing=Growing(
                children="max" if config.search == "independent" else config.children,
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
            half_precision=config.children != "strict",
            sampler=StrictSampler(config.temperature) if config.children == "strict" else None,
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
            seed=_starts(ROLLOUT, self.config.seed, level),
        )


def run_tuning(
    tuning: Tuning,
    run: RunDirectory,
    checkpoint: Checkpoint | None,
    *,
    warn: Callable[[str], None],
    show: Callable[[Tree, dict[str, Any]], None] = lambda tree, found: None,
    announce: Callable[[str], None] = lambda words: None,
    save_every: float = SAVE_EVERY,
) -> Found:
    """Search from a checkpoint, or from the beginning, to the end or until asked to stop.

    Args:
        tuning: what is searched.
        run: the run's directory.
        checkpoint: where to go on; None: the beginning.
        warn: told in one line of what is wrong without being in the way.
        show: told after every level of the tree and of what the level was like.
        announce: told in words what is going on beside the levels.
        save_every: seconds between checkpoints.
    """
    keep_programs()
    config = tuning.config
    tree = tuning.planted()
    records = Records({})
    if checkpoint is not None:
        tree = tree_from_arrays(checkpoint.arrays, tree.pool[0])
        records = records_from_arrays(checkpoint.arrays, tuning.root)
        levels = checkpoint.rings(_saved_levels(config))
        if not tuning.grower.restore(pick(checkpoint.arrays, "world/"), levels):
            warn("the environments did not come back to where they were: new episodes begin")
    else:
        records.after(tree)
        _evaluate(tuning, tree, records, announce)
    begun, frames_per_step = tree, _frames_per_step(tuning)
    if tuning.rollouts is not None:
        tuning.rollouts.frames += records.played_frames
    saved, last_save = tree.level if checkpoint else -1, clock.monotonic()
    started = clock.monotonic() - records.seconds
    with stop_requested() as stop:
        for tree in tuning.search(begun):
            records.after(tree)
            records.frames += tuning.grower.found["steps"] * frames_per_step
            run.log(tree.level, level_row(tree, tuning.grower.found))
            if tree.level % config.evaluate_every == 0 or tree.level == config.levels:
                _evaluate(tuning, tree, records, announce)
            show(tree, tuning.grower.found)
            records.seconds = clock.monotonic() - started
            if clock.monotonic() - last_save > save_every or stop:
                _save(tuning, run, tree, records)
                saved, last_save = tree.level, clock.monotonic()
            if stop and tree.level < config.levels:
                return Found(tree.level, None, stop.signal)
    if saved != tree.level:
        _save(tuning, run, tree, records)
    summary = _finish(tuning, run, tree, records, announce)
    summary["seconds"] = clock.monotonic() - started
    run.write_file(SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())
    return Found(tree.level, summary, None)


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


def digest(network: Pretrained) -> str:
    """What a network's weights are known by."""
    leaves = jax.tree.leaves(jax.device_get(network.regressor))
    return hashlib.sha256(b"".join(np.asarray(leaf).tobytes() for leaf in leaves)).hexdigest()


def _starts(purpose: int, seed: int, level: int = 0) -> int:
    """A seed of episodes' starts."""
    drawn = np.random.SeedSequence((purpose, seed, level)).generate_state(1)
    return int(drawn[0]) % 2**30


def _rollouts(approximator: Approximator, place: Arena | None) -> Rollouts | None:
    if place is None:
        return None
    return Rollouts(approximator, place.make, frame_skip=place.frame_skip)


def _collector(
    config: TuneConfig, network: Pretrained, approximator: Approximator, place: Arena | None
) -> Batches:
    if is_data(config.environment):
        data = load_data(config.environment)
        return DataCollector(
            approximator,
            data,
            config.environment,
            transitions=config.transitions,
            seed=config.seed,
        )
    assert place is not None
    place.make(1).close()  # refuses a network of another game
    environments = in_groups(
        lambda copies: make(config.environment, copies, preprocessing=config.preprocessing or None),
        config.num_envs,
        seed=config.seed,
    )
    return Collector(
        approximator,
        environments,
        transitions=config.transitions,
        epsilon=config.epsilon,
        clip_rewards=config.clip_rewards,
        seed=config.seed,
    )


def _check_memory(config: TuneConfig, approximator: Approximator, network: Pretrained) -> None:
    """Refuse what no memory holds: the features of all levels."""
    shape = (1, *network.architecture.observation_shape)
    dtype = jnp.uint8 if len(shape) > 2 else jnp.float32
    example = jax.eval_shape(approximator.embed, jnp.zeros(shape, dtype))
    half = jnp.issubdtype(example.dtype, jnp.floating)
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


def _frames_per_step(tuning: Tuning) -> int:
    return 1 if tuning.place is None else tuning.place.frame_skip


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
        own_order=config.search == "independent",
        refit=config.refit,
        gap_units=config.units == "gap",
    )


def _kept_levels(config: TuneConfig) -> int:
    kind, _, number = config.buffer.partition(":")
    return min(int(number), config.levels) if kind == "window" else config.levels


def _saved_levels(config: TuneConfig) -> int:
    return config.levels if config.data == "replay" else _kept_levels(config)


def _evaluate(
    tuning: Tuning, tree: Tree, records: Records, announce: Callable[[str], None]
) -> None:
    """Play with the frontier and with the checkpoint, on fresh starts that all have in common."""
    config = tuning.config
    if tuning.rollouts is None or not config.evaluation_episodes:
        return
    nodes = [node for node in tree.frontier if is_finite(node.weights.theta)]
    words = f"level {tree.level}: evaluating {len(nodes)} nodes"
    root, *played = tuning.rollouts.play(
        [tuning.root, *(node.weights.theta for node in nodes)],
        episodes=config.evaluation_episodes,
        seed=_starts(EVALUATION, config.seed, tree.level),
        on_progress=lambda done: announce(f"{words}, {done:.0%}"),
    )
    for node, evaluation in zip(nodes, played, strict=True):
        row = {"level": tree.level, "node": node.id} | against(evaluation, root)
        records.evaluated(node, row)


def _save(tuning: Tuning, run: RunDirectory, tree: Tree, records: Records) -> None:
    """Write what can be read by people, and a checkpoint."""
    if tuning.rollouts is not None:
        records.played_frames = tuning.rollouts.frames
    run.write_file(TREE, records.tree_lines(tree))
    run.write_file(EVALUATIONS, json_lines(records.evaluations))
    keep = _saved_levels(tuning.config)
    new = min(tree.level - run.saved_rows, keep)
    arrays = tree_to_arrays(tree)
    arrays |= {f"world/{name}": array for name, array in tuning.grower.state().items()}
    arrays |= records.to_arrays()
    appended = tuning.grower.levels(tree.level - new, tree.level) if new else {}
    run.save(tree.level, arrays, appended=appended, total_rows=tree.level, keep_rows=keep)


def _finish(
    tuning: Tuning,
    run: RunDirectory,
    tree: Tree,
    records: Records,
    announce: Callable[[str], None],
) -> dict[str, Any]:
    """Choose the network that is handed back, and write it with all of the frontier's."""
    config, rollouts = tuning.config, tuning.rollouts
    for node in tree.frontier:
        origin = {"node": node.id, "level": node.level}
        network = to_bytes(tuning.pretrained(node.weights.theta, origin))
        run.write_network(f"node-{node.id}.safetensors", network)
    by_score = top(tree.pool, 1)[0]
    candidates = [(node.weights.theta, node.id, node.level) for node in tree.pool]
    known = {number for _, number, _ in candidates}
    candidates += [
        (theta, row["node"], row["level"] - 1)  # evaluated after the level that made it
        for theta, row in records.champions
        if row["node"] not in known
    ]
    candidates = [candidate for candidate in candidates if is_finite(candidate[0])] or candidates[
        :1
    ]
    summary: dict[str, Any] = {
        "environment": config.environment,
        "levels": tree.level,
        "frames": records.frames,
        "chosen_by_score": {"node": by_score.id, "score": finite(by_score.score)},
        "best_of_evaluations": records.champions[0][1] if records.champions else None,
    }
    chosen, number, level = by_score.weights.theta, by_score.id, by_score.level
    better = True
    if rollouts is not None:
        announce(f"choosing among {len(candidates)} nodes")
        best = rollouts.best_of(
            [theta for theta, _, _ in candidates],
            episodes=max(2, config.final_episodes // 16),
            budget=config.final_episodes,
            seed=_starts(CHOICE, config.seed),
        )
        chosen, number, level = candidates[best]
        announce("comparing the chosen node to the checkpoint on fresh starts")
        root, scored, by_score_played = rollouts.play(
            [tuning.root, chosen, by_score.weights.theta],
            episodes=config.final_episodes,
            seed=_starts(FINAL, config.seed),
        )
        summary["checkpoint"] = root.to_json()
        summary["chosen_by_score"] |= against(by_score_played, root)
        summary["chosen"] = {"node": number, "level": level} | against(scored, root)
        better = summary["chosen"]["gain_interval"][0] > 0
        summary["played_frames"] = rollouts.frames
    handed = chosen if better else tuning.root
    summary["handed_back"] = f"node {number}" if better else "checkpoint"
    origin = {"tuned": summary["handed_back"], "level": level if better else -1}
    run.write_network("best.safetensors", to_bytes(tuning.pretrained(handed, origin)))
    return summary
