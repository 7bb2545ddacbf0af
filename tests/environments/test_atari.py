from dataclasses import replace
from pathlib import Path

import ale_py
import gymnasium
import numpy as np
import pytest
from ale_py.env import AtariEnv
from PIL import Image

from conqur.environments.atari import (
    PREPROCESSING,
    LifeLoss,
    NativeAtari,
    Picture,
    Preprocessing,
    _games,
    atari_game,
    full_name,
    make_atari,
)
from conqur.environments.atari_exact import ExactAtari
from conqur.environments.atari_scores import SCORES, human_normalised
from conqur.environments.interface import first_stack, push

PLAIN = Preprocessing(no_ops=(0, 0))


def random_actions(environment, steps, seed=0):
    shape = (steps, environment.num_envs)
    return np.random.default_rng(seed).integers(0, len(environment.spec.actions), shape)


def play(environment, seeds, steps):
    """The first frames, and all steps' results one after the other."""
    first = environment.reset(seeds)
    results = [environment.step(actions) for actions in random_actions(environment, steps)]
    return first, type(results[0])(*(np.stack(column) for column in zip(*results, strict=True)))


def assert_same(ours, theirs):
    np.testing.assert_array_equal(ours[0], theirs[0])
    for name, mine, other in zip(ours[1]._fields, ours[1], theirs[1], strict=True):
        np.testing.assert_array_equal(mine, other, err_msg=name)
        assert mine.dtype == other.dtype


@pytest.mark.parametrize(
    ("name", "game"),
    [
        ("ALE/Pong-v5", "pong"),
        ("PongNoFrameskip-v4", "pong"),
        ("PongDeterministic-v0", "pong"),
        ("Pong-v4", "pong"),
        ("Pong", "pong"),
        ("pong", "pong"),
        ("SpaceInvaders", "space_invaders"),
        ("space_invaders", "space_invaders"),
        ("ALE/UpNDown-v5", "up_n_down"),
        ("ALE/TicTacToe3D-v5", "tic_tac_toe_3d"),
    ],
)
def test_names_of_games(name, game):
    assert atari_game(name) == game


def test_full_names_are_gymnasium_s():
    for game in _games().values():
        assert full_name(game) in gymnasium.registry
        assert atari_game(full_name(game)) == game
    for name in ("ALE/Pong-v5", "PongNoFrameskip-v4", "CartPole-v1", "CartPole", "a:Pong"):
        assert full_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["CartPole-v1", "Ant-v4", "Blackjack-v1", "MinAtar/Pong", "Pongg", "Pong-ram-v4", "", "a b"],
)
def test_names_of_other_things(name):
    assert atari_game(name) is None
    with pytest.raises(ValueError, match="is no Atari game; one is ALE/Pong-v5"):
        make_atari(name, 1)


def test_misspelt_names_get_the_nearest_games():
    with pytest.raises(ValueError, match=r"no Atari game 'ALE/Pongg-v5'.*: ALE/Pong-v5"):
        atari_game("ALE/Pongg-v5")
    with pytest.raises(ValueError, match="ALE/SpaceInvaders-v5"):
        atari_game("SpceInvadersNoFrameskip-v4")
    with pytest.raises(ValueError, match="near it: ALE/Pong-v5"):
        atari_game("ALE/xxxxxxxxxxxxx-v5")


@pytest.mark.parametrize("game", ["Combat", "Joust", "MazeCraze", "Warlords"])
def test_games_for_two_are_refused_before_the_emulator_ends_the_process(game):
    with pytest.raises(ValueError, match="for one player"):
        make_atari(f"ALE/{game}-v5", 1)


