"""What a tuning run hands back: nodes play for it, and the best one is written if it is better."""

import time as clock
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from conqur.pretrained import Pretrained, to_bytes, write_like, written_suffix
from conqur.runs import RunDirectory
from conqur.search.choosing import Choosing
from conqur.search.node import Node, Tree, top
from conqur.search.records import Records, against, finite
from conqur.search.rollouts import Rollouts, is_finite
from conqur.search.saving import digest
from conqur.tuning import CHOICE, FINAL, Tuning, starts

ORIGINAL = "original"
"""What the copy of another tool's file is called, before its suffix."""
BEST = "best.safetensors"
"""The network that is handed back."""


class Candidate(NamedTuple):
    """A node that may be handed back."""

    theta: Any
    node: int
    level: int


def finish(
    tuning: Tuning,
    run: RunDirectory,
    tree: Tree,
    records: Records,
    announce: Callable[[str], None],
    warn: Callable[[str], None],
) -> tuple[dict[str, Any], float]:
    """Choose the network that is handed back, and write it with all of the frontier's.

    Returns:
        What was found, and the seconds that a process which was killed had spent on choosing.
    """
    for node in tree.frontier:
        origin = {"node": node.id, "level": node.level + 1}
        network = to_bytes(tuning.pretrained(node.weights.theta, origin))
        run.write_network(f"node-{node.id}.safetensors", network)
    whole = [node for node in tree.pool if is_finite(node.weights.theta)]
    candidates = _candidates(whole, records)
    if not whole:
        warn("all nodes diverged: lower the learning rate")
        candidates = [found for found in candidates if found.level > 0]  # not the checkpoint itself
    summary: dict[str, Any] = {
        "environment": tuning.config.environment,
        "levels": tree.level,
        "frames": records.frames,
        "candidates": len(candidates),
    }
    if not candidates:
        return summary | _handed_back(tuning, run, None, warn), 0.0
    by_score = next(iter(top(whole, 1)), None)
    first = candidates[0] if by_score is None else _candidate(by_score)
    summary |= {
        "chosen_by_score": by_score and {"node": by_score.id, "score": finite(by_score.score)},
        "best_of_evaluations": records.champions[0][1] if records.champions else None,
    }
    if tuning.rollouts is None:
        return summary | _handed_back(tuning, run, first, warn), 0.0
    chosen, played, seconds = _choose(tuning, tuning.rollouts, run, candidates, announce)
    tuning.watch(announce, "comparing the chosen node to the checkpoint on fresh starts")
    root, scored, of_score = tuning.rollouts.play(
        [tuning.root, chosen.theta, first.theta],
        episodes=tuning.config.final_episodes,
        seed=starts(FINAL, tuning.config.seed),
    )
    if by_score is not None:
        summary["chosen_by_score"] |= against(of_score, root)
    summary |= {
        "played_again": played,
        "checkpoint": root.to_json(),
        "chosen": {"node": chosen.node, "level": chosen.level} | against(scored, root),
        "played_frames": tuning.rollouts.frames,
    }
    better = summary["chosen"]["gain_interval"][0] > 0
    return summary | _handed_back(tuning, run, chosen if better else None, warn), seconds


def _candidate(node: Node) -> Candidate:
    return Candidate(node.weights.theta, node.id, node.level + 1)


def _candidates(pool: Sequence[Node], records: Records) -> list[Candidate]:
    """Nodes of the pool, and those that did best when they were evaluated; each regressor once.

    The checkpoint is there once, too, however many nodes began as copies of it: more copies would
    be in the way of other nodes when the better half is kept.
    """
    found: dict[str, Candidate] = {}
    for candidate in map(_candidate, pool):
        found.setdefault(digest(candidate.theta), candidate)
    for theta, row in records.champions:
        found.setdefault(digest(theta), Candidate(theta, row["node"], row["level"]))
    return list(found.values())


def _choose(
    tuning: Tuning,
    rollouts: Rollouts,
    run: RunDirectory,
    candidates: Sequence[Candidate],
    announce: Callable[[str], None],
) -> tuple[Candidate, list[dict[str, Any]], float]:
    """Let candidates play: the best, what each scored, and a killed process' seconds."""
    tuning.watch(announce, f"choosing among {len(candidates)} nodes")
    thetas = [found.theta for found in candidates]
    how = {
        "episodes": max(2, tuning.config.final_episodes // 16),
        "budget": tuning.config.final_episodes,
        "seed": starts(CHOICE, tuning.config.seed),
    }
    choosing = Choosing(run, (thetas, how))
    before, begun = choosing.seconds, clock.monotonic() - choosing.seconds
    best, played = rollouts.best_of(
        thetas,
        **how,
        before=choosing.rounds,
        keep=lambda rounds: choosing.keep(rounds, clock.monotonic() - begun),
    )
    scored = [
        {"node": found.node, "mean": standing.mean, "episodes": standing.episodes}
        for found, standing in zip(candidates, played, strict=True)
        if standing.episodes  # a single one need not play
    ]
    return candidates[best], scored, before


def _handed_back(
    tuning: Tuning, run: RunDirectory, found: Candidate | None, warn: Callable[[str], None]
) -> dict[str, Any]:
    """Write the network that is handed back: a node's, or the checkpoint if there is none."""
    words = "checkpoint" if found is None else f"node {found.node}"
    theta, level = (tuning.root, 0) if found is None else (found.theta, found.level)
    network = tuning.pretrained(theta, {"tuned": words, "level": level})
    run.write_network(BEST, to_bytes(network))
    return {"handed_back": words, "written_back": _write_back(run, network, warn)}


def kept_original(original: Path) -> dict[str, bytes]:
    """Copies of the file of another tool, by name, to write the network back like it."""
    suffix = written_suffix(original)
    if suffix == ".safetensors":  # which all files of a run's own have
        suffix = ".tensors"
    if not suffix:
        return {}
    kept = {ORIGINAL + suffix: original.read_bytes()}
    mapping = original.with_name(original.name + ".json")
    if mapping.is_file():
        kept[f"{ORIGINAL}{suffix}.json"] = mapping.read_bytes()
    return kept


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
