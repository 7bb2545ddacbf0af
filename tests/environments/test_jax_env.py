from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pgx
import pytest

from conqur.environments import GymnaxEnvironment, HostedJax, PgxEnvironment, Step, make_jax
from conqur.environments.frames import draw


class Params(NamedTuple):
    limit: int = 4
    goal: int = 3


class WalkState(NamedTuple):
    position: object
    time: object


class Discrete:
    def __init__(self, n):
        self.n = n


class Walk:
    """In gymnax's interface: left or right from 0 or 1; `goal` ends it, the limit cuts it."""

    default_params = Params()

    def reset_env(self, key, params):
        position = jax.random.randint(key, (), 0, 2)
        return self.look(position), WalkState(position, 0)  # a Python number, as in gymnax

    def step_env(self, key, state, action, params):
        position = state.position + 2 * action - 1
        state = WalkState(position, state.time + 1)
        ended = position == params.goal
        return self.look(position), state, 1.5 * position, ended, {"discount": 0.0}

    def step(self, key, state, action, params=None):
        raise AssertionError("it begins new episodes by itself")

    def is_truncated(self, state, params):
        return state.time >= params.limit

    def look(self, position):
        return jnp.stack([position, -position]).reshape(2, 1)

    def action_space(self, params):
        return Discrete(2)


class OldWalk(Walk):
    """As before gymnax 1.0: the limit is an end like any other."""

    is_truncated = property()  # there is none

    def step_env(self, key, state, action, params):
        observation, state, reward, ended, info = super().step_env(key, state, action, params)
        return observation, state, reward, ended | (state.time >= params.limit), info


def played(environment, actions, seed=0):
    """Steps of one episode after the other, in a compiled loop."""

    def body(episode, inputs):
        time, action = inputs
        key = jax.random.fold_in(jax.random.key(seed), time)
        return environment.step(key, episode, action)

    episode, first = environment.reset(jax.random.key(seed))
    inputs = (jnp.arange(len(actions)), jnp.array(actions))
    _, steps = jax.jit(lambda episode: jax.lax.scan(body, episode, inputs))(episode)
    return first, steps


def test_gymnax_interface_by_hand():
    environment = GymnaxEnvironment(Walk())
    assert environment.spec.name == "Walk"
    assert environment.spec.actions == ("0", "1")
    assert (environment.spec.frame_shape, environment.spec.frame_dtype) == ((2,), "float32")
    first, steps = played(environment, [1] * 5)
    start = int(first[0])
    length = 3 - start  # then the goal is reached
    positions = list(range(start + 1, 4))
    assert steps.frame[:length].tolist() == [[p, -p] for p in positions]
    assert steps.reward[:length].tolist() == [1.5 * p for p in positions]
    assert steps.terminal[:length].tolist() == [False] * (length - 1) + [True]
    assert steps.game_over[:length].tolist() == [False] * (length - 1) + [True]
    assert steps.reset[: length + 2].tolist() == [False] * length + [True, False]
    assert float(steps.reward[length]) == 0
    assert steps.frame[length, 0] in (0, 1)


def test_a_limit_of_gymnax_is_no_end_and_the_last_observation_is_there():
    first, steps = played(GymnaxEnvironment(Walk()), [0] * 6)
    start = int(first[0])
    assert steps.frame[:4, 0].tolist() == [start - 1 - k for k in range(4)]
    assert steps.game_over.tolist() == [False] * 3 + [True] + [False] * 2
    assert not steps.terminal.any()
    assert steps.reset.tolist() == [False] * 4 + [True] + [False]


def test_parameters_of_gymnax_and_ends_without_is_truncated():
    _, steps = played(GymnaxEnvironment(Walk(), Params(limit=2)), [0] * 3)
    assert steps.game_over.tolist() == [False, True, False]
    _, steps = played(GymnaxEnvironment(OldWalk()), [0] * 5)
    assert steps.terminal.tolist() == [False] * 3 + [True] + [False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action_space": lambda self, params: object()}, "has actions that are not discrete"),
        ({"look": lambda self, position: {"p": position}}, "has dict observations"),
        ({"look": lambda self, position: jnp.zeros((0, 3))}, "non-empty"),
    ],
)
def test_gymnax_environments_that_do_not_fit_are_refused(change, message):
    with pytest.raises(ValueError, match=f"^Odd .*{message}"):
        GymnaxEnvironment(type("Odd", (Walk,), change)())


@pytest.mark.parametrize(
    ("name", "channels", "actions"),
    [
        ("MinAtar/Asterix", 4, ("NOOP", "LEFT", "UP", "RIGHT", "DOWN")),
        ("MinAtar/Breakout", 4, ("NOOP", "LEFT", "RIGHT")),
        ("MinAtar/Freeway", 7, ("NOOP", "UP", "DOWN")),
        ("MinAtar/Seaquest", 10, ("NOOP", "LEFT", "UP", "RIGHT", "DOWN", "FIRE")),
        ("MinAtar/SpaceInvaders", 6, ("NOOP", "LEFT", "RIGHT", "FIRE")),
    ],
)
def test_minatar_games(name, channels, actions):
    spec = make_jax(name).spec
    assert (spec.name, spec.actions) == (name, actions)
    assert (spec.frame_shape, spec.frame_dtype) == ((10, 10, channels), "bool")


def test_all_six_actions_can_be_had():
    from pgx.minatar.breakout import MinAtarBreakout

    environment = PgxEnvironment(MinAtarBreakout(use_minimal_action_set=False))
    assert environment.spec.name == "minatar-breakout"
    assert len(environment.spec.actions) == 6


@pytest.fixture(scope="module")
def breakout():
    """Two copies, compiled once."""
    return HostedJax(make_jax("minatar-breakout"), 2)


