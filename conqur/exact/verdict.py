"""What an exact consistency test answers, and how the answer is checked."""

import enum
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float


class Consistency(enum.Enum):
    """Whether some θ is strictly greedy for every commitment of an assignment σ."""

    CONSISTENT = "a greedy policy of the class makes all these choices"
    INCONSISTENT = "no greedy policy of the class makes all these choices"
    UNDECIDED = "neither a witness nor a certificate was found within the limits"


@dataclass(frozen=True, eq=False)
class Verdict:
    """The outcome of a consistency test with the proof that goes with it.

    The rows of a test are the differences d = φ(s, σ(s)) − φ(s, a'), one for every commitment
    [s ↦ σ(s)] and every other action a'. The *normalised margin* of a θ is the smallest
    d·θ / (|d| |θ|) over the rows; σ is consistent iff the best normalised margin is positive.

    Attributes:
        outcome: CONSISTENT, INCONSISTENT or UNDECIDED.
        theta: the witness, strictly greedy on every row; None unless CONSISTENT.
        certificate: Farkas weights y ≥ 0 on the rows that sum to one with |Σ y d/|d|| ≤ tolerance,
            [S, A], zero at the committed actions; None unless INCONSISTENT.
        margin_lower: a normalised margin that was attained; 0 if none was.
        margin_upper: no θ has a larger normalised margin (|Σ y d/|d|| for some such y).
    """

    outcome: Consistency
    theta: Float[np.ndarray, "..."] | None
    certificate: Float[np.ndarray, "S A"] | None
    margin_lower: float
    margin_upper: float

    def __bool__(self) -> bool:
        """Refuse: there are three outcomes."""
        raise TypeError("a Verdict has three outcomes; compare its .outcome instead")
