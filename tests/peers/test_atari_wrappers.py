"""The frames, rewards and ends of Atari episodes, against the wrappers that people train with."""

from dataclasses import replace

import cv2
import gymnasium
import numpy as np
import pytest

from conqur.environments.atari import PREPROCESSING, atari_game, make_atari
from conqur.environments.interface import first_stack, push

pytest.importorskip("stable_baselines3")

from ale_py.env import AtariEnv
from stable_baselines3.common import atari_wrappers
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

NO_OPS = 26


def no_frameskip(game, max_frames):
    """What `gymnasium.make("…NoFrameskip-v4")` makes."""
    return AtariEnv(
        atari_game(game),
        frameskip=1,
        repeat_action_probability=0.0,
        max_num_frames_per_episode=max_frames,
    )


def fix_no_ops(environment):
    while not isinstance(environment, atari_wrappers.NoopResetEnv):
        environment = environment.env
    environment.override_num_noops = NO_OPS


def our_environment(name, game, max_frames):
    preprocessing = replace(PREPROCESSING[name], no_ops=(NO_OPS, NO_OPS), max_frames=max_frames)
    environment = make_atari(game, 1, preprocessing=preprocessing)
    return environment, first_stack(environment.spec, environment.reset([0]))


def random_actions(environment, steps):
    return np.random.default_rng(1).integers(0, len(environment.spec.actions), (steps, 1))


@pytest.mark.parametrize(
    ("game", "steps", "max_frames"),
    [
        ("Breakout", 500, 108_000),  # lives and FIRE
        ("Breakout", 300, 307),  # cut short in the middle of a step
        ("MsPacman", 900, 108_000),  # lives, no FIRE
        ("SpaceInvaders", 900, 108_000),  # sprites that flicker
        ("BankHeist", 700, 108_000),  # plays on without lives
        ("Riverraid", 500, 1500),  # scores in frames that nobody sees
        ("Pong", 300, 500),  # no lives
        ("Freeway", 200, 402),  # neither
    ],
)
def test_stable_baselines3(game, steps, max_frames):
    environment, stack = our_environment("sb3", game, max_frames)
    theirs = VecFrameStack(
        DummyVecEnv(
            [
                lambda: atari_wrappers.AtariWrapper(
                    Monitor(no_frameskip(game, max_frames)), clip_reward=False
                )
            ]
        ),
        4,
    )
    fix_no_ops(theirs.venv.envs[0])
    expected = theirs.reset()
    np.testing.assert_array_equal(stack, expected)
    lives, scores, reported = 0, [0.0], []
    after_reset = None
    for action in random_actions(environment, steps):
        step = environment.step(action)
        stack = push(environment.spec, stack, step.frame, step.reset)
        scores[-1] += step.reward[0]
        if after_reset is not None:  # theirs began the next episode within the step before
            assert step.reset[0]
            np.testing.assert_array_equal(stack, after_reset)
            after_reset = None
        else:
            assert not step.reset[0]
            expected, reward, done, (info,) = theirs.step(action)
            assert step.reward[0] == reward[0]
            assert (step.terminal | step.game_over)[0] == done[0]
            cut = bool(info["TimeLimit.truncated"])
            assert step.terminal[0] == (done[0] and not cut)
            if done[0]:
                after_reset = expected.copy()
                np.testing.assert_array_equal(stack[0], info["terminal_observation"])
                lives += not step.game_over[0]
            else:
                np.testing.assert_array_equal(stack, expected)
            reported += [info["episode"]["r"]] if "episode" in info else []
        if step.game_over[0]:
            scores.append(0.0)
    assert lives or game in ("Pong", "Freeway")
    assert len(reported) == len(scores) - 1 > 0
    np.testing.assert_array_equal(reported, scores[:-1])


@pytest.mark.parametrize("game", ["Breakout", "MsPacman"])
def test_cleanrl(game):
    """Its own wrappers are those of Stable-Baselines3, with Gymnasium 0.29's for the picture.

    There grey was made by OpenCV; newer versions weigh the colours differently.
    """
    environment, stack = our_environment("cleanrl", game, 108_000)
    theirs = no_frameskip(game, 108_000)
    theirs = atari_wrappers.NoopResetEnv(theirs, noop_max=30)
    theirs = atari_wrappers.MaxAndSkipEnv(theirs, skip=4)
    theirs = atari_wrappers.EpisodicLifeEnv(theirs)
    if "FIRE" in theirs.unwrapped.get_action_meanings():
        theirs = atari_wrappers.FireResetEnv(theirs)
    theirs = gymnasium.wrappers.ResizeObservation(theirs, (84, 84))
    theirs = gymnasium.wrappers.TransformObservation(
        theirs,
        lambda colours: cv2.cvtColor(colours, cv2.COLOR_RGB2GRAY),
        gymnasium.spaces.Box(0, 255, (84, 84), np.uint8),
    )
    theirs = gymnasium.wrappers.FrameStackObservation(theirs, 4, padding_type="reset")
    fix_no_ops(theirs)
    expected, _ = theirs.reset()
    episodes, done = 0, False
    for action in random_actions(environment, 500):
        np.testing.assert_array_equal(stack[0], np.moveaxis(expected, 0, -1))
        step = environment.step(action)
        stack = push(environment.spec, stack, step.frame, step.reset)
        assert step.reset[0] == done
        if done:
            (expected, _), reward, done = theirs.reset(), 0.0, False
            episodes += 1
        else:
            expected, reward, terminated, truncated, _ = theirs.step(action[0])
            done = terminated or truncated
            assert step.reward[0] == reward
        assert (step.terminal | step.game_over)[0] == done
    assert episodes > 1
