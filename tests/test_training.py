"""The training loops: against one another, against recounts, and against known values."""

import functools
import itertools
import math
import os
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conqur.config import PRESETS, train_config
from conqur.environments import Spec, Step, VectorEnvironment, journal, make
from conqur.environments.data import FixedData
from conqur.environments.interface import JaxEnvironment
from conqur.environments.journal import Journal
from conqur.runs import RunDirectory
from conqur.training import CompiledTrainer, DataTrainer, HostTrainer
from conqur.training.learning import ENVIRONMENT, LEARN, LOOK, key_for
from conqur.training.tally import Tally
from conqur.training_state import restored, save_state

UPDATES_BETWEEN = 6


class WalkState(NamedTuple):
    position: jax.Array
    steps: jax.Array
    key: jax.Array


class Walk(JaxEnvironment):
    """A random walk with slips: beyond ±2 it ends, after six steps it is cut."""

    spec = Spec("Walk", (2,), "float32", ("left", "right"), stack=2)

    def begin(self, key):
        position = jax.random.randint(key, (), -1, 2)
        state = WalkState(position, jnp.int32(0), jax.random.fold_in(key, 1))
        return state, self.look(state)

    def advance(self, key, state, action):
        slips = jax.random.bernoulli(state.key, 0.2)
        move = jnp.where(slips, 0, 2 * action - 1)
        state = WalkState(state.position + move, state.steps + 1, jax.random.fold_in(state.key, 2))
        reward = state.position + jax.random.normal(key)
        terminal = jnp.abs(state.position) > 2
        return state, self.look(state), reward, terminal, state.steps >= 6

    def look(self, state):
        return jnp.stack([state.position / 2, state.steps / 6]).astype(jnp.float32)


reset_walks = jax.jit(jax.vmap(Walk().reset))
step_walks = jax.jit(jax.vmap(Walk().step))


@functools.partial(jax.jit, static_argnums=0)
def environment_keys(config, time):
    drawn = [
        jax.random.split(key_for(jnp.int32(seed), ENVIRONMENT, time), config.num_envs)
        for _, seed in config.members
    ]
    return jnp.concatenate(drawn)


class SameKeys(VectorEnvironment):
    """Walks on the host, with the very keys that the compiled trainer gives it."""

    def __init__(self, config):
        self.spec = Walk.spec
        self.config = config
        self.num_envs = config.num_envs * len(config.members)

    def reset(self, seeds):
        self.time = 0
        self.episodes, frames = reset_walks(environment_keys(self.config, 0))
        return np.asarray(frames)

    def send(self, actions):
        self.time += 1
        keys = environment_keys(self.config, self.time)
        self.episodes, self.answer = step_walks(keys, self.episodes, jnp.asarray(actions))

    def receive(self):
        return jax.device_get(self.answer)


class Recorded(Journal):
    """A journal that remembers all steps."""

    def __init__(self, *given):
        super().__init__(*given)
        self.steps, self.cuts = [], []

    def receive(self):
        self.steps.append(super().receive())
        self.cuts.append(self.cut)
        return self.steps[-1]


def settings(**changes):
    defaults = dict(
        environment="Walk",
        algorithm="ddqn",
        penalty_weights=(0.0, 2.0),
        seeds=(3, 5),
        num_envs=4,
        update_every=2,
        hidden=(8,),
        batch_size=4,
        replay_size=4 * 13,
        learning_starts=12,
        target_every=7,
        epsilon_steps=100,
        epsilon_final=0.05,
        optimizer="adam",
        learning_rate=0.03,
        anneal_halfway=10.0,
        preprocessing="",
    )
    return train_config("control", **(defaults | changes))


MAIN = settings()
END = 48  # beyond the replay's 13 rows


def compiled_trainer(config, environment=None):
    return CompiledTrainer(config, Walk() if environment is None else environment)


def host_trainer(config, kind=Journal):
    return HostTrainer(config, new_journal(config, kind))


def new_journal(config, kind=Journal):
    return kind(SameKeys(config), tuple(seed for _, seed in config.members))


def data_trainer(config):
    rng = np.random.default_rng(0)
    data = FixedData(
        rng.normal(size=(30, 3)),
        rng.integers(0, 2, 30),
        rng.normal(size=30),
        rng.normal(size=(30, 3)),
        rng.random(30) < 0.2,
    )
    return DataTrainer(config, data)


