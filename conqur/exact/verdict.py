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


@dataclass(frozen=True)
class Verdict:
    """The outcome of a consistency test with the proof that goes with it.

    The rows of a test are the differences d = φ(s, σ(s)) − φ(s, a'), one for every commitment
    [s ↦ σ(s)] and every other action a'. The *normalised margin* of a θ is the smallest
    d·θ / (|d| |θ|) over the rows; σ is consistent iff the best normalised margin is positive.
    """

    outcome: Consistency
    theta: Float[np.ndarray, "..."] | None
    """The witness: strictly greedy on every row (only if CONSISTENT)."""
    certificate: Float[np.ndarray, "S A"] | None
    """Farkas weights y ≥ 0 that sum to one, with |Σ y d/|d|| ≤ tolerance (only if INCONSISTENT)."""
    margin_lower: float
    """A normalised margin that was attained; 0 if none was (θ = 0 is always at hand)."""
    margin_upper: float
    """No θ has a larger normalised margin: the norm of a convex combination of the rows d/|d|."""

    def __bool__(self) -> bool:
        raise TypeError("a Verdict has three outcomes; compare its .outcome instead")
