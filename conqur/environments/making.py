"""One door to all environments: from a name to the environment."""

import functools
import importlib
import re
from typing import TYPE_CHECKING, Any

from conqur import _checks
from conqur.environments.frames import can_draw
from conqur.environments.gymnasium_env import NAMES, GymnasiumEnvironment
from conqur.environments.interface import JaxEnvironment, VectorEnvironment
from conqur.environments.jax_env import (
    GymnaxEnvironment,
    GymnaxShaped,
    HostedJax,
    PgxEnvironment,
    PgxShaped,
)

if TYPE_CHECKING:
    from conqur.environments.atari import Preprocessing

MINATAR = {
    "MinAtar/Asterix": "minatar-asterix",
    "MinAtar/Breakout": "minatar-breakout",
    "MinAtar/Freeway": "minatar-freeway",
    "MinAtar/Seaquest": "minatar-seaquest",
    "MinAtar/SpaceInvaders": "minatar-space_invaders",
}
"""The MinAtar games, and their ids in pgx."""


def make(
    name: str,
    num_envs: int = 1,
    *,
    preprocessing: "Preprocessing | str | None" = None,
    render: bool = False,
) -> VectorEnvironment:
    """Make N copies of an environment that the host steps.

    Args:
        name: an Atari game ("ALE/Pong-v5"), a MinAtar game ("MinAtar/Breakout"), a Gymnasium id
            ("CartPole-v1", or "module:Id" to import a module first), or
            "jax:package.module:attribute" for an environment written in JAX.
        num_envs: N.
        preprocessing: of Atari games: a name in `PREPROCESSING`, or your own; that of the paper's
            evaluation if not given.
        render: make it so that `render` gives pictures.
    """
    _checks.count("num_envs", num_envs)
    environment = make_jax(name)
    game = None if ":" in name or environment is not None else _atari_game(name)
    if game is not None:
        return _make_atari(name, num_envs, preprocessing, render)
    if preprocessing is not None:
        raise ValueError(f"preprocessing is for Atari games, and {name} is none: leave it out")
    if environment is None:
        return GymnasiumEnvironment(name, num_envs, render=render)
    spec = environment.spec
    if render and not can_draw(spec.frame_shape, spec.frame_dtype):
        raise ValueError(f"{name} draws no pictures: its frames are no images")
    return HostedJax(environment, num_envs)


def make_jax(name: str) -> JaxEnvironment[Any] | None:
    """Make an environment that compiles into the program; None if `name` is not one in JAX.

    Args:
        name: a MinAtar game ("MinAtar/Breakout", or pgx's "minatar-breakout"), or
            "jax:package.module:attribute", where the attribute is a `JaxEnvironment` or an
            environment of pgx or with gymnax's interface (or the pair of one and its parameters),
            or a function without arguments or a class that makes such a thing.
    """
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"an environment has a name, but got {name!r}; {NAMES}")
    if name.startswith("jax:"):
        return _of_code(name)
    if name in MINATAR or name in MINATAR.values():
        return _minatar(name)
    if re.fullmatch(r"minatar[-/](?!.*-v\d+$).*", name, re.IGNORECASE):
        raise ValueError(f"there is no MinAtar game {name!r}; there are {', '.join(MINATAR)}")
    return None


@functools.cache
def _of_code(name: str) -> JaxEnvironment[Any]:
    return _adapt(name, _load(name))


@functools.cache  # what was compiled for it is compiled once
def _minatar(name: str) -> PgxEnvironment:
    return PgxEnvironment(_pgx_make(name), name=name)


def _pgx_make(name: str) -> Any:
    try:
        import pgx
    except ModuleNotFoundError:
        raise ValueError(f"{name} needs pgx: pip install 'conqur[minatar]'") from None
    return pgx.make(MINATAR.get(name, name))


def _atari_game(name: str) -> str | None:
    from conqur.environments.atari import atari_game

    return atari_game(name)


def _make_atari(
    name: str, num_envs: int, preprocessing: "Preprocessing | str | None", render: bool
) -> VectorEnvironment:
    from conqur.environments.atari import Preprocessing, make_atari, preprocessing_named

    if preprocessing is None:
        preprocessing = Preprocessing()
    elif isinstance(preprocessing, str):
        preprocessing = preprocessing_named(preprocessing)
    return make_atari(name, num_envs, preprocessing=preprocessing, render=render)


def _load(name: str) -> Any:
    """What stands behind a name like jax:package.module:attribute."""
    match = re.fullmatch(r"jax:([\w.]+):([\w.]+)", name)
    if match is None:
        raise ValueError(f"an environment in JAX is named jax:package.module:attribute, not {name}")
    module, attribute = match.groups()
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(f"{name} cannot be loaded: there is no module {error.name}") from None
    except Exception as error:  # whatever the module's own code raises
        raise ValueError(f"{name} cannot be loaded: {module} fails with {error!r}") from error
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise ValueError(f"{name} cannot be loaded: {module} has no {attribute}") from None
    return found


def _adapt(name: str, found: Any) -> JaxEnvironment[Any]:
    """Make a `JaxEnvironment` of it, calling what only makes an environment."""
    environment, params = _environment(found)
    if environment is None and callable(found):
        try:
            made = found()
        except Exception as error:  # whatever its own code raises
            raise ValueError(f"{name} cannot be made: it fails with {error!r}") from error
        environment, params = _environment(made)
    if isinstance(environment, JaxEnvironment):
        return environment
    if isinstance(environment, GymnaxShaped):
        return GymnaxEnvironment(environment, params, name=name)
    if isinstance(environment, PgxShaped):
        return PgxEnvironment(environment, name=name)
    raise ValueError(
        f"{name} is no environment in JAX: it has to be a JaxEnvironment, an environment of pgx, "
        "one with gymnax's interface, or a function that makes one"
    )


def _environment(found: Any) -> tuple[Any, Any]:
    """An environment and its parameters (None: its own), or (None, None) if it is neither."""
    params = None
    if isinstance(found, tuple) and len(found) == 2:  # what gymnax.make gives
        found, params = found
    shaped = isinstance(found, JaxEnvironment | GymnaxShaped | PgxShaped)
    return (found, params) if shaped and not isinstance(found, type) else (None, None)