def test_breakout_moves_as_its_actions_are_named():
    # Without sticky actions the paddle (channel 0, bottom row) starts in column 4.
    from pgx.minatar.breakout import MinAtarBreakout

    environment = PgxEnvironment(MinAtarBreakout(sticky_action_prob=0.0))
    step = jax.jit(environment.step)
    for action, column in (("NOOP", 4), ("LEFT", 3), ("RIGHT", 5)):
        episode, _ = environment.reset(jax.random.key(0))
        number = jnp.array(environment.spec.actions.index(action))
        _, seen = step(jax.random.key(1), episode, number)
        assert np.flatnonzero(seen.frame[9, :, 0]).tolist() == [column]


def test_hosted_breakout_is_pgx_played_by_hand(breakout):
    seeds, actions = [3, 2**32 - 1], np.random.default_rng(0).integers(0, 3, (60, 2))
    frames = breakout.reset(seeds)
    steps = [breakout.step(row) for row in actions]
    game = pgx.make("minatar-breakout")
    init, advance = jax.jit(game.init), jax.jit(game.step)
    for index, seed in enumerate(seeds):
        key = jax.random.key(np.uint32(seed))
        state = init(jax.random.fold_in(key, 0))
        np.testing.assert_array_equal(frames[index], state.observation)
        over, games, score = False, 0, 0.0
        for time, (row, step) in enumerate(zip(actions, steps, strict=True), start=1):
            key_now = jax.random.fold_in(key, time)
            state = init(key_now) if over else advance(state, int(row[index]), key_now)
            assert step.reset[index] == over
            assert step.reward[index] == (0 if over else state.rewards[0])
            games += over
            over = bool(state.terminated)
            assert step.terminal[index] == step.game_over[index] == over
            np.testing.assert_array_equal(step.frame[index], state.observation)
            score += step.reward[index]
        assert games >= 2
        assert score > 0


def test_a_game_is_cut_after_max_steps():
    hosted = HostedJax(PgxEnvironment(pgx.make("minatar-breakout"), max_steps=3), 2)
    hosted.reset([0, 1])
    steps = [hosted.step(np.zeros(2, int)) for _ in range(5)]
    assert [step.game_over.tolist() for step in steps] == [
        [over] * 2 for over in (False, False, True, False, False)
    ]
    assert [step.reset.tolist() for step in steps] == [
        [begun] * 2 for begun in (False, False, False, True, False)
    ]
    assert not any(step.terminal.any() for step in steps)


def test_hosted_copies_are_determined_by_their_own_seeds():
    environment = GymnaxEnvironment(Walk())
    actions = np.random.default_rng(1).integers(0, 2, (12, 3))
    together = HostedJax(environment, 3)
    together.reset([0, 0, 0])
    together.step(np.ones(3, int))  # another life before must not matter
    frames = together.reset([5, 6, 7])
    steps = [together.step(row) for row in actions]
    assert isinstance(steps[0], Step)
    assert all(isinstance(value, np.ndarray) for value in steps[0])
    alone = HostedJax(environment)
    for index in range(3):
        np.testing.assert_array_equal(alone.reset([5 + index])[0], frames[index])
        for row, step in zip(actions, steps, strict=True):
            for name, value in alone.step(row[[index]])._asdict().items():
                np.testing.assert_array_equal(value[0], getattr(step, name)[index])
    # Later episodes begin from both places, so that their keys are not the first one's again.
    starts = {int(step.frame[i, 0]) for step in steps for i in range(3) if step.reset[i]}
    assert starts == {0, 1}


def test_games_for_two_are_refused():
    with pytest.raises(ValueError, match=r"^tic_tac_toe has 2 players, but must have one$"):
        PgxEnvironment(pgx.make("tic_tac_toe"))


def test_hosted_input_is_checked():
    hosted = HostedJax(GymnaxEnvironment(Walk()), 2)
    with pytest.raises(ValueError, match="has to be reset"):
        hosted.step(np.zeros(2, int))
    for seeds in ([1], [1, -1], [1, 2**32]):
        with pytest.raises(ValueError, match="seeds"):
            hosted.reset(seeds)
    hosted.reset([0, 1])
    with pytest.raises(ValueError, match="actions holds action 2"):
        hosted.step(np.array([0, 2]))
    with pytest.raises(NotImplementedError, match="Walk are no pictures"):
        hosted.render()


def test_pictures_of_breakout(breakout):
    frame = breakout.reset([0, 1])[0]
    picture = breakout.render()
    assert (picture.shape, picture.dtype) == ((320, 320, 3), np.uint8)
    cells = picture[16::32, 16::32]
    np.testing.assert_array_equal(cells.any(axis=-1), frame.any(axis=-1))
    colours = {tuple(colour) for colour in cells.reshape(-1, 3).tolist()}
    # Nothing, paddle, ball, bricks: the trail is under the ball in the first frame.
    assert len(colours) == 4
    np.testing.assert_array_equal(picture, cells.repeat(32, axis=0).repeat(32, axis=1))


def test_pictures_by_hand():
    frame = np.zeros((320, 400, 2), bool)
    frame[0, 0] = [True, False]
    frame[0, 1] = [False, True]
    frame[0, 2] = [True, True]
    picture = draw(frame)
    # Red and cyan, 80 % saturated; the first channel hides the second.
    red, cyan = [255, 51, 51], [51, 255, 255]
    assert picture[0, :4].tolist() == [red, cyan, red, [0, 0, 0]]
    grey = np.array([[1, 2]], np.uint8)
    assert draw(grey).tolist() == [[[1, 1, 1], [2, 2, 2]]]
    rgb = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)
    assert draw(rgb).tolist() == rgb.tolist()
