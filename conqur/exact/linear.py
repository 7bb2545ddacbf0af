"""Exact consistency for linear policy classes, Q_θ(s, a) = θ·φ(s, a)."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.optimize import nnls

from conqur import _checks
from conqur.assignment import Oracle
from conqur.exact.verdict import Consistency, Verdict


def consistent(features: Any, actions: Any, *, tolerance: float = 1e-12) -> Verdict:
    """Decide whether some θ is strictly greedy for every commitment [s ↦ a], and prove it.

    The best normalised margin is the distance of the origin from the convex hull of the normalised
    rows, and one non-negative least-squares problem,

        min |Σ y d|² + (Σ y − 1)²  over y ≥ 0,

    solves both sides of that duality: Σ y d is the maximum-margin θ, unless it is zero, and then y
    proves that there is none. Both proofs are checked before they are believed.

    Args:
        features: φ, [S, A, d].
        actions: the committed action of each row, [S]. The same state may stand in several rows.
        tolerance: the normalised margin below which a certificate counts as "none".
    """
    features = _real_features(features)
    actions = _checks.action_array(
        "actions", actions, length=features.shape[0], num_actions=features.shape[1]
    )
    _checks.number("tolerance", tolerance, above=0)
    return _decide(features, actions, tolerance)


def _decide(
    features: Float[np.ndarray, "S A d"], actions: Int[np.ndarray, " S"], tolerance: float
) -> Verdict:
    """What `consistent` answers, for arguments that were checked."""
    rows = constraint_rows(features, actions)
    unit_rows = _normalised(rows)
    if not len(rows):  # a single action: every θ is greedy
        zero = np.zeros(features.shape[2])
        return Verdict(Consistency.CONSISTENT, zero, None, np.inf, np.inf)

    weights = _balance(unit_rows)
    upper = float(np.linalg.norm(unit_rows.T @ weights) / weights.sum())
    theta = _best_witness(unit_rows, weights)
    if not strictly_greedy(features, actions, theta):
        theta = _rescaled_witness(unit_rows)
    if strictly_greedy(features, actions, theta):
        lower = max(_margin(unit_rows, theta), 0.0)
        return Verdict(Consistency.CONSISTENT, theta, None, lower, max(lower, upper))
    if upper <= tolerance:
        certificate = np.zeros(features.shape[:2])
        certificate[_others(actions, features.shape[1])] = weights / weights.sum()
        return Verdict(Consistency.INCONSISTENT, None, certificate, 0.0, upper)
    return Verdict(Consistency.UNDECIDED, None, None, 0.0, upper)


def constraint_rows(
    features: Float[np.ndarray, "S A d"], actions: Int[np.ndarray, " S"]
) -> Float[np.ndarray, "R d"]:
    """The differences φ(s, a) − φ(s, a') of all commitments and other actions, row by row."""
    chosen = features[np.arange(len(actions)), actions]
    return (chosen[:, None] - features)[_others(actions, features.shape[1])]


def strictly_greedy(
    features: Float[np.ndarray, "S A d"],
    actions: Int[np.ndarray, " S"],
    theta: Float[np.ndarray, " d"],
) -> bool:
    """Whether θ prefers every committed action by more than rounding could account for."""
    eps, smallest = np.finfo(np.float64).eps, np.finfo(np.float64).smallest_subnormal
    scores, sizes = features @ theta, np.abs(features) @ np.abs(theta)
    error = (len(theta) + 2) * (eps * sizes + 2 * smallest)
    index = np.arange(len(actions))
    ahead = (scores - error)[index, actions][:, None] > scores + error
    ahead[index, actions] = True
    return bool(ahead.all())


class LinearPolicies:
    """The greedy policies of a linear class, and witnesses for partial policies.

    A partial policy is a tuple with an action, or `FREE`, for every state. Answers are remembered.
    """

    FREE = -1
    TOLERANCE = 1e-12
    """Of the consistency tests (see `consistent`)."""

    def __init__(self, features: Any) -> None:
        """Take φ, [S, A, d], which decides the class."""
        self.features = _real_features(features)
        self.num_states, self.num_actions, self.num_features = self.features.shape
        self._witnesses: dict[tuple[int, ...], Float[np.ndarray, " d"] | None] = {
            (self.FREE,) * self.num_states: np.zeros(self.num_features)
        }
        for state in range(self.num_states):
            if all(self.witness(self._single(state, a)) is None for a in range(self.num_actions)):
                raise ValueError(f"features let no θ prefer an action of state {state} strictly")

    def witness(self, commitments: Sequence[int]) -> Float[np.ndarray, " d"] | None:
        """A θ that is strictly greedy for all commitments, or None if there is none."""
        if len(commitments) != self.num_states:
            raise ValueError(
                f"commitments must hold an action or FREE for each of the "
                f"{self.num_states} states, got {len(commitments)}"
            )
        commitments = tuple(commitments)
        if commitments not in self._witnesses:
            if not all(action in range(self.FREE, self.num_actions) for action in commitments):
                raise ValueError(
                    f"commitments must be FREE or actions in 0 … {self.num_actions - 1}, got "
                    f"{commitments}"
                )
            states = np.flatnonzero(np.array(commitments) != self.FREE)
            self._witnesses[commitments] = self._solve(states, np.array(commitments)[states])
        return self._witnesses[commitments]

    def policies(self) -> dict[tuple[int, ...], Float[np.ndarray, " d"]]:
        """All realizable greedy policies with a witness each, in lexicographic order."""
        partial: list[tuple[int, ...]] = [()]
        for state in range(self.num_states):
            free = (self.FREE,) * (self.num_states - state - 1)
            extended = [(*p, a) for p in partial for a in range(self.num_actions)]
            partial = [p for p in extended if self.witness(p + free) is not None]
        witnesses = {policy: self._witnesses[policy] for policy in partial}
        return {policy: theta for policy, theta in witnesses.items() if theta is not None}

    def oracle(self, states: Any = None, committed: Any = ()) -> Oracle:
        """The test that `strict_assignment` asks.

        Args:
            states: the state that each row of the Q-values belongs to, [R]; row i is state i if not
                given.
            committed: pairs (state, action) that were committed before.
        """
        states = np.arange(self.num_states) if states is None else states
        rows = _checks.state_array("states", states, length=len(states), num_states=self.num_states)
        pairs = list(committed) or np.zeros((0, 2), int)
        before = np.asarray(_checks.as_array("committed", pairs))
        if before.ndim != 2 or before.shape[1] != 2:
            raise ValueError(f"committed must hold pairs (state, action), got {committed!r}")
        _checks.state_array(
            "committed", before[:, 0], length=len(before), num_states=self.num_states
        )
        _checks.action_array(
            "committed", before[:, 1], length=len(before), num_actions=self.num_actions
        )

        def accepts(at: Int[np.ndarray, " K"], actions: Int[np.ndarray, " K"]) -> bool:
            all_states = np.concatenate([before[:, 0], rows[at]])
            all_actions = np.concatenate([before[:, 1], actions])
            commitments = np.full(self.num_states, self.FREE)
            commitments[all_states] = all_actions
            contradicted = bool((commitments[all_states] != all_actions).any())
            return not contradicted and self.witness(tuple(commitments.tolist())) is not None

        return accepts

    def _single(self, state: int, action: int) -> tuple[int, ...]:
        return tuple(action if s == state else self.FREE for s in range(self.num_states))

    def _solve(
        self, states: Int[np.ndarray, " K"], actions: Int[np.ndarray, " K"]
    ) -> Float[np.ndarray, " d"] | None:
        verdict = _decide(self.features[states], actions, self.TOLERANCE)
        if verdict.outcome is Consistency.UNDECIDED:
            raise ValueError(
                f"features leave it open whether {dict(zip(states, actions, strict=True))} is "
                f"consistent: the best margin lies between 0 and {verdict.margin_upper:.1e}"
            )
        return verdict.theta


def greedy_policies(features: Any) -> dict[tuple[int, ...], Float[np.ndarray, " d"]]:
    """G(Θ): every realizable greedy policy of the linear class on φ [S, A, d], with a witness θ."""
    return LinearPolicies(features).policies()


def greedy_policy(features: Any, theta: Any) -> Int[np.ndarray, " S"]:
    """π_θ(s) = argmax_a θ·φ(s, a), the first one among equals."""
    features = _checks.real_array("features", features, ("S", "A", "d"))
    theta = _checks.real_array("theta", theta, ("d",))
    _checks.shape("theta", theta, features.shape[2:])
    return np.argmax(features @ theta, axis=-1)


def _others(actions: Int[np.ndarray, " S"], num_actions: int) -> np.ndarray:
    return np.arange(num_actions) != actions[:, None]


def _real_features(features: Any) -> Float[np.ndarray, "S A d"]:
    features = _checks.real_array("features", features, ("S", "A", "d"))
    if np.abs(features).max() > 1e300:  # differences and sums could overflow
        raise ValueError(f"features must stay below 1e300, got {np.abs(features).max():.1e}")
    return features


def _normalised(rows: Float[np.ndarray, "R d"]) -> Float[np.ndarray, "R d"]:
    """Each row divided by its norm; a row of zeros stays one (its actions cannot be told apart)."""
    largest = np.abs(rows).max(
        axis=1, keepdims=True
    )  # first, so that no square under- or overflows
    scaled = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0)
    norms = np.linalg.norm(scaled, axis=1, keepdims=True)
    return np.divide(scaled, norms, out=scaled, where=norms > 0)