@pytest.fixture(scope="module", autouse=True)
def quickly_compiled():
    """Most of the time would go into making fast programs of which each runs once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@pytest.fixture(scope="module", autouse=True)
def many_looks():
    """Look at the networks often, so that short runs hold several looks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("conqur.training.trainer.UPDATES_BETWEEN", UPDATES_BETWEEN)
        yield


@pytest.fixture(scope="module")
def trainers():
    """One trainer of each kind, made when it is needed: compiling them takes seconds."""
    makers = {"compiled": compiled_trainer, "host": host_trainer, "data": data_trainer}
    return functools.cache(lambda kind: makers[kind](MAIN))


@pytest.fixture(scope="module")
def uninterrupted(trainers):
    """What a run of each kind ends with, and its rows."""

    @functools.cache
    def end(kind):
        trainer = fresh(trainers(kind))
        members = run(trainer, trainer.begin(), 0, END)
        return members, trainer.rows(members, END)

    return end


def fresh(trainer):
    """The same trainer with environments that nothing has happened in yet."""
    if isinstance(trainer, HostTrainer):
        trainer.environment = new_journal(trainer.config)
    return trainer


def run(trainer, members, begin, end):
    time = begin
    while time < end:
        members, time = trainer.advance(members, time, end)
    assert time == end
    return members


