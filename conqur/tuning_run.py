"""The loop around a search that logs, evaluates, saves, stops and goes on."""

import json
import time as clock
from collections.abc import Callable
from dataclasses import dataclass
from signal import Signals
from typing import Any

from conqur._programs import keep_programs
from conqur.handing_back import finish
from conqur.runs import Checkpoint, RunDirectory, StopRequest, stop_requested
from conqur.search.choosing import forget
from conqur.search.node import Tree
from conqur.search.records import (
    Records,
    against,
    json_lines,
    level_row,
    records_from_arrays,
)
from conqur.search.rollouts import is_finite
from conqur.search.saving import pick, tree_from_arrays, tree_to_arrays
from conqur.tuning import EVALUATION, Tuning, saved_levels, starts

SAVE_EVERY = 120.0
"""Seconds between checkpoints. When they are taken has no influence on results."""

STOPPING = "Stopping after this level. Ctrl-C again: at once, without saving it."
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
        tree = tree_from_arrays(checkpoint.arrays, tree.pool[0])
        records = records_from_arrays(checkpoint.arrays, tuning.root)
        if tree.level < config.levels:  # else only the choice is left, which needs none of it
            _restore(tuning, checkpoint, announce, warn)
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
        # On a screen that is drawn anew the answer would be gone.
        announce = _with_answer(announce, stop)
        _announce_play(tuning, tree, announce)
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
            _announce_play(tuning, tree, announce)
    if saved == tree.level:
        _write_story(run, tree, records)  # whatever became of it since
    else:
        _save(tuning, run, tree, records)
    summary, before = finish(tuning, run, tree, records, announce, warn)
    summary["seconds"] = before + clock.monotonic() - started
    run.write_file(SUMMARY, (json.dumps(summary, indent=2) + "\n").encode())
    forget(run)
    return Found(tree.level, summary, None)


def _restore(
    tuning: Tuning,
    checkpoint: Checkpoint,
    announce: Callable[[str], None],
    warn: Callable[[str], None],
) -> None:
    """Bring batches, commitments and environments back to where they were."""
    announce("going on: games are played again up to where they were")
    levels = checkpoint.rings(saved_levels(tuning.config))
    if not tuning.grower.restore(pick(checkpoint.arrays, "world/"), levels):
        warn("the environments did not come back to where they were: new episodes begin")


def _announce_play(tuning: Tuning, tree: Tree, announce: Callable[[str], None]) -> None:
    """What is next, if anything is; not in the words in which a level is told that is done."""
    if tree.level < tuning.config.levels:
        words = f"level {tree.level + 1}/{tuning.config.levels}: playing with nodes"
        tuning.watch(announce, words)


def _with_answer(announce: Callable[[str], None], stop: StopRequest) -> Callable[[str], None]:
    """Announcements that begin with the answer to Ctrl-C, once that was asked."""
    return lambda words: announce(f"{STOPPING} ({words})" if stop else words)


def _frames_per_step(tuning: Tuning) -> int:
    return 1 if tuning.place is None else tuning.place.frame_skip


def _evaluate(
    tuning: Tuning, tree: Tree, records: Records, announce: Callable[[str], None]
) -> None:
    """Play with the frontier and with the checkpoint, on fresh starts that all have in common."""
    config = tuning.config
    if tuning.rollouts is None or not config.evaluation_episodes:
        return
    nodes = [node for node in tree.frontier if is_finite(node.weights.theta)]
    tuning.watch(announce, f"level {tree.level}: evaluating {len(nodes)} nodes")
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
