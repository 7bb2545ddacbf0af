"""The exact test of whole heads, against hand-made cases, a linear program and NNLS."""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.optimize import linprog, nnls

from conqur.exact.head import _margin_lower, consistent_head
from conqur.exact.verdict import Consistency

CONSISTENT, INCONSISTENT = Consistency.CONSISTENT, Consistency.INCONSISTENT


def unit_rows(phi, actions, num_actions):
    """The constraint matrix the solver never builds, [S(A−1), (F+1)A], row by row."""
    rows = []
    for features, action in zip(np.asarray(phi, dtype=float), actions, strict=True):
        for rival in range(num_actions):
            if rival != action:
                row = np.zeros((len(features) + 1, num_actions))
                row[:, action] = np.append(features, 1.0)
                row[:, rival] -= np.append(features, 1.0)
                rows.append(row.ravel() / np.linalg.norm(row))
    return np.array(rows)


def lp_level(rows):
    """The largest t with rows·θ ≥ t and |θ_j| ≤ 1: positive iff consistent."""
    count, width = rows.shape
    answer = linprog(
        np.append(np.zeros(width), -1.0),
        A_ub=np.column_stack([-rows, np.ones(count)]),
        b_ub=np.zeros(count),
        bounds=[(-1, 1)] * width + [(None, None)],
        method="highs",
    )
    assert answer.status == 0
    return -answer.fun


def best_margin(rows):
    """The largest normalised margin, from Lawson and Hanson's least-distance programming."""
    stacked = np.vstack([rows.T, np.ones(len(rows))])
    goal = np.append(np.zeros(rows.shape[1]), 1.0)
    weight, distance = nnls(stacked, goal)
    if distance < 1e-12:
        return 0.0
    residual = stacked @ weight - goal
    return 1 / np.linalg.norm(residual[:-1] / residual[-1])


def recheck(verdict, phi, actions, num_actions):
    """The proof a verdict carries, checked from the explicit rows."""
    rows = unit_rows(phi, actions, num_actions)
    assert 0 <= verdict.margin_lower <= verdict.margin_upper
    if verdict.outcome is CONSISTENT:
        assert verdict.certificate is None
        assert verdict.theta.dtype == np.float64
        assert verdict.theta.shape == (np.shape(phi)[1] + 1, num_actions)
        margin = (rows @ verdict.theta.ravel()).min() / np.linalg.norm(verdict.theta)
        assert verdict.margin_lower > 0
        assert margin == pytest.approx(verdict.margin_lower, rel=1e-6, abs=1e-14)
    if verdict.outcome is INCONSISTENT:
        assert verdict.theta is None
        assert verdict.margin_lower == 0
        weight = verdict.certificate
        assert weight.shape == (len(phi), num_actions)
        assert weight.min() >= 0
        assert weight.sum() == pytest.approx(1)
        chosen = np.eye(num_actions, dtype=bool)[np.asarray(actions)]
        assert not weight[chosen].any()
        assert np.linalg.norm(weight[~chosen] @ rows) <= verdict.margin_upper <= 1e-7


def decide(phi, actions, num_actions, **options):
    verdict = consistent_head(phi, actions, num_actions, **options)
    recheck(verdict, phi, actions, num_actions)
    return verdict


def test_one_state_has_margin_one_for_two_actions():
    # The only row is d̂ itself: its weight is 1 and |d̂| = 1. The bias alone attains 1 too.
    verdict = decide([[3.0, -4.0]], [1], 2)
    assert verdict.outcome is CONSISTENT
    assert verdict.margin_upper == pytest.approx(1)
    assert decide(np.zeros((1, 1)), [1], 2).margin_lower == pytest.approx(1)


def test_threshold_on_a_line():
    phi = [[-1.0], [0.0], [1.0]]
    assert decide(phi, [0, 0, 1], 2).outcome is CONSISTENT
    assert decide(phi, [0, 1, 1], 2).outcome is CONSISTENT
    # The middle state is the mean of the outer ones, which agree on the other action.
    verdict = decide(phi, [0, 1, 0], 2)
    assert verdict.outcome is INCONSISTENT
    # |x| = √2, 1, √2 and weights in proportion to multipliers ½, 1, ½ times |x|.
    expected = np.array([[0, np.sqrt(0.5)], [1, 0], [0, np.sqrt(0.5)]]) / (1 + np.sqrt(2))
    np.testing.assert_allclose(verdict.certificate, expected, atol=1e-6)


def test_a_third_action_may_own_the_middle():
    # max(−x, 0·x + b, x) has three greedy regions on a line, so 0, 1, 0 fails but 0, 1, 2 works.
    phi = [[-2.0], [0.0], [2.0]]
    assert decide(phi, [0, 1, 2], 3).outcome is CONSISTENT
    assert decide(phi, [0, 1, 0], 3).outcome is INCONSISTENT


