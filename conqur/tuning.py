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
import numpy as np

from conqur._programs import keep_programs
from conqur.config import PRESETS as TRAIN_PRESETS
from conqur.environments import load_data, make
from conqur.environments.data import is_data
from conqur.environments.journal import Journal
from conqur.evaluation import Evaluation
from conqur.pretrained import Pretrained, to_bytes
from conqur.pretrained.playing import Arena, arena
from conqur.regressor import Architecture, Regressor, initial_regressor
from conqur.runs import Checkpoint, RunDirectory, flatten, stop_requested, unflatten
from conqur.search.algorithms import (
    beam_search,
    best_first_search,
    depth_first_search,
    independent_search,
    local_search,
)
from conqur.search.approximator import Approximator, LinearTuning, WholeNetwork
from conqur.search.collecting import Batches, Collector, DataCollector
from conqur.search.config import TuneConfig, population
from conqur.search.growing import Grower, Growing
from conqur.search.node import Node, Tree, top
from conqur.search.refining import Regression
from conqur.search.rollouts import Rollouts
from conqur.search.saving import pick, tree_from_arrays, tree_to_arrays
from conqur.search.strict import StrictSampler, check_size
from conqur.statistics import student_interval
from conqur.training_run import default_preset

SAVE_EVERY = 120.0
"""Seconds between checkpoints. When they are taken has no influence on results."""

