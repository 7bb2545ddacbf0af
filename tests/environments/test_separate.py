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


def test_evaluations_of_atari_games_are_of_separate_copies():
    place = arena([load("bundled:Pong")])
    environment = place.make(3)
    assert isinstance(environment, Separate)
    frames = environment.reset(range(3))
    np.testing.assert_array_equal(
        frames, make("ALE/Pong-v5", 3, preprocessing=place.preprocessing).reset(range(3))
    )
    environment.close()


class Counting:
    """Counts the copies that are made and steps of all of them."""

    def __init__(self):
        self.made = self.steps = 0

    def __call__(self):
        self.made += 1
        environment = one()
        send = environment.send

        def counted(actions):
            self.steps += len(actions)
            send(actions)

        environment.send = counted
        return environment


def assert_same_play(whole, parts, seeds):
    count = len(seeds)
    np.testing.assert_array_equal(whole.reset(seeds), parts.reset(seeds))
    for time in range(40):
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
    whole.reset(seeds)
    parts.rest(np.array([True, False, True]))
    step, same = parts.step(actions), whole.step(actions)
    assert count.steps == 1
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


@pytest.mark.parametrize("wanted", [2, 3])
def test_others_have_to_be_made_anew_for_another_number(wanted):
    assert make(ENV, 2).resize(wanted) is (wanted == 2)
