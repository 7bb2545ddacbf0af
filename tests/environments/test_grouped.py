"""Groups of copies that rest: what is played stays the same, and what rests is not stepped."""

import numpy as np
import pytest

from conqur.environments import make
from conqur.environments.grouped import Grouped
from conqur.pretrained import load
from conqur.pretrained.playing import arena

ENV = "CartPole-v1"


def test_evaluations_of_atari_games_are_made_of_groups():
    place = arena([load("bundled:Pong")])
    environment = place.make(6)
    assert isinstance(environment, Grouped)
    frames = environment.reset(range(6))
    np.testing.assert_array_equal(
        frames, make("ALE/Pong-v5", 6, preprocessing=place.preprocessing).reset(range(6))
    )
    environment.close()


class Counting:
    """Counts the copies of all groups that are stepped."""

    def __init__(self):
        self.steps = 0

    def __call__(self, copies):
        environment = make(ENV, copies)
        send = environment.send

        def counted(actions):
            self.steps += len(actions)
            send(actions)

        environment.send = counted
        return environment


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_it_plays_as_one_environment_does(size):
    whole, parts = make(ENV, 5), Grouped(lambda copies: make(ENV, copies), 5, size)
    seeds = [3, 1, 4, 1, 5]
    np.testing.assert_array_equal(whole.reset(seeds), parts.reset(seeds))
    for time in range(40):
        actions = np.arange(time, time + 5) // 3 % 2
        for one, other in zip(whole.step(actions), parts.step(actions), strict=True):
            np.testing.assert_array_equal(one, other)


def test_a_group_rests_when_all_of_it_may():
    count = Counting()
    parts = Grouped(count, 5, 2)
    whole = make(ENV, 5)
    seeds, actions = list(range(5)), np.zeros(5, np.int64)
    first = parts.reset(seeds)
    whole.reset(seeds)
    parts.rest(np.array([True, True, True, False, False]))
    step, same = parts.step(actions), whole.step(actions)
    assert count.steps == 3
    np.testing.assert_array_equal(step.frame[:2], first[:2])
    np.testing.assert_array_equal(step.frame[2:], same.frame[2:])
    np.testing.assert_array_equal(step.reward, [0, 0, 1, 1, 1])
    np.testing.assert_array_equal(step.reset, np.zeros(5, bool))
    parts.reset(seeds)
    parts.step(actions)
    assert count.steps == 3 + 5
