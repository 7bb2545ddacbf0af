"""Is a network's learning delusional? Continue it a little, keep every choice, and measure.

Plain Q-learning goes on with the network's head on its frozen features. The action choices behind
every label are kept, and afterwards it is measured how many of them the greedy policy breaks, how
many any one head could make together, how easily decisions flip, and whether the policy earns what
the labels promise. A second copy learns from the same batches with the consistency penalty. All of
it is repeated with other seeds: levels, states and episodes of one repetition depend on each other,
those of different ones do not, so intervals are over repetitions.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from conqur.config import clips_rewards
from conqur.diagnosis.averages import Balance, Copy, Findings, Leads
from conqur.diagnosis.learning import DiagnosisConfig, Learned, Lineage, learn
from conqur.diagnosis.measures import Gaps, breaks, churn, gaps, greedy
from conqur.diagnosis.play import Worth, play
from conqur.diagnosis.satisfiable import satisfiable
from conqur.diagnosis.values import Estimate, over_repetitions, plain_values
from conqur.pretrained import Pretrained
from conqur.pretrained.playing import Arena, arena
from conqur.regressor import Dense
from conqur.search.approximator import LinearTuning
from conqur.search.rollouts import Players

NOISE_DRAWS = 16
"""Of noise on a head, for each size."""
STARTS = 5_000_000
"""Where the seeds of the episodes begin that are played for the comparison."""


@dataclass(frozen=True, eq=False)
class Repetition:
    """What was measured with one seed.

    Attributes:
        gaps: of the untouched head.
        worth: what the untouched head promises and earns.
        plain: learning as it is.
        penalised: learning with the penalty, from the same batches.
    """

    gaps: Gaps
    worth: Worth
    plain: Findings
    penalised: Findings


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What was found out about a network.

    Attributes:
        environment: where it was played.
        origin: what its file says of where it comes from.
        config: the settings.
        repetitions: with different seeds.
    """

    environment: str
    origin: dict[str, Any]
    config: DiagnosisConfig
    repetitions: tuple[Repetition, ...]

    @property
    def plain(self) -> Copy:
        """Learning as it is."""
        return Copy(tuple(each.plain for each in self.repetitions))

    @property
    def penalised(self) -> Copy:
        """Learning with the penalty."""
        return Copy(tuple(each.penalised for each in self.repetitions))

    @property
    def leads(self) -> Leads:
        """Action gaps of the untouched head."""
        return Leads.repeated([each.gaps for each in self.repetitions])

    @property
    def balance(self) -> Balance:
        """What the untouched head promises and earns."""
        return Balance.repeated([each.worth for each in self.repetitions])

    @property
    def fewer_broken(self) -> Estimate:
        """Share of broken choices, plain − penalised, learned from the same batches."""
        return over_repetitions(
            each.plain.breaks.share - each.penalised.breaks.share for each in self.repetitions
        )

    @property
    def higher_score(self) -> Estimate:
        """Score, penalised − plain, on common starts."""
        return over_repetitions(
            each.penalised.worth.score - each.plain.worth.score for each in self.repetitions
        )

    def to_json(self) -> dict[str, Any]:
        """As plain values, where null stands for what is not known."""
        values: dict[str, Any] = plain_values(
            {
                "environment": self.environment,
                "network": self.origin,
                "settings": asdict(self.config),
                "checkpoint": {"gaps": self.leads.to_json(), "balance": asdict(self.balance)},
                "plain": self.plain.to_json(),
                "penalised": self.penalised.to_json(),
                "fewer_broken": asdict(self.fewer_broken),
                "higher_score": asdict(self.higher_score),
            }
        )
        return values


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
    repetitions = []
    for number in range(config.seeds):

        def say(words: str, number: int = number) -> None:
            announce(f"seed {number + 1} of {config.seeds}: {words}")

        repetitions.append(_repetition(network, place, config, config.seed + number, say))
    return Diagnosis(place.name, network.origin, config, tuple(repetitions))


def played(
    network: Pretrained,
    place: Arena,
    heads: tuple[Dense, ...],
    *,
    episodes: int,
    discount: float,
    clip_rewards: bool,
    seed: int,
    announce: Callable[[str], None],
) -> tuple[Worth, ...]:
    """What heads on a network's features promise and earn, on common starts.

    By the rules that labels know: those of the network's training.
    """
    approximator = LinearTuning(network.regressor.body)
    environment = place.as_learned().make(len(heads) * episodes)
    try:
        return play(
            Players.of(approximator, heads),
            environment,
            policies=len(heads),
            discount=discount,
            clip_rewards=clip_rewards,
            seed=STARTS + seed,
            announce=announce,
        )
    finally:
        environment.close()


def _repetition(
    network: Pretrained,
    place: Arena,
    config: DiagnosisConfig,
    seed: int,
    announce: Callable[[str], None],
) -> Repetition:
    clip = clips_rewards(place.name)
    learned = learn(network, place, config, seed=seed, clip_rewards=clip, announce=announce)
    root = learned.plain.heads[0]
    worth, *worths = played(
        network,
        place,
        (root, learned.plain.heads[-1], learned.penalised.heads[-1]),
        episodes=config.episodes,
        discount=config.discount,
        clip_rewards=clip,
        seed=seed,
        announce=announce,
    )
    announce("looking for heads that make the choices together")
    found = gaps(root, learned.features, draws=NOISE_DRAWS, seed=seed)
    lineages = (learned.plain, learned.penalised)
    return Repetition(found, worth, *map(_measured, (learned, learned), lineages, worths))


def _measured(learned: Learned, lineage: Lineage, worth: Worth) -> Findings:
    features = learned.features
    actions = np.stack([greedy(head, features) for head in lineage.heads])
    return Findings(
        breaks=breaks(actions, lineage.assigned, learned.level),
        satisfiable=satisfiable(features, lineage.assigned, lineage.heads),
        churn=churn(actions),
        labels=lineage.labels,
        worth=worth,
    )
