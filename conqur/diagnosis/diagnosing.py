"""Is a network's learning delusional? Continue it a little, keep every choice, and measure.

Plain Q-learning goes on with the network's head on its frozen features. The action choices behind
every label are kept, and afterwards it is measured how many of them the greedy policy breaks, how
many any one head could make together, how easily decisions flip, and whether the policy earns what
the labels promise. A second copy learns from the same batches with the consistency penalty.
"""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from conqur.config import PRESETS as TRAIN_PRESETS
from conqur.diagnosis.learning import DiagnosisConfig, Learned, Lineage, learn
from conqur.diagnosis.measures import (
    QUANTILES,
    Breaks,
    Churn,
    Gaps,
    breaks,
    churn,
    gaps,
    greedy,
)
from conqur.diagnosis.play import Worth, play
from conqur.diagnosis.satisfiable import Satisfiable, satisfiable
from conqur.pretrained import Pretrained
from conqur.pretrained.playing import Arena, arena
from conqur.search.approximator import LinearTuning
from conqur.search.rollouts import Policies
from conqur.statistics import Difference, paired_difference, standard_error, student_interval
from conqur.training_run import default_preset

NOISE_DRAWS = 16
"""Of noise on a head, for each size."""
STARTS = 5_000_000
"""Where the seeds of the episodes begin that are played for the comparison."""


@dataclass(frozen=True, eq=False)
class Findings:
    """What was measured of one copy.

    Attributes:
        breaks: choices that greedy policies break.
        satisfiable: choices that one head could make.
        churn: of greedy actions.
        gaps: of the last head's values.
        labels: the mean Q-label in each level.
        worth: what the last head promises and earns.
    """

    breaks: Breaks
    satisfiable: Satisfiable
    churn: Churn
    gaps: Gaps
    labels: tuple[float, ...]
    worth: Worth


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What was found out about a network.

    Attributes:
        environment: where it was played.
        origin: what its file says of where it comes from.
        config: the settings.
        checkpoint_gaps: action gaps of the untouched head.
        checkpoint_worth: what the untouched head promises and earns.
        plain: learning as it is.
        penalised: learning with the penalty, from the same batches.
        fewer_broken: share of broken choices, plain − penalised, over the levels' batches.
        higher_score: score, penalised − plain, on common starts.
    """

    environment: str
    origin: dict[str, Any]
    config: DiagnosisConfig
    checkpoint_gaps: Gaps
    checkpoint_worth: Worth
    plain: Findings
    penalised: Findings
    fewer_broken: Difference
    higher_score: Difference

    def to_json(self) -> dict[str, Any]:
        """As plain values, where null stands for what is not known."""
        return _plain_values(
            {
                "environment": self.environment,
                "network": self.origin,
                "settings": asdict(self.config),
                "checkpoint": {
                    "gaps": _gaps_json(self.checkpoint_gaps),
                    "worth": asdict(self.checkpoint_worth),
                },
                "plain": _findings_json(self.plain),
                "penalised": _findings_json(self.penalised),
                "fewer_broken": asdict(self.fewer_broken),
                "higher_score": asdict(self.higher_score),
            }
        )


def diagnose(
    network: Pretrained,
    config: DiagnosisConfig,
    *,
    environment: str | None = None,
    announce: Callable[[str], None] = lambda words: None,
) -> Diagnosis:
    """Continue a network's learning, and measure how delusional it is.

    Args:
        network: the checkpoint.
        config: the settings.
        environment: its name; what the network was trained on if not given.
        announce: told in words what is going on.
    """
    place = arena([network], environment)
    clip = clips_rewards(place.name)
    learned = learn(network, place, config, clip_rewards=clip, announce=announce)
    worths = _played(network, place, config, clip, learned, announce)
    announce("looking for heads that make the choices together")
    plain, penalised = (
        _measured(learned, lineage, worth, config.seed)
        for lineage, worth in zip((learned.plain, learned.penalised), worths[1:], strict=True)
    )
    return Diagnosis(
        environment=place.name,
        origin=network.origin,
        config=config,
        checkpoint_gaps=gaps(
            learned.plain.heads[0], learned.features, draws=NOISE_DRAWS, seed=config.seed
        ),
        checkpoint_worth=worths[0],
        plain=plain,
        penalised=penalised,
        fewer_broken=_over_levels(plain.breaks.of_levels - penalised.breaks.of_levels),
        higher_score=paired_difference(penalised.worth.scores, plain.worth.scores),
    )


def clips_rewards(environment: str) -> bool:
    """Whether networks learn an environment from clipped rewards, as `conqur train` does."""
    preset, changes = default_preset(environment)
    return bool((TRAIN_PRESETS[preset] | changes)["clip_rewards"])


def _played(
    network: Pretrained,
    place: Arena,
    config: DiagnosisConfig,
    clip: bool,
    learned: Learned,
    announce: Callable[[str], None],
) -> tuple[Worth, ...]:
    """The checkpoint, the plain copy and the penalised one, on common starts."""
    heads = (learned.plain.heads[0], learned.plain.heads[-1], learned.penalised.heads[-1])
    approximator = LinearTuning(network.regressor.body)
    axes = approximator.node_axes(heads[0])
    stacked = jax.tree.map(lambda axis, *leaves: np.stack(leaves, axis), axes, *heads)
    environment = place.make(len(heads) * config.episodes)
    try:
        return play(
            Policies(approximator, stacked),
            environment,
            policies=len(heads),
            discount=config.discount,
            clip_rewards=clip,
            seed=STARTS + config.seed,
            announce=announce,
        )
    finally:
        environment.close()


def _measured(learned: Learned, lineage: Lineage, worth: Worth, seed: int) -> Findings:
    features = learned.features
    actions = np.stack([greedy(head, features) for head in lineage.heads])
    return Findings(
        breaks=breaks(actions, lineage.assigned, learned.level),
        satisfiable=satisfiable(features, lineage.assigned, lineage.heads),
        churn=churn(actions),
        gaps=gaps(lineage.heads[-1], features, draws=NOISE_DRAWS, seed=seed),
        labels=lineage.labels,
        worth=worth,
    )


def _over_levels(differences: Float[np.ndarray, " K"]) -> Difference:
    mean, error = float(differences.mean()), standard_error(differences)
    return Difference(mean, error, student_interval(differences))


def _findings_json(found: Findings) -> dict[str, Any]:
    return {
        "breaks": asdict(found.breaks),
        "satisfiable": asdict(found.satisfiable)
        | {"union": found.satisfiable.union, "telling": found.satisfiable.telling},
        "churn": asdict(found.churn),
        "gaps": _gaps_json(found.gaps),
        "labels": found.labels,
        "worth": asdict(found.worth),
    }


def _gaps_json(found: Gaps) -> dict[str, Any]:
    quantiles = dict(zip(map(str, QUANTILES), found.quantiles, strict=True))
    noise = zip(found.noises, found.flipped, found.intervals, strict=True)
    return {
        "scale": found.scale,
        "quantiles": quantiles,
        "noise": [{"size": n, "flipped": f, "interval": i} for n, f, i in noise],
    }


def _plain_values(value: Any) -> Any:
    """For JSON: arrays as lists, outcomes as words, null for what is no number."""
    if isinstance(value, dict):
        return {name: _plain_values(item) for name, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_plain_values(item) for item in value]
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value