def test_without_ale_py(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ale_py", None)
    _games.cache_clear()
    try:
        assert atari_game("Ant-v4") is None
        for name in ("ALE/Anything-v5", "Pong", "SpaceInvaders-v4"):
            with pytest.raises(
                ValueError, match=rf"{name} needs ale-py: pip install 'conqur\[atari"
            ):
                atari_game(name)
    finally:
        _games.cache_clear()


@pytest.mark.parametrize("game", sorted(_games().values()))
def test_every_game_can_be_played(game):
    environment = make_atari(game, 1)
    assert environment.spec.name == game
    assert environment.spec.observation_shape == (84, 84, 4)
    assert {"NOOP", "FIRE"} & set(environment.spec.actions)
    first, steps = play(environment, [0], 3)
    assert first.shape == (1, 84, 84)
    assert steps.frame.shape == (3, 1, 84, 84)
    assert steps.frame.dtype == first.dtype == np.uint8
    assert not steps.game_over.any()


def test_actions():
    assert make_atari("Pong", 1).spec.actions == (
        "NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE",
    )  # fmt: skip
    every = replace(PLAIN, full_action_space=True)
    for render in (False, True):
        actions = make_atari("Pong", 1, preprocessing=every, render=render).spec.actions
        assert actions == tuple(ale_py.Action(i).name for i in range(18))


def test_which_presets_are_fast():
    native = {name for name, preprocessing in PREPROCESSING.items() if preprocessing.native}
    assert native == {"conqur", "dopamine", "nature"}
    for name, preprocessing in PREPROCESSING.items():
        made = make_atari("Pong", 1, preprocessing=preprocessing)
        assert isinstance(made, NativeAtari if name in native else ExactAtari)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"size": 0}, "size must be a whole number of at least 1"),
        ({"frame_skip": 0}, "frame_skip must be"),
        ({"stack": 0}, "stack must be"),
        ({"max_frames": 0}, "max_frames must be"),
        ({"sticky": 1.0}, "sticky must be a number of at least 0 and below 1"),
        ({"no_ops": (3, 2)}, r"no_ops must be \(least, most\)"),
        ({"no_ops": (-1, 2)}, "no_ops must be"),
    ],
)
def test_bad_preprocessing_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Preprocessing(**settings)


@pytest.mark.parametrize("render", [False, True])
def test_bad_arguments_are_refused(render):
    with pytest.raises(ValueError, match="num_envs must be"):
        make_atari("Pong", 0, render=render)
    with pytest.raises(ValueError, match="threads must be"):
        make_atari("Pong", 1, render=render, threads=-1)
    environment = make_atari("Pong", 2, render=render)
    with pytest.raises(ValueError, match=r"seeds must have shape \[2\]"):
        environment.reset([1])
    with pytest.raises(ValueError, match="seeds holds -1"):
        environment.reset([0, -1])
    with pytest.raises(ValueError, match="seeds must be below 2³¹"):
        environment.reset([0, 2**31])
    environment.reset([0, 1])
    with pytest.raises(ValueError, match="actions holds action 6, but there are 6 actions"):
        environment.send(np.array([0, 6]))
    with pytest.raises(ValueError, match=r"actions must have shape \[2\]"):
        environment.send(np.array([0, 1, 2]))
    environment.step(np.array([5, 0], np.int32))  # it still works


def test_seeds_and_actions_determine_everything_on_any_number_of_threads():
    sticky = replace(PREPROCESSING["conqur"], sticky=0.25, life_loss=LifeLoss.TERMINAL)
    one, many = (
        make_atari("Breakout", 4, preprocessing=sticky, threads=threads) for threads in (1, 2)
    )
    seeds = [3, 1, 4, 1]
    first = play(one, seeds, 300)
    assert first[1].game_over.any()
    assert_same(play(many, seeds, 300), first)
    assert_same(play(one, seeds, 300), first)  # whatever was played before
    other = play(many, [2, 7, 1, 8], 100)
    assert (other[1].frame != first[1].frame[:100]).any(axis=(0, 2, 3))[[0, 1, 3]].all()
    np.testing.assert_array_equal(first[0][1], first[0][3])  # the same seed


@pytest.mark.parametrize("name", ["sb3", "dopamine"])
def test_seeds_and_actions_determine_everything_in_python(name):
    preprocessing = PREPROCESSING[name]
    one, two = (
        make_atari("Breakout", 2, preprocessing=preprocessing, render=True) for _ in range(2)
    )
    first = play(one, [3, 1], 200)
    assert first[1].reset.any()
    assert_same(play(two, [3, 1], 200), first)
    assert_same(play(one, [3, 1], 200), first)
    assert (play(two, [7, 8], 50)[1].frame != first[1].frame[:50]).any()