def test_exclusive_or():
    corners = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    assert decide(corners, [0, 1, 1, 0], 2).outcome is INCONSISTENT
    assert decide(corners, [0, 1, 1, 1], 2).outcome is CONSISTENT
    product = np.column_stack([corners, [0.0, 0.0, 0.0, 1.0]])
    assert decide(product, [0, 1, 1, 0], 2).outcome is CONSISTENT


def test_one_state_with_two_actions_is_inconsistent():
    phi = np.random.default_rng(0).normal(size=(5, 7))
    phi[3] = phi[1]
    verdict = decide(phi, [0, 1, 2, 0, 1], 3)
    assert verdict.outcome is INCONSISTENT
    assert verdict.certificate[1, 0] == verdict.certificate[3, 1] == 0.5
    assert decide(phi, [0, 1, 2, 1, 1], 3).outcome is CONSISTENT
    assert decide([[0.0], [-0.0]], [0, 1], 2).outcome is INCONSISTENT


def test_no_features_leave_the_biases():
    assert decide(np.zeros((4, 3)), [2, 2, 2, 2], 3).outcome is CONSISTENT
    assert decide(np.zeros((4, 3)), [2, 2, 1, 2], 3).outcome is INCONSISTENT


def test_one_action_is_always_consistent():
    verdict = consistent_head(np.ones((3, 2)), [0, 0, 0], 1)
    assert verdict.outcome is CONSISTENT
    assert verdict.theta.shape == (3, 1)


def test_independent_states_are_always_consistent():
    rng = np.random.default_rng(1)
    phi = rng.normal(size=(40, 60))
    assert decide(phi, rng.integers(5, size=40), 5).outcome is CONSISTENT


def test_dead_duplicate_and_constant_features_change_nothing():
    rng = np.random.default_rng(2)
    phi = rng.normal(size=(30, 4))
    padded = np.column_stack([phi, np.zeros((30, 3)), phi, np.full((30, 2), 7.0), phi @ phi[:4].T])
    for actions in (rng.integers(3, size=30), (phi @ rng.normal(size=(4, 3))).argmax(axis=1)):
        assert decide(phi, actions, 3).outcome is decide(padded, actions, 3).outcome


@pytest.mark.parametrize("noise", [1e-3, 1e-6, 1e-9])
def test_ill_conditioned_features(noise):
    """Whether labels fit can hang on directions of size `noise`; the answer must not."""
    rng = np.random.default_rng(3)
    phi = rng.normal(size=(120, 3)) @ rng.normal(size=(3, 24))
    phi += noise * rng.normal(size=(120, 24))
    teacher = rng.normal(size=(24, 4)) / noise
    planted = (phi @ np.linalg.svd(phi)[2].T @ teacher).argmax(axis=1)
    assert decide(phi, planted, 4).outcome is CONSISTENT
    assert decide(phi, rng.integers(4, size=120), 4).outcome is INCONSISTENT


def relu_features(rng, states, features, latent=8):
    hidden = rng.normal(size=(states, latent)) * np.logspace(0, -3, latent)
    for width in (features, features):
        hidden = hidden @ rng.normal(size=(hidden.shape[1], width))
        hidden = np.maximum(hidden / hidden.std() - 0.3, 0)
    return hidden


def test_sparse_correlated_features():
    rng = np.random.default_rng(4)
    phi = relu_features(rng, 600, 48).astype(np.float32)
    planted = (phi @ rng.normal(size=(48, 4))).argmax(axis=1)
    assert decide(phi, planted, 4).outcome is CONSISTENT
    rare = np.where(rng.random(600) < 0.97, 0, rng.integers(4, size=600))
    assert decide(phi[phi.any(axis=1)], rare[phi.any(axis=1)], 4).outcome is INCONSISTENT


def test_one_wrong_label_among_many_is_found():
    rng = np.random.default_rng(5)
    phi = rng.normal(size=(2000, 3))
    q = phi @ rng.normal(size=(3, 3))
    actions = q.argmax(axis=1)
    assert decide(phi, actions, 3).outcome is CONSISTENT
    clearest = (np.sort(q)[:, -1] - np.sort(q)[:, -2]).argmax()
    actions[clearest] = q[clearest].argmin()
    assert decide(phi, actions, 3).outcome is INCONSISTENT


@pytest.mark.parametrize("distance", [1e-3, 1e-6, 1e-9])
def test_margins_below_the_tolerance_are_no_reason_for_a_wrong_answer(distance):
    """A teacher's boundary between far states and pairs of states as close as `distance`."""
    rng = np.random.default_rng(7)
    normal = rng.normal(size=8)
    normal /= np.linalg.norm(normal)
    far, between = rng.normal(size=(2, 100, 8))
    between -= np.outer(between @ normal, normal)
    phi = np.concatenate([far, between - distance * normal, between + distance * normal])
    verdict = decide(phi, (phi @ normal > 0).astype(int), 2)
    assert verdict.outcome is CONSISTENT
    assert verdict.margin_lower <= distance


