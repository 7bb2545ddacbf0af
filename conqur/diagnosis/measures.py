"""What a diagnosis measures, on the choices behind labels and the heads that came of them.

A *choice* is a commitment [s' ↦ σ(s')] that a label counted on. States are features; a head is
linear in them, so that for each number there is either an exact answer or a bound.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from conqur.regressor import Dense

NOISES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
"""Standard deviations of noise on a head, in units of the root mean square of its weights."""
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)


@dataclass(frozen=True, eq=False)
class Breaks:
    """Which choices greedy policies break.

    Attributes:
        choices: S, how many there are.
        share: of all choices that the last head's greedy policy breaks.
        after_levels: of the choices so far, after each level by the head of then, [K].
        of_levels: of each level's own choices, by the last head, [K].
    """

    choices: int
    share: float
    after_levels: Float[np.ndarray, " K"]
    of_levels: Float[np.ndarray, " K"]


@dataclass(frozen=True, eq=False)
class Churn:
    """How greedy actions change, on the states of all choices.

    Attributes:
        between: the share that each level changed, [K].
        since_start: the share that is not the checkpoint's, after each level, [K].
    """

    between: Float[np.ndarray, " K"]
    since_start: Float[np.ndarray, " K"]

    @property
    def mean(self) -> float:
        """The share that a level changed, mean over levels."""
        return float(self.between.mean())


@dataclass(frozen=True, eq=False)
class Gaps:
    """By how much the best action leads, and how easily it loses its lead.

    Attributes:
        gaps: the best action's lead over the second best, [S].
        scale: the mean size of the best action's value.
        flipped: the share of decisions that noise changes, for each size in `NOISES` and each of D
            draws.
    """

    gaps: Float[np.ndarray, " S"]
    scale: float
    flipped: Float[np.ndarray, "Z D"]


def greedy(head: Dense, features: Float[np.ndarray, "S F"]) -> Int[np.ndarray, " S"]:
    """The greedy actions of a head; of equals, the first."""
    return np.asarray(jnp.argmax(predicted(head, features), axis=-1))


def breaks(
    actions: Int[np.ndarray, "H S"], assigned: Int[np.ndarray, " S"], level: Int[np.ndarray, " S"]
) -> Breaks:
    """Count broken choices.

    Args:
        actions: the greedy actions of the checkpoint and of the head after each of K levels.
        assigned: σ, the committed actions.
        level: in which each choice was made; 0 to K − 1.
    """
    levels = range(len(actions) - 1)
    broken = actions != assigned
    after = np.array([broken[k + 1, level <= k].mean() for k in levels])
    of = np.array([broken[-1, level == k].mean() for k in levels])
    return Breaks(len(assigned), float(broken[-1].mean()), after, of)


def churn(actions: Int[np.ndarray, "H S"]) -> Churn:
    """How much greedy actions change from head to head, see `breaks`."""
    between = (actions[1:] != actions[:-1]).mean(axis=1)
    since = (actions[1:] != actions[0]).mean(axis=1)
    return Churn(between, since)


def gaps(head: Dense, features: Float[np.ndarray, "S F"], *, draws: int, seed: int) -> Gaps:
    """Action gaps, and how many decisions noise on the head changes.

    Args:
        head: weights and biases get noise of the same size.
        features: φ of the states.
        draws: of noise, for each size.
        seed: of the noise.
    """
    q_values = np.sort(np.asarray(predicted(head, features)), axis=-1)
    before = greedy(head, features)
    unit = float(np.sqrt(np.mean(np.square(head.weight))))
    rng = np.random.default_rng(seed)
    shares = np.zeros((len(NOISES), draws))
    for i, size in enumerate(NOISES):
        for j in range(draws):
            noisy = jax.tree.map(
                lambda leaf, size=size: (
                    leaf + (size * unit * rng.standard_normal(leaf.shape)).astype(np.float32)
                ),
                head,
            )
            shares[i, j] = np.mean(greedy(noisy, features) != before)
    return Gaps(
        gaps=(q_values[:, -1] - q_values[:, -min(2, q_values.shape[1])]).astype(np.float64),
        scale=float(np.abs(q_values[:, -1]).mean()),
        flipped=shares,
    )


@jax.jit
def predicted(head: Dense, features: Array) -> Float[Array, "S A"]:
    """The Q-values of a head."""
    return head(features)