@pytest.mark.parametrize(
    ("game", "settings"),
    [
        ("Breakout", {"life_loss": LifeLoss.TERMINAL}),
        ("Seaquest", {"life_loss": LifeLoss.TERMINAL, "sticky": 0.25, "max_frames": 800}),
        ("MsPacman", {"max_frames": 402, "full_action_space": True}),
        ("Pong", {"max_frames": 199, "sticky": 0.25}),
        ("Freeway", {"frame_skip": 1, "size": 42, "max_frames": 150}),
        ("JourneyEscape", {"frame_skip": 3, "max_frames": 500}),
    ],
)
def test_python_equals_the_vector_environment(game, settings):
    preprocessing = replace(PLAIN, **settings)
    native, exact = (
        make_atari(game, 2, preprocessing=preprocessing, render=render) for render in (False, True)
    )
    assert isinstance(native, NativeAtari)
    assert isinstance(exact, ExactAtari)
    assert native.spec == exact.spec
    theirs = play(native, [5, 6], 250)
    assert theirs[1].game_over.any()
    if "life_loss" in settings:
        assert (theirs[1].terminal & ~theirs[1].game_over).any()
    assert_same(play(exact, [5, 6], 250), theirs)


def test_no_ops_lie_between_their_limits_and_both_are_reached():
    # The game's picture changes with every frame, so it tells how many no-ops there were.
    every_frame = replace(PLAIN, frame_skip=1)
    counter = make_atari("Seaquest", 1, preprocessing=every_frame, render=True)
    frames = [counter.reset([0])] + [counter.step(np.array([0])).frame for _ in range(3)]
    firsts = {frame.tobytes(): number for number, frame in enumerate(frames)}
    assert len(firsts) == 4
    native = make_atari("Seaquest", 6, preprocessing=replace(PLAIN, no_ops=(0, 2)))
    assert {firsts[frame.tobytes()] for frame in native.reset(range(6))} == {0, 1, 2}
    exact = make_atari("Seaquest", 6, preprocessing=replace(PLAIN, no_ops=(1, 3)))
    assert {firsts[frame.tobytes()] for frame in exact.reset(range(10, 16))} == {1, 2, 3}


@pytest.mark.parametrize("render", [False, True])
def test_the_cut_comes_after_so_many_frames_whatever_the_no_ops(render):
    preprocessing = Preprocessing(no_ops=(0, 30), max_frames=40)
    environment = make_atari("Pong", 4, preprocessing=preprocessing, render=render)
    _, steps = play(environment, range(4), 33)
    ends = np.arange(33) % 11 == 9  # ten steps, then the one that begins the next episode
    np.testing.assert_array_equal(steps.game_over, np.stack([ends] * 4, axis=1))
    np.testing.assert_array_equal(steps.reset[1:], steps.game_over[:-1])
    assert not steps.terminal.any()
    assert not steps.reset[0].any()


@pytest.mark.parametrize("name", PREPROCESSING)
def test_steps_keep_the_rules(name):
    preprocessing = PREPROCESSING[name]
    environment = make_atari("Breakout", 2, preprocessing=preprocessing)
    _, steps = play(environment, [0, 1], 200)
    ends = steps.game_over
    if preprocessing.life_loss is LifeLoss.NEW_EPISODE:
        ends = ends | steps.terminal
    np.testing.assert_array_equal(steps.reset[1:], ends[:-1])
    assert steps.game_over.any()
    assert not (steps.terminal & steps.reset).any()
    assert not steps.reward[steps.reset].any()
    assert steps.reward.sum() > 0
    # Breakout has five lives, and random play is over long before the limit of frames.
    assert (steps.terminal | ~steps.game_over).all()
    lives = {LifeLoss.IGNORED: 1}.get(preprocessing.life_loss, 5)
    for terminal, over in zip(steps.terminal.T, steps.game_over.T, strict=True):
        games = np.split(terminal, np.flatnonzero(over) + 1)[:-1]
        assert [game.sum() for game in games] == [lives] * len(games)


