"""What repetitions of a diagnosis come to together."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from conqur.diagnosis.measures import NOISES, QUANTILES, Breaks, Churn, Gaps
from conqur.diagnosis.play import Worth
from conqur.diagnosis.satisfiable import Satisfiable
from conqur.diagnosis.values import Estimate, over_episodes, over_repetitions, share


@dataclass(frozen=True)
class Balance:
    """What a head promises and earns.

    Attributes:
        promised: the mean label in the states it visits; NaN if no state can be counted.
        earned: the mean return from there.
        excess: `promised` − `earned`.
        score: undiscounted and unclipped.
        episodes: how many were played.
        cut: how many of them were cut.
    """

    promised: Estimate
    earned: Estimate
    excess: Estimate
    score: Estimate
    episodes: int
    cut: int

    @property
    def known(self) -> bool:
        """Whether there is a state that can be counted."""
        return self.promised.mean == self.promised.mean

    @classmethod
    def repeated(cls, worths: Sequence[Worth]) -> "Balance":
        """Of repetitions with different starts, with intervals over these."""
        return cls(
            promised=over_repetitions(worth.promised for worth in worths),
            earned=over_repetitions(worth.earned for worth in worths),
            excess=over_repetitions(worth.excess for worth in worths),
            score=over_repetitions(worth.score for worth in worths),
            episodes=sum(len(worth.scores) for worth in worths),
            cut=sum(worth.cut for worth in worths),
        )

    @classmethod
    def of_episodes(cls, worth: Worth) -> "Balance":
        """Of one head that played once, with intervals over its episodes."""
        return cls(
            promised=over_episodes(worth.promises),
            earned=over_episodes(worth.earnings),
            excess=over_repetitions(np.subtract(worth.promises, worth.earnings)),
            score=over_episodes(worth.scores),
            episodes=len(worth.scores),
            cut=worth.cut,
        )


@dataclass(frozen=True, eq=False)
class Findings:
    """What was measured of one copy in one repetition.

    Attributes:
        breaks: choices that greedy policies break.
        satisfiable: choices that one head could make.
        churn: of greedy actions.
        labels: the mean Q-label in each level.
        worth: what the last head promises and earns.
    """

    breaks: Breaks
    satisfiable: Satisfiable
    churn: Churn
    labels: tuple[float, ...]
    worth: Worth


@dataclass(frozen=True, eq=False)
class Copy:
    """One copy in all repetitions.

    Attributes:
        findings: of each repetition.
    """

    findings: tuple[Findings, ...]

    @property
    def choices(self) -> int:
        """Of all repetitions."""
        return sum(each.breaks.choices for each in self.findings)

    @property
    def broken(self) -> Estimate:
        """The share of choices that the last head's greedy policy breaks."""
        return share(over_repetitions(each.breaks.share for each in self.findings))

    @property
    def kept(self) -> Estimate:
        """The share of choices that it keeps."""
        return share(over_repetitions(1 - each.breaks.share for each in self.findings))

    @property
    def found(self) -> Estimate:
        """The share of choices that the best head that was found makes."""
        return share(over_repetitions(each.satisfiable.found for each in self.findings))

    @property
    def any_policy(self) -> Estimate:
        """The share of choices that a policy of any form makes at best."""
        return share(over_repetitions(each.satisfiable.any_policy for each in self.findings))

    @property
    def churn(self) -> Estimate:
        """The share of decisions that a level changes."""
        return share(over_repetitions(each.churn.mean for each in self.findings))

    @property
    def balance(self) -> Balance:
        """What the last heads promise and earn."""
        return Balance.repeated([each.worth for each in self.findings])

    def curve(self, measure: Callable[[Findings], Any]) -> Float[np.ndarray, " K"]:
        """The mean over repetitions of something that is measured in every level."""
        curves = np.stack([measure(each) for each in self.findings])
        return np.asarray(curves.mean(axis=0))

    def to_json(self) -> dict[str, Any]:
        """For JSON, once `plain_values` went over it."""
        return {
            "choices": self.choices,
            "broken": asdict(self.broken),
            "found": asdict(self.found),
            "any_policy": asdict(self.any_policy),
            "churn": asdict(self.churn),
            "balance": asdict(self.balance),
            "repetitions": [_findings_json(each) for each in self.findings],
        }


@dataclass(frozen=True, eq=False)
class Leads:
    """Action gaps of a head, and how easily it changes its mind.

    Attributes:
        gaps: of the states of all repetitions, [S].
        scale: the mean size of the best action's value.
        median: of the gaps, in units of the scale.
        flipped: the share of decisions that noise changes, for each size in `NOISES`.
    """

    gaps: Float[np.ndarray, " S"]
    scale: float
    median: Estimate
    flipped: tuple[Estimate, ...]

    @classmethod
    def repeated(cls, found: Sequence[Gaps]) -> "Leads":
        """Of repetitions with different states and noise, with intervals over these."""
        medians = (float(np.median(each.gaps)) / (each.scale or 1.0) for each in found)
        flips = np.stack([each.flipped.mean(axis=1) for each in found], axis=1)
        return cls(
            gaps=np.concatenate([each.gaps for each in found]),
            scale=float(np.mean([each.scale for each in found])),
            median=over_repetitions(medians),
            flipped=tuple(share(over_repetitions(row.tolist())) for row in flips),
        )

    @classmethod
    def of_draws(cls, found: Gaps) -> "Leads":
        """Of one set of states, with intervals over draws of noise."""
        alone = cls.repeated([found])
        flipped = tuple(share(over_repetitions(row.tolist())) for row in found.flipped)
        return cls(alone.gaps, alone.scale, alone.median, flipped)

    def to_json(self) -> dict[str, Any]:
        """For JSON, once `plain_values` went over it."""
        quantiles = np.quantile(self.gaps, QUANTILES).tolist()
        noise = zip(NOISES, self.flipped, strict=True)
        return {
            "scale": self.scale,
            "relative_median": asdict(self.median),
            "quantiles": dict(zip(map(str, QUANTILES), quantiles, strict=True)),
            "noise": [{"size": size, "flipped": asdict(found)} for size, found in noise],
        }


def satisfiable_json(found: Satisfiable) -> dict[str, Any]:
    """With what follows from it."""
    return asdict(found) | {"union": found.union, "telling": found.telling}


def _findings_json(found: Findings) -> dict[str, Any]:
    return {
        "breaks": asdict(found.breaks),
        "satisfiable": satisfiable_json(found.satisfiable),
        "churn": asdict(found.churn),
        "labels": found.labels,
        "worth": {
            name: getattr(found.worth, name)
            for name in ("promised", "earned", "excess", "scores", "cut")
        },
    }