def _balance(unit_rows: Float[np.ndarray, "R d"]) -> Float[np.ndarray, " R"]:
    """The y ≥ 0 that minimises |Σ y d|² + (Σ y − 1)²."""
    system = np.vstack([unit_rows.T, np.ones(len(unit_rows))])
    target = np.append(np.zeros(unit_rows.shape[1]), 1.0)
    try:
        weights, _ = nnls(system, target, maxiter=30 * sum(system.shape))
    except RuntimeError:  # out of iterations: equal weights, which leave it undecided
        weights = np.full(len(unit_rows), 1 / len(unit_rows))
    return np.asarray(weights)


def _best_witness(
    unit_rows: Float[np.ndarray, "R d"], weights: Float[np.ndarray, " R"]
) -> Float[np.ndarray, " d"]:
    """The θ of the largest margin that the weights lead to, scaled to a largest entry of one."""
    # All weighted rows have the same margin. Solving for that is more accurate than the balance
    # when the weighted rows almost cancel.
    support = unit_rows[weights > 0]
    solved = np.linalg.lstsq(support, np.ones(len(support)), rcond=None)[0]
    theta = max(unit_rows.T @ weights, solved, key=lambda theta: _margin(unit_rows, theta))
    return theta / (np.abs(theta).max() or 1.0)


def _rescaled_witness(unit_rows: Float[np.ndarray, "R d"]) -> Float[np.ndarray, " d"]:
    """A witness found with features of equal size, which consistency does not depend on.

    Where features differ by many orders of magnitude the best margin may vanish in rounding,
    although a witness exists. A power of two rounds nothing.
    """
    _, exponents = np.frexp(np.abs(unit_rows).max(axis=0))
    rows = _normalised(np.ldexp(unit_rows, -exponents))
    return np.ldexp(_best_witness(rows, _balance(rows)), -exponents)


def _margin(unit_rows: Float[np.ndarray, "R d"], theta: Float[np.ndarray, " d"]) -> float:
    norm = np.linalg.norm(theta)
    return float((unit_rows @ theta).min() / norm) if norm > 0 else 0.0
