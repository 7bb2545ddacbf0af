"""The replay against a plain list of everything that happened."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from conqur.environments import Spec, Step, first_stack, push
from conqur.replay import Replay

GOES_ON, LIFE_LOST, ENDS, IS_CUT = range(4)
NAMES = tuple(f"action {i}" for i in range(5))


class Seen(NamedTuple):
    """One transition as it was."""

    time: int
    state: np.ndarray
    action: int
    reward: float
    successor: np.ndarray
    terminal: bool


class World:
    """Plays a script of what happens at each time in each environment, into a replay and a list.

    Every frame differs from all others, and none is zero, so that a state says when it was.
    """

    def __init__(self, spec, rows, num_envs, script):
        self.spec, self.rows, self.time = spec, rows, 0
        self.random = np.random.default_rng(0)
        self.frames_given = 0
        self.episodes = [[frame] for frame in self.new_frames(num_envs)]
        self.seen = [[] for _ in range(num_envs)]
        self.over = np.zeros(num_envs, bool)
        first = np.stack([episode[0] for episode in self.episodes])
        self.replay = Replay.begin(spec, first, rows)
        self.pushed = first_stack(spec, first)
        for kinds in script:
            self.step(np.array(kinds[:num_envs]))

    def new_frames(self, count):
        numbers = np.arange(self.frames_given + 1, self.frames_given + count + 1)
        self.frames_given += count
        return np.stack([numbers, -numbers], axis=1).astype(np.float32)

    def step(self, kinds):
        count = len(kinds)
        frames, reset = self.new_frames(count), self.over
        actions = self.random.integers(0, len(NAMES), count)
        reward = np.where(reset, 0, self.random.normal(size=count)).astype(np.float32)
        terminal = np.isin(kinds, [LIFE_LOST, ENDS]) & ~reset
        self.over = np.isin(kinds, [ENDS, IS_CUT]) & ~reset
        for i in range(count):
            if reset[i]:
                self.episodes[i] = [frames[i]]
                continue
            state = self.stack(i)
            self.episodes[i].append(frames[i])
            self.seen[i].append(
                Seen(self.time, state, actions[i], reward[i], self.stack(i), terminal[i])
            )
        step = Step(frames, reward, terminal, self.over, reset)
        self.replay = add(self.replay, self.time, jnp.asarray(actions), step)
        self.pushed = push(self.spec, self.pushed, frames, reset)
        self.time += 1

    def stack(self, i):
        """The newest frames of an episode, filled up in front."""
        episode, size = self.episodes[i], self.spec.stack
        if size == 1:
            return episode[-1]
        padding = episode[0] if self.spec.pad_with_first else np.zeros_like(episode[0])
        return np.stack(([padding] * size + episode)[-size:], axis=-1)

    def eligible(self):
        """By state, all transitions of which every frame is still in the ring."""
        oldest = self.time - self.rows + 1
        return {
            seen.state.tobytes(): seen
            for history in self.seen
            for seen in history
            if seen.time - self.spec.stack + 1 >= oldest or oldest <= 0
        }


@pytest.fixture(scope="module", autouse=True)
def quickly_compiled():
    """Most of the time would go into making fast programs of which each runs once."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


@jax.jit
def add(replay, time, actions, step):
    return replay.add(time, actions, step)


@jax.jit
def observations(replay, time):
    return replay.observations(time)


@functools.partial(jax.jit, static_argnums=2)
def sample(replay, key, size, time):
    return replay.sample(key, size, time)


@functools.partial(jax.jit, static_argnums=2)
def sample_again_and_again(replay, keys, size, time):
    drawn = jax.vmap(lambda key: replay.sample(key, size, time))(keys)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), drawn)


def drawn_exactly(world, batch):
    """Check that all are transitions of the world; the states that were drawn."""
    eligible = world.eligible()
    for row in zip(*map(np.asarray, batch), strict=True):
        state, action, reward, successor, terminal = row
        seen = eligible.get(state.tobytes())
        assert seen is not None, "no transition that the ring can hold"
        assert (action, reward, terminal) == (seen.action, seen.reward, seen.terminal)
        assert (successor == seen.successor).all()
    return {state.tobytes() for state in np.asarray(batch.states)}


def spec_of(stack, pad_with_first):
    return Spec("World", (2,), "float32", NAMES, stack, pad_with_first)


LAYOUTS = [(1, False), (4, False), (4, True)]
SIZES = [((1, False), 3, 3), ((1, False), 13, 1), ((4, False), 6, 3), ((4, False), 13, 1),
         ((4, True), 6, 1), ((4, True), 13, 3)]  # fmt: skip
scripts = st.lists(
    st.tuples(*[st.sampled_from([GOES_ON, GOES_ON, GOES_ON, LIFE_LOST, ENDS, IS_CUT])] * 3),
    min_size=1,
    max_size=40,
)


