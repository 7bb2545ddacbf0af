import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linprog

from conqur.exact import Consistency, LinearPolicies, consistent
from conqur.tabular import greedy_policies, greedy_policy


def rows_of(features, actions):
    """The constraint matrix, written down the slow way."""
    return np.array(
        [
            features[s, a] - features[s, b]
            for s, a in enumerate(actions)
            for b in range(features.shape[1])
            if b != a
        ]
    ).reshape(-1, features.shape[2])


def best_margin_by_lp(features, actions):
    """max t with D θ ≥ t and |θ|∞ ≤ 1: an independent decision (positive iff consistent)."""
    rows = rows_of(features, actions)
    size = rows.shape[1]
    result = linprog(
        np.append(np.zeros(size), -1.0),
        A_ub=np.column_stack([-rows, np.ones(len(rows))]),
        b_ub=np.zeros(len(rows)),
        bounds=[(-1, 1)] * size + [(None, 1)],
        method="highs",
    )
    return -result.fun


def check(verdict, features, actions):
    """Believe nothing: redo both proofs from the definitions."""
    rows = rows_of(features, actions)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    assert 0 <= verdict.margin_lower <= verdict.margin_upper
    if verdict.outcome is Consistency.CONSISTENT:
        theta = verdict.theta
        q_values = features @ theta
        for s, a in enumerate(actions):
            assert (q_values[s, a] > np.delete(q_values[s], a)).all()
        assert verdict.certificate is None
        margin = (unit @ theta).min() / np.linalg.norm(theta)
        np.testing.assert_allclose(verdict.margin_lower, margin, rtol=1e-6, atol=1e-14)
        np.testing.assert_allclose(verdict.margin_upper, margin, rtol=1e-4, atol=1e-12)
    if verdict.outcome is Consistency.INCONSISTENT:
        y = verdict.certificate
        assert verdict.theta is None
        assert (y >= 0).all()
        np.testing.assert_allclose(y.sum(), 1.0)
        assert (y[np.arange(len(actions)), actions] == 0).all()
        others = np.ones_like(y, dtype=bool)
        others[np.arange(len(actions)), actions] = False
        assert np.linalg.norm(y[others] @ unit) <= 1e-12


@st.composite
def problems(draw, elements=None):
    shape = draw(st.tuples(st.integers(1, 6), st.integers(2, 4), st.integers(1, 4)))
    if elements is None:
        elements = st.integers(-2, 2).map(float)  # small integers make degenerate cases
    features = draw(hnp.arrays(np.float64, shape, elements=elements))
    actions = draw(hnp.arrays(np.int64, shape[0], elements=st.integers(0, shape[1] - 1)))
    return features, actions


@settings(max_examples=80)
@given(problems())
def test_agrees_with_an_independent_lp(problem):
    features, actions = problem
    verdict = consistent(features, actions)
    check(verdict, features, actions)
    by_lp = best_margin_by_lp(features, actions) > 1e-7
    assert verdict.outcome is (Consistency.CONSISTENT if by_lp else Consistency.INCONSISTENT)


@settings(max_examples=120)
@given(problems(elements=st.floats(-1e3, 1e3).map(lambda x: round(x, 4))))
def test_agrees_with_an_independent_lp_on_real_features(problem):
    features, actions = problem
    verdict = consistent(features, actions)
    check(verdict, features, actions)
    scale = np.abs(features).max()
    assume(scale > 0)
    by_lp = best_margin_by_lp(features / scale, actions)
    assume(not 0 < by_lp < 1e-6)  # too close for the LP's tolerances
    assert verdict.outcome is (Consistency.CONSISTENT if by_lp > 0 else Consistency.INCONSISTENT)


