import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from conqur.environments import GymnasiumEnvironment


class Walk(gymnasium.Env):
    """Observations [[position, last action], [noise, 0]]; ends at position 2; actions −1, 0, 1."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = spaces.Box(-100, 100, (2, 2), np.int16)
    action_space = spaces.Discrete(3, start=-1)

    def __init__(self, render_mode=None):
        self.position = self.last = 0

    def look(self):
        noise = self.np_random.integers(100)
        return np.array([[self.position, self.last], [noise, 0]], np.int16)

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.position = self.last = 0
        return self.look(), {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.position += action
        self.last = action
        return self.look(), 2.5 * action, self.position == 2, False, {}

    def render(self):
        return np.full((4, 5, 3), self.position, np.uint8)


class Broken(gymnasium.Env):
    """One that gives whatever it is told to."""

    observation_space = spaces.Box(-1, 1, (3,), np.float64)
    action_space = spaces.Discrete(2)

    def __init__(self, space=None, actions=None, first=None, then=None, reward=0.0, **_):
        self.observation_space = self.observation_space if space is None else space
        self.action_space = self.action_space if actions is None else actions
        self.first = np.zeros(3) if first is None else first
        self.then, self.reward = then, reward

    def reset(self, seed=None, options=None):
        return self.first, {}

    def step(self, action):
        return (self.first if self.then is None else self.then), self.reward, False, False, {}


def fails():
    raise RuntimeError("a wheel\nis missing. And more.")


gymnasium.register("ConqurTest/Walk-v0", Walk)
gymnasium.register("ConqurTest/ShortWalk-v0", Walk, max_episode_steps=3)
gymnasium.register("ConqurTest/Broken-v0", Broken)
gymnasium.register("ConqurTest/Fails-v0", fails)


@pytest.fixture
def broken(monkeypatch):
    """Makes a `Broken` environment with keyword arguments."""

    def make(**kwargs):
        monkeypatch.setattr(gymnasium.spec("ConqurTest/Broken-v0"), "kwargs", kwargs)
        return GymnasiumEnvironment("ConqurTest/Broken-v0")

    return make


def test_an_episode_by_hand():
    environment = GymnasiumEnvironment("ConqurTest/Walk-v0")
    spec = environment.spec
    assert (spec.frame_shape, spec.frame_dtype, spec.stack) == ((4,), "float32", 1)
    assert spec.actions == ("-1", "0", "1")
    first = environment.reset([7])
    assert (first.shape, first.dtype) == ((1, 4), np.float32)
    assert first[0, [0, 1, 3]].tolist() == [0, 0, 0]
    seen = [environment.step(np.array([action])) for action in (2, 0, 2, 2, 0, 2)]
    # Right, left, right, right: the end. Left is ignored: a new episode. Right.
    assert [step.frame[0, 0] for step in seen] == [1, 0, 1, 2, 0, 1]
    assert [step.frame[0, 1] for step in seen] == [1, -1, 1, 1, 0, 1]
    assert [step.reward[0] for step in seen] == [2.5, -2.5, 2.5, 2.5, 0, 2.5]
    assert [bool(step.terminal[0]) for step in seen] == [False] * 3 + [True] + [False] * 2
    assert [bool(step.game_over[0]) for step in seen] == [False] * 3 + [True] + [False] * 2
    assert [bool(step.reset[0]) for step in seen] == [False] * 4 + [True] + [False]
    assert seen[0].reward.dtype == np.float32
    assert seen[0].terminal.dtype == seen[0].reset.dtype == np.bool_


def test_a_copy_rests_alone():
    """As it does in `Separate`, until the next reset."""
    environment = GymnasiumEnvironment("ConqurTest/ShortWalk-v0", 2)
    first = environment.reset([7, 8])
    environment.rest(np.array([True, False]))
    steps = [environment.step(np.array([2, 2])) for _ in range(4)]
    for step in steps:
        np.testing.assert_array_equal(step.frame[0], first[0])
    assert [step.frame[1, 0] for step in steps] == [1, 2, 0, 1]
    assert [step.reward[1] for step in steps] == [2.5, 2.5, 0, 2.5]
    assert not any(step.reward[0] for step in steps)
    assert [step.game_over.tolist() for step in steps] == [[False, i == 1] for i in range(4)]
    assert [step.reset.tolist() for step in steps] == [[False, i == 2] for i in range(4)]
    environment.reset([7, 8])
    assert environment.step(np.array([2, 2])).frame[:, 0].tolist() == [1, 1]


def test_a_time_limit_is_no_end():
    environment = GymnasiumEnvironment("ConqurTest/ShortWalk-v0")
    environment.reset([0])
    steps = [environment.step(np.array([1])) for _ in range(4)]
    assert [bool(step.game_over[0]) for step in steps] == [False, False, True, False]
    assert not any(step.terminal[0] for step in steps)
    assert [bool(step.reset[0]) for step in steps] == [False, False, False, True]


def test_episodes_are_those_of_gymnasium_with_seeds_made_from_the_seed_and_the_number():
    environment = GymnasiumEnvironment("CartPole-v1", 2)
    frames = environment.reset([5, 6])
    peers = [gymnasium.make("CartPole-v1") for _ in range(2)]
    np.testing.assert_array_equal(
        frames, [peer.reset(seed=seed)[0] for peer, seed in zip(peers, (5, 6), strict=True)]
    )
    episode, over = [0, 0], [False, False]
    for step in range(60):
        actions = np.array([step % 3 == 0, step % 7 == 0], int)
        got = environment.step(actions)
        for index, peer in enumerate(peers):
            if over[index]:
                episode[index] += 1
                sequence = np.random.SeedSequence((5 + index, episode[index]))
                observation, _ = peer.reset(seed=int(sequence.generate_state(1)[0]))
                reward = ended = cut = 0
                assert got.reset[index]
            else:
                observation, reward, ended, cut, _ = peer.step(int(actions[index]))
                assert not got.reset[index]
            np.testing.assert_array_equal(got.frame[index], observation)
            assert got.reward[index] == reward
            assert got.terminal[index] == ended
            over[index] = bool(ended or cut)
            assert got.game_over[index] == over[index]
    assert min(episode) >= 3


@settings(max_examples=20)
@given(
    st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=3),
    st.lists(st.integers(0, 2), max_size=15),
    st.integers(0, 4),
)
def test_all_is_determined_by_seeds_and_actions_for_each_copy_by_itself(seeds, actions, before):
    together = GymnasiumEnvironment("ConqurTest/Walk-v0", len(seeds))
    together.reset([1] * len(seeds))
    for _ in range(before):  # another life before must not matter
        together.step(np.full(len(seeds), 2))
    frames = together.reset(seeds)
    steps = [together.step(np.full(len(seeds), action)) for action in actions]
    for index, seed in enumerate(seeds):
        alone = GymnasiumEnvironment("ConqurTest/Walk-v0")
        np.testing.assert_array_equal(alone.reset([seed])[0], frames[index])
        for action, step in zip(actions, steps, strict=True):
            for name, value in alone.step(np.array([action]))._asdict().items():
                np.testing.assert_array_equal(value[0], getattr(step, name)[index])


def test_steps_that_were_returned_do_not_change():
    environment = GymnasiumEnvironment("ConqurTest/Walk-v0", 2)
    environment.reset([0, 0])
    for _ in range(2):
        last = environment.step(np.array([2, 2]))
    kept = [value.copy() for value in last]
    environment.step(np.array([2, 2]))
    for value, copy in zip(last, kept, strict=True):
        np.testing.assert_array_equal(value, copy)


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Box(0, 255, (5, 6), np.uint8), (5, 6), "uint8"),
        (spaces.Box(0, 255, (5, 6, 3), np.uint8), (5, 6, 3), "uint8"),
        (spaces.Box(0, 1, (5, 6, 4), np.bool_), (5, 6, 4), "bool"),
        (spaces.Box(0, 255, (6,), np.uint8), (6,), "float32"),
        (spaces.Box(0, 255, (2, 5, 6, 3), np.uint8), (180,), "float32"),
        (spaces.Box(0, 1, (5, 6), np.float32), (30,), "float32"),
        (spaces.Box(0, 1, (), np.float64), (1,), "float32"),
    ],
)
def test_images_stay_and_other_numbers_are_flattened(broken, space, shape, dtype):
    entries = np.arange(np.prod(space.shape)).astype(space.dtype).reshape(space.shape)
    environment = broken(space=space, first=entries)
    frame = environment.reset([0])
    assert (environment.spec.frame_shape, environment.spec.frame_dtype) == (shape, dtype)
    assert frame.dtype == dtype
    np.testing.assert_array_equal(frame, entries.astype(dtype).reshape(1, *shape))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"then": np.array([0, np.nan, 0])}, "gave an observation with NaN or infinite entries"),
        ({"then": np.array([0, 1e300, 0])}, "gave an observation with NaN or infinite entries"),
        (
            {"then": np.zeros(4)},
            r"gave an observation of shape \[4\] of float64, but .* says \[3\] of real numbers",
        ),
        ({"then": {"a": 1}}, r"gave an observation of shape \[\] of object"),
        ({"reward": np.nan}, "gave the reward nan, which is no finite number"),
        ({"reward": 1e200}, r"gave the reward 1e\+200, which is no finite number"),
    ],
)
def test_nonsense_from_the_environment_is_refused(broken, kwargs, message):
    environment = broken(**kwargs)
    environment.reset([0])
    with pytest.raises(ValueError, match=f"^ConqurTest/Broken-v0 {message}"):
        environment.step(np.array([0]))


def test_images_of_another_dtype_are_refused(broken):
    environment = broken(space=spaces.Box(0, 255, (2, 2), np.uint8), first=np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"of float64, but .* says \[2, 2\] of uint8"):
        environment.reset([0])


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"actions": spaces.Box(-1, 1, (2,))}, "has actions Box.*, but they have to be Discrete"),
        ({"space": spaces.Dict(a=spaces.Discrete(2))}, "has Dict observations"),
        ({"space": spaces.Discrete(2)}, "has Discrete observations, but they have to be a Box"),
        ({"space": spaces.Box(0, 1, (0,))}, "non-empty"),
    ],
)
def test_spaces_that_do_not_fit_are_refused(broken, kwargs, message):
    with pytest.raises(ValueError, match=f"^ConqurTest/Broken-v0 .*{message}"):
        broken(**kwargs)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("CartPool-v1", r"no environment 'CartPool-v1' \(nearest: .*CartPole-v1.*\); known are"),
        ("CartPole-v9", r"nearest: .*CartPole-v1"),
        ("LunarLander-v2", r"nearest: .*LunarLander-v3"),
        ("xyzzy", "there is no environment 'xyzzy'; known are Atari games"),
        ("Not/There/At all", "there is no environment"),
        ("???", "there is no environment"),
        ("no_such_module:Env-v0", "could not be made: No module named 'no_such_module'$"),
        ("a:b:c", "could not be made"),
        ("ConqurTest/Fails-v0", "could not be made: a wheel is missing$"),
        ("Pendulum-v1", "has actions Box"),
        ("FrozenLake-v1", "has Discrete observations"),
    ],
)
def test_names_that_do_not_work(name, message):
    with pytest.raises(ValueError, match=message) as caught:
        GymnasiumEnvironment(name)
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "Box2D", None)
    for module in [name for name in sys.modules if name.startswith("gymnasium.envs.box2d")]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(ValueError, match=r"^LunarLander-v3 needs Box2D: pip install 'conqur\[box"):
        GymnasiumEnvironment("LunarLander-v3")


def test_a_missing_package_for_pictures_is_named(monkeypatch):
    environment = GymnasiumEnvironment("CartPole-v1", render=True)
    environment.reset([0])
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(ValueError, match=r"^a picture of CartPole-v1 needs a package .*pygame"):
        environment.render()


@pytest.mark.parametrize("name", ["CartPole-v0", "CartPole", "LunarLander-v3"])
def test_nothing_is_printed(name, capfd):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        environment = GymnasiumEnvironment(name, 2, render=True)
        environment.reset([0, 1])
        environment.step(np.array([0, 1]))
        environment.render()
        environment.close()
    assert not caught
    assert capfd.readouterr() == ("", "")


def test_a_module_is_imported_first(tmp_path, monkeypatch):
    (tmp_path / "conqur_test_walks.py").write_text(
        "import gymnasium\ngymnasium.register('FromModule-v3', 'gymnasium.envs.classic_control:"
        "CartPoleEnv', max_episode_steps=7)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    environment = GymnasiumEnvironment("conqur_test_walks:FromModule-v3")
    assert environment.spec.name == "conqur_test_walks:FromModule-v3"
    assert environment.spec.frame_shape == (4,)


def test_pictures():
    environment = GymnasiumEnvironment("ConqurTest/Walk-v0", 2, render=True)
    environment.reset([0, 0])
    environment.step(np.array([2, 1]))
    np.testing.assert_array_equal(environment.render(), np.ones((4, 5, 3), np.uint8))
    with pytest.raises(NotImplementedError, match="render=True"):
        GymnasiumEnvironment("ConqurTest/Walk-v0").render()
    with pytest.raises(ValueError, match="draws no pictures"):
        GymnasiumEnvironment("ConqurTest/Broken-v0", render=True)


def test_pictures_of_another_kind_are_refused(monkeypatch):
    environment = GymnasiumEnvironment("ConqurTest/Walk-v0", render=True)
    environment.reset([0])
    monkeypatch.setattr(Walk, "render", lambda self: None)
    with pytest.raises(ValueError, match="drew a picture of shape"):
        environment.render()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.array([0, 3]), "actions holds action 3, but there are 3 actions"),
        (np.array([0, -1]), "actions holds -1"),
        (np.array([0]), r"actions must have shape \[2\]"),
    ],
)
def test_actions_are_checked(actions, message):
    environment = GymnasiumEnvironment("ConqurTest/Walk-v0", 2)
    with pytest.raises(ValueError, match="has to be reset"):
        environment.step(np.array([0, 0]))
    environment.reset([0, 0])
    with pytest.raises(ValueError, match=message):
        environment.send(actions)


def test_seeds_and_numbers_are_checked():
    environment = GymnasiumEnvironment("ConqurTest/Walk-v0", 2)
    for seeds in ([1], [1, -1]):
        with pytest.raises(ValueError, match="seeds"):
            environment.reset(seeds)
    with pytest.raises(ValueError, match="num_envs"):
        GymnasiumEnvironment("ConqurTest/Walk-v0", 0)
