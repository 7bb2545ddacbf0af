"""Any Gymnasium environment with discrete actions, as many copies as wanted, in this process."""

import difflib
import math
import os
import re
import sys
import warnings
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from jaxtyping import Bool, Int

from conqur import _checks
from conqur.environments.frames import frame_layout
from conqur.environments.interface import Spec, Step, VectorEnvironment

NAMES = (
    "known are Atari games (ALE/Pong-v5), MinAtar games (MinAtar/Breakout), Gymnasium ids "
    "(CartPole-v1, or module:Id to import a module first) and jax:module:attribute"
)
"""The kinds of names that environments have."""


class GymnasiumEnvironment(VectorEnvironment):
    """N copies of a Gymnasium environment, stepped one after the other.

    Observations must be of a `Box` space: images (bytes or booleans with two or three axes) stay
    as they are, anything else becomes a vector of float32. Actions must be `Discrete`. The first
    episode of a copy is begun with the seed given to `reset`, each further one with a seed made
    from that seed and the episode's number, so that episodes do not depend on hidden streams. A
    time limit ends an episode (`game_over`) without `terminal`.

    Args:
        name: its id, such as "CartPole-v1", or "module:Id" to import the module first.
        num_envs: N.
        render: make it so that `render` gives pictures.
    """

    def __init__(self, name: str, num_envs: int = 1, *, render: bool = False) -> None:
        self.num_envs = _checks.count("num_envs", num_envs)
        self._environments = [_make(name, render=render)]
        try:
            self._look_at(name, self._environments[0], render)
            for _ in range(1, num_envs):
                self._environments.append(_make(name, render=False))
        except BaseException:
            self.close()
            raise
        self._renders = render
        self._seeds: tuple[int, ...] = ()
        self._episodes = [0] * num_envs
        self._over, self._resting = np.zeros((2, num_envs), bool)

    def _look_at(self, name: str, environment: Any, render: bool) -> None:
        actions, observations = environment.action_space, environment.observation_space
        if not isinstance(actions, gymnasium.spaces.Discrete):
            raise ValueError(f"{name} has actions {actions}, but they have to be Discrete")
        if not isinstance(observations, gymnasium.spaces.Box):
            kind = type(observations).__name__
            raise ValueError(f"{name} has {kind} observations, but they have to be a Box")
        if render and "rgb_array" not in environment.metadata.get("render_modes", ()):
            raise ValueError(f"{name} draws no pictures (it has no render mode rgb_array)")
        shape, dtype = frame_layout(name, observations.shape, observations.dtype)
        self._shape = observations.shape
        self._first_action = int(actions.start)
        names = (str(self._first_action + number) for number in range(int(actions.n)))
        self.spec = Spec(name, frame_shape=shape, frame_dtype=dtype, actions=tuple(names))

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Begin new episodes everywhere, with one seed for each; the first frames, [N, ...]."""
        self._seeds = tuple(_checks.index_array("seeds", seeds, self.num_envs).tolist())
        self._episodes = [0] * self.num_envs
        self._over, self._resting = np.zeros((2, self.num_envs), bool)
        self._frames = np.stack([self._begin(index) for index in range(self.num_envs)])
        return self._frames

    def rest(self, resting: Bool[np.ndarray, " N"]) -> None:
        """Leave copies standing that are not needed: nothing ends or begins there."""
        self._resting = np.array(resting)

    def send(self, actions: Int[np.ndarray, " N"]) -> None:
        """Take the step; there is no background."""
        if not self._seeds:
            raise ValueError(f"{self.spec.name} has to be reset before its first step")
        count = len(self.spec.actions)
        actions = _checks.action_array("actions", actions, length=self.num_envs, num_actions=count)
        reset = self._over & ~self._resting
        frames = np.empty_like(self._frames)
        rewards = np.zeros(self.num_envs, np.float32)
        terminal, game_over = np.zeros((2, self.num_envs), bool)
        for index, action in enumerate(actions.tolist()):
            if self._resting[index]:
                frames[index] = self._frames[index]
                continue
            if reset[index]:
                self._episodes[index] += 1
                frames[index] = self._begin(index)
                continue
            action += self._first_action
            observation, reward, ended, cut, _ = self._environments[index].step(action)
            frames[index] = self._frame(observation)
            rewards[index] = self._reward(reward)
            terminal[index], game_over[index] = ended, ended or cut
        self._over, self._frames = game_over, frames
        self._sent = Step(frames, rewards, terminal, game_over, reset)

    def receive(self) -> Step:
        """The step that was sent."""
        return self._sent

    def render(self) -> np.ndarray:
        """A picture of the first environment for people, RGB, [H, W, 3]."""
        if not self._renders:
            return super().render()
        try:
            with warnings.catch_warnings(action="ignore"):
                picture = np.asarray(self._environments[0].render())
        except gymnasium.error.DependencyNotInstalled as error:
            raise ValueError(_missing(f"a picture of {self.spec.name}", error)) from None
        if picture.ndim != 3 or picture.shape[-1] != 3:
            shape = list(picture.shape)
            raise ValueError(f"{self.spec.name} drew a picture of shape {shape}, not [H, W, 3]")
        return picture

    def close(self) -> None:
        """Close all copies."""
        for environment in self._environments:
            environment.close()

    def _begin(self, index: int) -> np.ndarray:
        seed = _episode_seed(self._seeds[index], self._episodes[index])
        observation, _ = self._environments[index].reset(seed=seed)
        return self._frame(observation)

    def _frame(self, observation: Any) -> np.ndarray:
        array = np.asarray(observation)
        dtype = self.spec.frame_dtype
        fits = array.dtype.kind in "biuf" if dtype == "float32" else array.dtype == dtype
        if array.shape != self._shape or not fits:
            wanted = f"{list(self._shape)} of {'real numbers' if dtype == 'float32' else dtype}"
            raise ValueError(
                f"{self.spec.name} gave an observation of shape {list(array.shape)} of "
                f"{array.dtype}, but its observation space says {wanted}"
            )
        with np.errstate(over="ignore"):
            frame = array.reshape(self.spec.frame_shape).astype(dtype)
        if dtype == "float32" and not np.isfinite(frame).all():
            raise ValueError(f"{self.spec.name} gave an observation with NaN or infinite entries")
        return frame

    def _reward(self, reward: Any) -> float:
        with np.errstate(over="ignore"):
            value = float(np.float32(reward))
        if not math.isfinite(value):
            raise ValueError(
                f"{self.spec.name} gave the reward {reward}, which is no finite number"
            )
        return value


def _episode_seed(seed: int, episode: int) -> int:
    if episode == 0:
        return seed
    return int(np.random.SeedSequence((seed, episode)).generate_state(1)[0])


def _make(name: str, *, render: bool) -> Any:
    mode: dict[str, Any] = {"render_mode": "rgb_array"} if render else {}
    if (
        render
        and sys.platform == "linux"
        and not os.environ.keys() & {"DISPLAY", "WAYLAND_DISPLAY"}
    ):
        # Pictures need neither a screen nor sound, which pygame would look for, and complain.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("SDL_AUDIODRIVER", "dummy")
    try:
        with warnings.catch_warnings(action="ignore"):  # old versions, and imports of all kinds
            return gymnasium.make(name, disable_env_checker=True, **mode)
    except gymnasium.error.DependencyNotInstalled as error:
        raise ValueError(_missing(name, error)) from None
    except gymnasium.error.Error:
        raise ValueError(_unknown(name)) from None
    except Exception as error:  # whatever the environment's own code raises
        raise ValueError(f"{name} could not be made: {_sentence(error)}") from error


def _unknown(name: str) -> str:
    ids = difflib.get_close_matches(name.rpartition(":")[2], gymnasium.registry, cutoff=0.7)
    nearest = f" (nearest: {', '.join(ids)})" if ids else ""
    return f"there is no environment {name!r}{nearest}; {NAMES}"


def _missing(what: str, error: Exception) -> str:
    if "box2d" in str(error).lower():
        return f"{what} needs Box2D: pip install 'conqur[box2d]'"
    return f"{what} needs a package that is not installed: {_sentence(error)}"


def _sentence(error: Exception) -> str:
    """The first sentence of an error's message, on one line."""
    text = re.sub(r"\s+", " ", str(error)).strip() or type(error).__name__
    return text.split(". ")[0].rstrip(".")
