import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import conqur
from conqur.exact import (
    Consistency,
    Feasibility,
    consistent,
    fit_consistent,
    fit_penalised,
    project,
)
from conqur.exact.linear import constraint_rows

# One state, two actions with features (1, 0) and (0, 1): committing to action 0 means θ₁ ≥ θ₂.
FEATURES = np.eye(2)[None]


def test_fit_by_hand():
    # Labels pull θ to (0, 2); under θ₁ ≥ θ₂ the nearest point is (1, 1), at squared distance 2.
    fit = fit_consistent(np.eye(2), [0.0, 2.0], FEATURES, [0])
    assert fit.outcome is Feasibility.FEASIBLE
    np.testing.assert_allclose(fit.theta, [1.0, 1.0], atol=1e-8)
    np.testing.assert_allclose(fit.objective, 2.0, atol=1e-7)
    # Gradient 2(θ − q) = (2, −2) = multiplier · (1, −1).
    np.testing.assert_allclose(fit.multipliers, [2.0], atol=1e-6)


def test_margin_moves_the_fit():
    fit = fit_consistent(np.eye(2), [0.0, 2.0], FEATURES, [0], margin=1.0)
    np.testing.assert_allclose(fit.theta, [1.5, 0.5], atol=1e-8)


@pytest.mark.parametrize("unit", [1e-99, 1e-50, 1.0, 1e50, 9e99])
def test_commitments_count_in_whatever_unit_features_are(unit):
    """Whose squares may not be numbers any more. The nearest point with θ₁ + θ₂ ≤ 0."""
    features = unit * np.array([[[0.0, 0.0], [1.0, 1.0]]])
    np.testing.assert_allclose(project([1.0, 2.0], features, [0]).theta, [-0.5, 0.5], atol=1e-9)


@pytest.mark.parametrize(
    ("inputs", "labels", "features", "margin"),
    [(1.0, 1.0, 1e-60, 1e99), (1e60, 1e60, 1e-50, 1e60), (1e-250, 4e99, 1.0, 0.0)],
)
def test_sizes_that_cannot_be_computed_with_are_refused(inputs, labels, features, margin):
    problem = (inputs * np.eye(2), labels * np.array([0.0, 2.0]), features * FEATURES, [0])
    with pytest.raises(ValueError, match="are of sizes too far apart"):
        fit_consistent(*problem, margin=margin)
    with pytest.raises(ValueError, match="are of sizes too far apart"):
        fit_penalised(*problem, penalty_weight=1.0, margin=margin)


def test_projection_by_hand():
    np.testing.assert_allclose(project([0.0, 2.0], FEATURES, [0]).theta, [1.0, 1.0], atol=1e-8)
    inside = project([3.0, 1.0], FEATURES, [0])
    np.testing.assert_allclose(inside.theta, [3.0, 1.0], atol=1e-7)
    np.testing.assert_allclose(inside.objective, 0.0, atol=1e-10)


def test_an_impossible_margin_is_inconsistent():
    contradiction = np.stack([np.eye(2)] * 2)
    fit = fit_consistent(np.eye(2), [1.0, 1.0], contradiction, [0, 1], margin=0.1)
    assert fit.outcome is Feasibility.INFEASIBLE
    assert fit.theta is None
    assert fit.objective == np.inf
    # ... and without one only ties are left: θ₁ = θ₂.
    tied = fit_consistent(np.eye(2), [0.0, 2.0], contradiction, [0, 1])
    np.testing.assert_allclose(tied.theta, [1.0, 1.0], atol=1e-7)


def test_degenerate_projections_are_exact():
    """Zero multipliers at zero slacks, where an interior-point solver alone leaves 1e-5."""
    features = np.zeros((4, 2, 2))  # the four-state example's
    features[0, 0] = features[3, 0] = 0.0, 1.0
    features[0, 1] = features[1, 1] = 0.8, 0.0
    features[2, 1] = features[3, 1] = -1.0, 0.0
    for point in ([0.0, 0.0], [1.0, 1.0], [1.0, -1.0]):
        nearest = project(point, features, [0, 0, 1, 1]).theta
        assert (constraint_rows(features, np.array([0, 0, 1, 1])) @ nearest >= -1e-12).all()
        np.testing.assert_allclose(nearest, 0.0, atol=1e-12)


