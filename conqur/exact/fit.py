"""Regression under exact consistency: the limit λ → ∞ of the penalty, as a quadratic program."""

import enum
from dataclasses import dataclass
from typing import Any, NamedTuple

import clarabel
import numpy as np
from jaxtyping import Float
from scipy import sparse
from scipy.optimize import nnls

from conqur import _checks
from conqur.exact.linear import constraint_rows

HUGE = 1e100
"""More, and squares are infinite."""
FARTHEST = 1e101
"""What units may come to: of these, squares are multiplied and divided."""


class Feasibility(enum.Enum):
    """Whether some θ keeps all commitments by the margin that was asked for."""

    FEASIBLE = "some θ keeps all commitments by the margin, and the solver found the best"
    INFEASIBLE = "no θ keeps all commitments by the margin"
    UNSOLVED = "the solver stopped before it knew"


@dataclass(frozen=True, eq=False)
class Fit:
    """The least-squares regressor among those that keep a set of commitments.

    Attributes:
        outcome: whether there is one. With margin 0 there always is: θ = 0 keeps everything by a
            tie. Whether a greedy policy can keep the commitments is `consistent`'s question.
        theta: the constrained minimiser, [d]; None unless FEASIBLE.
        objective: Σ (θ·x − q)² at θ; infinite without one.
        multipliers: how much each constraint holds the objective back (Lagrange multipliers ≥ 0),
            one for each commitment and other action, [S (A − 1)]; None unless FEASIBLE.
    """

    outcome: Feasibility
    theta: Float[np.ndarray, " d"] | None
    objective: float
    multipliers: Float[np.ndarray, " R"] | None


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
    scaled = _scaled(inputs, labels, rows, margin)
    outcome, theta, multipliers = _quadratic_program(
        sparse.csc_matrix(scaled.inputs.T @ scaled.inputs),
        -scaled.inputs.T @ scaled.labels,
        sparse.csc_matrix(-scaled.rows),
        -scaled.bounds,
    )
    if outcome is not Feasibility.FEASIBLE:
        return Fit(outcome, None, np.inf, None)
    theta = scaled.theta_unit * theta
    objective = float(np.sum((inputs @ theta - labels) ** 2))
    # The gradient 2 X'(Xθ − q) in the original units is Σ multiplier · row.
    forces = 2 * multipliers * scaled.label_unit**2 / scaled.theta_unit / scaled.row_norms
    return Fit(outcome, theta, objective, forces)


