"""How many of the choices behind labels one linear head can make together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
from jaxtyping import Array, Float, Int

from conqur import _checks
from conqur.exact import Consistency, consistent_head
from conqur.exact.head import certain_leads
from conqur.regressor import Dense

TOLERANCE = 1e-7
"""The normalised margin below which no head counts, see `conqur.exact.Verdict`."""
MOST_UNKNOWNS = 1_000
"""Weights of a head up to which resolved choices are tested exactly: 3,000 take many minutes."""
MOST_STEPS = 300
"""Of L-BFGS, in each stage of the search for a head that makes many choices."""
_ROUNDING = 1e-6
"""Of features, which are of single precision."""


@dataclass(frozen=True, eq=False)
class Satisfiable:
    """How many of the choices one head can make together.

    Attributes:
        distinct: states with different features.
        rank: of the features, with the bias.
        contradictory: states that are committed to more than one action.
        found: the share of all choices that some head makes, the best that was found.
        any_policy: the share that a policy of any form makes at best: in every state the most
            frequent choice.
        resolved: whether one head can make as many, whichever it makes of choices that are equally
            frequent; None if it was not tested. INCONSISTENT is proved up to `TOLERANCE`.
    """

    distinct: int
    rank: int
    contradictory: int
    found: float
    any_policy: float
    resolved: Consistency | None

    @property
    def union(self) -> Consistency:
        """Whether one head can make all choices."""
        if self.contradictory:
            return Consistency.INCONSISTENT
        if self.found == 1:
            return Consistency.CONSISTENT
        return self.resolved or Consistency.UNDECIDED

    @property
    def telling(self) -> bool:
        """Whether there are many more states than features: else most choices hold together."""
        return self.distinct >= 10 * self.rank


def satisfiable(
    features: Float[np.ndarray, "S F"],
    assigned: Int[np.ndarray, " S"],
    heads: Sequence[Dense],
    *,
    most_unknowns: int = MOST_UNKNOWNS,
) -> Satisfiable:
    """How many choices one head can make together, and how many any policy can.

    Args:
        features: φ of the states.
        assigned: σ, the committed actions.
        heads: that may be good ones already.
        most_unknowns: larger heads are not tested exactly.
    """
    num_actions = len(heads[0].bias)
    _checks.action_array("assigned", assigned, length=len(features), num_actions=num_actions)
    states, which = np.unique(features, axis=0, return_inverse=True)
    counts = np.zeros((len(states), num_actions))
    np.add.at(counts, (which.ravel(), assigned), 1)
    most = counts.max(axis=1).sum()
    extended = np.column_stack([states, np.ones(len(states))]).astype(np.float64)
    candidates = [np.vstack([head.weight, head.bias]).astype(np.float64) for head in heads]
    made = max(_made(extended, counts, theta) for theta in candidates)
    resolved: Consistency | None = Consistency.CONSISTENT
    if made < most:
        small = num_actions * extended.shape[1] <= most_unknowns
        resolved, theta = _resolved(states, counts) if small else (None, None)
        theta = _search(extended, counts) if theta is None else theta
        made = max(made, _made(extended, counts, theta))
    return Satisfiable(
        distinct=len(states),
        rank=int(np.linalg.matrix_rank(extended, rtol=_ROUNDING)),
        contradictory=int((np.count_nonzero(counts, axis=1) > 1).sum()),
        found=made / len(assigned),
        any_policy=most / len(assigned),
        resolved=Consistency.CONSISTENT if made == most else resolved,
    )


def _resolved(
    states: Float[np.ndarray, "D F"], counts: Float[np.ndarray, "D A"]
) -> tuple[Consistency, Float[np.ndarray, "G A"] | None]:
    """Whether one head can make a most frequent choice of every state, and one that does."""
    frequent = counts.argmax(axis=1)
    tied = (counts == counts.max(axis=1, keepdims=True)).sum(axis=1) > 1
    if tied.any() and not tied.all():  # what contradicts itself without these does so with them
        clear = consistent_head(
            states[~tied], frequent[~tied], counts.shape[1], tolerance=TOLERANCE
        )
        if clear.outcome is Consistency.INCONSISTENT:
            return clear.outcome, None
    verdict = consistent_head(states, frequent, counts.shape[1], tolerance=TOLERANCE)
    if tied.any() and verdict.outcome is Consistency.INCONSISTENT:  # other choices might hold
        return Consistency.UNDECIDED, None
    return verdict.outcome, verdict.theta


def _made(
    extended: Float[np.ndarray, "D G"],
    counts: Float[np.ndarray, "D A"],
    theta: Float[np.ndarray, "G A"],
) -> float:
    """How many choices a head makes for certain."""
    best = (extended @ theta).argmax(axis=1)
    ahead = certain_leads(extended, best, theta) > 0
    return float(counts[np.arange(len(counts)), best][ahead].sum())


def _search(
    extended: Float[np.ndarray, "D G"], counts: Float[np.ndarray, "D A"]
) -> Float[np.ndarray, "G A"]:
    """A head that makes many choices: the likeliest first, then a smoothed count climbed from it.

    Counting is not convex; what is found is a lower bound. Features are whitened, as learned ones
    are too correlated for L-BFGS.
    """
    left, singular, right = np.linalg.svd(extended, full_matrices=False)
    kept = singular > extended.shape[1] * np.finfo(np.float64).eps * singular[0]
    to_features = right[kept].T / singular[kept] * np.sqrt(len(extended))
    best = np.zeros((int(kept.sum()), counts.shape[1]))
    with jax.enable_x64(True):
        basis = jnp.asarray(left[:, kept] * np.sqrt(len(extended)))
        weights = jnp.asarray(counts / counts.sum())
        for objective in (_unlikeliness, _smoothed_misses):
            best = _minimised(objective, best, basis, weights)
    return to_features @ best


def _minimised(objective: Any, start: Any, basis: Array, weights: Array) -> Any:
    found = scipy.optimize.minimize(
        lambda flat: tuple(np.asarray(v) for v in objective(flat, basis, weights)),
        start.ravel(),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": MOST_STEPS},
    )
    return found.x.reshape(start.shape)


@jax.jit
@jax.value_and_grad
def _unlikeliness(flat: Array, basis: Array, weights: Array) -> Float[Array, ""]:
    q_values = basis @ flat.reshape(basis.shape[1], -1)
    return -jnp.sum(weights * jax.nn.log_softmax(q_values))


@jax.jit
@jax.value_and_grad
def _smoothed_misses(flat: Array, basis: Array, weights: Array) -> Float[Array, ""]:
    q_values = basis @ flat.reshape(basis.shape[1], -1)
    return 1 - jnp.sum(weights * jax.nn.softmax(q_values))
