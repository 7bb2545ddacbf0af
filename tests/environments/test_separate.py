"""Copies that rest: what is played stays the same, and what rests is not stepped."""

import numpy as np
import pytest

from conqur.environments import make
from conqur.environments.separate import Separate
from conqur.pretrained import load
from conqur.pretrained.playing import arena

ENV = "CartPole-v1"


def one():
    return make(ENV, 1)


@pytest.mark.parametrize("preprocessing", [None, "sb3"])
def test_evaluations_of_atari_games_are_of_separate_copies(preprocessing):
    place = arena([load("bundled:Pong")], preprocessing=preprocessing)
    parts = place.make(3)
    assert isinstance(parts, Separate)
    whole = make("ALE/Pong-v5", 3, preprocessing=place.preprocessing)
    assert_same_play(whole, parts, [4, 0, 2], steps=5)
    parts.close()


class Counting:
    """Counts the copies that are made and closed, and steps of all of them."""

    def __init__(self):
        self.made = self.steps = self.closed = 0

    def __call__(self):
        self.made += 1
        environment = one()
        send = environment.send
        environment.close = self.close

        def counted(actions):
            self.steps += len(actions)
            send(actions)

        environment.send = counted
        return environment

    def close(self):
        self.closed += 1


def assert_same_play(whole, parts, seeds, steps=40):
    count = len(seeds)
    np.testing.assert_array_equal(whole.reset(seeds), parts.reset(seeds))
    for time in range(steps):
        actions = np.arange(time, time + count) // 3 % 2
        for given, other in zip(whole.step(actions), parts.step(actions), strict=True):
            np.testing.assert_array_equal(given, other)


def test_it_plays_as_one_environment_does():
    assert_same_play(make(ENV, 5), Separate(one, 5), [3, 1, 4, 1, 5])


def test_a_copy_rests_alone():
    count = Counting()
    parts = Separate(count, 3)
    whole = make(ENV, 3)
    seeds, actions = list(range(3)), np.zeros(3, np.int64)
    first = parts.reset(seeds)
    np.testing.assert_array_equal(first, before := whole.reset(seeds))
    parts.rest(np.array([True, False, True]))
    step, same = parts.step(actions), whole.step(actions)
    assert count.steps == 1
    np.testing.assert_array_equal(first, before)  # what was handed out stays as it was
    np.testing.assert_array_equal(step.frame[[0, 2]], first[[0, 2]])
    np.testing.assert_array_equal(step.frame[1], same.frame[1])
    np.testing.assert_array_equal(step.reward, [0, 1, 0])
    np.testing.assert_array_equal(step.reset, np.zeros(3, bool))
    parts.reset(seeds)
    parts.step(actions)
    assert count.steps == 1 + 3


def test_copies_wait_until_they_are_needed_again():
    count = Counting()
    parts = Separate(count, 4)
    for wanted in (2, 5, 3):
        parts.rest(np.ones(parts.num_envs, bool))
        assert parts.resize(wanted)
        assert_same_play(make(ENV, wanted), parts, list(range(10, 10 + wanted)))
    assert count.made == 5
    parts.close()
    assert count.closed == 5


@pytest.mark.parametrize("wanted", [2, 3])
def test_others_have_to_be_made_anew_for_another_number(wanted):
    assert make(ENV, 2).resize(wanted) is (wanted == 2)


def test_it_has_to_be_reset_before_its_first_step():
    parts = Separate(one, 2)
    with pytest.raises(ValueError, match="CartPole-v1 has to be reset"):
        parts.step(np.zeros(2, np.int64))
    parts.reset([0, 1])
    parts.resize(3)
    with pytest.raises(ValueError, match="CartPole-v1 has to be reset"):
        parts.step(np.zeros(3, np.int64))


def test_bad_numbers_are_refused_before_anything_is_stepped():
    with pytest.raises(ValueError, match="num_envs"):
        Separate(one, 0)
    count = Counting()
    parts = Separate(count, 2)
    with pytest.raises(ValueError, match="seeds"):
        parts.reset([1])
    parts.reset([0, 1])
    for actions in ([0, 2], [0]):
        with pytest.raises(ValueError, match="actions"):
            parts.step(np.array(actions))
    assert count.steps == 0