@settings(max_examples=20)
@given(st.integers(0, 10_000), st.integers(1, 3))
def test_agrees_with_brute_force_over_many_thetas(seed, size):
    """Policies of thousands of random θ are all found; those found have a working witness."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(3, 3, size))
    found = greedy_policies(features)
    values = np.einsum("sad,td->tsa", features, rng.normal(size=(3000, size)))
    sampled = {tuple(policy) for policy in values.argmax(axis=2).tolist()}
    assert sampled <= set(found)
    for policy, theta in found.items():
        assert tuple(greedy_policy(features, theta)) == policy
    for policy in itertools.product(range(3), repeat=3):
        verdict = consistent(features, np.array(policy))
        assert (verdict.outcome is Consistency.CONSISTENT) == (policy in found)


def test_margin_by_hand():
    # Action 0 over 1 at two states: rows (1, 0) and (0, 1); best θ ∝ (1, 1) with margin 1/√2.
    features = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [0.0, 0.0]]])
    verdict = consistent(features, [0, 0])
    assert verdict.outcome is Consistency.CONSISTENT
    np.testing.assert_allclose([verdict.margin_lower, verdict.margin_upper], 2**-0.5)
    np.testing.assert_allclose(verdict.theta / verdict.theta[0], [1.0, 1.0])


def test_the_same_state_with_two_actions_is_inconsistent():
    features = np.array([[[1.0, 0.0], [0.0, 1.0]]] * 2)
    verdict = consistent(features, [0, 1])
    assert verdict.outcome is Consistency.INCONSISTENT
    np.testing.assert_allclose(verdict.certificate, [[0.0, 0.5], [0.5, 0.0]], atol=1e-12)


def test_actions_with_equal_features_cannot_be_told_apart():
    verdict = consistent(np.ones((1, 2, 3)), [0])
    assert verdict.outcome is Consistency.INCONSISTENT
    assert verdict.certificate.tolist() == [[0.0, 1.0]]


def test_a_feasible_cone_without_interior_is_inconsistent():
    # θ₁ > 0 and −θ₁ + … ≥ 0 only on a face: ties are no witness.
    features = np.array([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 0.0], [1.0, 0.0]]])
    assert consistent(features, [0, 0]).outcome is Consistency.INCONSISTENT


@pytest.mark.parametrize("small", [1e-8, 1e-14, 1e-100])
def test_the_answer_does_not_depend_on_the_unit_of_a_feature(small):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        features = rng.normal(size=(6, 2, 4))
        actions = rng.integers(0, 2, 6)
        outcome = consistent(features, actions).outcome
        scale = np.array([1.0, 1.0, 1.0, small])
        verdict = consistent(features * scale, actions)
        assert verdict.outcome is outcome
        assert 0 <= verdict.margin_lower <= verdict.margin_upper


def test_witnesses_hold_in_exact_arithmetic_whatever_the_scales():
    """States of very different size, checked with fractions."""
    rng = np.random.default_rng(0)
    for _ in range(300):
        scales = 10.0 ** rng.integers(-140, 140, size=(3, 1, 1))
        features = rng.normal(size=(3, 2, 2)) * scales
        actions = rng.integers(0, 2, 3)
        verdict = consistent(features, actions)
        assert verdict.outcome is consistent(features / scales, actions).outcome
        if verdict.outcome is Consistency.CONSISTENT:
            theta = [Fraction(t) for t in verdict.theta.tolist()]
            for state, action in zip(features.tolist(), actions, strict=True):
                scores = [
                    sum(Fraction(x) * t for x, t in zip(f, theta, strict=True)) for f in state
                ]
                assert scores[action] > scores[1 - action]


@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1.0, 1e30, 1e290])
def test_the_answer_does_not_depend_on_scale(scale):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(5, 3, 4)) * scale
    actions = greedy_policy(features, rng.normal(size=4))
    verdict = consistent(features, actions)
    assert verdict.outcome is Consistency.CONSISTENT
    np.testing.assert_allclose(
        verdict.margin_lower, consistent(features / scale, actions).margin_lower, rtol=1e-6
    )


def test_what_rounding_could_account_for_is_undecided():
    """θ = 1 is a witness in exact arithmetic, but its gap of one subnormal number is no proof."""
    verdict = consistent([[[5e-324], [0.0]], [[1.0], [0.0]]], [0, 0])
    assert verdict.outcome is Consistency.UNDECIDED
    assert verdict.theta is None
    assert verdict.certificate is None
    assert verdict.margin_upper == 1.0


def test_no_certificate_is_claimed_for_a_margin_above_the_tolerance():
    """Rows (256, 0) and (−256, 5) have the margin 0.0098, but next to features of 2⁶⁰ no gap of a
    witness exceeds its rounding error: neither yes nor no can be proved."""
    big, step = 2.0**60, 256.0
    features = [[[big, 0.0], [big - step, 0.0]], [[big - step, 5.0], [big, 0.0]]]
    verdict = consistent(features, [0, 0])
    assert verdict.outcome is Consistency.UNDECIDED
    np.testing.assert_allclose(verdict.margin_upper, 0.0098, rtol=0.01)
    allowed = consistent(features, [0, 0], tolerance=0.02)  # for who calls that margin none
    assert allowed.outcome is Consistency.INCONSISTENT


def test_a_tiny_margin_is_still_a_margin():
    # Two almost opposite rows: (1, 0) and (−1, 1e-7).
    features = np.array([[[1.0, 0.0], [0.0, 0.0]], [[-1.0, 1e-7], [0.0, 0.0]]])
    verdict = consistent(features, [0, 0])
    assert verdict.outcome is Consistency.CONSISTENT
    np.testing.assert_allclose([verdict.margin_lower, verdict.margin_upper], 5e-8, rtol=1e-6)


def test_as_many_states_as_independent_features_can_take_any_actions():
    rng = np.random.default_rng(1)
    features = rng.normal(size=(6, 2, 6))
    for actions in itertools.product(range(2), repeat=6):
        assert consistent(features, np.array(actions)).outcome is Consistency.CONSISTENT


def test_one_action_is_always_greedy():
    verdict = consistent(np.ones((3, 1, 2)), [0, 0, 0])
    assert verdict.outcome is Consistency.CONSISTENT
    assert verdict.margin_lower == np.inf  # there is no row to be missed


def test_a_verdict_is_no_boolean():
    with pytest.raises(TypeError, match="three outcomes"):
        bool(consistent(np.ones((1, 2, 1)), [0]))


@pytest.mark.parametrize(
    ("features", "actions", "message"),
    [
        (np.ones((2, 3)), [0, 0], "features must have shape"),
        (np.ones((0, 2, 3)), [], "features must have shape"),
        (np.full((1, 2, 3), np.nan), [0], "features holds NaN"),
        (np.full((1, 2, 3), np.inf), [0], "features holds NaN or infinite"),
        (np.ones((2, 2, 3)), [0], "actions must have shape"),
        (np.ones((2, 2, 3)), [0, 2], "actions holds action 2, but there are 2"),
        (np.ones((2, 2, 3)), [0, -1], "actions holds -1"),
        (np.ones((2, 2, 3)), [0.0, 1.0], "actions must hold integers"),
        ([["a"]], [0], "features must be an array of real numbers"),
        (np.ones((1, 2, 3), complex), [0], "features must be an array of real numbers"),
    ],
)
def test_refuses_bad_input(features, actions, message):
    with pytest.raises(ValueError, match=message):
        consistent(features, actions)


@pytest.mark.parametrize("commitments", [(-2, 0), (2, 0)])
def test_policies_refuse_commitments_to_what_is_no_action(commitments):
    policies = LinearPolicies(np.eye(4).reshape(2, 2, 4))
    assert policies.witness([-1, 0]) is not None
    with pytest.raises(ValueError, match="commitments must be FREE or actions in 0 … 1"):
        policies.witness(commitments)


@pytest.mark.parametrize("committed", [[(0, 1, 1)], [(0, 1, 1), (0, 1, 1)], [0, 1], [(0, 1), (0,)]])
def test_policies_refuse_commitments_that_are_no_pairs(committed):
    policies = LinearPolicies(np.eye(4).reshape(2, 2, 4))
    with pytest.raises(ValueError, match="committed must"):
        policies.oracle(committed=committed)


def test_policies_refuse_a_state_whose_actions_are_all_the_same():
    with pytest.raises(ValueError, match="no θ prefer an action of state 1"):
        LinearPolicies(np.stack([np.eye(2), np.ones((2, 2))]))