@pytest.mark.parametrize("labels", [1e-8, 1.0, 1e8])
@pytest.mark.parametrize("inputs", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("rows", [1e-9, 1.0, 1e9])
def test_fits_do_not_depend_on_units(labels, inputs, rows):
    x, q = inputs * np.eye(2), labels * np.array([0.0, 2.0])
    fit = fit_consistent(x, q, rows * FEATURES, [0])
    np.testing.assert_allclose(fit.theta, labels / inputs, rtol=1e-9)
    np.testing.assert_allclose(fit.objective, 2 * labels**2, rtol=1e-6)
    gradient = 2 * x.T @ (x @ fit.theta - q)
    np.testing.assert_allclose(gradient, fit.multipliers * rows * np.array([1, -1]), rtol=1e-6)
    apart = fit_consistent(x, q, rows * FEATURES, [0], margin=rows * labels / inputs)
    np.testing.assert_allclose(apart.theta, labels / inputs * np.array([1.5, 0.5]), rtol=1e-9)
    weight = 1e3 * labels * inputs / rows  # in units of the squared error per unit of Q
    held = fit_penalised(x, q, rows * FEATURES, [0], penalty_weight=weight)
    np.testing.assert_allclose(held, labels / inputs, rtol=1e-6)


def test_a_feasible_margin_is_found_however_far_away():
    fit = fit_consistent([[1.0]], [1.0], [[[0.0], [1.0]], [[0.0], [1e-9]]], [1, 1], margin=1e-3)
    np.testing.assert_allclose(fit.theta, [1e6])


def random_problem(seed):
    rng = np.random.default_rng(seed)
    size = int(rng.integers(1, 5))
    inputs, labels = rng.normal(size=(12, size)), rng.normal(size=12)
    features = rng.normal(size=(int(rng.integers(1, 4)), 3, size))
    return inputs, labels, features, rng.integers(0, 3, len(features))


@settings(max_examples=60)
@given(st.integers(0, 100_000))
def test_objective_matches_an_independent_solver(seed):
    inputs, labels, features, actions = random_problem(seed)
    rows = constraint_rows(features, actions)
    fit = fit_consistent(inputs, labels, features, actions)
    other = minimize(
        lambda theta: np.sum((inputs @ theta - labels) ** 2),
        np.zeros(inputs.shape[1]),
        jac=lambda theta: 2 * inputs.T @ (inputs @ theta - labels),
        constraints={"type": "ineq", "fun": lambda theta: rows @ theta, "jac": lambda _: rows},
        method="SLSQP",
        options={"ftol": 1e-12, "maxiter": 500},
    )
    assert other.success
    np.testing.assert_allclose(fit.objective, other.fun, rtol=1e-6, atol=1e-8)
    # The optimality conditions, which prove the minimum without any solver.
    assert (rows @ fit.theta > -1e-7).all()
    assert (fit.multipliers > -1e-7).all()
    gradient = 2 * inputs.T @ (inputs @ fit.theta - labels)
    np.testing.assert_allclose(gradient, rows.T @ fit.multipliers, atol=1e-5)
    np.testing.assert_allclose(fit.multipliers * (rows @ fit.theta), 0.0, atol=1e-5)


@settings(max_examples=40)
@given(st.integers(0, 100_000), st.floats(0.01, 10.0), st.sampled_from([0.0, 0.1]))
def test_penalised_fit_minimises_the_penalised_loss(seed, penalty_weight, margin):
    """Its loss, computed by `conqur.penalised_loss`, is below that of every point around it."""
    inputs, labels, features, actions = random_problem(seed)

    def loss(theta):
        # The regression has one input a row; as Q-values of one action they suit the library.
        return conqur.penalised_loss(
            (inputs @ theta)[:, None],
            np.zeros(len(inputs), int),
            labels,
            features @ theta,
            actions,
            penalty_weight=penalty_weight,
            margin=margin,
        )

    theta = fit_penalised(
        inputs, labels, features, actions, penalty_weight=penalty_weight, margin=margin
    )
    rng = np.random.default_rng(0)
    best = loss(theta)
    for scale in (1e-3, 1e-2, 1e-1, 1.0):
        for step in rng.normal(size=(20, len(theta))) * scale:
            assert loss(theta + step) >= best - 1e-8


@settings(max_examples=30)
@given(st.integers(0, 100_000))
def test_a_growing_penalty_weight_approaches_the_constrained_fit(seed):
    inputs, labels, features, actions = random_problem(seed)
    constrained = fit_consistent(inputs, labels, features, actions)
    penalised = fit_penalised(inputs, labels, features, actions, penalty_weight=1e4)
    np.testing.assert_allclose(penalised, constrained.theta, atol=1e-3)
    without = fit_penalised(inputs, labels, features, actions, penalty_weight=0.0)
    np.testing.assert_allclose(without, np.linalg.lstsq(inputs, labels, rcond=None)[0], atol=1e-6)


def test_weights_count_pairs_as_often():
    inputs, labels, features, actions = random_problem(5)
    weights = np.array([3.0] + [1.0] * (len(actions) - 1))
    repeated = np.repeat(np.arange(len(actions)), weights.astype(int))
    once = fit_penalised(inputs, labels, features, actions, penalty_weight=0.5, weights=weights)
    often = fit_penalised(inputs, labels, features[repeated], actions[repeated], penalty_weight=0.5)
    np.testing.assert_allclose(once, often, atol=1e-6)


def test_a_positive_margin_makes_the_fit_a_witness():
    rng = np.random.default_rng(3)
    features = rng.normal(size=(4, 3, 5))
    actions = np.argmax(features @ rng.normal(size=5), axis=1)
    assert consistent(features, actions).outcome is Consistency.CONSISTENT
    fit = fit_consistent(rng.normal(size=(9, 5)), rng.normal(size=9), features, actions, margin=0.1)
    assert (constraint_rows(features, actions) @ fit.theta > 0.0999).all()


@pytest.mark.parametrize(
    ("argument", "value", "message"),
    [
        ("inputs", np.ones((2, 3)), "inputs must have shape"),
        ("inputs", np.zeros((0, 2)), "inputs must have shape"),
        ("labels", [1.0], "labels must have shape"),
        ("labels", [1.0, np.nan], "labels holds NaN"),
        ("features", np.eye(2), "features must have shape"),
        ("actions", [2], "actions holds action 2"),
        ("margin", -1.0, "margin must be"),
        ("margin", 1e300, "margin must be"),
        ("inputs", 1e101 * np.eye(2), "inputs must stay below 1e.100"),
        ("labels", [1.0, 1e100], "labels must stay below 1e.100"),
        ("features", 1e154 * FEATURES, "features must stay below 1e.100"),
        ("features", 1e-170 * FEATURES, "features must differ by 1e-100 or more"),
    ],
)
def test_refuses_bad_input(argument, value, message):
    good = dict(inputs=np.eye(2), labels=[0.0, 1.0], features=FEATURES, actions=[0], margin=0.0)
    with pytest.raises(ValueError, match=message):
        fit_consistent(**(good | {argument: value}))
    with pytest.raises(ValueError, match=message):
        fit_penalised(**(good | {argument: value}), penalty_weight=1.0)


def test_penalised_fit_refuses_bad_weights():
    with pytest.raises(ValueError, match="weights must not be negative"):
        fit_penalised(np.eye(2), [0.0, 1.0], FEATURES, [0], penalty_weight=1.0, weights=[-1.0])
    with pytest.raises(ValueError, match="weights must have shape"):
        fit_penalised(np.eye(2), [0.0, 1.0], FEATURES, [0], penalty_weight=1.0, weights=[1.0, 1.0])
