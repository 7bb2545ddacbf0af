"""DQN(λ) and DDQN(λ) against the same in NumPy, with gradients derived by hand."""

from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy.stats import chisquare

from conqur import dqn
from conqur.dqn import DQN, adam, centred_rmsprop, epsilon_at, epsilon_greedy
from conqur.environments import Transitions
from conqur.regressor import Architecture, Dense, Perceptron, Regressor, initial_regressor

B, A, STATE, HIDDEN = 7, 4, 3, 8


@pytest.fixture(scope="module", autouse=True)
def quickly_compiled():
    """Most of the time would go into making fast programs of which each runs once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def network(seed):
    """With weights so large that other states have other best actions."""
    theta = initial_regressor(jax.random.key(seed), Architecture("mlp", (STATE,), A, (HIDDEN,)))
    return jax.tree.map(lambda x: 3 * x, theta)


def batch(seed, *, terminal=0.3):
    rng = np.random.default_rng(seed)
    return Transitions(
        states=rng.normal(size=(B, STATE)).astype(np.float32),
        actions=rng.integers(0, A, B).astype(np.int32),
        rewards=3 * rng.normal(size=B).astype(np.float32),
        successors=rng.normal(size=(B, STATE)).astype(np.float32),
        terminal=rng.random(B) < terminal,
    )


def on_device(transitions):
    return Transitions(*map(jnp.asarray, transitions))


def algorithm(**settings):
    defaults = dict(
        optimizer=optax.sgd(1.0),
        double=False,
        batch_size=B,
        discount=0.9,
        huber=1.0,
        clip_rewards=False,
        target_every=10**6,
        halfway=5.0,
        penalised=False,
    )
    return DQN(**(defaults | settings))


def begin(algorithm, seed=0, target_seed=1):
    """An agent whose target network is another one, so that the two cannot be confused."""
    agent = algorithm.begin(network(seed), jnp.zeros(STATE))
    return eqx.tree_at(lambda agent: agent.target, agent, network(target_seed))


class Reference:
    """The same in NumPy and 64 bits: a forward pass, and a backward pass written by hand."""

    def __init__(self, theta):
        layer, head = theta.body.layers[0], theta.head
        parameters = (layer.weight, layer.bias, head.weight, head.bias)
        self.parameters = [np.asarray(p, np.float64) for p in parameters]

    def __call__(self, x):
        weight, bias, head, head_bias = self.parameters
        return np.maximum(x @ weight + bias, 0) @ head + head_bias

    def backward(self, x, dq):
        """Gradients of sum(dq · Q(x)) with respect to the four parameters."""
        weight, bias, head, _ = self.parameters
        before = x @ weight + bias
        dbefore = (dq @ head.T) * (before > 0)
        return [x.T @ dbefore, dbefore.sum(0), np.maximum(before, 0).T @ dq, dq.sum(0)]


def reference_labels(theta, target, given, settings):
    rewards = np.clip(given.rewards, -1, 1) if settings.clip_rewards else given.rewards
    values = target(given.successors)
    chooser = theta(given.successors) if settings.double else values
    assigned = chooser.argmax(1)
    future = np.where(given.terminal, 0.0, values[np.arange(B), assigned])
    return assigned, rewards + settings.discount * future


def reference_error(theta, given, labels, huber):
    """The mean error and its gradients."""
    rows = np.arange(B)
    error = labels - theta(given.states)[rows, given.actions]
    if huber is None:
        loss, slope = error**2, 2 * error
    else:
        small = np.abs(error) <= huber
        loss = np.where(small, error**2 / 2, huber * (np.abs(error) - huber / 2))
        slope = np.where(small, error, huber * np.sign(error))
    dq = np.zeros((B, A))
    dq[rows, given.actions] = -slope / B
    return loss.mean(), theta.backward(given.states, dq)


def reference_penalty(theta, successors, assigned, counts):
    """The mean penalty of the pairs that count, and its gradients."""
    rows = np.arange(len(assigned))
    q_values = theta(successors)
    lead = q_values - q_values[rows, assigned][:, None]
    dq = (lead > 0).astype(float)
    dq[rows, assigned] -= dq.sum(1)
    share = counts / max(counts.sum(), 1)
    penalty = (np.maximum(lead, 0).sum(1) * share).sum()
    return penalty, theta.backward(successors, dq * share[:, None])


def parameters(theta):
    return Reference(theta).parameters


def assert_close(left, right, **tolerance):
    for one, other in zip(left, right, strict=True):
        np.testing.assert_allclose(one, other, **({"rtol": 1e-4, "atol": 1e-6} | tolerance))


def equal(left, right):
    return all(
        np.array_equal(one, other)
        for one, other in zip(jax.tree.leaves(left), jax.tree.leaves(right), strict=True)
    )


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("huber", [1.0, 0.3, None])
@pytest.mark.parametrize("clip", [False, True])
def test_labels_loss_and_gradient_without_penalty(double, huber, clip):
    settings = algorithm(double=double, huber=huber, clip_rewards=clip)
    agent, given = begin(settings), batch(2)
    theta, target = Reference(agent.theta), Reference(agent.target)
    assigned, labels = settings.labels(agent, on_device(given))
    expected_assigned, expected_labels = reference_labels(theta, target, given, settings)
    np.testing.assert_array_equal(assigned, expected_assigned)
    np.testing.assert_allclose(labels, expected_labels, rtol=1e-5)
    loss, gradient = reference_error(theta, given, expected_labels, huber)
    after, seen = settings.update(agent, on_device(given), jax.random.key(0), penalty_weight=0.0)
    np.testing.assert_allclose(seen, loss, rtol=1e-5)
    moved = [old - new for old, new in zip(theta.parameters, parameters(after.theta), strict=True)]
    assert_close(moved, gradient)
    assert equal(after.target, agent.target)
    assert after.updates == 1


def test_the_batch_tells_dqn_from_double_dqn():
    """Else the tests above could not."""
    agent, given = begin(algorithm(double=True)), batch(2)
    chosen, values = Reference(agent.theta), Reference(agent.target)
    assert (chosen(given.successors).argmax(1) != values(given.successors).argmax(1)).any()
    assert given.terminal.any()
    assert not given.terminal.all()


def test_nothing_follows_a_terminal_state():
    settings = algorithm()
    agent, given = begin(settings), batch(3, terminal=1.1)
    _, labels = settings.labels(agent, on_device(given))
    np.testing.assert_array_equal(labels, given.rewards)
    _, labels = settings.labels(agent, on_device(given._replace(terminal=np.zeros(B, bool))))
    assert (np.asarray(labels) != given.rewards).all()


class TF1RMSProp:
    """ms ← ρ ms + (1 − ρ) g², mg ← ρ mg + (1 − ρ) g, θ ← θ − α g / √(ms − mg² + ε); ms from one."""

    def __init__(self, rate, epsilon):
        self.rate, self.epsilon = rate, epsilon
        self.square, self.mean = None, None

    def step(self, parameters, gradients):
        if self.square is None:
            self.square = [np.ones_like(g) for g in gradients]
            self.mean = [np.zeros_like(g) for g in gradients]
        self.square = [0.95 * s + 0.05 * g**2 for s, g in zip(self.square, gradients, strict=True)]
        self.mean = [0.95 * m + 0.05 * g for m, g in zip(self.mean, gradients, strict=True)]
        rows = zip(parameters, gradients, self.square, self.mean, strict=True)
        return [p - self.rate * g / np.sqrt(s - m**2 + self.epsilon) for p, g, s, m in rows]


@pytest.mark.parametrize("double", [False, True])
def test_several_updates_with_rmsprop_penalty_and_target_copies(double):
    settings = algorithm(
        optimizer=centred_rmsprop(0.3, epsilon=0.01),
        double=double,
        penalised=True,
        target_every=3,
    )
    agent = begin(settings)
    theta, target = Reference(agent.theta), Reference(agent.target)
    optimizer, committed, penalties = TF1RMSProp(0.3, 0.01), [], []
    for t in range(10):
        given, key = batch(t), jax.random.key(t)
        assigned, labels = reference_labels(theta, target, given, settings)
        pairs = given.successors, assigned, ~given.terminal
        if double:  # which of the earlier choices are drawn is up to the key
            pairs = tuple(map(np.asarray, agent.drawn))
            assert pairs[2].all() == (t > 0)
            choices = [(s.tobytes(), a) for s, a in zip(*pairs[:2], strict=True)]
            assert set(choices) <= set(committed) or t == 0
            rows = zip(given.successors, assigned, given.terminal, strict=True)
            committed += [(s.tobytes(), a) for s, a, over in rows if not over]
        loss, gradient = reference_error(theta, given, labels, 1.0)
        penalty, penalty_gradient = reference_penalty(theta, *pairs)
        penalties.append(penalty)
        weight = 2.0 * t / (t + 5.0)
        total = [g + weight * p for g, p in zip(gradient, penalty_gradient, strict=True)]
        agent, seen = settings.update(agent, on_device(given), key, penalty_weight=2.0)
        np.testing.assert_allclose(seen, loss + weight * penalty, rtol=1e-4)
        theta.parameters = optimizer.step(theta.parameters, total)
        assert_close(parameters(agent.theta), theta.parameters, rtol=1e-3, atol=1e-5)
        if (t + 1) % 3 == 0:
            target.parameters = list(theta.parameters)
            assert equal(agent.target, agent.theta)
        assert_close(parameters(agent.target), target.parameters, rtol=1e-3, atol=1e-5)
    assert max(penalties) > 0.1  # it did play a part


def test_rmsprop_by_hand():
    """One number, gradients 2 and then 0: ms 1.15, mg 0.1; then ms 1.0925, mg 0.095."""
    optimizer = centred_rmsprop(0.5, epsilon=0.1)
    state = optimizer.init(jnp.zeros(()))
    step, state = optimizer.update(jnp.array(2.0), state)
    np.testing.assert_allclose(step, -0.5 * 2 / np.sqrt(0.95 + 0.05 * 4 - 0.1**2 + 0.1), rtol=1e-6)
    step, state = optimizer.update(jnp.array(0.0), state)
    assert step == 0.0
    step, state = optimizer.update(jnp.array(-1.0), state)
    square = 0.95 * (0.95 * 1.15) + 0.05
    mean = 0.95 * (0.95 * 0.1) - 0.05
    np.testing.assert_allclose(step, 0.5 / np.sqrt(square - mean**2 + 0.1), rtol=1e-6)


def test_rmsprop_survives_gradients_that_do_not_change():
    """Then the mean square and the squared mean are equal but for rounding."""
    optimizer = centred_rmsprop(0.1)

    def step(state, _):
        change, state = optimizer.update(gradients, state)
        return state, change

    rng = np.random.default_rng(0)
    gradients = jnp.asarray(10 ** rng.uniform(-7, 4, 500), jnp.float32)
    moments, changes = jax.lax.scan(step, optimizer.init(gradients), None, length=2000)
    assert (moments.square - moments.mean**2 < -1e-5).any()  # without a care, a root of that
    assert np.isfinite(changes).all()
    # Never more than where the variance is zero.
    largest = 0.1 * np.asarray(gradients) / np.sqrt(1e-5)
    assert (np.abs(np.asarray(changes)) <= largest * (1 + 1e-5)).all()


def test_rmsprop_is_that_of_optax_where_that_one_is_sound():
    theta = {"weight": jnp.zeros((3, 4)), "bias": jnp.zeros(4)}
    ours = centred_rmsprop(0.01)
    theirs = optax.rmsprop(
        0.01, decay=0.95, eps=1e-5, initial_scale=1.0, eps_in_sqrt=True, centered=True
    )
    our_state, their_state = ours.init(theta), theirs.init(theta)
    rng = np.random.default_rng(0)
    for _ in range(50):
        gradients = {name: jnp.asarray(rng.normal(size=x.shape)) for name, x in theta.items()}
        our_step, our_state = ours.update(gradients, our_state)
        their_step, their_state = theirs.update(gradients, their_state)
        for name in theta:
            np.testing.assert_allclose(our_step[name], their_step[name], rtol=1e-4)


def test_adam_divides_by_its_epsilon():
    for epsilon in (1e-8, 1.0):
        optimizer = adam(0.5, epsilon=epsilon)
        step, _ = optimizer.update(jnp.array(2.0), optimizer.init(jnp.zeros(())))
        np.testing.assert_allclose(step, -0.5 * 2 / (2 + epsilon), rtol=1e-5)


def test_penalty_of_dqn_by_hand():
    """Q_θ⁻ prefers action 1 in both successors, Q_θ gives it 3 and 0 less than its best."""
    table = jnp.array([[4.0, 1.0, 2.0], [0.0, 5.0, 1.0]])
    target = jnp.array([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]])
    settings = algorithm(batch_size=3, penalised=True, huber=None)
    agent = settings.begin(tabular(table), jnp.zeros(2))
    agent = eqx.tree_at(lambda a: (a.target, a.updates), agent, (tabular(target), jnp.int32(15)))
    states = np.eye(2, dtype=np.float32)
    given = Transitions(
        states=jnp.asarray(states[[0, 0, 0]]),
        actions=jnp.array([0, 0, 0]),
        rewards=jnp.array([4.0, 4.0, 4.0]),
        successors=jnp.asarray(states[[0, 1, 0]]),
        terminal=jnp.array([False, False, True]),
    )
    settings = replace(settings, discount=0.0)  # labels are rewards, and the error is none
    _, loss = settings.update(agent, given, jax.random.key(0), penalty_weight=8.0)
    # 4 and 2 are above 1: a penalty of 3 + 1; none in the other; the terminal one does not count.
    np.testing.assert_allclose(loss, 8.0 * 15 / (15 + 5) * (4.0 + 0.0) / 2, rtol=1e-6)


def tabular(table):
    """Q-values from a table, for states that are unit vectors."""
    count = table.shape[0]
    body = Perceptron((Dense(jnp.eye(count), jnp.zeros(count)),))
    return Regressor(body, Dense(jnp.asarray(table), jnp.zeros(table.shape[1])))


@pytest.mark.parametrize("double", [False, True])
def test_without_a_penalty_it_does_not_matter_whether_one_is_computed(double):
    ends = []
    for penalised in (False, True):
        settings = algorithm(double=double, penalised=penalised, optimizer=centred_rmsprop(0.01))
        agent = begin(settings)
        for t in range(4):
            given, key = on_device(batch(t)), jax.random.key(t)
            agent, loss = settings.update(agent, given, key, penalty_weight=0.0)
        ends.append((agent, loss))
    assert equal(*ends)


def test_penalty_of_ddqn_is_zero_at_first_and_then_is_not():
    settings = algorithm(double=True, penalised=True, optimizer=optax.sgd(0.5))
    agent = begin(settings)
    differences = []
    for t in range(12):
        given, key = on_device(batch(t)), jax.random.key(t)
        # As if λ had long been reached: it is the choices that must be without penalty, not λ.
        late = eqx.tree_at(lambda a: a.updates, agent, jnp.int32(10**6))
        after, loss = settings.update(late, given, key, penalty_weight=3.0)
        plain, error = settings.update(late, given, key, penalty_weight=0.0)
        differences.append(float(loss - error))
        assert equal(after.theta, plain.theta) == (loss == error)
        agent = eqx.tree_at(lambda a: a.updates, after, jnp.int32(t + 1))
    assert differences[0] == 0.0
    assert np.mean(np.array(differences) > 1e-3) > 0.5, differences


def test_choices_of_one_moment_cost_nothing_at_that_moment():
    """The whole buffer, right after a batch was committed and before the network moves."""
    settings = algorithm(double=True, penalised=True, optimizer=optax.sgd(0.0))
    agent = begin(settings)
    for t in range(3):
        agent, _ = settings.update(agent, on_device(batch(t)), jax.random.key(t), penalty_weight=1)
        assert agent.commitments.penalty(agent.theta) == 0.0
    moved = eqx.tree_at(lambda a: a.theta, agent, network(5))
    assert moved.commitments.penalty(moved.theta) > 0.0


def test_terminal_successors_are_never_committed(monkeypatch):
    monkeypatch.setattr(dqn, "COMMITTED_BATCHES", 3)
    settings = algorithm(double=True, penalised=True)
    agent = begin(settings)
    for t in range(7):
        given = batch(t)
        given.successors[given.terminal] = 99.0
        given.states[given.terminal] = 0.0  # so that they change nothing else
        agent, _ = settings.update(agent, on_device(given), jax.random.key(t), penalty_weight=1.0)
        kept = np.asarray(agent.commitments.born) >= 0
        assert kept.any()
        assert not (np.asarray(agent.commitments.successors) == 99.0).any()
    assert agent.commitments.capacity == 3 * B
    assert np.asarray(agent.commitments.born).min() >= 1  # the oldest made room


def test_dqn_keeps_no_choices_and_double_dqn_some():
    assert begin(algorithm()).commitments is None
    assert begin(algorithm(double=True)).commitments.capacity == 32 * B


def test_penalty_weight_is_annealed_in_gradient_steps():
    settings = algorithm(penalised=True, halfway=20.0)
    agent, given = begin(settings), on_device(batch(4))

    def cost(t, penalty_weight):
        at = eqx.tree_at(lambda agent: agent.updates, agent, jnp.int32(t))
        return settings.update(at, given, jax.random.key(0), penalty_weight=penalty_weight)[1]

    full = cost(10**9, 6.0) - cost(0, 0.0)
    assert full > 0.01
    for t, share in [(0, 0.0), (20, 0.5), (60, 0.75)]:
        np.testing.assert_allclose(cost(t, 6.0) - cost(t, 0.0), share * full, rtol=1e-3, atol=1e-6)


def test_diagnostics_by_hand():
    theta = tabular(jnp.array([[1.0, 4.0, 2.0], [7.0, 5.0, 5.5], [0.0, -2.0, -3.0]]))
    target = tabular(jnp.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    settings = algorithm(batch_size=2)
    agent = settings.begin(theta, jnp.zeros(3))
    agent = eqx.tree_at(lambda agent: agent.target, agent, target)
    eye = np.eye(3, dtype=np.float32)
    given = Transitions(
        states=jnp.asarray(eye[[0, 1, 2, 0]]),
        actions=jnp.zeros(4, int),
        rewards=jnp.zeros(4),
        successors=jnp.asarray(eye[[0, 1, 2, 1]]),
        terminal=jnp.array([False, False, False, True]),
    )
    found = settings.diagnose(agent, given, jax.random.key(0))
    assert found.q_mean == (4 + 7 + 0 + 4) / 4
    assert found.q_max == 7.0
    assert found.action_gap == (2 + 1.5 + 2 + 2) / 4
    # σ of the target is 1, 2, 1: penalties 0, 7 − 5.5, 0 − (−2).
    np.testing.assert_allclose(found.penalty, (0 + 1.5 + 2) / 3, rtol=1e-6)
    np.testing.assert_allclose(found.inconsistent, 2 / 3, rtol=1e-6)
    assert found.churn == 0.5  # states 1 and 2 of four


def test_diagnostics_of_double_dqn_are_those_of_its_committed_choices():
    settings = algorithm(double=True, batch_size=2)
    theta = tabular(jnp.array([[1.0, 4.0], [7.0, 5.0]]))
    agent = settings.begin(theta, jnp.zeros(2))
    eye = jnp.eye(2)
    given = Transitions(eye, jnp.zeros(2, int), jnp.zeros(2), eye, jnp.zeros(2, bool))
    found = settings.diagnose(agent, given, jax.random.key(0))
    assert found.penalty == found.inconsistent == found.churn == 0.0  # nothing committed yet
    committed = agent.commitments.add(eye[:1], jnp.array([0]))
    agent = eqx.tree_at(lambda agent: agent.commitments, agent, committed)
    found = settings.diagnose(agent, given, jax.random.key(0))
    assert found.penalty == 3.0
    assert found.inconsistent == 1.0


def test_diagnostics_with_one_action():
    settings = algorithm(batch_size=2)
    agent = settings.begin(tabular(jnp.array([[1.0], [2.0]])), jnp.zeros(2))
    eye = jnp.eye(2)
    given = Transitions(eye, jnp.zeros(2, int), jnp.zeros(2), eye, jnp.zeros(2, bool))
    found = settings.diagnose(agent, given, jax.random.key(0))
    assert found == (1.5, 2.0, 0.0, 0.0, 0.0, 0.0)


def test_epsilon_greedy_frequencies():
    count, actions, epsilon = 40_000, 5, 0.4
    q_values = jnp.tile(jnp.array([[0.0, 1.0, 3.0, 2.0, 1.0]]), (count, 1))
    picked = epsilon_greedy(jax.random.key(0), q_values, epsilon)
    counts = np.bincount(picked, minlength=actions)
    expected = np.full(actions, epsilon / actions)
    expected[2] += 1 - epsilon
    assert chisquare(counts, expected * count).pvalue > 0.01


@pytest.mark.parametrize("actions", [1, 2, 18])
def test_every_action_can_be_picked(actions):
    q_values = jnp.tile(jnp.arange(float(actions))[None], (20_000, 1))
    picked = epsilon_greedy(jax.random.key(1), q_values, 1.0)
    counts = np.bincount(picked)
    assert len(counts) == actions
    assert actions == 1 or chisquare(counts).pvalue > 0.01
    assert (epsilon_greedy(jax.random.key(1), q_values, 0.0) == actions - 1).all()
    assert (epsilon_greedy(jax.random.key(1), -q_values, 0.0) == 0).all()


def test_exploring_and_the_action_explored_are_independent():
    """Were both drawn from one number, low ε would only ever explore some actions."""
    q_values = jnp.zeros((200_000, 4)).at[:, 0].set(1.0)
    picked = np.asarray(epsilon_greedy(jax.random.key(3), q_values, 0.02))
    explored = np.bincount(picked)[1:]
    assert len(explored) == 3
    assert chisquare(explored).pvalue > 0.01


def test_epsilon_at_its_corners():
    def at(step, begin=100, steps=50, final=0.2):
        return float(epsilon_at(step, begin=begin, steps=steps, final=final))

    assert [at(0), at(99), at(100)] == [1.0, 1.0, 1.0]
    assert at(125) == pytest.approx(0.6)
    assert at(149) == pytest.approx(1 - 0.8 * 49 / 50)
    assert [at(150), at(151), at(10**9)] == pytest.approx([0.2] * 3)
    assert at(3, begin=0, steps=0, final=0.1) == pytest.approx(0.1)
    assert at(3, begin=0, steps=0, final=1.0) == 1.0
    assert float(jax.jit(at_traced)(jnp.int32(125))) == pytest.approx(0.6)


def at_traced(step):
    return epsilon_at(step, begin=100, steps=50, final=0.2)