@pytest.mark.parametrize(
    ("game", "pad_with_first", "render"),
    [("Breakout", False, False), ("MsPacman", True, False), ("Carnival", False, True)],
)
def test_observations_equal_those_of_gymnasium(game, pad_with_first, render):
    limit = 700
    preprocessing = replace(PLAIN, pad_with_first=pad_with_first, max_frames=limit)
    environment = make_atari(game, 1, preprocessing=preprocessing, render=render)
    theirs = gymnasium.wrappers.FrameStackObservation(
        gymnasium.wrappers.AtariPreprocessing(
            AtariEnv(
                atari_game(game),
                frameskip=1,
                repeat_action_probability=0.0,
                max_num_frames_per_episode=limit,
            ),
            noop_max=0,
        ),
        4,
        padding_type="reset" if pad_with_first else "zero",
    )
    stack = first_stack(environment.spec, environment.reset([0]))
    expected, _ = theirs.reset(seed=0)
    over, games = False, 0
    for action in random_actions(environment, 250):
        np.testing.assert_array_equal(stack[0], np.moveaxis(expected, 0, -1))
        step = environment.step(action)
        stack = push(environment.spec, stack, step.frame, step.reset)
        assert step.reset[0] == over
        if over:
            (expected, _), reward, terminated, truncated = theirs.reset(), 0.0, False, False
        else:
            expected, reward, terminated, truncated, _ = theirs.step(action[0])
        assert (step.reward[0], step.terminal[0]) == (reward, terminated)
        over = terminated or truncated
        games += over
        assert step.game_over[0] == over
    assert games


def emulator(game):
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.loadROM(ale_py.roms.get_rom_path(game))
    return ale


@pytest.mark.parametrize("name", ["sb3", "cleanrl", "dqn_zoo"])
def test_pictures_from_the_colours_of_two_screens(name):
    """The order of maximum, grey and size, in steps and arithmetic of the test's own."""
    preprocessing = replace(
        PREPROCESSING[name], no_ops=(0, 0), fire_reset=False, life_loss=LifeLoss.IGNORED
    )
    environment = make_atari("Seaquest", 1, preprocessing=preprocessing)
    environment.reset([0])
    ale = emulator("seaquest")
    ale.reset_game()
    actions = ale.getMinimalActionSet()
    for action in random_actions(environment, 25)[:, 0]:
        frame = environment.step(np.array([action])).frame[0].astype(float)
        screens = []
        for _ in range(4):
            ale.act(actions[action])
            screens.append(ale.getScreenRGB().astype(float))
        colours = np.maximum(screens[2], screens[3])
        luminance = colours @ [0.299, 0.587, 0.114]
        if preprocessing.picture is Picture.MAX_GREY_BILINEAR:
            grey = Image.fromarray(np.floor(luminance + 1e-9).astype(np.uint8))
            expected = np.asarray(grey.resize((84, 84), Image.Resampling.BILINEAR), float)
        else:  # both orders come to the same, but for rounding
            expected = shares(210) @ luminance @ shares(160).T
        assert np.abs(frame - expected).max() <= 1.5


def shares(pixels, size=84):
    """How much of every old pixel, on a line, each new one covers."""
    edges = np.arange(size + 1) * pixels / size
    starts, old = edges[:-1, None], np.arange(pixels)
    covered = np.minimum(edges[1:, None], old + 1) - np.maximum(starts, old)
    return np.clip(covered, 0, None) * size / pixels


def test_the_orders_of_grey_and_size_differ_in_rounding():
    one, other = (
        play(make_atari("Seaquest", 1, preprocessing=PREPROCESSING[name]), [0], 20)[1].frame
        for name in ("sb3", "cleanrl")
    )
    gaps = np.abs(one.astype(int) - other)
    assert 0 < gaps.max() <= 2


