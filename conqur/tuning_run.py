"""The loop around a search that logs, evaluates, saves, stops and goes on."""

import json
import time as clock
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Any

from conqur._programs import keep_programs
from conqur.pretrained import Pretrained, to_bytes, write_like, written_suffix
from conqur.runs import Checkpoint, RunDirectory, stop_requested
from conqur.search.choosing import Choosing, forget
from conqur.search.node import Tree, top
from conqur.search.records import (
    Records,
    against,
    finite,
    json_lines,
    level_row,
    records_from_arrays,
)
from conqur.search.rollouts import is_finite
from conqur.search.saving import pick, tree_from_arrays, tree_to_arrays
from conqur.tuning import CHOICE, EVALUATION, FINAL, Tuning, saved_levels, starts

SAVE_EVERY = 120.0
"""Seconds between checkpoints. When they are taken has no influence on results."""

ORIGINAL = "original"
"""What the copy of another tool's file is called, before its suffix."""

STOPPING = "Stopping after this level. Ctrl-C again: at once, without saving it."
BEST = "best.safetensors"
"""The network that is handed back."""
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
        announce("going on: games are played again up to where they were")
        tree = tree_from_arrays(checkpoint.arrays, tree.pool[0])
        records = records_from_arrays(checkpoint.arrays, tuning.root)
        levels = checkpoint.rings(saved_levels(config))
        if not tuning.grower.restore(pick(checkpoint.arrays, "world/"), levels):
            warn("the environments did not come back to where they were: new episodes begin")
    else:
        records.after(tree)
        announce("starting: programs are compiled")
        _evaluate(tuning, tree, records, announce)
    begun, frames_per_step = tree, _frames_per_step(tuning)
    if tuning.rollouts is not None:
        tuning.rollouts.frames += records.played_frames
    saved, last_save = tree.level if checkpoint else -1, clock.monotonic()
    started = clock.monotonic() - records.seconds
    with stop_requested(STOPPING) as stop:
        _watch(tuning, announce, f"level {tree.level + 1}: playing with nodes")
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
            if stop:
                return Found(tree.level, None, stop.signal)
            _watch(tuning, announce, f"level {tree.level + 1}: playing with nodes")
    if saved == tree.level:
        _write_story(run, tree, records)  # whatever became of it since
    else:
        _save(tuning, run, tree, records)
    summary = _finish(tuning, run, tree, records, announce, warn)
    # With what a process that was killed spent on choosing.
    summary["seconds"] = clock.monotonic() - started + summary.get("seconds", 0.0)
    run.write_file(SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())
    forget(run)
    return Found(tree.level, summary, None)


def _frames_per_step(tuning: Tuning) -> int:
    return 1 if tuning.place is None else tuning.place.frame_skip


def _watch(tuning: Tuning, announce: Callable[[str], None], words: str) -> None:
    """Tell how far it is while nodes play."""
    if tuning.rollouts is not None:
        tuning.rollouts.watch = lambda done: announce(f"{words}, {done:.0%}")


def _evaluate(
    tuning: Tuning, tree: Tree, records: Records, announce: Callable[[str], None]
) -> None:
    """Play with the frontier and with the checkpoint, on fresh starts that all have in common."""
    config = tuning.config
    if tuning.rollouts is None or not config.evaluation_episodes:
        return
    nodes = [node for node in tree.frontier if is_finite(node.weights.theta)]
    _watch(tuning, announce, f"level {tree.level}: evaluating {len(nodes)} nodes")
    root, *played = tuning.rollouts.play(
        [tuning.root, *(node.weights.theta for node in nodes)],
        episodes=config.evaluation_episodes,
        seed=starts(EVALUATION, config.seed, tree.level),
    )
    for node, evaluation in zip(nodes, played, strict=True):
        row = {"level": tree.level, "node": node.id} | against(evaluation, root)
        records.evaluated(node, row)


def _save(tuning: Tuning, run: RunDirectory, tree: Tree, records: Records) -> None:
    """Write what can be read by people, and a checkpoint."""
    if tuning.rollouts is not None:
        records.played_frames = tuning.rollouts.frames
    _write_story(run, tree, records)
    keep = saved_levels(tuning.config)
    new = min(tree.level - run.saved_rows, keep)
    arrays = tree_to_arrays(tree)
    arrays |= {f"world/{name}": array for name, array in tuning.grower.state().items()}
    arrays |= records.to_arrays()
    appended = tuning.grower.levels(tree.level - new, tree.level) if new else {}
    run.save(tree.level, arrays, appended=appended, total_rows=tree.level, keep_rows=keep)


def _write_story(run: RunDirectory, tree: Tree, records: Records) -> None:
    run.write_file(TREE, records.tree_lines(tree))
    run.write_file(EVALUATIONS, json_lines(records.evaluations))


