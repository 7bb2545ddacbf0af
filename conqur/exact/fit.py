"""Regression under exact consistency: the limit λ → ∞ of the penalty, as a quadratic program."""

from dataclasses import dataclass
from typing import Any

import clarabel
import numpy as np
from jaxtyping import Float
from scipy import sparse

from conqur import _checks
from conqur.exact.linear import constraint_rows
from conqur.exact.verdict import Consistency


@dataclass(frozen=True)
class Fit:
    """The least-squares regressor among those that are greedy for a set of commitments."""

    outcome: Consistency
    """INCONSISTENT if no θ keeps the margin, UNDECIDED if the solver stopped too early."""
    theta: Float[np.ndarray, " d"] | None
    """The constrained minimiser (only if CONSISTENT). With margin 0 it may lie on a tie."""
    objective: float
    """Σ (θ·x − q)² at θ; infinite without one."""
    multipliers: Float[np.ndarray, " R"] | None
    """How much each constraint holds the objective back (Lagrange multipliers, ≥ 0)."""


def fit_consistent(
    inputs: Any, labels: Any, features: Any, actions: Any, *, margin: float = 0.0
) -> Fit:
    """Least squares on labels subject to consistency: min Σ (θ·x − q)², θ·(φ(s, a) − φ(s, a')) ≥ m.

    Args:
        inputs: x, the features φ(s, a) of the regression's examples, [B, d].
        labels: their Q-labels q, [B].
        features: φ of the committed states, [S, A, d].
        actions: their committed actions, [S].
        margin: m, by how much a committed action has to be ahead, in units of Q. With 0 the fit is
            over the closure of the consistent set, where ties (and θ = 0) are allowed.
    """
    inputs, labels, rows = _checked(inputs, labels, features, actions, margin)
    outcome, theta, multipliers = _quadratic_program(
        sparse.csc_matrix(2 * inputs.T @ inputs),
        -2 * inputs.T @ labels,
        sparse.csc_matrix(-rows),
        np.full(len(rows), -margin),
    )
    if outcome is not Consistency.CONSISTENT:
        return Fit(outcome, None, np.inf, None)
    return Fit(outcome, theta, float(np.sum((inputs @ theta - labels) ** 2)), multipliers)


def project(theta: Any, features: Any, actions: Any, *, margin: float = 0.0) -> Fit:
    """The nearest θ (in Euclidean distance) that is greedy for the commitments.

    Args:
        theta: the θ to project, [d].
        features: φ of the committed states, [S, A, d].
        actions: their committed actions, [S].
        margin: by how much a committed action has to be ahead, in units of Q.
    """
    theta = _checks.real_array("theta", theta, ("d",))
    return fit_consistent(np.eye(len(theta)), theta, features, actions, margin=margin)


def fit_penalised(
    inputs: Any,
    labels: Any,
    features: Any,
    actions: Any,
    *,
    penalty_weight: float,
    weights: Any = None,
    margin: float = 0.0,
) -> Float[np.ndarray, " d"]:
    """The exact minimiser of the penalised loss: mean (θ·x − q)² + λ C_θ(B), C_θ(B) a mean over B.

    Args:
        inputs: x, the features φ(s, a) of the regression's examples, [B, d].
        labels: their Q-labels q, [B].
        features: φ of the states in the consistency buffer, [S, A, d].
        actions: their assigned actions, [S].
        penalty_weight: λ. As it grows, the solution approaches that of `fit_consistent`.
        weights: how much each pair of the buffer counts, [S]; all the same if not given.
        margin: the hinge margin of the penalty, in units of Q.
    """
    inputs, labels, rows = _checked(inputs, labels, features, actions, margin)
    _checks.non_negative("penalty_weight", penalty_weight)
    num_pairs = len(np.asarray(actions))
    weights = _checks.real_array("weights", np.ones(num_pairs) if weights is None else weights, "S")
    _checks.shape("weights", weights, (num_pairs,))
    if (weights < 0).any() or not weights.any():
        raise ValueError("weights must not be negative, nor all zero")
    # One slack variable a row: slack ≥ 0 and slack ≥ margin − row·θ, at a price of λ a share.
    count, size = rows.shape
    shares = np.repeat(weights / weights.sum(), count // num_pairs)
    gram = sparse.csc_matrix(inputs.T @ inputs / len(inputs))
    quadratic = sparse.block_diag([gram, sparse.csc_matrix((count, count))], format="csc")
    linear = np.concatenate([-inputs.T @ labels / len(inputs), penalty_weight / 2 * shares])
    identity = sparse.identity(count)
    constraints = sparse.bmat([[-rows, -identity], [None, -identity]], format="csc")
    bounds = np.concatenate([np.full(count, -margin), np.zeros(count)])
    status, solution, _ = _quadratic_program(quadratic, linear, constraints, bounds)
    if status is not Consistency.CONSISTENT:
        raise ValueError("the penalised fit failed: are inputs, labels or weights badly scaled?")
    return solution[:size]


def _checked(
    inputs: Any, labels: Any, features: Any, actions: Any, margin: float
) -> tuple[Float[np.ndarray, "B d"], Float[np.ndarray, " B"], Float[np.ndarray, "R d"]]:
    """The regression's examples and the constraint rows, once they are known to fit together."""
    inputs = _checks.real_array("inputs", inputs, ("B", "d"))
    labels = _checks.real_array("labels", labels, ("B",))
    features = _checks.real_array("features", features, ("S", "A", "d"))
    num_states, num_actions, size = features.shape
    actions = _checks.action_array("actions", actions, length=num_states, num_actions=num_actions)
    _checks.shape("labels", labels, (len(inputs),))
    _checks.shape("inputs", inputs, (len(inputs), size))
    _checks.non_negative("margin", margin)
    return inputs, labels, constraint_rows(features, actions)


def _quadratic_program(
    quadratic: sparse.csc_matrix,
    linear: Float[np.ndarray, " n"],
    constraints: sparse.csc_matrix,
    bounds: Float[np.ndarray, " R"],
) -> tuple[Consistency, Float[np.ndarray, " n"], Float[np.ndarray, " R"]]:
    """min ½ x'Px + q'x subject to Ax ≤ b: whether there is an x, the best one, the multipliers."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-9
    # What "almost solved" means, where rounding ends the iteration before.
    settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = 1e-7
    settings.reduced_tol_feas = 1e-7
    cone = [clarabel.NonnegativeConeT(len(bounds))]
    upper = sparse.triu(quadratic, format="csc")
    solution = clarabel.DefaultSolver(upper, linear, constraints, bounds, cone, settings).solve()
    outcomes = {
        clarabel.SolverStatus.Solved: Consistency.CONSISTENT,
        clarabel.SolverStatus.AlmostSolved: Consistency.CONSISTENT,
        clarabel.SolverStatus.PrimalInfeasible: Consistency.INCONSISTENT,
    }
    outcome = outcomes.get(solution.status, Consistency.UNDECIDED)
    return outcome, np.array(solution.x), np.array(solution.z)