def test_episodes_after_a_lost_life_begin_with_the_wrappers_moves():
    """FIRE and the third action, for four frames each, after a no-op for four frames."""
    preprocessing = replace(PREPROCESSING["sb3"], no_ops=(1, 1))
    environment = make_atari("Breakout", 1, preprocessing=preprocessing, render=True)
    environment.reset([0])
    ale = emulator("breakout")
    noop, fire, right, _ = actions = ale.getMinimalActionSet()

    def hold(*moves):
        for move in moves:
            for _ in range(4):
                ale.act(move)

    ale.reset_game()
    ale.act(noop)
    hold(fire, right)
    np.testing.assert_array_equal(environment.render(), ale.getScreenRGB())
    resets = 0
    for action in random_actions(environment, 300)[:, 0]:
        step = environment.step(np.array([action]))
        if step.game_over[0]:
            break
        hold(*((noop, fire, right) if step.reset[0] else (actions[action],)))
        resets += step.reset[0]
        np.testing.assert_array_equal(environment.render(), ale.getScreenRGB())
    assert resets == 4


@pytest.mark.parametrize("render", [False, True])
def test_the_last_life_counts_where_the_game_shows_none_left(render):
    preprocessing = replace(PLAIN, life_loss=LifeLoss.TERMINAL)
    environment = make_atari("BankHeist", 1, preprocessing=preprocessing, render=render)
    environment.reset([0])
    ale = emulator("bank_heist")
    ale.reset_game()
    lives = [ale.lives()]
    for action in random_actions(environment, 600)[:, 0]:
        step = environment.step(np.array([action]))
        for _ in range(4):
            ale.act(ale.getMinimalActionSet()[action])
        lives.append(ale.lives())
        assert step.game_over[0] == ale.game_over()
        assert step.terminal[0] == (lives[-1] < lives[-2] or ale.game_over())
        if ale.game_over():
            break
    assert lives[-2:] == [0, 0]


def test_a_game_that_ends_unseen_is_over():
    """Cut short two frames after a lost life, in the middle of the wrappers' no-op."""
    preprocessing = replace(PREPROCESSING["sb3"], no_ops=(1, 1))
    _, steps = play(make_atari("Breakout", 1, preprocessing=preprocessing), [0], 150)
    lost = int(np.flatnonzero(steps.terminal[:, 0])[0])
    assert not steps.game_over[: lost + 2].any()
    played = 1 + 2 * 4 + 4 * (lost + 1)
    cut = replace(preprocessing, max_frames=played + 2)
    environment = make_atari("Breakout", 1, preprocessing=cut)
    first, steps = play(environment, [0], lost + 3)
    assert steps.terminal[lost, 0]
    assert steps.game_over[:, 0].tolist() == [False] * (lost + 1) + [True, False]
    assert steps.reset[:, 0].tolist() == [False] * (lost + 1) + [True, False]
    np.testing.assert_array_equal(steps.frame[lost + 1], first)  # that of the new game


def test_render():
    environment = make_atari("Pong", 2, preprocessing=PLAIN, render=True)
    environment.reset([0, 1])
    ale = emulator("pong")
    ale.reset_game()
    for action in random_actions(environment, 10):
        environment.step(action)
        for _ in range(4):
            ale.act(ale.getMinimalActionSet()[action[0]])
    picture = environment.render()
    assert picture.shape == (210, 160, 3)
    np.testing.assert_array_equal(picture, ale.getScreenRGB())
    with pytest.raises(NotImplementedError, match="render=True"):
        make_atari("Pong", 1).render()


def test_scores():
    assert len(SCORES) == 57
    assert set(SCORES) <= set(_games().values())
    assert all(chance < human for chance, human in SCORES.values())
    assert human_normalised("pong", 14.6) == 1.0
    assert human_normalised("pong", -20.7) == 0.0
    assert human_normalised("breakout", 401.2) == pytest.approx((401.2 - 1.7) / (30.5 - 1.7))
    assert human_normalised("tetris", 100.0) is None


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted there")
def test_close_ends_the_emulators_threads():
    def threads():
        return len(list(Path("/proc/self/task").iterdir()))

    before = threads()
    environment = make_atari("ALE/Pong-v5", 2)
    environment.reset([0, 1])
    environment.send(np.zeros(2, int))  # a step under way is no reason to stay
    assert threads() > before
    environment.close()
    environment.close()
    assert threads() == before
