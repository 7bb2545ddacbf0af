"""Can one linear head make all these choices greedily?

The class is Q(s, a) = w_a·x_s with x_s = (φ_s, 1): one weight vector and one bias per action. A
commitment of state s to action a is the rows d = (e_a − e_a') ⊗ x_s, one for every rival a'. With
unit rows d̂ = d/|d| the question is whether the linear program

    maximise t   subject to   d̂·θ ≥ t for every row

rises above 0 (a witness θ) or has the optimum 0 (then its dual holds weights y ≥ 0 that sum to
one with Σ y d̂ = 0: Farkas' certificate that no witness exists).

The iterates of an interior-point method are tested for both proofs, so that most instances end
after a handful of steps. Features are whitened first: that changes neither the class nor the
answer, but learned features are so correlated that rounding errors would drown the method.

Nothing the solver says is believed: proofs are checked on the given features with bounds for the
rounding errors of the check itself.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from conqur import _checks
from conqur.exact import interior_point
from conqur.exact.verdict import Consistency, Verdict

_EPS = float(np.finfo(np.float64).eps)
_SHARP = 1e-10
"""Whitened residual at which a certificate ends the search: a consistent instance whose margin
is below the caller's tolerance would otherwise be at risk of being called inconsistent."""


def consistent_head(
    phi: Any, actions: Any, num_actions: Any, *, tolerance: float = 1e-7, max_iterations: int = 100
) -> Verdict:
    """Decide whether some linear head is strictly greedy for every commitment, and prove it.

    The witness is [F + 1, A], the biases in its last row. The bounds on the margin are valid but
    rarely tight: the search stops at the first proof.

    Args:
        phi: φ, the features of the states, [S, F].
        actions: the committed action of each row, [S]. The same state may stand in several rows.
        num_actions: A.
        tolerance: the normalised margin below which a certificate counts as "none". The search goes
            far beyond it before it settles for that.
        max_iterations: UNDECIDED after so many steps of the solver.
    """
    features = _checks.real_array("phi", phi, ("S", "F"))
    if np.abs(features).max() >= 1e100:
        raise ValueError(f"phi must stay below 1e100, got {np.abs(features).max():.1e}")
    _checks.count("num_actions", num_actions)
    actions = _checks.action_array(
        "actions", actions, length=len(features), num_actions=num_actions
    )
    _checks.number("tolerance", tolerance, above=0)
    _checks.count("max_iterations", max_iterations)
    unknowns = num_actions * (features.shape[1] + 1)
    if unknowns > 100_000:  # the solver's matrix would take more than 80 GB
        raise ValueError(
            f"num_actions is {num_actions}, which makes {unknowns:,} unknowns: too many"
        )
    x = np.column_stack([features, np.ones(len(features))])
    if num_actions == 1:
        zero = np.zeros((x.shape[1], 1))
        return Verdict(Consistency.CONSISTENT, zero, None, np.inf, np.inf)
    certificate = _contradiction(features, actions, num_actions)
    if certificate is not None:
        upper = _margin_upper(x, actions, certificate)
        return Verdict(Consistency.INCONSISTENT, None, certificate, 0.0, upper)
    best = np.inf
    for theta, weight, residual in _candidates(x, actions, num_actions, max_iterations):
        upper = _margin_upper(x, actions, weight)
        if upper < best:
            best, certificate = upper, weight
        lower = _margin_lower(x, actions, theta)
        if lower > 0:
            return Verdict(Consistency.CONSISTENT, theta, None, lower, best)
        if best <= tolerance and residual <= _SHARP:
            return Verdict(Consistency.INCONSISTENT, None, certificate, 0.0, best)
    return Verdict(Consistency.UNDECIDED, None, None, 0.0, best)


