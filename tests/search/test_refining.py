"""A level's regression, against plain loops in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conqur.consistency import ConsistencyBuffer
from conqur.environments.interface import Transitions
from conqur.regressor import Dense, Perceptron
from conqur.search.approximator import LinearTuning
from conqur.search.assigning import action_gap, assign, labels_of, predict
from conqur.search.refining import Regression, Weights, begin, refine, stack, unstack
from conqur.search.scoring import NO_ACTION

ROWS, FEATURES, ACTIONS = 40, 5, 3
HEADS = LinearTuning(Perceptron(()))  # the features are given


def settings(**changes):
    basis = {
        "updates": 7,
        "batch_size": 4,
        "pairs": 3,
        "scored_pairs": 60,
        "discount": 0.9,
        "learning_rate": 0.01,
        "penalty_weight": 2.0,
        "margin": 0.1,
        "over_actions": "mean",
        "proximal": 0.5,
        "own_minibatches": False,
        "refit": "sgd",
        "gap_units": False,
    }
    return Regression(**basis | changes)


def head_of(weight, bias):
    """With arrays of NumPy, as nodes have them."""
    return jax.device_get(Dense(jnp.asarray(weight), jnp.asarray(bias)))


def problem(nodes=3, seed=0):
    rng = np.random.default_rng(seed)
    float32 = lambda *shape: rng.normal(size=shape).astype(np.float32)  # noqa: E731
    heads = [head_of(float32(FEATURES, ACTIONS), float32(ACTIONS)) for _ in range(nodes)]
    batch = Transitions(
        jnp.asarray(float32(ROWS, FEATURES)),
        jnp.asarray(rng.integers(ACTIONS, size=ROWS), jnp.int32),
        jnp.asarray(float32(ROWS)),
        jnp.asarray(float32(ROWS, FEATURES)),
        jnp.asarray(rng.random(ROWS) < 0.2),
    )
    weights = [
        jax.device_get(begin(head))._replace(target=head_of(-head.weight, head.bias))
        for head in heads
    ]
    return rng, weights, batch


def keys_of(nodes):
    return jax.random.split(jax.random.key(1), nodes)


def greedy(weights, batch):
    return assign(
        HEADS,
        stack(HEADS, weights).target,
        batch,
        keys_of(len(weights)),
        None,
        temperature=1.0,
        adapt=False,
        gap_units=False,
        discount=0.9,
    )


def filled(batch, assigned, capacity=60):
    example = jax.ShapeDtypeStruct((FEATURES,), jnp.float32)
    buffer = ConsistencyBuffer.empty(
        capacity, example, action_dtype=jnp.uint8, nodes=(len(assigned),)
    )
    return buffer.add(batch.successors, assigned.T, terminal=batch.terminal)


def run(weights, batch, how, *, assignment=None, ids=None, buffer=None, initial=None):
    assignment = greedy(weights, batch) if assignment is None else assignment
    stacked = stack(HEADS, weights)
    after, scores = refine(
        HEADS,
        stacked,
        stacked.theta,
        Dense(jnp.zeros((FEATURES, ACTIONS)), jnp.zeros(ACTIONS)),
        batch,
        jnp.zeros(ROWS, bool) if initial is None else initial,
        assignment,
        filled(batch, assignment.assigned) if buffer is None else buffer,
        jax.random.key(2),
        jnp.arange(len(weights)) if ids is None else jnp.asarray(ids),
        how,
    )
    return unstack(HEADS, jax.device_get(after), len(weights)), jax.device_get(scores)


def test_labels_and_greedy_assignments_come_from_the_target():
    _, weights, batch = problem()
    found = greedy(weights, batch)
    for i, node in enumerate(weights):
        q_values = np.asarray(batch.successors) @ node.target.weight + node.target.bias
        best = q_values.max(axis=1)
        np.testing.assert_array_equal(found.assigned[i], q_values.argmax(axis=1))
        expected = np.asarray(batch.rewards) + 0.9 * best * ~np.asarray(batch.terminal)
        np.testing.assert_allclose(found.labels[i], expected, rtol=1e-5)
        ordered = np.sort(q_values, axis=1)
        np.testing.assert_allclose(
            found.gap[i], (ordered[:, -1] - ordered[:, -2]).mean(), rtol=1e-5
        )
    np.testing.assert_array_equal(found.greedy, 1)
    np.testing.assert_array_equal(found.entropy, 0)


def test_only_the_nodes_that_sample_do_and_with_the_boltzmann_distribution():
    _, weights, batch = problem(nodes=2)
    q_values = np.asarray(batch.successors) @ weights[0].target.weight + weights[0].target.bias
    gap = float(action_gap(jnp.asarray(q_values)))
    counts = np.zeros((ROWS, ACTIONS))
    for draw in range(300):
        found = assign(
            HEADS,
            stack(HEADS, weights).target,
            batch,
            jax.random.split(jax.random.key(draw), 2),
            jnp.array([True, False]),
            temperature=0.5,
            adapt=False,
            gap_units=True,
            discount=0.9,
        )
        counts[np.arange(ROWS), np.asarray(found.assigned[0])] += 1
    logits = q_values / (0.5 * gap)
    expected = np.exp(logits - logits.max(axis=1, keepdims=True))
    expected /= expected.sum(axis=1, keepdims=True)
    assert np.abs(counts / 300 - expected).max() < 0.15
    assert np.abs(counts / 300 - expected).mean() < 0.02
    entropy = -(expected * np.log(np.maximum(expected, 1e-30))).sum(axis=1).mean()
    np.testing.assert_allclose(found.entropy, [entropy, 0], rtol=1e-3)
    assert found.greedy[1] == 1 > found.greedy[0]


def test_given_assignments_give_the_labels_of_their_actions():
    rng, weights, batch = problem(nodes=2)
    assigned = rng.integers(ACTIONS, size=(2, ROWS)).astype(np.uint8)
    found = labels_of(
        HEADS, stack(HEADS, weights).target, batch, jnp.asarray(assigned), discount=0.9
    )
    q_values = np.asarray(batch.successors) @ weights[1].target.weight + weights[1].target.bias
    chosen = q_values[np.arange(ROWS), assigned[1]]
    expected = np.asarray(batch.rewards) + 0.9 * chosen * ~np.asarray(batch.terminal)
    np.testing.assert_allclose(found.labels[1], expected, rtol=1e-5)


def plain_updates(node, batch, labels, pairs, how, key, name):
    """The same gradient steps, one by one, in NumPy and double precision."""
    order_key, pair_key, _ = jax.random.split(key, 3)
    if how.own_minibatches:
        order_key, pair_key = (jax.random.fold_in(k, name) for k in (order_key, pair_key))
    order = jax.random.randint(order_key, (how.updates, how.batch_size), 0, ROWS)
    successors, assigned, counts = pairs(pair_key, how.updates * how.pairs)
    weight, bias = node.theta.weight.astype(float), node.theta.bias.astype(float)
    moments = [np.zeros_like(weight), np.zeros_like(bias), np.ones_like(weight), np.ones_like(bias)]
    states, actions = np.asarray(batch.states, float), np.asarray(batch.actions)
    for step in range(how.updates):
        rows = np.asarray(order[step])
        gradient_w, gradient_b = how.proximal * weight, how.proximal * bias
        for row in rows:
            error = states[row] @ weight[:, actions[row]] + bias[actions[row]] - labels[row]
            gradient_w[:, actions[row]] += 2 * error * states[row] / len(rows)
            gradient_b[actions[row]] += 2 * error / len(rows)
        chosen = range(step * how.pairs, (step + 1) * how.pairs)
        total = max(sum(counts[p] for p in chosen), 1)
        for p in chosen:
            q_values = successors[p] @ weight + bias
            for other in range(ACTIONS):
                lead = q_values[other] - q_values[assigned[p]] + how.margin
                if other != assigned[p] and lead > 0 and counts[p]:
                    size = how.penalty_weight / ACTIONS / total
                    gradient_w[:, other] += size * successors[p]
                    gradient_w[:, assigned[p]] -= size * successors[p]
                    gradient_b[other] += size
                    gradient_b[assigned[p]] -= size
        for i, gradient in enumerate((gradient_w, gradient_b)):
            moments[i] = 0.95 * moments[i] + 0.05 * gradient
            moments[i + 2] = 0.95 * moments[i + 2] + 0.05 * gradient**2
        spread = [np.sqrt(moments[i + 2] - moments[i] ** 2 + 1e-5) for i in range(2)]
        weight = weight - how.learning_rate * gradient_w / spread[0]
        bias = bias - how.learning_rate * gradient_b / spread[1]
    return weight, bias


@pytest.mark.parametrize("own", [False, True])
def test_refining_equals_a_plain_loop(own):
    _, weights, batch = problem()
    how = settings(own_minibatches=own)
    assignment = greedy(weights, batch)
    buffer = filled(batch, assignment.assigned)
    column = np.asarray(buffer.assigned).copy()
    column[::3, 1] = NO_ACTION  # node 1 was not there for some
    buffer = ConsistencyBuffer(
        *(buffer.successors, jnp.asarray(column), buffer.born, buffer.batches, buffer.cursor),
        buffer.population,
    )
    ids = (4, 2, 9)
    after, _ = run(weights, batch, how, assignment=assignment, buffer=buffer, ids=ids)
    for i, node in enumerate(weights):

        def pairs(key, size, i=i):
            places = np.asarray(buffer.draw(key, size)[0])
            assigned = column[places, i]
            return (
                np.asarray(buffer.successors)[places].astype(float),
                np.where(assigned == NO_ACTION, 0, assigned),
                assigned != NO_ACTION,
            )

        labels = np.asarray(assignment.labels[i])
        expected = plain_updates(node, batch, labels, pairs, how, jax.random.key(2), ids[i])
        np.testing.assert_allclose(after[i].theta.weight, expected[0], rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(after[i].theta.bias, expected[1], rtol=2e-4, atol=2e-5)
        assert np.abs(after[i].theta.weight - node.theta.weight).max() > 0.01


def test_a_node_does_not_depend_on_its_place_or_its_neighbours():
    _, weights, batch = problem()
    _, others, _ = problem(seed=7)
    how = settings()
    first, _ = run(weights, batch, how)
    moved, _ = run([others[0], others[1], weights[0]], batch, how, ids=[1, 2, 0])
    np.testing.assert_array_equal(first[0].theta.weight, moved[2].theta.weight)


def test_with_its_own_minibatches_a_node_is_known_by_its_id():
    _, weights, batch = problem()
    how = settings(own_minibatches=True)
    same = [weights[0]] * 3
    first, _ = run(same, batch, how, ids=[4, 5, 6])
    moved, _ = run(same, batch, how, ids=[6, 9, 4])
    assert np.abs(first[0].theta.weight - first[1].theta.weight).max() > 1e-4
    np.testing.assert_array_equal(first[0].theta.weight, moved[2].theta.weight)
    np.testing.assert_array_equal(first[2].theta.weight, moved[0].theta.weight)


def test_scores_by_hand():
    _, weights, batch = problem(nodes=1)
    initial = jnp.arange(ROWS) < 4
    how = settings(updates=0, scored_pairs=5000)
    assignment = greedy(weights, batch)
    _, scores = run(weights, batch, how, assignment=assignment, initial=initial)
    node = weights[0]
    q_values = np.asarray(batch.states) @ node.theta.weight + node.theta.bias
    labels = np.asarray(assignment.labels[0])
    taken = q_values[np.arange(ROWS), np.asarray(batch.actions)]
    np.testing.assert_allclose(scores.bellman, [((labels - taken) ** 2).mean()], rtol=1e-4)
    np.testing.assert_allclose(scores.loss, scores.bellman + 2 * scores.penalty, rtol=1e-6)
    alive = ~np.asarray(batch.terminal)
    own_values = np.asarray(batch.successors) @ node.theta.weight + node.theta.bias
    own_labels = np.asarray(batch.rewards) + 0.9 * alive * own_values.max(axis=1)
    np.testing.assert_allclose(scores.label, [own_labels.mean()], rtol=1e-4)
    np.testing.assert_allclose(scores.initial_label, [own_labels[:4].mean()], rtol=1e-4)
    values = np.asarray(batch.successors)[alive] @ node.theta.weight + node.theta.bias
    chosen = np.asarray(assignment.assigned[0])[alive]
    own = values[np.arange(alive.sum()), chosen]
    hinge = np.maximum(values - own[:, None] + 0.1, 0)
    penalties = (hinge.sum(axis=1) - 0.1) / ACTIONS
    np.testing.assert_allclose(scores.penalty, [penalties.mean()], rtol=0.05)  # drawn 5000 times
    np.testing.assert_allclose(scores.inconsistent, [(penalties > 0).mean()], rtol=0.05)
    assert scores.churn[0] == 0
    assert np.isnan(scores.training_loss[0])


def test_churn_is_the_share_of_decisions_that_changed():
    _, weights, batch = problem(nodes=1)
    after, scores = run(weights, batch, settings(learning_rate=0.2))
    old, new = (
        (np.asarray(batch.states) @ theta.weight + theta.bias).argmax(axis=1)
        for theta in (weights[0].theta, after[0].theta)
    )
    assert 0 < scores.churn[0] < 1
    assert scores.churn[0] == np.float32((old != new).mean())


@pytest.mark.parametrize("weight", [0.0, 2.0])
def test_the_quasi_newton_refit_gets_below_gradient_steps(weight):
    _, weights, batch = problem(nodes=2)
    how = settings(penalty_weight=weight, proximal=0.0, margin=0.0, scored_pairs=400)
    _, sgd = run(weights, batch, settings(**{**vars(how), "updates": 300}))
    newton_how = settings(**{**vars(how), "updates": 40, "refit": "lbfgs"})
    after, newton = run(weights, batch, newton_how)
    total = lambda s: s.bellman + weight * s.penalty  # noqa: E731
    assert (total(newton) < total(sgd) + 1e-3).all()
    if not weight:  # then it is least squares, action by action
        theta = after[0].theta
        labels = np.asarray(greedy(weights, batch).labels[0])
        for action in range(ACTIONS):
            rows = np.asarray(batch.actions) == action
            design = np.column_stack([np.asarray(batch.states)[rows], np.ones(rows.sum())])
            best = np.linalg.lstsq(design, labels[rows], rcond=None)[0]
            found = np.append(theta.weight[:, action], theta.bias[action])
            np.testing.assert_allclose(found, best, atol=2e-2)


def test_steps_in_units_of_the_action_gap_follow_the_scale_of_q():
    """Rewards and Q-values ten times as large: the same relative change."""
    _, weights, batch = problem(nodes=1)
    how = settings(gap_units=True, proximal=0.0, learning_rate=1.0)

    def scaled(factor):
        theta, target = (
            head_of(head.weight * factor, head.bias * factor)
            for head in (weights[0].theta, weights[0].target)
        )
        node = Weights(theta, target, weights[0].moments)
        after, _ = run([node], batch._replace(rewards=batch.rewards * factor), how)
        return (after[0].theta.weight - theta.weight) / factor

    small, large = scaled(100.0), scaled(1000.0)
    correlation = np.corrcoef(small.ravel(), large.ravel())[0, 1]
    assert correlation > 0.99
    np.testing.assert_allclose(np.linalg.norm(large), np.linalg.norm(small), rtol=0.1)


def test_many_rows_are_predicted_in_parts_alike():
    rng = np.random.default_rng(0)
    head = head_of(*(rng.normal(size=s).astype(np.float32) for s in ((5, 3), (3,))))
    features = rng.normal(size=(5000, 5)).astype(np.float32)
    found = predict(HEADS, jax.tree.map(jnp.asarray, head), jnp.asarray(features))
    np.testing.assert_allclose(found, features @ head.weight + head.bias, rtol=1e-4, atol=1e-5)
