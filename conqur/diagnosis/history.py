"""Was a search delusional? Read a tuning run's history, and measure.

A run keeps the states that its labels counted on and, for every node, the actions that its lineage
is committed to there. So nothing has to be learned again: the same is measured as of a network
whose learning is continued, on the choices of the best node.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float, Int

from conqur.diagnosis.averages import Balance, Leads, satisfiable_json
from conqur.diagnosis.diagnosing import NOISE_DRAWS, played
from conqur.diagnosis.measures import gaps, greedy
from conqur.diagnosis.play import Worth
from conqur.diagnosis.reading import Run
from conqur.diagnosis.satisfiable import Satisfiable, satisfiable
from conqur.diagnosis.values import Estimate, over_repetitions, plain_values
from conqur.environments.data import is_data
from conqur.pretrained.playing import arena
from conqur.runs import RunError
from conqur.search.config import TuneConfig
from conqur.search.node import Node, top
from conqur.search.rollouts import is_finite

MOST_CHOICES = 20_000
"""On which heads are sought and noise is tried; of more, so many are drawn."""


@dataclass(frozen=True, eq=False)
class NodeBreaks:
    """How many of its lineage's choices a node breaks.

    Attributes:
        id: of the node.
        score: calibrated, by which the search compares it; lower is better.
        choices: that its lineage is committed to, as far as their states were kept.
        share: of these that its own greedy policy breaks.
        of_levels: of each level's, by level; NaN where it has none.
    """

    id: int
    score: float
    choices: int
    share: float
    of_levels: Float[np.ndarray, " K"]


@dataclass(frozen=True, eq=False)
class RunDiagnosis:
    """What was found out about a search.

    Attributes:
        environment: where nodes were played; "" if they were not.
        config: the run's settings.
        level: how far it came.
        levels: those whose states it kept.
        best: the best node by its calibrated score.
        frontier: all nodes that the last level trained and that did not diverge.
        drawn: of the best node's choices, so many are looked at for what follows.
        satisfiable: how many of these one head could make.
        moved: the share of these states where the best node decides otherwise than the checkpoint.
        leads: action gaps of the best node.
        churn: the share of decisions that each level changed, mean over its nodes.
        labels: the mean Q-label that each level's nodes give.
        checkpoint_balance: what the checkpoint promises and earns; None if nothing was played.
        balance: the same of the best node.
        higher_score: score, best node − checkpoint, on common starts.
    """

    environment: str
    config: TuneConfig
    level: int
    levels: tuple[int, ...]
    best: NodeBreaks
    frontier: tuple[NodeBreaks, ...]
    drawn: int
    satisfiable: Satisfiable
    moved: float
    leads: Leads
    churn: tuple[float, ...]
    labels: tuple[float, ...]
    checkpoint_balance: Balance | None
    balance: Balance | None
    higher_score: Estimate | None

    def to_json(self) -> dict[str, Any]:
        """As plain values, where null stands for what is not known."""
        values: dict[str, Any] = plain_values(
            {
                "environment": self.environment,
                "settings": self.config.to_json(),
                "level": self.level,
                "levels": self.levels,
                "best": asdict(self.best),
                "frontier": [asdict(node) for node in self.frontier],
                "drawn": self.drawn,
                "satisfiable": satisfiable_json(self.satisfiable),
                "moved": self.moved,
                "gaps": self.leads.to_json(),
                "churn": self.churn,
                "labels": self.labels,
                "checkpoint_balance": self.checkpoint_balance and asdict(self.checkpoint_balance),
                "balance": self.balance and asdict(self.balance),
                "higher_score": self.higher_score and asdict(self.higher_score),
            }
        )
        return values


def diagnose_run(
    run: Run,
    *,
    environment: str | None = None,
    episodes: int = 64,
    seed: int = 0,
    announce: Callable[[str], None] = lambda words: None,
) -> RunDiagnosis:
    """Measure how delusional a search was.

    Args:
        run: its history.
        environment: where to play; the run's, or the network's if that is a data set, if not given.
        episodes: that the checkpoint and the best node play.
        seed: of their starts, of noise, and of what is drawn.
        announce: told in words what is going on.
    """
    best = top(run.tree.pool, 1)[0]
    counted = _breaks(run, best)
    if not (counted.choices and is_finite(best.weights.theta)):
        raise RunError("the run's best node has no choices (yet), or diverged")
    root = jax.device_get(run.network.head)
    name, worths = _played(run, environment, best, episodes, seed, announce)
    announce("looking for heads that make the choices together")
    features, assigned = _drawn(run, best, seed)
    whole = [node for node in run.tree.pool if is_finite(node.weights.theta)]
    moved = np.mean(greedy(best.weights.theta, features) != greedy(root, features))
    frontier = (node for node in run.tree.frontier if is_finite(node.weights.theta))
    return RunDiagnosis(
        environment=name,
        config=run.config,
        level=run.tree.level,
        levels=tuple(sorted(run.successors)),
        best=counted,
        frontier=tuple(_breaks(run, node) for node in frontier),
        drawn=len(assigned),
        satisfiable=satisfiable(
            features, assigned, [root, *(node.weights.theta for node in whole)]
        ),
        moved=float(moved),
        leads=Leads.of_draws(gaps(best.weights.theta, features, draws=NOISE_DRAWS, seed=seed)),
        churn=_logged(run, "churn"),
        labels=_logged(run, "label"),
        checkpoint_balance=Balance.of_episodes(worths[0]) if worths else None,
        balance=Balance.of_episodes(worths[1]) if worths else None,
        higher_score=over_repetitions(np.subtract(worths[1].scores, worths[0].scores))
        if worths
        else None,
    )


def _breaks(run: Run, node: Node) -> NodeBreaks:
    broken, choices = np.zeros(run.tree.level), np.zeros(run.tree.level)
    for level in run.successors:
        features, assigned = run.choices(node, level)
        actions = greedy(node.weights.theta, features.astype(np.float32))
        broken[level], choices[level] = np.sum(actions != assigned), len(assigned)
    of_levels = np.where(choices > 0, broken / np.maximum(choices, 1), np.nan)
    total = int(choices.sum())
    share = float(broken.sum()) / total if total else np.nan
    return NodeBreaks(node.id, node.calibrated, total, share, of_levels)


def _drawn(
    run: Run, node: Node, seed: int
) -> tuple[Float[np.ndarray, "S F"], Int[np.ndarray, " S"]]:
    """A node's choices, or `MOST_CHOICES` of them drawn at random."""
    parts = [run.choices(node, level) for level in sorted(run.successors)]
    assigned = np.concatenate([actions for _, actions in parts]).astype(np.int64)
    chosen = np.arange(len(assigned))
    if len(chosen) > MOST_CHOICES:
        rng = np.random.default_rng(seed)
        chosen = np.sort(rng.choice(chosen, MOST_CHOICES, replace=False))
    ends = np.cumsum([len(actions) for _, actions in parts])
    rows = [
        features[chosen[(chosen >= end - len(features)) & (chosen < end)] - (end - len(features))]
        for (features, _), end in zip(parts, ends, strict=True)
    ]
    return np.concatenate(rows).astype(np.float32), assigned[chosen]


def _played(
    run: Run,
    environment: str | None,
    best: Node,
    episodes: int,
    seed: int,
    announce: Callable[[str], None],
) -> tuple[str, tuple[Worth, ...]]:
    """Where the checkpoint and the best node played, and what came of it."""
    names = (environment or "", run.config.environment, run.network.environment)
    name = next((name for name in names if name and not is_data(name)), "")
    if not name:
        return "", ()
    return name, played(
        run.network,
        arena([run.network], name),
        (jax.device_get(run.network.head), best.weights.theta),
        episodes=episodes,
        discount=run.config.discount,
        clip_rewards=run.config.clip_rewards,
        seed=seed,
        announce=announce,
    )


def _logged(run: Run, name: str) -> tuple[float, ...]:
    """A column of the log; NaN where it has no number."""
    values = (row.get(name) for row in run.log)
    return tuple(float(v) if isinstance(v, float | int) else np.nan for v in values)
