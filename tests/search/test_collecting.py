"""Batches of the search, against a plain loop over the same environment."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conqur.environments import make
from conqur.environments.data import FixedData
from conqur.environments.journal import Journal
from conqur.regressor import Architecture, Dense, Perceptron, initial_regressor
from conqur.runs import flatten
from conqur.search.approximator import LinearTuning, WholeNetwork
from conqur.search.batches import DataCollector
from conqur.search.collecting import Collector, in_groups
from conqur.search.compiled import CompiledCollector, collector

SEEN = []


class Counting(LinearTuning):
    """Counts how many states its body embeds."""

    def embed(self, observations):
        jax.debug.callback(lambda: SEEN.append(len(observations)))
        return super().embed(observations)


def cartpole(
    num_envs=3, groups=1, transitions=50, approximator=None, epsilon=0.3, name="CartPole-v1"
):
    environments = [Journal(make(name, num_envs), (g,)) for g in range(groups)]
    spec = environments[0].spec
    architecture = Architecture("mlp", spec.observation_shape, len(spec.actions), (7,))
    regressor = initial_regressor(jax.random.key(0), architecture)
    approximator = approximator or LinearTuning(regressor.body)
    collector = Collector(
        approximator,
        environments,
        transitions=transitions,
        epsilon=epsilon,
        clip_rewards=False,
        seed=1,
    )
    return collector, regressor


def watched(collector):
    """The actions that each group is sent."""
    sent = []
    for group in collector._groups:
        mine, send = [], group.journal.send
        sent.append(mine)
        group.journal.send = lambda actions, mine=mine, send=send: (
            mine.append(actions.copy()),
            send(actions),
        )
    return sent


class Player:
    """Environments that are given the same actions again, one step at a time."""

    def __init__(self, seed, actions):
        self.journal = Journal(make("CartPole-v1", 3), (seed,))
        self.observations, self.first = self.journal.begin(), np.ones(3, bool)
        self.running, self.actions = np.zeros(3), iter(actions)

    def step(self):
        """The transitions of a step, and the returns of episodes that ended."""
        actions = next(self.actions)
        self.journal.send(actions)
        step = self.journal.receive()
        self.running += step.reward
        returns = self.running[step.game_over].tolist()
        self.running[step.game_over] = 0
        rows = [
            (self.observations[i], actions[i], *(part[i] for part in step[:3]), self.first[i])
            for i in np.flatnonzero(~np.array(step.reset))
        ]
        self.observations, self.first = step.frame.copy(), np.array(step.reset)
        return rows, returns


@pytest.mark.parametrize("groups", [1, 2])
def test_a_batch_is_what_a_plain_loop_would_have_stored(groups):
    """With the actions that were sent, played again in other environments."""
    collector, regressor = cartpole(groups=groups)
    sent = watched(collector)
    batches, taken = [], []
    for _ in range(3):
        before = [len(actions) for actions in sent]
        batches.append(collector.collect(regressor.head))
        taken.append([len(actions) - b for actions, b in zip(sent, before, strict=True)])

    players = [Player(g, actions) for g, actions in enumerate(sent)]
    for batch, steps in zip(batches, taken, strict=True):
        rows, returns = [], [[] for _ in players]
        for step in range(max(steps)):
            for g, player in enumerate(players):
                if step < steps[g]:
                    found, ended = player.step()
                    rows += found
                    returns[g] += ended
        assert batch.steps == 3 * sum(steps)
        check_batch(batch, rows[:50], regressor)
        assert list(batch.returns) == [value for mine in returns for value in mine]
    assert any(batch.returns for batch in batches)
    assert np.concatenate([np.asarray(b.initial) for b in batches]).sum() > 3


def check_batch(batch, rows, regressor):
    states, taken, successors, *rest = map(np.array, zip(*rows, strict=True))
    rewards, terminal, initial = rest
    embed = lambda s: np.asarray(regressor.body(jnp.asarray(s)))  # noqa: E731
    given = batch.transitions
    np.testing.assert_allclose(given.states, embed(states), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(given.successors, embed(successors), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(given.actions, taken)
    np.testing.assert_array_equal(given.rewards, rewards)
    np.testing.assert_array_equal(given.terminal, terminal)
    np.testing.assert_array_equal(batch.initial, initial)


def test_a_group_plays_on_while_another_ones_actions_are_worked_out():
    collector, regressor = cartpole(groups=2, transitions=100)
    events = []
    for group in collector._groups:
        for verb in ("send", "receive"):
            call = getattr(group.journal, verb)
            setattr(
                group.journal,
                verb,
                lambda *given, call=call, event=(verb, group.index): (
                    events.append(event),
                    call(*given),
                )[1],
            )
    collector.collect(regressor.head)
    assert events[:6] == [
        ("send", 0),
        ("send", 1),
        ("receive", 0),
        ("send", 0),
        ("receive", 1),
        ("send", 1),
    ]
    assert events.count(("send", 0)) == events.count(("receive", 0))


def test_the_body_runs_once_for_every_step():
    _, regressor = cartpole()
    SEEN.clear()
    collector, _ = cartpole(approximator=Counting(regressor.body))
    jax.effects_barrier()
    assert SEEN == [3]  # the first frames
    batches = [collector.collect(regressor.head) for _ in range(2)]
    jax.effects_barrier()
    assert [3] * (1 + sum(batch.steps // 3 for batch in batches)) == SEEN


def test_exploration_is_the_share_that_was_asked_for():
    collector, regressor = cartpole(num_envs=16, transitions=2000, epsilon=0.4)
    given = collector.collect(regressor.head).transitions
    greedy = np.asarray(regressor.head(given.states)).argmax(axis=1)
    share = (np.asarray(given.actions) != greedy).mean()
    assert abs(share - 0.2) < 0.04  # of random actions among two, half are the greedy one


@pytest.mark.parametrize("groups", [1, 2])
def test_it_goes_on_from_where_it_was(groups):
    collector, regressor = cartpole(groups=groups)
    collector.collect(regressor.head)
    state = flatten(collector.state())
    expected = collector.collect(regressor.head)
    other, _ = cartpole(groups=groups)
    assert other.restore(state)
    found = other.collect(regressor.head)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_a_body_that_gives_nan_is_refused():
    _, regressor = cartpole()
    bad = jax.tree.map(lambda leaf: jnp.full(leaf.shape, jnp.nan), regressor.body)
    with pytest.raises(ValueError, match="features hold NaN"):
        cartpole(approximator=LinearTuning(bad))


def test_a_data_set_is_drawn_without_repetition():
    rng = np.random.default_rng(0)
    data = FixedData(
        rng.normal(size=(30, 4)).astype(np.float32),
        rng.integers(3, size=30),
        np.arange(30.0),
        rng.normal(size=(30, 4)).astype(np.float32),
        np.zeros(30, bool),
    )
    how = {"transitions": 20, "clip_rewards": False, "seed": 0}
    collector_of = LinearTuning(Perceptron(()))
    collector = DataCollector(collector_of, data, "d.npz", **how)
    head = Dense(jnp.zeros((4, 3)), jnp.zeros(3))
    first, second = collector.collect(head), collector.collect(head)
    rows = [np.asarray(batch.transitions.rewards).astype(int) for batch in (first, second)]
    assert len(set(rows[0])) == 20
    assert set(rows[0]) != set(rows[1])
    np.testing.assert_array_equal(first.transitions.states, np.asarray(data.observations)[rows[0]])
    state = collector.state()
    third = collector.collect(head)
    assert collector.restore(state)
    np.testing.assert_array_equal(
        collector.collect(head).transitions.rewards, third.transitions.rewards
    )
    clipped = DataCollector(collector_of, data, "d.npz", **how | {"clip_rewards": True})
    np.testing.assert_array_equal(
        clipped.collect(head).transitions.rewards, np.clip(first.transitions.rewards, -1, 1)
    )


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.usefixtures("optimised")
def test_a_compiled_level_is_what_the_host_plays_step_by_step(whole):
    def made(copies):
        return make("MinAtar/Breakout", copies)

    spec = made(1).spec
    architecture = Architecture("minatar", spec.observation_shape, len(spec.actions), (16,))
    regressor = initial_regressor(jax.random.key(0), architecture)
    approximator = WholeNetwork() if whole else LinearTuning(regressor.body)
    theta = regressor if whole else regressor.head
    settings = {"transitions": 200, "epsilon": 0.3, "clip_rewards": True, "seed": 5}
    host = Collector(approximator, in_groups(made, 3, seed=5), **settings)
    program = collector(approximator, made, 3, **settings)
    assert isinstance(program, CompiledCollector)
    assert (program.spec, program.example) == (host.spec, host.example)
    ended = 0
    for _ in range(4):
        ours, theirs = program.collect(theta), host.collect(theta)
        for name in ("actions", "rewards", "terminal"):
            np.testing.assert_array_equal(
                getattr(ours.transitions, name), getattr(theirs.transitions, name)
            )
        for name in ("states", "successors"):
            one, other = (np.asarray(getattr(b.transitions, name), float) for b in (ours, theirs))
            np.testing.assert_allclose(one, other, atol=1e-6)
        np.testing.assert_array_equal(ours.initial, theirs.initial)
        assert ours.returns == theirs.returns
        assert ours.steps == theirs.steps
        ended += len(ours.returns)
    assert ended > 10


def test_a_compiled_collector_goes_on_where_it_was():
    def made(copies):
        return make("MinAtar/Asterix", copies)

    spec = made(1).spec
    architecture = Architecture("minatar", spec.observation_shape, len(spec.actions), (16,))
    regressor = initial_regressor(jax.random.key(0), architecture)
    settings = {"transitions": 100, "epsilon": 0.5, "clip_rewards": False, "seed": 0}
    one, other = (collector(LinearTuning(regressor.body), made, 4, **settings) for _ in range(2))
    one.collect(regressor.head)
    saved = {name: np.array(values) for name, values in one.state().items()}
    assert other.restore(saved)
    after, again = one.collect(regressor.head), other.collect(regressor.head)
    for ours, theirs in zip(jax.tree.leaves(after), jax.tree.leaves(again), strict=True):
        np.testing.assert_array_equal(ours, theirs)