def _finish(
    tuning: Tuning,
    run: RunDirectory,
    tree: Tree,
    records: Records,
    announce: Callable[[str], None],
    warn: Callable[[str], None],
) -> dict[str, Any]:
    """Choose the network that is handed back, and write it with all of the frontier's."""
    config, rollouts = tuning.config, tuning.rollouts
    for node in tree.frontier:
        origin = {"node": node.id, "level": node.level + 1}
        network = to_bytes(tuning.pretrained(node.weights.theta, origin))
        run.write_network(f"node-{node.id}.safetensors", network)
    whole = [node for node in tree.pool if is_finite(node.weights.theta)]
    candidates = [(node.weights.theta, node.id, node.level + 1) for node in whole]
    known = {number for _, number, _ in candidates}
    candidates += [
        (theta, row["node"], row["level"])  # evaluated after the level that made it
        for theta, row in records.champions
        if row["node"] not in known
    ]
    if not whole:
        warn("all nodes diverged: lower the learning rate")
        candidates = [found for found in candidates if found[2] > 0]  # not the checkpoint itself
    if not candidates:
        return _nothing_left(tuning, run, tree, records, warn)
    by_score = next(iter(top(whole, 1)), None)
    summary: dict[str, Any] = {
        "environment": config.environment,
        "levels": tree.level,
        "frames": records.frames,
        "chosen_by_score": by_score and {"node": by_score.id, "score": finite(by_score.score)},
        "candidates": len(candidates),
        "best_of_evaluations": records.champions[0][1] if records.champions else None,
    }
    chosen, number, level = next(c for c in candidates if by_score is None or c[1] == by_score.id)
    better = True
    if rollouts is not None:
        _watch(tuning, announce, f"choosing among {len(candidates)} nodes")
        thetas = [theta for theta, _, _ in candidates]
        how = {
            "episodes": max(2, config.final_episodes // 16),
            "budget": config.final_episodes,
            "seed": starts(CHOICE, config.seed),
        }
        choosing = Choosing(run, (thetas, how))
        summary["seconds"], begun = choosing.seconds, clock.monotonic() - choosing.seconds
        best, played = rollouts.best_of(
            thetas,
            **how,
            before=choosing.rounds,
            keep=lambda rounds: choosing.keep(rounds, clock.monotonic() - begun),
        )
        chosen, number, level = candidates[best]
        summary["played_again"] = [
            {"node": node, "mean": found.mean, "episodes": found.episodes}
            for (_, node, _), found in zip(candidates, played, strict=True)
            if found.episodes  # a single one need not play
        ]
        _watch(tuning, announce, "comparing the chosen node to the checkpoint on fresh starts")
        also = [] if by_score is None else [by_score.weights.theta]
        root, scored, *of_score = rollouts.play(
            [tuning.root, chosen, *also],
            episodes=config.final_episodes,
            seed=starts(FINAL, config.seed),
        )
        summary["checkpoint"] = root.to_json()
        for evaluation in of_score:
            summary["chosen_by_score"] |= against(evaluation, root)
        summary["chosen"] = {"node": number, "level": level} | against(scored, root)
        better = summary["chosen"]["gain_interval"][0] > 0
        summary["played_frames"] = rollouts.frames
    handed = chosen if better else tuning.root
    summary["handed_back"] = f"node {number}" if better else "checkpoint"
    origin = {"tuned": summary["handed_back"], "level": level if better else 0}
    best_network = tuning.pretrained(handed, origin)
    run.write_network(BEST, to_bytes(best_network))
    summary["written_back"] = _write_back(run, best_network, warn)
    return summary


def _nothing_left(
    tuning: Tuning,
    run: RunDirectory,
    tree: Tree,
    records: Records,
    warn: Callable[[str], None],
) -> dict[str, Any]:
    """Hand the checkpoint back: all nodes diverged, and none was evaluated before."""
    network = tuning.pretrained(tuning.root, {"tuned": "checkpoint", "level": 0})
    run.write_network(BEST, to_bytes(network))
    return {
        "environment": tuning.config.environment,
        "levels": tree.level,
        "frames": records.frames,
        "candidates": 0,
        "handed_back": "checkpoint",
        "written_back": _write_back(run, network, warn),
    }


def keep_original(run: RunDirectory, original: Path) -> None:
    """Keep a copy of the file of another tool, to write the network back like it.

    Args:
        run: the run's directory.
        original: the file.
    """
    suffix = written_suffix(original)
    if suffix == ".safetensors":  # which all files of a run's own have
        suffix = ".tensors"
    if suffix:
        run.write_network(ORIGINAL + suffix, original.read_bytes())
        mapping = original.with_name(original.name + ".json")
        if mapping.is_file():
            run.write_network(f"{ORIGINAL}{suffix}.json", mapping.read_bytes())


def _write_back(run: RunDirectory, best: Pretrained, warn: Callable[[str], None]) -> str | None:
    """Write the network that is handed back in the format it came in; the file's name, if any."""
    for original in sorted(run.networks.glob(f"{ORIGINAL}.*")):
        name = f"best{original.suffix}"
        if original.suffix == ".json":
            continue
        try:
            run.write_network(name, write_like(best, original))
            mapping = original.with_name(original.name + ".json")
            if mapping.is_file():
                run.write_network(f"{name}.json", mapping.read_bytes())
        except ValueError as error:
            warn(f"the network is not written in the format it came in: {error}")
            return None
        return name
    return None