def leaves(tree):
    return [
        np.asarray(jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
        for x in jax.tree.leaves(tree)
    ]


def assert_same(left, right):
    for one, other in zip(leaves(left), leaves(right), strict=True):
        assert one.tobytes() == other.tobytes()


def assert_close(left, right, **tolerance):
    for one, other in zip(leaves(left), leaves(right), strict=True):
        np.testing.assert_allclose(one, other, **({"rtol": 1e-4, "atol": 1e-5} | tolerance))


def assert_rows_close(left, right):
    for one, other in zip(left, right, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name] == pytest.approx(other[name], rel=1e-4, abs=1e-5), name


def updates_by(config, time):
    """How many updates were due before a time, counted one by one."""
    count = 0
    for step in range(0, time * config.num_envs, config.num_envs):
        if step >= max(config.learning_starts, 1) and step % config.update_every == 0:
            count += max(1, config.num_envs // config.update_every)
    return count


@pytest.mark.parametrize("kind", ["compiled", "host"])
def test_rows_tell_what_was_done(uninterrupted, kind):
    members, rows = uninterrupted(kind)
    looks = [time for time in range(1, END + 1) if time % 3 == 0 and time * 4 >= 12]
    assert (np.asarray(members.tally.looks) == len(looks)).all()
    assert [(row["penalty_weight"], row["seed"]) for row in rows] == list(MAIN.members)
    for row in rows:
        assert row["step"] == END * 4
        assert row["updates"] == updates_by(MAIN, END)
        part = row["updates"] / (row["updates"] + MAIN.anneal_halfway)
        assert row["annealed_weight"] == pytest.approx(row["penalty_weight"] * part)
        assert row["epsilon"] == pytest.approx(max(0.05, 1 - 0.95 * (END * 4 - 12) / 100))
        assert row["episodes"] > 10
        assert all(value is not None for value in row.values())
    assert max(row["penalty"] for row in rows[2:]) > 0.0  # there is something to penalise


def test_compiled_and_host_trainer_do_the_same(uninterrupted):
    """Other programs, the same games, draws and updates: the same networks, replays and rows."""
    (compiled, compiled_rows), (host, host_rows) = map(uninterrupted, ("compiled", "host"))
    assert_close(compiled.agent, host.agent)
    assert_close(compiled.replay, host.replay)
    assert_close(compiled.tally, host.tally)
    assert_rows_close(compiled_rows, host_rows)


def test_compiled_and_host_trainer_do_the_same_with_fewer_updates_than_steps():
    config = settings(
        algorithm="dqn",
        penalty_weights=(1.0,),
        seeds=(0,),
        num_envs=2,
        update_every=6,
        learning_starts=0,
        optimizer="rmsprop",
    )
    assert (config.steps_per_update, config.updates_at_once) == (3, 1)
    ends = []
    for trainer in (compiled_trainer(config), host_trainer(config)):
        members = run(trainer, trainer.begin(), 0, 60)
        ends.append((members, trainer.rows(members, 60)))
    (compiled, compiled_rows), (host, host_rows) = ends
    assert_close((compiled.agent, compiled.replay), (host.agent, host.replay))
    assert_rows_close(compiled_rows, host_rows)
    assert compiled_rows[0]["updates"] == updates_by(config, 60) == 19


def test_learning_as_a_scan_is_a_loop_of_updates(trainers, uninterrupted):
    learning = trainers("host").learning
    members, _ = uninterrupted("host")
    agent, replay = (jax.tree.map(lambda x: x[3], part) for part in (members.agent, members.replay))
    seed, weight = jnp.int32(5), jnp.float32(2.0)
    drawn = jax.jit(learning.draw)(replay, seed, jnp.int32(END))
    assert drawn.actions.shape == (2 * MAIN.batch_size,)
    after, tally = jax.jit(learning.learn)(agent, drawn, Tally.empty(4), seed, weight)
    update = jax.jit(learning.algorithm.update)
    keys = jax.random.split(key_for(seed, LEARN, agent.updates), 2)
    losses = []
    for i, key in enumerate(keys):
        rows = slice(i * MAIN.batch_size, (i + 1) * MAIN.batch_size)
        batch = jax.tree.map(lambda x, rows=rows: x[rows], drawn)
        agent, loss = update(agent, batch, key, penalty_weight=weight)
        losses.append(float(loss))
    assert_close(after, agent)
    assert tally.updates == 2
    np.testing.assert_allclose(tally.loss, sum(losses), rtol=1e-5)


def test_a_look_is_a_diagnosis_of_states_in_the_replay(trainers, uninterrupted):
    learning = trainers("host").learning
    members, _ = uninterrupted("host")
    agent, replay = (jax.tree.map(lambda x: x[2], part) for part in (members.agent, members.replay))
    seed, time = jnp.int32(3), jnp.int32(END)
    tally = Tally.empty(4)
    for count in (1, 2):
        tally = jax.jit(learning.look)(agent, replay, tally, seed, time)
        draw_key, key = jax.random.split(key_for(seed, LOOK, time))
        batch = jax.jit(lambda replay, key: replay.sample(key, 256, time))(replay, draw_key)
        found = jax.jit(learning.algorithm.diagnose)(agent, batch, key)
        assert tally.looks == count
        assert_close(tally.found, jax.tree.map(lambda x, n=count: n * x, found))


def test_members_do_not_influence_one_another(uninterrupted):
    index = 1  # alone, it is trained by a program without the penalty, too
    weight, seed = MAIN.members[index]
    together, rows = uninterrupted("compiled")
    trainer = compiled_trainer(settings(penalty_weights=(weight,), seeds=(seed,)))
    alone = run(trainer, trainer.begin(), 0, END)
    mine = jax.tree.map(lambda x: x[index : index + 1], together)
    assert_close((mine.agent, mine.replay), (alone.agent, alone.replay))
    assert_rows_close(rows[index : index + 1], trainer.rows(alone, END))


def test_members_differ(uninterrupted):
    members, _ = uninterrupted("compiled")
    heads = np.asarray(members.agent.theta.head.weight)
    assert len({head.tobytes() for head in heads}) == 4
    rewards = np.asarray(members.replay.rewards)
    assert (rewards[0] != rewards[1]).all(axis=1).any()  # seeds play their own games


@pytest.mark.parametrize("kind", ["compiled", "host", "data"])
def test_a_second_run_is_the_same_to_the_last_bit(trainers, uninterrupted, kind):
    first, rows = uninterrupted(kind)
    trainer = fresh(trainers(kind))
    second = run(trainer, trainer.begin(), 0, END)
    assert_same((first.agent, first.tally), (second.agent, second.tally))
    assert rows == trainer.rows(second, END)


@pytest.mark.parametrize("kind", ["compiled", "host", "data"])
def test_interrupted_runs_go_on_to_the_last_bit(
    trainers, uninterrupted, kind, tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "fsync", lambda handle: None)
    first, rows = uninterrupted(kind)
    # Within, at the end of and beyond the first 13 rows; on and between looks, every three steps.
    times = [0, 3, 4, 12, 13, 15, 17, 33, 42, END]
    trainer, said = fresh(trainers(kind)), []
    with RunDirectory.create(tmp_path / "run", MAIN.to_json()) as directory:
        save_state(directory, trainer, trainer.begin(), 0, step=0)
    for begin, end in itertools.pairwise(times):
        trainer = fresh(trainer)  # as another process would have it
        with RunDirectory.open(tmp_path / "run", warn=said.append) as directory:
            members, time = restored(trainer, directory.load(), said.append)
            assert time == begin
            members = run(trainer, members, begin, end)
            save_state(directory, trainer, members, end, step=end * MAIN.num_envs)
            result = jax.device_get(members.agent), jax.device_get(members.tally)
    assert_same((first.agent, first.tally), result)
    assert rows == trainer.rows(members, END)
    assert not said


def recount(played, num_envs, member, until=None):
    """Scores of the games that ended, one environment after the other."""
    scores = []
    for column in range(member * num_envs, (member + 1) * num_envs):
        rewards = []
        for step, cut in list(zip(played.steps, played.cuts, strict=True))[:until]:
            rewards = [] if cut else [*rewards, float(step.reward[column])]
            if step.game_over[column]:
                scores.append(sum(rewards))
                rewards = []
    return scores


@pytest.mark.parametrize("epoch", [10_000, 7])
def test_returns_and_episodes_against_a_recount(trainers, monkeypatch, epoch):
    """With short epochs episodes are cut by resets, and those do not count."""
    monkeypatch.setattr(journal, "EPOCH", epoch)
    trainer = trainers("host")
    trainer.environment = new_journal(MAIN, Recorded)
    members = run(trainer, trainer.begin(), 0, 30)
    played = trainer.environment
    assert sum(played.cuts) == (3 if epoch == 7 else 0)
    rows = trainer.rows(members, 30)
    for index, row in enumerate(rows):
        returns = recount(played, MAIN.num_envs, index)
        assert row["episodes"] == len(returns) > 5
        assert row["return"] == pytest.approx(np.mean(returns), rel=1e-4)
    # After a row of the log the count begins anew, but episodes under way go on.
    tally = jax.vmap(lambda tally: tally.cleared())(members.tally)
    members = eqx.tree_at(lambda members: members.tally, members, tally)
    assert trainer.rows(members, 30)[0] | {"step": 0, "updates": 0, "epsilon": 0} == dict(
        {name: None for name in rows[0]},
        step=0, updates=0, epsilon=0, episodes=0, penalty_weight=0.0, annealed_weight=0.0, seed=3,
    )  # fmt: skip
    members = run(trainer, members, 30, 40)
    for index, row in enumerate(trainer.rows(members, 40)):
        later = recount(played, MAIN.num_envs, index)
        before = recount(played, MAIN.num_envs, index, until=30)
        assert row["episodes"] == len(later) - len(before)
        total = row["return"] * row["episodes"]
        assert total == pytest.approx(sum(later) - sum(before), rel=1e-3, abs=1e-3)


def test_tally_by_hand():
    tally = Tally.empty(2)
    none, flags = np.zeros(2, bool), lambda *given: np.array(given, bool)

    def step(rewards, over, reset):
        return Step(None, np.array(rewards, np.float32), none, over, reset)

    tally = tally.absorbed(step([1.0, 10.0], none, none))
    tally = tally.absorbed(step([2.0, 20.0], flags(1, 0), none))  # 3
    tally = tally.absorbed(step([0.0, 30.0], none, flags(1, 0)))
    tally = tally.absorbed(step([5.0, 1.0], none, flags(0, 1)))  # a lost life: the game goes on
    tally = tally.absorbed(step([6.0, 7.0], flags(0, 1), none))  # 68
    tally = tally.absorbed(step([0.5, 2.0], none, none))
    # The second game ends in frames that nobody sees, where a life was lost.
    tally = tally.absorbed(step([0.5, 3.0], flags(0, 1), flags(0, 1)))  # 5
    tally = tally.absorbed(step([1.0, 4.0], none, none))
    assert (tally.episodes, tally.returns) == (3, 3.0 + 68.0 + 5.0)
    np.testing.assert_array_equal(tally.running, [13.0, 4.0])
    tally = tally.absorbed(step([0.0, 0.0], none, ~none), cut=True)
    tally = tally.absorbed(step([11.0, 7.0], none, none))
    assert (tally.episodes, tally.returns) == (3, 76.0)
    np.testing.assert_array_equal(tally.running, [11.0, 7.0])
    tally = tally.learned(jnp.array([1.0, 2.0])).learned(jnp.array([4.0, 5.0]))
    assert (tally.updates, tally.loss) == (4, 12.0)
    cleared = tally.cleared()
    assert (cleared.episodes, cleared.returns, cleared.updates, cleared.loss) == (0, 0, 0, 0)
    np.testing.assert_array_equal(cleared.running, [11.0, 7.0])


@pytest.mark.parametrize("preprocessing", ["sb3", "conqur"])
def test_the_log_has_the_scores_of_whole_games(preprocessing):
    """Whether or not every lost life begins a new episode; five of them are one game."""
    environment = make("ALE/Breakout-v5", 1, preprocessing=preprocessing)
    environment.reset([3])
    rng, absorbed = np.random.default_rng(0), jax.jit(Tally.absorbed)
    tally, scores, resets = Tally.empty(1), [0.0], 0
    while len(scores) < 3:
        step = environment.step(rng.integers(0, 4, 1))
        tally = absorbed(tally, step)
        scores[-1] += float(step.reward[0])
        resets += int(step.reset[0])
        if step.game_over[0]:
            scores.append(0.0)
    environment.close()
    assert resets == (9 if preprocessing == "sb3" else 1)
    assert (tally.episodes, tally.returns) == (2, sum(scores))
    assert min(scores[:2]) > 0


class Probe(JaxEnvironment):
    """Two states; γ = ½ gives Q* by hand, and being cut after five steps must not change it.

    A: "on" leads to B, "end" pays 1 and ends. B: "on" pays −1 and leads to A, "end" pays 3 and
    ends.
    """

    spec = Spec("Probe", (2,), "float32", ("on", "end"))
    # Q(B, end) = 3, Q(A, on) = ½ · 3, Q(A, end) = 1, Q(B, on) = −1 + ½ · 1.5.
    values = np.array([[1.5, 1.0], [-0.25, 3.0]])

    def begin(self, key):
        place = jax.random.randint(key, (), 0, 2)
        return (place, jnp.int32(0)), self.look(place)

    def advance(self, key, state, action):
        place, steps = state
        reward = jnp.array([[0.0, 1.0], [-1.0, 3.0]])[place, action]
        place, steps = 1 - place, steps + 1
        return (place, steps), self.look(place), reward, action == 1, steps >= 5

    def look(self, place):
        return jax.nn.one_hot(place, 2)


def probe_settings(**changes):
    return settings(
        environment="Probe",
        penalty_weights=(0.0, 0.5),
        seeds=(0,),
        epsilon_final=1.0,
        discount=0.5,
        learning_rate=0.003,
        hidden=(16,),
        batch_size=16,
        target_every=20,
        replay_size=4000,
        loss="squared",
        **changes,
    )


def assert_solved(members):
    for index in range(2):
        theta = jax.tree.map(lambda x, i=index: x[i], members.agent.theta)
        np.testing.assert_allclose(theta(jnp.eye(2)), Probe.values, atol=0.05)


@pytest.mark.parametrize("algorithm", ["dqn", "ddqn"])
def test_known_values_are_learned(algorithm):
    """With and without the penalty: every choice can be made here, so nothing needs to give."""
    trainer = compiled_trainer(probe_settings(algorithm=algorithm), Probe())
    members = run(trainer, trainer.begin(), 0, 600)
    assert_solved(members)
    row = trainer.rows(members, 600)[1]
    assert row["q_max"] == pytest.approx(3.0, rel=0.3)


def test_known_values_are_learned_from_data():
    eye = np.eye(2, dtype=np.float32)
    data = FixedData(
        eye[[0, 0, 1, 1]],
        [0, 1, 0, 1],
        [0.0, 1.0, -1.0, 3.0],
        eye[[1, 1, 0, 0]],
        [False, True, False, True],
    )
    config = probe_settings(algorithm="dqn", update_every=1, learning_starts=0)
    trainer = DataTrainer(config, data)
    members = run(trainer, trainer.begin(), 0, 300)
    assert_solved(members)
    assert [row["updates"] for row in trainer.rows(members, 300)] == [1200, 1200]


class Anything(JaxEnvironment):
    """Looks like an environment; nothing is ever played."""

    def __init__(self, frame_shape, stack):
        self.spec = Spec("Anything", frame_shape, "uint8", ("a", "b"), stack)

    def begin(self, key):
        raise NotImplementedError

    def advance(self, key, state, action):
        raise NotImplementedError


@pytest.mark.parametrize("preset", PRESETS)
def test_looks_do_not_fall_in_step_with_target_copies(preset, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr("conqur.training.trainer.UPDATES_BETWEEN", 389)
    config = train_config(
        preset, environment="x", algorithm="dqn", penalty_weights=(0.0,), seeds=(0,)
    )
    trainer = CompiledTrainer(config, Anything((84, 84), 4))
    between = trainer.between_looks // config.steps_per_update * config.updates_at_once
    phases = config.target_every / math.gcd(between, config.target_every)
    assert phases >= 50
    assert 0.9 * 389 <= between <= 1.1 * 389