def project(theta: Any, features: Any, actions: Any, *, margin: float = 0.0) -> Fit:
    """The nearest θ (in Euclidean distance) that is greedy for the commitments.

    Args:
        theta: the θ to project, [d].
        features: φ of the committed states, [S, A, d].
        actions: their committed actions, [S].
        margin: by how much a committed action has to be ahead, in units of Q.
    """
    theta = _checks.real_array("theta", theta, ("d",))
    features = _checks.real_array("features", features, ("S", "A", "d"))
    _checks.shape("theta", theta, features.shape[2:])
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
    _checks.number("penalty_weight", penalty_weight, at_least=0)
    num_pairs = len(np.asarray(actions))
    weights = _checks.real_array("weights", np.ones(num_pairs) if weights is None else weights, "S")
    _checks.shape("weights", weights, (num_pairs,))
    if (weights < 0).any() or not weights.any():
        raise ValueError("weights must not be negative, nor all zero")
    # One slack variable a row: slack ≥ 0 and slack ≥ margin − row·θ, at a price of λ a share.
    scaled = _scaled(inputs, labels, rows, margin)
    count, size = rows.shape
    shares = np.repeat(weights / weights.sum(), count // num_pairs)
    prices = penalty_weight * shares * scaled.row_norms * scaled.theta_unit / scaled.label_unit**2
    gram = sparse.csc_matrix(scaled.inputs.T @ scaled.inputs / len(inputs))
    quadratic = sparse.block_diag([gram, sparse.csc_matrix((count, count))], format="csc")
    linear = np.concatenate([-scaled.inputs.T @ scaled.labels / len(inputs), prices / 2])
    identity = sparse.identity(count)
    constraints = sparse.bmat([[-scaled.rows, -identity], [None, -identity]], format="csc")
    bounds = np.concatenate([-scaled.bounds, np.zeros(count)])
    status, solution, _ = _quadratic_program(quadratic, linear, constraints, bounds)
    if status is not Feasibility.FEASIBLE:
        raise ValueError(
            f"penalty_weight {penalty_weight:g} is too large for a penalised fit of these labels; "
            "fit_consistent is its limit"
        )
    return scaled.theta_unit * solution[:size]


class _Scaled(NamedTuple):
    """A regression and its constraints in units where all numbers are about one."""

    inputs: Float[np.ndarray, "B d"]
    labels: Float[np.ndarray, " B"]
    rows: Float[np.ndarray, "R d"]
    """Of norm one, or zero."""
    bounds: Float[np.ndarray, " R"]
    """What a row times θ has to reach."""
    row_norms: Float[np.ndarray, " R"]
    label_unit: float
    theta_unit: float
    """A solution times this solves the original problem."""


def _scaled(
    inputs: Float[np.ndarray, "B d"],
    labels: Float[np.ndarray, " B"],
    rows: Float[np.ndarray, "R d"],
    margin: float,
) -> _Scaled:
    """Solvers stop at absolute tolerances, so the answer must not depend on anyone's units."""
    norms = np.linalg.norm(rows, axis=1)
    norms = np.where(norms > 0, norms, 1.0)
    input_unit = float(np.abs(inputs).max()) or 1.0
    reach = float((margin / norms).max(initial=0.0)) * input_unit
    label_unit = max(float(np.abs(labels).max()), reach) or 1.0
    theta_unit = label_unit / input_unit
    # What multipliers and prices are counted in; squares of what is very large or small are lost.
    extremes = np.array([label_unit, theta_unit, norms.min(initial=1.0), norms.max(initial=1.0)])
    if not (extremes > 1 / FARTHEST).all() or not (extremes < FARTHEST).all():
        raise ValueError("inputs, labels, features and margin are of sizes too far apart")
    return _Scaled(
        inputs=inputs / input_unit,
        labels=labels / label_unit,
        rows=rows / norms[:, None],
        bounds=margin / norms / theta_unit,
        row_norms=norms,
        label_unit=label_unit,
        theta_unit=theta_unit,
    )


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
    for name, values in (("inputs", inputs), ("labels", labels), ("features", features)):
        if np.abs(values).max(initial=0.0) >= HUGE:
            raise ValueError(f"{name} must stay below {HUGE:g}, got {np.abs(values).max():.1e}")
    _checks.shape("inputs", inputs, (len(inputs), size))
    _checks.number("margin", margin, at_least=0, at_most=HUGE)
    rows = constraint_rows(features, actions)
    peaks = np.abs(rows).max(axis=1, initial=0.0)
    if ((peaks > 0) & (peaks < 1 / HUGE)).any():  # squares would be zero
        raise ValueError(f"features must differ by {1 / HUGE:g} or more, or not at all")
    return inputs, labels, rows


def _quadratic_program(
    quadratic: sparse.csc_matrix,
    linear: Float[np.ndarray, " n"],
    constraints: sparse.csc_matrix,
    bounds: Float[np.ndarray, " R"],
) -> tuple[Feasibility, Float[np.ndarray, " n"], Float[np.ndarray, " R"]]:
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
        clarabel.SolverStatus.Solved: Feasibility.FEASIBLE,
        clarabel.SolverStatus.AlmostSolved: Feasibility.FEASIBLE,
        clarabel.SolverStatus.PrimalInfeasible: Feasibility.INFEASIBLE,
    }
    outcome = outcomes.get(solution.status, Feasibility.UNSOLVED)
    x, multipliers = np.array(solution.x), np.array(solution.z)
    if outcome is Feasibility.FEASIBLE and len(x) + len(bounds) <= 1000:
        x, multipliers = _polished(
            quadratic.toarray(), linear, constraints.toarray(), bounds, x, multipliers
        )
    return outcome, x, multipliers


def _polished(
    quadratic: Float[np.ndarray, "n n"],
    linear: Float[np.ndarray, " n"],
    constraints: Float[np.ndarray, "R n"],
    bounds: Float[np.ndarray, " R"],
    x: Float[np.ndarray, " n"],
    multipliers: Float[np.ndarray, " R"],
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " R"]]:
    """The same solution to rounding: solve for the constraints that hold it back as equations.

    The solver stops at a tolerance, which leaves √tolerance where a multiplier and a slack are
    both zero. If the guess of the active constraints is wrong, the solver's own answer stands.
    """
    active = multipliers > bounds - constraints @ x
    held = constraints[active]
    zeros = np.zeros((len(held), len(held)))
    system = np.block([[quadratic, held.T], [held, zeros]])
    target = np.concatenate([-linear, bounds[active]])
    sharp = np.linalg.lstsq(system, target, rcond=None)[0][: len(x)]
    # Multipliers are not unique where constraints meet in a corner; find some that push outwards.
    forces = np.zeros_like(multipliers)
    pull = -linear - quadratic @ sharp
    if active.any():
        try:
            forces[active] = nnls(held.T, pull)[0]
        except RuntimeError:  # out of iterations
            return x, multipliers
    scale = 1 + np.abs(sharp).max()
    kept = (constraints @ sharp - bounds).max(initial=0.0) <= 1e-11 * scale
    optimal = np.abs(pull - constraints.T @ forces).max() <= 1e-9 * scale
    return (sharp, forces) if kept and optimal else (x, multipliers)