def _candidates(
    x: Float[np.ndarray, "S G"], actions: Int[np.ndarray, "S"], num_actions: Any, steps: int
) -> Iterator[tuple[Float[np.ndarray, "G A"], Float[np.ndarray, "S A"], float]]:
    """After every step of the solver: a head, weights of the rows, their whitened |Σ y d̂|."""
    basis, to_features = _whitened(x)
    size = np.linalg.norm(basis, axis=1, keepdims=True)
    with jax.enable_x64(True):
        rows, slot = interior_point.arranged(basis / size, actions, num_actions)
        theta = jnp.zeros((num_actions, basis.shape[1]))
        iterate = interior_point.Iterate(theta, jnp.asarray(-1.0), rows.rival / jnp.sum(rows.rival))
    damping = 1e-13
    for _ in range(steps):
        with jax.enable_x64(True):
            following, residual = interior_point.step(rows, iterate, jnp.asarray(damping))
        if not np.isfinite(residual):  # the normal matrix is singular to working precision
            damping *= 10
            continue
        iterate = following
        weight = np.asarray(iterate.weight).reshape(-1, num_actions)[slot] / size
        yield to_features @ np.asarray(iterate.theta).T, weight / weight.sum(), float(residual)


def _whitened(
    x: Float[np.ndarray, "S G"],
) -> tuple[Float[np.ndarray, "S R"], Float[np.ndarray, "G R"]]:
    """Orthonormal coordinates of the states, and the map of heads on them to heads on x.

    Directions the features do not span (dead or duplicate units) are dropped, but for zero
    columns up to a multiple of 64: few widths, few compilations.
    """
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    column = np.linalg.norm(unit, axis=0)
    column[column == 0] = 1.0
    q, r = np.linalg.qr(unit / column)
    left, singular, right = np.linalg.svd(r, full_matrices=False)
    rank = int(np.sum(singular > x.shape[1] * _EPS * singular[0]))
    spare = ((0, 0), (0, min(-rank % 64, len(singular) - rank)))
    basis = np.pad(q @ left[:, :rank], spare)
    to_features = np.pad(right[:rank].T / column[:, None] / singular[:rank], spare)
    return basis, to_features


def _margin_lower(
    x: Float[np.ndarray, "S G"], actions: Int[np.ndarray, "S"], theta: Float[np.ndarray, "G A"]
) -> float:
    """A lower bound of θ's normalised margin, positive only if θ is certainly strictly greedy."""
    lead = certain_leads(x, actions, theta)
    if not lead.min() > 0:
        return 0.0
    length = np.sqrt(2) * np.linalg.norm(x, axis=1) * np.linalg.norm(theta)
    return float((lead / length).min())


def certain_leads(
    x: Float[np.ndarray, "S G"], actions: Int[np.ndarray, "S"], theta: Float[np.ndarray, "G A"]
) -> Float[np.ndarray, "S"]:
    """By how much at least θ prefers the actions to all others, whatever was lost to rounding."""
    each = np.arange(len(x))
    q = x @ theta
    error = (x.shape[1] + 3) * _EPS * (np.abs(x) @ np.abs(theta))
    gap = (q - error)[each, actions][:, None] - (q + error)
    gap[each, actions] = np.inf
    return gap.min(axis=1)


def _margin_upper(
    x: Float[np.ndarray, "S G"], actions: Int[np.ndarray, "S"], weight: Float[np.ndarray, "S A"]
) -> float:
    """An upper bound of |Σ y d̂| / Σ y, and so of every head's normalised margin."""
    pull = -weight
    pull[np.arange(len(x)), actions] += weight.sum(axis=1)
    pull /= np.linalg.norm(x, axis=1, keepdims=True)
    norm = np.linalg.norm(x.T @ pull) / np.sqrt(2) / weight.sum()
    return float(norm + np.sqrt(2) * (sum(x.shape) + 3) * _EPS)


def _contradiction(
    features: Float[np.ndarray, "S F"], actions: Int[np.ndarray, "S"], num_actions: int
) -> Float[np.ndarray, "S A"] | None:
    """The certificate of one state that is committed to two actions, if there is one."""
    seen: dict[bytes, int] = {}
    for state, row in enumerate(features):
        twin = seen.setdefault(row.tobytes(), state)
        if actions[twin] != actions[state]:
            certificate = np.zeros((len(actions), num_actions))
            certificate[twin, actions[state]] = certificate[state, actions[twin]] = 0.5
            return certificate
    return None