@settings(max_examples=40, deadline=None)
@given(st.data(), st.sampled_from([(4, 1, 2), (6, 2, 3), (9, 3, 4), (12, 2, 2)]))
def test_small_lattices_agree_with_linear_programming(data, shape):
    """Integer features: many ties, duplicates and rank losses, but margins are 0 or not small."""
    states, features, num_actions = shape
    phi = data.draw(hnp.arrays(np.int64, (states, features), elements=st.integers(-2, 2)))
    actions = data.draw(hnp.arrays(np.int64, states, elements=st.integers(0, num_actions - 1)))
    verdict = decide(phi, actions, num_actions)
    rows = unit_rows(phi, actions, num_actions)
    assert verdict.outcome is (CONSISTENT if lp_level(rows) > 1e-7 else INCONSISTENT)
    margin = best_margin(rows)
    assert verdict.margin_lower <= margin + 1e-9
    assert margin - 1e-9 <= verdict.margin_upper


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([(30, 14, 2), (40, 10, 4)]))
def test_random_labels_near_capacity_agree_with_linear_programming(seed, shape):
    states, features, num_actions = shape
    rng = np.random.default_rng(seed)
    phi = rng.normal(size=(states, features))
    actions = rng.integers(num_actions, size=states)
    verdict = decide(phi, actions, num_actions)
    rows = unit_rows(phi, actions, num_actions)
    level, margin = lp_level(rows), best_margin(rows)
    if level > 1e-6:
        assert verdict.outcome is CONSISTENT
    if level < 1e-9:
        assert verdict.outcome is INCONSISTENT
    assert verdict.margin_lower <= margin + 1e-9
    assert margin - 1e-9 <= verdict.margin_upper


def test_too_few_iterations_leave_it_undecided():
    rng = np.random.default_rng(6)
    phi = rng.normal(size=(2000, 3))
    actions = (phi @ rng.normal(size=(3, 3))).argmax(axis=1)
    verdict = decide(phi, actions, 3, max_iterations=1)
    assert verdict.outcome is Consistency.UNDECIDED
    assert verdict.theta is None
    assert verdict.certificate is None
    assert 0 < verdict.margin_upper <= 1


def test_states_one_rounding_error_apart_are_no_witness():
    # They differ by one part in 2^52: a head can tell them apart only by cancellation.
    phi = np.array([[1.0], [1.0 + 2**-52]])
    assert decide(phi, [0, 1], 2).outcome is not CONSISTENT


def test_a_gap_within_rounding_errors_is_no_margin():
    x = np.array([[0.1, 0.2, -0.3]])
    theta = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    assert (x @ theta)[0, 0] > 0  # 0.1 + 0.2 > 0.3
    assert _margin_lower(x, np.array([0]), theta) == 0
    theta[0] = 1.0 + 1e-12, 0.0
    assert _margin_lower(x, np.array([0]), theta) > 0


def test_precision_stays_a_local_matter():
    verdict = decide(jax.numpy.asarray([[1.0], [2.0]]), jax.numpy.asarray([0, 1]), 2)
    assert verdict.outcome is CONSISTENT
    assert jax.numpy.ones(1).dtype == np.float32


@pytest.mark.parametrize(
    ("phi", "actions", "num_actions", "options", "named"),
    [
        (np.zeros(3), [0, 0, 0], 2, {}, "phi"),
        (np.zeros((0, 3)), np.zeros(0, dtype=int), 2, {}, "phi"),
        ([[np.nan]], [0], 2, {}, "phi"),
        ([[np.inf]], [0], 2, {}, "phi"),
        ([["x"]], [0], 2, {}, "phi"),
        ([[1j]], [0], 2, {}, "phi"),
        ([[0.0]], [0, 1], 2, {}, "actions"),
        ([[0.0]], [[0]], 2, {}, "actions"),
        ([[0.0]], [2], 2, {}, "actions"),
        ([[0.0]], [-1], 2, {}, "actions"),
        ([[0.0]], [0.0], 2, {}, "actions"),
        ([[0.0]], [0], 0, {}, "num_actions"),
        ([[0.0]], [0], 2.5, {}, "num_actions"),
        ([[0.0]], [0], 10**6, {}, "num_actions"),
        ([[0.0]], [0], 2, {"tolerance": 0.0}, "tolerance"),
        ([[0.0]], [0], 2, {"max_iterations": 0}, "max_iterations"),
    ],
)
def test_bad_input_is_named(phi, actions, num_actions, options, named):
    with pytest.raises(ValueError, match=f"^{named} (must|holds|is 1000000)"):
        consistent_head(phi, actions, num_actions, **options)
