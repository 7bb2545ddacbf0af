"""Q-learning on the four-state example: the trap, and what the penalty does about it."""

import numpy as np
import pytest

import conqur
from conqur import Everything, Window, tabular

THETA_STAR = np.array([-2.0, 0.5])
TRAP = np.array([-0.2352, 0.2791])


def value_of(problem, theta):
    return problem.mdp.value(tabular.greedy_policy(problem.features, theta))


@pytest.mark.parametrize("start", [[0.0, 0.0], [-2.0, 0.5], [3.0, -1.0], [-1.0, -1.0]])
def test_q_learning_falls_into_the_trap_from_every_start(start):
    problem = tabular.four_state()
    result = tabular.q_learning(*problem, theta=start, steps=60_000)
    assert result.policy.tolist() == [0, 0, 1, 0]
    assert problem.mdp.value(result.policy) == 0.3
    np.testing.assert_allclose(result.theta, TRAP, atol=0.03)


def test_greedier_behaviour_can_keep_the_best_policy():
    """The trap is certain only near uniform behaviour; with P(greedy) = 0.8 1122 attracts, too."""
    problem = tabular.four_state()
    greedy_share = 0.8
    result = tabular.q_learning(
        *problem, theta=THETA_STAR, epsilon=2 * (1 - greedy_share), steps=60_000
    )
    assert problem.mdp.value(result.policy) == 0.5


def expected_batch(problem):
    """Every transition of uniform behaviour, exactly as often as it occurs in 80 episodes."""
    rows = []
    for state, visits in enumerate((80, 40, 20, 14)):  # 14 = 80 · ½ · 0.1 + 20 · ½
        for action in range(2):
            count = visits // 2
            probabilities = problem.mdp.transitions[state, action]
            for successor in range(4):
                times = round(count * probabilities[successor])
                rows += [(state, action, successor, False)] * times
                count -= times
            rows += [(state, action, 0, True)] * count
    state, action, successor, terminal = (np.array(column) for column in zip(*rows, strict=True))
    reward = problem.mdp.rewards[state, action]
    return tabular.Batch(state, action, reward, successor, terminal)


def test_fitted_q_iteration_has_the_same_fixed_point():
    problem = tabular.four_state()
    batch = expected_batch(problem)
    for start in ([0.0, 0.0], THETA_STAR, [5.0, -3.0]):
        result = tabular.fitted_q_iteration(
            [batch] * 40, problem.features, discount=1.0, theta=start
        )
        np.testing.assert_allclose(result.theta, TRAP, atol=1e-4)


def penalised_gradient_descent(problem, theta, *, penalty_weight, cumulative, steps=1500):
    """The penalised update in NumPy on the expected batch; each step commits its max assignment."""
    batch, features = expected_batch(problem), problem.features
    inputs = features[batch.state, batch.action]
    successors = batch.successor[~batch.terminal]
    theta = np.asarray(theta, np.float64)
    committed = np.zeros((4, 2))  # how often each pair (s', σ(s')) is in the buffer
    for _ in range(steps):
        q_values = features @ theta
        assigned = conqur.greedy_assignment(q_values)
        committed *= cumulative
        np.add.at(committed, (successors, assigned[successors]), 1.0)
        values = q_values[batch.successor]
        labels = conqur.q_labels(
            batch.reward, batch.terminal, values, assigned[batch.successor], discount=1.0
        )
        step = inputs.T @ (labels - inputs @ theta) / len(labels)
        for state, action in np.argwhere(committed):
            if q_values[state, 1 - action] > q_values[state, action]:
                weight = committed[state, action] / committed.sum()
                gap = features[state, 1 - action] - features[state, action]
                step = step - penalty_weight * weight * gap
        theta = theta + 0.05 * step
    return theta


@pytest.mark.parametrize("penalty_weight", [0.1, 1.0, 10.0, 100.0])
def test_gradient_steps_with_only_the_current_batch_in_the_buffer_stay_at_the_trap(penalty_weight):
    """σ = argmax Q_θ is what θ does anyway: the penalty is dead on the batch that it came from."""
    problem = tabular.four_state()
    for start in ([-2.0, 0.5], [1.0, 1.0]):
        theta = penalised_gradient_descent(
            problem, start, penalty_weight=penalty_weight, cumulative=False
        )
        assert value_of(problem, theta) == 0.3


def test_gradient_steps_with_the_cumulative_buffer_reach_one_half():
    problem = tabular.four_state()
    theta = penalised_gradient_descent(problem, THETA_STAR, penalty_weight=10.0, cumulative=True)
    assert value_of(problem, theta) == 0.5


