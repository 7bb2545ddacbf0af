"""What an environment is to the rest of the library: frames out, actions in.

Two kinds, told apart by where they run: a `VectorEnvironment` steps N copies on the host, a
`JaxEnvironment` is a pair of pure functions that compile into the program that uses them. Both
give *frames*; an observation is the newest `stack` frames of an episode (`push`), so that a frame
has to be moved and stored only once.

Both begin new episodes in the same way: a step after the last one of an episode ignores its action
and gives the first frame of the next episode (`reset` is set). Such a step is no transition.
"""

import abc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import array_api_compat
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

State = TypeVar("State")


@dataclass(frozen=True)
class Spec:
    """What an environment looks like from outside.

    Attributes:
        name: what it was made from, such as "ALE/Pong-v5".
        frame_shape: of one frame: (84, 84) in Atari games, (4,) in CartPole.
        frame_dtype: "uint8", "bool" or "float32".
        actions: the actions' names.
        stack: how many of the newest frames make an observation.
        pad_with_first: at the start of an episode an observation's missing frames are copies of
            the first one, where they are zero if not set.
    """

    name: str
    frame_shape: tuple[int, ...]
    frame_dtype: str
    actions: tuple[str, ...]
    stack: int = 1
    pad_with_first: bool = False

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """A frame's shape, with the stack, oldest to newest, as last axis if there is one."""
        return self.frame_shape if self.stack == 1 else (*self.frame_shape, self.stack)


class Step(NamedTuple):
    """What one step gave, for N environments (or for one, without the axis N).

    Attributes:
        frame: the newest frame, [N, ...].
        reward: as the game counts it, never clipped, [N].
        terminal: nothing follows that has value: the game ended, or a life was lost where the
            preprocessing says that this counts, [N].
        game_over: the game ended or was cut short; its score is complete, [N].
        reset: a new episode began; the action was ignored and `frame` is the first one, [N].
    """

    frame: Any
    reward: Any
    terminal: Any
    game_over: Any
    reset: Any


class Transitions(NamedTuple):
    """A batch D of B transitions.

    Attributes:
        states: s, [B, *observation_shape].
        actions: a, [B].
        rewards: r, [B].
        successors: s', [B, *observation_shape].
        terminal: nothing follows s' that has value, [B].
    """

    states: Any
    actions: Any
    rewards: Any
    successors: Any
    terminal: Any


class VectorEnvironment(abc.ABC):
    """N copies of an environment, stepped together on the host.

    Given the seeds of the last `reset` and the actions since, everything it returns is determined
    (for an environment that is deterministic itself): this is how a run that was killed gets its
    environments back.

    Attributes:
        spec: what one copy looks like.
        num_envs: N.
    """

    spec: Spec
    num_envs: int

    @abc.abstractmethod
    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Begin new episodes everywhere, with one seed for each; the first frames, [N, ...]."""

    @abc.abstractmethod
    def send(self, actions: Int[np.ndarray, " N"]) -> None:
        """Start a step. It may go on in the background until `receive`."""

    @abc.abstractmethod
    def receive(self) -> Step:
        """Wait for the step that was sent."""

    def step(self, actions: Int[np.ndarray, " N"]) -> Step:
        """Take one action in every environment."""
        self.send(actions)
        return self.receive()

    def rest(self, resting: Bool[np.ndarray, " N"]) -> None:  # noqa: B027 (a hint)
        """Say which copies nobody looks at until the next `reset`; they need not be stepped."""

    def resize(self, num_envs: int) -> bool:
        """Be `num_envs` copies from the next `reset` on; False if that takes a new environment."""
        return num_envs == self.num_envs

    def render(self) -> np.ndarray:
        """A picture of the first environment for people, RGB, [H, W, 3]."""
        raise NotImplementedError(f"{self.spec.name} was not made with render=True")

    def close(self) -> None:  # noqa: B027 (most have nothing to release)
        """Release what it holds."""


class Episode(NamedTuple):
    """State of a `JaxEnvironment`: the environment's own, and whether its episode is over."""

    state: Any
    over: Any


class JaxEnvironment(abc.ABC, Generic[State]):
    """One environment as pure functions: vmap them for many. Subclasses give `begin`, `advance`.

    Attributes:
        spec: what it looks like.
    """

    spec: Spec

    @abc.abstractmethod
    def begin(self, key: Key[Array, ""]) -> tuple[State, Array]:
        """A new episode's state and first frame."""

    @abc.abstractmethod
    def advance(
        self, key: Key[Array, ""], state: State, action: Int[Array, ""]
    ) -> tuple[State, Array, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Take an action: next state, frame, reward, terminal, truncated."""

    def reset(self, key: Key[Array, ""]) -> tuple[Episode, Array]:
        """A new episode, and its first frame."""
        state, frame = self.begin(key)
        return Episode(state, jnp.zeros((), bool)), frame

    def step(
        self, key: Key[Array, ""], episode: Episode, action: Int[Array, ""]
    ) -> tuple[Episode, Step]:
        """Take an action or, if the episode is over, begin the next one."""
        begun, first = self.begin(key)
        state, frame, reward, terminal, truncated = self.advance(key, episode.state, action)
        over = episode.over
        step = Step(
            frame=jnp.where(over, first, frame),
            reward=jnp.where(over, 0.0, reward).astype(jnp.float32),
            terminal=terminal & ~over,
            game_over=(terminal | truncated) & ~over,
            reset=over,
        )
        state = jax.tree.map(lambda new, old: jnp.where(over, new, old), begun, state)
        return Episode(state, step.game_over), step


def first_stack(spec: Spec, frames: Any) -> Any:
    """The observations at the start of episodes, from their first frames [N, ...]."""
    if spec.stack == 1:
        return frames
    xp = array_api_compat.array_namespace(frames)
    copies = xp.stack([frames] * spec.stack, axis=-1)
    if spec.pad_with_first:
        return copies
    newest = xp.arange(spec.stack) == spec.stack - 1
    newest = xp.reshape(newest, (1,) * (copies.ndim - 1) + (-1,))
    return xp.where(newest, copies, xp.zeros_like(copies))


def push(spec: Spec, observations: Any, frames: Any, reset: Any) -> Any:
    """The observations after a step: the newest frames in, the oldest out; NumPy or JAX.

    Args:
        spec: of the environment.
        observations: before the step, [N, *observation_shape].
        frames: the newest frames, [N, *frame_shape].
        reset: where a new episode began, [N].
    """
    if spec.stack == 1:
        return frames
    xp = array_api_compat.array_namespace(frames)
    moved = xp.concat([observations[..., 1:], frames[..., None]], axis=-1)
    reset = xp.reshape(reset, reset.shape + (1,) * (moved.ndim - reset.ndim))
    return xp.where(reset, first_stack(spec, frames), moved)