@given(st.sampled_from(SIZES), scripts)
@settings(max_examples=40)
def test_all_transitions_are_drawn_and_nothing_else(sizes, script):
    layout, rows, num_envs = sizes
    world = World(spec_of(*layout), rows, num_envs, script)
    batch = sample(world.replay, jax.random.key(len(script)), 512, world.time)
    assert drawn_exactly(world, batch) == set(world.eligible())


@given(st.sampled_from(SIZES), scripts)
@settings(max_examples=30)
def test_observations_are_the_pushed_stacks(sizes, script):
    layout, rows, num_envs = sizes
    world = World(spec_of(*layout), rows, num_envs, [])
    for kinds in [(GOES_ON,) * 3, *script]:
        shown = observations(world.replay, world.time)
        np.testing.assert_array_equal(shown, world.pushed)
        np.testing.assert_array_equal(shown, [world.stack(i) for i in range(num_envs)])
        world.step(np.array(kinds[:num_envs]))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_life_lost_does_not_break_the_stack_and_a_new_episode_does(layout):
    world = World(spec_of(*layout), 13, 1, [(GOES_ON,), (LIFE_LOST,), (GOES_ON,), (ENDS,), (0,)])
    assert [seen.terminal for seen in world.seen[0]] == [False, True, False, True]
    shown = np.asarray(observations(world.replay, world.time))[0]
    if layout[0] == 1:
        np.testing.assert_array_equal(shown, [6, -6])
    else:
        np.testing.assert_array_equal(shown[0], [6, 6, 6, 6] if layout[1] else [0, 0, 0, 6])
        # The state from which the episode ended: the life lost is in the middle of it.
        np.testing.assert_array_equal(world.seen[0][3].state[0], [1, 2, 3, 4])
    drawn_exactly(world, sample(world.replay, jax.random.key(0), 64, world.time))


def test_rows_are_drawn_uniformly():
    script = np.random.default_rng(1).choice(4, size=(30, 3), p=[0.7, 0.1, 0.1, 0.1])
    world = World(spec_of(4, False), 17, 3, script.tolist())
    batch = sample(world.replay, jax.random.key(0), 40_000, world.time)
    numbers, counts = np.unique(np.asarray(batch.states)[:, 0, -1], return_counts=True)
    assert len(numbers) == len(world.eligible())
    assert chisquare(counts).pvalue > 0.01


@pytest.mark.parametrize("size", [1, 2, 8])
def test_small_batches_of_one_step_episodes_hold_no_reset(size):
    """A bandit: every other row is a reset."""
    world = World(spec_of(1, False), 40, 2, [(ENDS,) * 2] * 31)
    keys = jax.random.split(jax.random.key(2), 8192 // size)
    batch = sample_again_and_again(world.replay, keys, size, world.time)
    assert np.asarray(batch.terminal).all()
    assert drawn_exactly(world, batch) == set(world.eligible())


def test_the_first_transition_can_be_drawn_at_once():
    world = World(spec_of(4, True), 13, 1, [(GOES_ON,)])
    batch = sample(world.replay, jax.random.key(0), 5, world.time)
    assert len(drawn_exactly(world, batch)) == 1


def test_other_keys_draw_other_rows():
    world = World(spec_of(1, False), 40, 3, [(GOES_ON,) * 3] * 30)
    one, same, other = (
        np.asarray(sample(world.replay, jax.random.key(seed), 32, world.time).states)
        for seed in (0, 0, 1)
    )
    assert (one == same).all()
    assert (one != other).any()


@pytest.mark.parametrize(("dtype", "actions"), [("uint8", 256), ("bool", 257), ("float32", 2)])
def test_nothing_is_lost_in_storage(dtype, actions):
    spec = Spec("Images", (3, 2), dtype, tuple(map(str, range(actions))), stack=4)
    frames = np.random.default_rng(0).integers(0, 256, (3, 1, 3, 2)).astype(dtype)
    replay = Replay.begin(spec, frames[0], 8)
    none = np.zeros(1, bool)
    for time in range(2):
        step = Step(frames[time + 1], np.full(1, -1e6, np.float32), none, none, none)
        replay = replay.add(time, jnp.array([actions - 1]), step)
    batch = replay.sample(jax.random.key(0), 4, 2)
    assert batch.states.dtype == batch.successors.dtype == dtype
    assert batch.states.shape == (4, 3, 2, 4)
    assert (batch.actions == actions - 1).all()
    assert (batch.rewards == -1e6).all()
    shown = np.asarray(replay.observations(2))[0]
    np.testing.assert_array_equal(shown[..., 1:], np.moveaxis(frames[:, 0], 0, -1))
    assert not shown[..., 0].any()


def test_a_replay_that_is_too_small_is_refused():
    spec, frames = spec_of(4, False), np.zeros((3, 2), np.float32)
    Replay.begin(spec, frames, 6)
    with pytest.raises(ValueError, match="rows must be at least 6, got 5"):
        Replay.begin(spec, frames, 5)
