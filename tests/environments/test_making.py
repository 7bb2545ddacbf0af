import sys

import numpy as np
import pytest

from conqur.environments import (
    GymnasiumEnvironment,
    GymnaxEnvironment,
    HostedJax,
    PgxEnvironment,
    make,
    make_jax,
    making,
)

MODULE = """
import jax.numpy as jnp
import pgx
from conqur.environments import PgxEnvironment

class Space:
    n = 3

class Still:
    default_params = {"length": 5}

    def reset_env(self, key, params):
        return jnp.zeros(2), jnp.zeros((), int)

    def step_env(self, key, state, action, params):
        return jnp.zeros(2), state + 1, 0.0, state + 1 >= params["length"], {}

    def action_space(self, params):
        return Space()

def pair():
    return Still(), {"length": 2}

def fails():
    raise RuntimeError("no luck")

def nothing():
    return 3

class Folder:
    still = Still()

still = Still()
number = 4
ours = PgxEnvironment(pgx.make("minatar-asterix"), name="mine")
theirs = pgx.make("minatar-asterix")
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module of somebody's own."""
    (tmp_path / "conqur_test_games.py").write_text(MODULE)
    (tmp_path / "conqur_test_wrong.py").write_text("1 / 0\n")
    (tmp_path / "conqur_test_needs.py").write_text("import conqur_test_absent\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "conqur_test_games"
    for name in [name for name in sys.modules if name.startswith("conqur_test_")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("attribute", "kind", "name"),
    [
        ("still", GymnaxEnvironment, None),
        ("Still", GymnaxEnvironment, None),
        ("Folder.still", GymnaxEnvironment, None),
        ("pair", GymnaxEnvironment, None),
        ("theirs", PgxEnvironment, None),
        ("ours", PgxEnvironment, "mine"),
    ],
)
def test_environments_of_somebodys_own_module(module, attribute, kind, name):
    path = f"jax:{module}:{attribute}"
    environment = make_jax(path)
    assert isinstance(environment, kind)
    assert environment.spec.name == (name or path)
    assert isinstance(make(path), HostedJax)


def test_parameters_that_come_with_an_environment_are_used(module):
    for attribute, length in (("still", 5), ("pair", 2)):
        environment = make(f"jax:{module}:{attribute}", 2)
        environment.reset([0, 1])
        over = [environment.step(np.zeros(2, int)).game_over[0] for _ in range(5)]
        assert over.index(True) == length - 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("jax:conqur_test_games", r"is named jax:package\.module:attribute"),
        ("jax:", r"is named jax:package\.module:attribute"),
        ("jax:../x:y", r"is named jax:package\.module:attribute"),
        ("jax:..:y", "cannot be loaded"),
        ("jax:conqur_test_none:x", "cannot be loaded: there is no module conqur_test_none$"),
        ("jax:conqur_test_needs:x", "cannot be loaded: there is no module conqur_test_absent$"),
        ("jax:conqur_test_wrong:x", "conqur_test_wrong fails with ZeroDivisionError"),
        ("jax:conqur_test_games:x", "conqur_test_games has no x$"),
        ("jax:conqur_test_games:number", "is no environment in JAX: it has to be"),
        ("jax:conqur_test_games:nothing", "is no environment in JAX: it has to be"),
        ("jax:conqur_test_games:fails", r"it fails with RuntimeError\('no luck'\)$"),
        ("MinAtar/Pong", "there is no MinAtar game 'MinAtar/Pong'; there are MinAtar/Asterix, "),
        ("minatar-pong", "there is no MinAtar game"),
        ("minatar/breakout", "there are .*MinAtar/Breakout"),
        ("MinAtar/Breakout-v1", "there is no environment 'MinAtar/Breakout-v1'"),
        ("", "an environment has a name, but got ''; known are Atari games"),
        ("  ", "an environment has a name"),
        ("CartPool-v1", r"nearest: .*CartPole-v1.*jax:module:attribute$"),
        ("ALE/Pung-v5", "no Atari game 'ALE/Pung-v5'"),
    ],
)
def test_names_that_do_not_work(module, name, message):
    with pytest.raises(ValueError, match=message) as caught:
        make(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["CartPole-v1", "ALE/Pong-v5", "Breakout", "x:y", "Taxi-v4"])
def test_names_that_are_not_in_jax(name):
    assert make_jax(name) is None


def test_all_kinds_are_made():
    kinds = {
        "CartPole-v1": (GymnasiumEnvironment, (4,)),
        "gymnasium:CartPole-v1": (GymnasiumEnvironment, (4,)),
        "MinAtar/Breakout": (HostedJax, (10, 10, 4)),
        "minatar-space_invaders": (HostedJax, (10, 10, 6)),
    }
    for name, (kind, shape) in kinds.items():
        environment = make(name, 2)
        assert isinstance(environment, kind)
        assert (environment.spec.name, environment.num_envs) == (name, 2)
        assert environment.spec.frame_shape == shape


def test_atari_games_and_their_preprocessing():
    from conqur.environments.atari import Preprocessing

    names = ("ALE/Pong-v5", "Pong", "PongNoFrameskip-v4")
    for name in names:
        environment = make(name, 2)
        assert environment.spec.frame_shape == (84, 84)
        assert environment.num_envs == 2
        environment.close()
    assert not make("Pong", preprocessing="dopamine").spec.pad_with_first
    assert make("Pong", preprocessing="cleanrl").spec.pad_with_first
    assert make("Pong", preprocessing=Preprocessing(size=42)).spec.frame_shape == (42, 42)
    with pytest.raises(ValueError, match=r"no preprocessing 'x' \(there is: conqur, dopamine"):
        make("Pong", preprocessing="x")


@pytest.mark.parametrize("name", ["CartPole-v1", "MinAtar/Breakout"])
def test_preprocessing_is_for_atari(name):
    with pytest.raises(ValueError, match=f"preprocessing is for Atari games, and {name} is none"):
        make(name, preprocessing="sb3")


def test_pictures_are_asked_for(module):
    environment = make("CartPole-v1", render=True)
    environment.reset([0])
    assert environment.render().shape == (400, 600, 3)
    with pytest.raises(ValueError, match="draws no pictures: its frames are no images"):
        make(f"jax:{module}:still", render=True)


def test_pgx_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "pgx", None)
    making._minatar.cache_clear()
    with pytest.raises(ValueError, match=r"needs pgx: pip install 'conqur\[minatar\]'$"):
        make("MinAtar/Breakout")


def test_the_number_of_copies_is_checked_first():
    with pytest.raises(ValueError, match="num_envs must be a whole number of at least 1, got 0"):
        make("xyzzy", 0)
