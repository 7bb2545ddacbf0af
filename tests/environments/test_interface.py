import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from conqur.environments import Spec, Step, VectorEnvironment, first_stack, push
from conqur.environments.interface import JaxEnvironment

LIBRARIES = [np.asarray, jnp.asarray]


def spec_of(stack, pad_with_first=False):
    return Spec("Any", (2,), "uint8", ("a", "b"), stack, pad_with_first)


def frames_of(*values):
    """Frames whose two numbers are v and v + 100."""
    return np.stack([np.array(values), np.array(values) + 100], axis=1).astype(np.uint8)


def test_shape_of_observations():
    assert spec_of(1).observation_shape == (2,)
    assert spec_of(4).observation_shape == (2, 4)
    assert Spec("Any", (84, 84), "uint8", ("a",), 4).observation_shape == (84, 84, 4)
    assert Spec("Any", (10, 10, 6), "bool", ("a",)).observation_shape == (10, 10, 6)


@pytest.mark.parametrize("library", LIBRARIES)
def test_stacks_by_hand(library):
    """Two environments; the second begins a new episode at the third step."""
    for pad_with_first, start, again in [(False, [0, 0, 1], [0, 0, 8]), (True, [1] * 3, [8] * 3)]:
        spec = spec_of(3, pad_with_first)
        shown = first_stack(spec, library(frames_of(1, 5)))
        assert type(shown) is type(library(np.zeros(1)))
        assert shown.dtype == np.uint8
        np.testing.assert_array_equal(shown[0, 0], start)
        for values in [(2, 6), (3, 7)]:
            none = library(np.zeros(2, bool))
            shown = push(spec, shown, library(frames_of(*values)), none)
        np.testing.assert_array_equal(shown[0], [[1, 2, 3], [101, 102, 103]])
        np.testing.assert_array_equal(shown[1, 0], [5, 6, 7])
        shown = push(spec, shown, library(frames_of(4, 8)), library(np.array([False, True])))
        assert type(shown) is type(library(np.zeros(1)))
        assert shown.dtype == np.uint8
        np.testing.assert_array_equal(shown[0, 0], [2, 3, 4])
        np.testing.assert_array_equal(shown[1, 0], again)


@pytest.mark.parametrize("library", LIBRARIES)
def test_without_a_stack_observations_are_frames(library):
    first, second = library(frames_of(1, 5)), library(frames_of(2, 6))
    assert first_stack(spec_of(1), first) is first
    assert push(spec_of(1), first, second, library(np.array([True, False]))) is second


def test_push_inside_a_compiled_function():
    spec = spec_of(2)
    before = jnp.asarray(np.arange(8).reshape(2, 2, 2), jnp.uint8)
    frames, reset = jnp.asarray(frames_of(50, 60)), jnp.array([True, False])
    compiled = jax.jit(lambda *given: push(spec, *given))(before, frames, reset)
    np.testing.assert_array_equal(compiled, [[[0, 50], [0, 150]], [[5, 60], [7, 160]]])


class Countdown(JaxEnvironment):
    """Counts down from a number that the key says; "stop" cuts it, and the last step pays.

    `advance` must not be believed after an episode's end: it pays a fortune there.
    """

    spec = Spec("Countdown", (1,), "float32", ("go", "stop"))

    def begin(self, key):
        number = jax.random.randint(key, (), 1, 5)
        return number, self.look(number)

    def advance(self, key, state, action):
        reward = jnp.where(state <= 0, 1000.0, jnp.where(state == 1, 7.0, 1.0))
        return state - 1, self.look(state - 1), reward, state <= 1, action == 1

    def look(self, number):
        return number.astype(jnp.float32).reshape(1)


def played(actions, seed):
    environment = Countdown()
    step = jax.jit(environment.step)
    episode, frame = environment.reset(jax.random.key(seed))
    seen = [(float(frame[0]), 0.0, False, False, True)]
    for time, action in enumerate(actions):
        episode, given = step(jax.random.key(100 * seed + time), episode, jnp.int32(action))
        assert given.reward.dtype == jnp.float32
        flags = map(bool, (given.terminal, given.game_over, given.reset))
        seen.append((float(given.frame[0]), float(given.reward), *flags))
    return seen


@pytest.mark.parametrize("seed", range(4))
def test_a_jax_environment_ends_and_begins_anew(seed):
    seen = played([0] * 20, seed)
    assert sum(reset for *_, reset in seen) >= 3
    for before, after in itertools.pairwise(seen):
        frame, reward, terminal, game_over, reset = after
        if before[3]:  # the step after the last one of an episode
            assert reset
            assert 1 <= frame <= 4
            assert (reward, terminal, game_over) == (0.0, False, False)
        else:
            assert not reset
            assert frame == before[0] - 1
            assert terminal == game_over == (frame == 0)
            assert reward == (7.0 if frame == 0 else 1.0)


def test_a_cut_episode_is_over_but_not_terminal():
    for seed in range(4):
        (first, *_), cut, after = played([1, 0], seed)
        assert cut == (first - 1, 7.0 if first == 1 else 1.0, first == 1, True, False)
        assert after[1:] == (0.0, False, False, True)


class Echo(VectorEnvironment):
    spec = spec_of(1)
    num_envs = 2

    def reset(self, seeds):
        return frames_of(0, 0)

    def send(self, actions):
        self.sent = actions

    def receive(self):
        none = np.zeros(2, bool)
        return Step(frames_of(*self.sent), self.sent.astype(np.float32), none, none, none)


def test_a_step_is_send_and_receive():
    environment = Echo()
    step = environment.step(np.array([3, 1]))
    np.testing.assert_array_equal(step.reward, [3, 1])
    np.testing.assert_array_equal(step.frame, frames_of(3, 1))
    with pytest.raises(NotImplementedError, match="Any was not made with render=True"):
        environment.render()
    environment.close()