EVALUATION, ROLLOUT, CHOICE, FINAL = (k * 1_000_000 for k in range(1, 5))
"""Where the seeds of starts begin, by what the episodes are for: all of them are fresh."""

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
        self.place = None if is_data(network.environment) else arena([network], config_name(config))
        self.rollouts = _rollouts(self.approximator, self.place)
        self.grower = Grower(
            self.approximator,
            self.root,
            _collector(config, network, self.approximator, self.place),
            growing=Growing(
                children=config.children,
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
            seed=ROLLOUT + 1000 * self.config.seed + level,
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
        records = _records_of(checkpoint.arrays, tuning.root)
        levels = checkpoint.rings(_saved_levels(config))
        if not tuning.grower.restore(pick(checkpoint.arrays, "world/"), levels):
            warn("the environments did not come back to where they were: new episodes begin")
    else:
        records.planted(tree)
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
            run.log(tree.level, _row(tree, tuning.grower.found))
            if tree.level % config.evaluate_every == 0 or tree.level == config.levels:
                _evaluate(tuning, tree, records, announce)
            show(tree, tuning.grower.found)
            records.seconds = clock.monotonic() - started
            if clock.monotonic() - last_save > save_every or stop:
                _save(tuning, run, tree, records, saved)
                saved, last_save = tree.level, clock.monotonic()
            if stop and tree.level < config.levels:
                return Found(tree.level, None, stop.signal)
    if saved != tree.level:
        _save(tuning, run, tree, records, saved)
    summary = _finish(tuning, run, tree, records, announce)
    summary["seconds"] = records.seconds
    run.write_file(SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())
    return Found(tree.level, summary, None)


class Records:
    """What a run knows beside the tree: every node there was, evaluations, the best so far.

    Attributes:
        nodes: a record of every node, by its id.
        evaluations: of nodes, in order.
        champions: the best of the evaluated nodes, best first, as (θ, evaluation).
        frames: of the game, in collecting.
        played_frames: of the game, in rollouts.
        seconds: so far.
    """

    def __init__(self, saved: dict[str, Any], champions: tuple[Any, ...] = ()) -> None:
        self.nodes: dict[int, dict[str, Any]] = {n["id"]: n for n in saved.get("nodes", [])}
        self.evaluations: list[dict[str, Any]] = saved.get("evaluations", [])
        self.champions = list(zip(champions, saved.get("champions", []), strict=True))
        self.frames: int = saved.get("frames", 0)
        self.played_frames: int = saved.get("played_frames", 0)
        self.seconds: float = saved.get("seconds", 0.0)

    def to_json(self) -> dict[str, Any]:
        """All but the champions' regressors."""
        return {
            "nodes": list(self.nodes.values()),
            "evaluations": self.evaluations,
            "champions": [evaluation for _, evaluation in self.champions],
            "frames": self.frames,
            "played_frames": self.played_frames,
            "seconds": self.seconds,
        }

    def planted(self, tree: Tree) -> None:
        """Note the roots."""
        for node in tree.pool:
            self.nodes[node.id] = _record(node)

    def after(self, tree: Tree) -> None:
        """Note the nodes of a level."""
        for node in tree.pool:
            self.nodes[node.id] = _record(node)

    def evaluated(self, node: Node, row: dict[str, Any]) -> None:
        """Note an evaluation."""
        self.evaluations.append(row)
        self.champions.append((node.weights.theta, row))
        self.champions.sort(key=lambda champion: (-champion[1]["gain"], champion[1]["node"]))
        del self.champions[CHAMPIONS:]

    def tree_lines(self, tree: Tree) -> bytes:
        """`tree.jsonl`: one line for each node there was."""
        frontier = {node.id for node in tree.frontier}
        pool = {node.id for node in tree.pool}
        parents = {record["parent"] for record in self.nodes.values()}
        lines = []
        for number, record in sorted(self.nodes.items()):
            status = "evicted"
            if number in parents:
                status = "expanded"
            if number in pool:
                status = "frontier" if number in frontier else "pool"
            lines.append(record | {"status": status})
        return _lines(lines)


CHAMPIONS = 4
"""How many of the best evaluated nodes are remembered to the end."""


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
    environment = make(
        config.environment, config.num_envs, preprocessing=config.preprocessing or None
    )
    return Collector(
        approximator,
        Journal(environment, (config.seed,)),
        transitions=config.transitions,
        epsilon=config.epsilon,
        clip_rewards=config.clip_rewards,
        seed=config.seed,
    )


def _check_strict(config: TuneConfig, regressor: Regressor) -> None:
    if config.approximator == "network":
        raise ValueError("children strict is for a linear head: leave out --whole-network")
    features, actions = regressor.head.weight.shape
    check_size((features + 1) * actions, config.levels * config.transitions)


def _frames_per_step(tuning: Tuning) -> int:
    return tuning.config.num_envs * (1 if tuning.place is None else tuning.place.frame_skip)


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


def _record(node: Node) -> dict[str, Any]:
    return {
        "id": node.id,
        "parent": node.parent,
        "level": node.level,
        "kind": node.kind,
        "score": _number(node.score),
        "calibrated": _number(node.calibrated),
        "assigned_how": node.assigned_how,
        "penalty": _number(node.penalty),
        "bellman": _number(node.bellman),
    }


def _row(tree: Tree, found: dict[str, Any]) -> dict[str, Any]:
    """What a level was like, for the log."""
    scores = [node.score for node in tree.frontier]
    returns = found["returns"]
    numbers = {name: value for name, value in found.items() if name != "returns"}
    return numbers | {
        "kind": tree.frontier[0].kind,
        "nodes": len(tree.frontier),
        "pool": len(tree.pool),
        "best_score": min(scores),
        "mean_score": float(np.mean(scores)),
        "episodes": len(returns),
        "return": float(np.mean(returns)) if returns else None,
    }


def _evaluate(
    tuning: Tuning, tree: Tree, records: Records, announce: Callable[[str], None]
) -> None:
    """Play with the frontier and with the checkpoint, on fresh starts that all have in common."""
    config = tuning.config
    if tuning.rollouts is None or not config.evaluation_episodes:
        return
    nodes = tree.frontier
    words = f"level {tree.level}: evaluating {len(nodes)} nodes"
    root, *played = tuning.rollouts.play(
        [tuning.root, *(node.weights.theta for node in nodes)],
        episodes=config.evaluation_episodes,
        seed=EVALUATION + 1000 * config.seed + tree.level,
        on_progress=lambda done: announce(f"{words}, {done:.0%}"),
    )
    for node, evaluation in zip(nodes, played, strict=True):
        row = {"level": tree.level, "node": node.id} | _against(evaluation, root)
        records.evaluated(node, row)


def _against(evaluation: Evaluation, root: Evaluation) -> dict[str, Any]:
    """A node's scores, and by how much they are above the checkpoint's on the same starts."""
    gains = np.subtract(evaluation.scores, root.scores)
    return {
        "mean": evaluation.mean,
        "interval": [_number(bound) for bound in evaluation.interval],
        "gain": float(gains.mean()),
        "gain_interval": [_number(bound) for bound in student_interval(gains)],
        "checkpoint": root.mean,
        "episodes": len(evaluation.scores),
        "frames": evaluation.frames,
    }


def _save(tuning: Tuning, run: RunDirectory, tree: Tree, records: Records, saved: int) -> None:
    """Write what can be read by people, and a checkpoint; `saved` is the level of the last one."""
    if tuning.rollouts is not None:
        records.played_frames = tuning.rollouts.frames
    run.write_file(TREE, records.tree_lines(tree))
    run.write_file(EVALUATIONS, _lines(records.evaluations))
    keep = _saved_levels(tuning.config)
    new = min(tree.level - run.saved_rows, keep)
    arrays = tree_to_arrays(tree)
    arrays |= {f"world/{name}": array for name, array in tuning.grower.state().items()}
    arrays["records"] = np.frombuffer(json.dumps(records.to_json()).encode(), np.uint8)
    for i, (theta, _) in enumerate(records.champions):
        arrays |= {f"champions/{i}/{name}": array for name, array in flatten(theta).items()}
    appended = tuning.grower.levels(tree.level - new, tree.level) if new else {}
    run.save(tree.level, arrays, appended=appended, total_rows=tree.level, keep_rows=keep)


def _records_of(arrays: dict[str, np.ndarray], root: Any) -> Records:
    saved = json.loads(arrays["records"].tobytes())
    champions = tuple(
        unflatten(root, pick(arrays, f"champions/{i}/")) for i in range(len(saved["champions"]))
    )
    return Records(saved, champions)


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
        (theta, row["node"], row["level"])
        for theta, row in records.champions
        if row["node"] not in known
    ]
    summary: dict[str, Any] = {
        "environment": config.environment,
        "levels": tree.level,
        "frames": records.frames,
        "chosen_by_score": {"node": by_score.id, "score": _number(by_score.score)},
        "best_of_evaluations": records.champions[0][1] if records.champions else None,
    }
    chosen, number, level = by_score.weights.theta, by_score.id, by_score.level
    better = True
    if rollouts is not None:
        seed = 1000 * config.seed
        announce(f"choosing among {len(candidates)} nodes")
        best = rollouts.best_of(
            [theta for theta, _, _ in candidates],
            episodes=max(2, config.final_episodes // 16),
            budget=config.final_episodes,
            seed=CHOICE + seed,
        )
        chosen, number, level = candidates[best]
        announce("comparing the chosen node to the checkpoint on fresh starts")
        root, scored, by_score_played = rollouts.play(
            [tuning.root, chosen, by_score.weights.theta],
            episodes=config.final_episodes,
            seed=FINAL + seed,
        )
        summary["checkpoint"] = root.to_json()
        summary["chosen_by_score"] |= _against(by_score_played, root)
        summary["chosen"] = {"node": number, "level": level} | _against(scored, root)
        better = summary["chosen"]["gain_interval"][0] > 0
        summary["played_frames"] = rollouts.frames
    handed = chosen if better else tuning.root
    summary["handed_back"] = f"node {number}" if better else "checkpoint"
    origin = {"tuned": summary["handed_back"], "level": level if better else -1}
    run.write_network("best.safetensors", to_bytes(tuning.pretrained(handed, origin)))
    return summary


def _lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows).encode()


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