def test_penalised_regression_holds_the_best_policy_that_plain_regression_leaves():
    problem = tabular.four_state()
    batches = [expected_batch(problem)] * 20

    def fitted(**settings):
        return tabular.fitted_q_iteration(
            batches, problem.features, discount=1.0, theta=THETA_STAR, **settings
        )

    assert value_of(problem, fitted().theta) == 0.3
    held = fitted(penalty_weight=10.0, margin=0.01)
    assert value_of(problem, held.theta) == 0.5
    # Without a margin the fit lies on the tie of s4: −θ₁ = θ₂.
    tied = fitted(penalty_weight=10.0).theta
    np.testing.assert_allclose(-tied[0], tied[1], atol=1e-6)


def test_an_assignment_fixed_to_the_best_policy_reaches_one_half():
    problem = tabular.four_state()
    best = np.array([0, 0, 1, 1])
    result = tabular.fitted_q_iteration(
        [expected_batch(problem)] * 20,
        problem.features,
        discount=1.0,
        penalty_weight=10.0,
        margin=0.01,
        assign=lambda batch, q_values: best[batch.successor],
    )
    assert value_of(problem, result.theta) == 0.5


def test_online_q_learning_matches_a_plain_python_loop():
    """The compiled loop against Eq. 1 in NumPy, on a chain where nothing is random."""
    transitions = np.zeros((3, 1, 3))
    transitions[0, 0, 1] = transitions[1, 0, 2] = 1.0
    mdp = tabular.MDP(transitions, [[1.0], [2.0], [4.0]], [1.0, 0.0, 0.0], 0.5)
    features = np.array([[[1.0, 0.0]], [[0.5, 1.0]], [[0.0, 2.0]]])
    result = tabular.q_learning(mdp, features, steps=90, learning_rate=0.1, rate_halfway=30, seed=3)
    theta = np.zeros(2)
    for t in range(90):
        state = t % 3
        bootstrap = features[state + 1, 0] @ theta if state < 2 else 0.0
        error = mdp.rewards[state, 0] + 0.5 * bootstrap - features[state, 0] @ theta
        theta = theta + 0.1 / (1 + t / 30) * error * features[state, 0]
    np.testing.assert_allclose(result.theta, theta, rtol=1e-4)


def test_the_online_penalty_binds_to_earlier_choices():
    """The start commits to action 1, although action 0 pays: the penalty makes it leave later."""
    mdp = tabular.MDP(np.full((1, 2, 1), 0.5), [[1.0, 0.0]], [1.0], 0.9)
    features = np.array([[[1.0, 0.0], [0.0, 1.0]]])
    settings = dict(theta=[0.0, 0.5], steps=300, learning_rate=0.05, rate_halfway=1e9)
    plain = tabular.q_learning(mdp, features, **settings)
    held = tabular.q_learning(mdp, features, penalty_weight=5.0, buffer_size=400, **settings)
    assert plain.policy.tolist() == [0]
    first = [int(np.argmax(r.thetas[:, 0] > r.thetas[:, 1])) for r in (plain, held)]
    assert first[0] < 20 < first[1] or held.policy.tolist() == [1]


def test_refuses_bad_input():
    mdp, features = tabular.four_state()
    for settings, message in [
        (dict(epsilon=1.5), "epsilon must be a number"),
        (dict(steps=0), "steps must be"),
        (dict(learning_rate=-1.0), "learning_rate must be"),
        (dict(theta=[0.0]), "theta must have shape"),
        (dict(penalty_weight=-1.0), "penalty_weight must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            tabular.q_learning(mdp, features, **settings)
    with pytest.raises(ValueError, match="features must have shape"):
        tabular.q_learning(mdp, features[:2])
    for of_no_mdp in (
        lambda: tabular.q_learning(tabular.four_state(), features),
        lambda: tabular.sample_batch(tabular.four_state(), 0, 3),
    ):
        with pytest.raises(ValueError, match="mdp must be an MDP, got Problem"):
            of_no_mdp()
    with pytest.raises(ValueError, match="batches must hold"):
        tabular.fitted_q_iteration([], features, discount=1.0)


def test_the_population_decides_what_the_regression_is_penalised_by():
    """By hand: inputs (1, 0) and (0, 1) with labels 0 and 2; the first batch committed to action 0.

    Under that commitment (θ₁ ≥ θ₂) the fit is (1, 1); without it (0, 2).
    """
    features = np.eye(2)[None]
    early = tabular.Batch([0], [0], [0.0], [0], [False])
    late = tabular.Batch([0, 0], [0, 1], [0.0, 2.0], [0, 0], [True, True])

    def fitted(population):
        return tabular.fitted_q_iteration(
            [early, late], features, discount=0.0, penalty_weight=1e4, population=population
        ).theta

    np.testing.assert_allclose(fitted(Everything()), [1.0, 1.0], atol=1e-3)
    np.testing.assert_allclose(fitted(Window(1)), [0.0, 2.0], atol=1e-3)
