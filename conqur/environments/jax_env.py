"""Environments written in JAX: MinAtar from pgx, and anything with gymnax's interface.

Both become `JaxEnvironment`s, which compile into the program that uses them; `HostedJax` runs one
where the host steps its environments.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

from conqur import _checks
from conqur.environments.frames import can_draw, draw, frame_layout
from conqur.environments.interface import JaxEnvironment, Spec, Step, VectorEnvironment

MINATAR_ACTIONS = ("NOOP", "LEFT", "UP", "RIGHT", "DOWN", "FIRE")
"""MinAtar's six actions, in its order."""


@runtime_checkable
class PgxShaped(Protocol):
    """What is used of a pgx environment."""

    id: str
    num_players: int

    def init(self, key: Any) -> Any:
        """The first state of an episode."""

    def step(self, state: Any, action: Any, key: Any) -> Any:
        """The next state."""


@runtime_checkable
class GymnaxShaped(Protocol):
    """What is used of a gymnax environment."""

    default_params: Any

    def reset_env(self, key: Any, params: Any) -> tuple[Any, Any]:
        """An episode's first observation and state."""

    def step_env(self, key: Any, state: Any, action: Any, params: Any) -> tuple[Any, ...]:
        """Observation, state, reward, whether the episode ended, further information."""

    def action_space(self, params: Any) -> Any:
        """The space of actions."""


class Timed(NamedTuple):
    """State of a `PgxEnvironment`: the game's, and how many steps the episode has had."""

    state: Any
    steps: Int[Array, ""]


class PgxEnvironment(JaxEnvironment[Timed]):
    """A game of pgx for one player, such as the five MinAtar games.

    MinAtar as pgx has it: actions stick with probability 0.1, Asterix, Seaquest and Space Invaders
    get harder as a game goes on, and only the actions that do something in a game are there (three
    of the six in Breakout). Freeway ends after 2,500 steps; pgx gives the other games no limit, and
    as nothing says that a good player ever loses them, an episode is cut after `max_steps`. The
    default is Atari's half hour: 108,000 frames at four to a step.

    An action that is illegal, which there is none of in MinAtar, ends the game with reward −1.

    Args:
        environment: what `pgx.make` gives.
        name: for its spec; pgx's id if not given.
        max_steps: after how many steps an episode is cut (`game_over`, but not `terminal`).
    """

    def __init__(
        self, environment: PgxShaped, *, name: str | None = None, max_steps: int = 27_000
    ) -> None:
        self._environment: Any = environment
        self._max_steps = _checks.count("max_steps", max_steps)
        name = environment.id if name is None else name
        if environment.num_players != 1:
            raise ValueError(f"{name} has {environment.num_players} players, but must have one")
        state = jax.eval_shape(environment.init, jax.random.key(0))
        observation = state.observation
        shape, dtype = frame_layout(name, observation.shape, observation.dtype)
        actions = self._action_names(int(state.legal_action_mask.shape[0]))
        self.spec = Spec(name, frame_shape=shape, frame_dtype=dtype, actions=actions)

    def begin(self, key: Key[Array, ""]) -> tuple[Timed, Array]:
        """A new game's state and first frame."""
        state = self._environment.init(key)
        return Timed(state, jnp.zeros((), jnp.int32)), _frame(self.spec, state.observation)

    def advance(
        self, key: Key[Array, ""], state: Timed, action: Int[Array, ""]
    ) -> tuple[Timed, Array, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Take an action: next state, frame, reward, terminal, truncated."""
        after = self._environment.step(state.state, action, key)
        steps = state.steps + 1
        truncated = after.truncated | (steps >= self._max_steps)
        frame = _frame(self.spec, after.observation)
        return Timed(after, steps), frame, after.rewards[0], after.terminated, truncated

    def _action_names(self, count: int) -> tuple[str, ...]:
        if not self._environment.id.startswith("minatar-"):
            return tuple(str(number) for number in range(count))
        if count == len(MINATAR_ACTIONS):
            return MINATAR_ACTIONS
        return tuple(MINATAR_ACTIONS[number] for number in self._environment.minimal_action_set)


class GymnaxEnvironment(JaxEnvironment[Any]):
    """An environment with gymnax's interface, whoever wrote it.

    `reset_env` and `step_env` are used, never `step`, which begins the next episode by itself and
    loses the last observation. Where there is an `is_truncated` (gymnax 1.0 and later), it tells a
    time limit from an end; where there is none, every end counts as `terminal`, as the environment
    itself does not tell them apart.

    Args:
        environment: the environment.
        params: its parameters; its own `default_params` if not given.
        name: for its spec; the name of its class if not given.
    """

    def __init__(
        self, environment: GymnaxShaped, params: Any = None, *, name: str | None = None
    ) -> None:
        self._environment = environment
        self._params = environment.default_params if params is None else params
        self._is_truncated: Callable[[Any, Any], Any]
        self._is_truncated = getattr(environment, "is_truncated", lambda state, params: False)
        name = type(environment).__name__ if name is None else name
        actions = getattr(environment.action_space(self._params), "n", None)
        if not isinstance(actions, int | np.integer):
            raise ValueError(f"{name} has actions that are not discrete, but they have to be")
        observation, _ = jax.eval_shape(self._reset, jax.random.key(0))
        if not isinstance(observation, jax.ShapeDtypeStruct):
            kind = type(observation).__name__
            raise ValueError(f"{name} has {kind} observations, but they have to be one array")
        shape, dtype = frame_layout(name, observation.shape, observation.dtype)
        names = tuple(str(number) for number in range(actions))
        self.spec = Spec(name, frame_shape=shape, frame_dtype=dtype, actions=names)

    def begin(self, key: Key[Array, ""]) -> tuple[Any, Array]:
        """A new episode's state and first frame."""
        observation, state = self._reset(key)
        return state, _frame(self.spec, observation)

    def advance(
        self, key: Key[Array, ""], state: Any, action: Int[Array, ""]
    ) -> tuple[Any, Array, Float[Array, ""], Bool[Array, ""], Bool[Array, ""]]:
        """Take an action: next state, frame, reward, terminal, truncated."""
        observation, state, reward, ended, _ = self._environment.step_env(
            key, state, action, self._params
        )
        truncated = self._is_truncated(state, self._params)
        return (
            state,
            _frame(self.spec, observation),
            jnp.asarray(reward, jnp.float32).reshape(()),
            jnp.asarray(ended, bool).reshape(()),
            jnp.asarray(truncated, bool).reshape(()),
        )

    def _reset(self, key: Key[Array, ""]) -> tuple[Any, Any]:
        return self._environment.reset_env(key, self._params)


class HostedJax(VectorEnvironment):
    """N copies of a `JaxEnvironment` behind the host's interface, one compiled step for all.

    The key of copy i in step t is `fold_in(key(seed of i), t)`, counted from the last `reset`.
    Programs that compile the steps into themselves do the same: `begin_games`, `step_games`.

    Attributes:
        environment: one copy.
    """

    def __init__(self, environment: JaxEnvironment[Any], num_envs: int = 1) -> None:
        """Run copies of an environment.

        Args:
            environment: the environment.
            num_envs: N.
        """
        self.environment = environment
        self.spec = environment.spec
        self.num_envs = _checks.count("num_envs", num_envs)
        self._time = -1

    def reset(self, seeds: Sequence[int]) -> np.ndarray:
        """Begin new episodes everywhere, with one seed for each; the first frames, [N, ...]."""
        numbers = _checks.index_array("seeds", seeds, self.num_envs)
        if (numbers >= 2**32).any():
            raise ValueError(f"seeds holds {numbers.max()}, but a seed has to be below 2³²")
        self._keys = jax.vmap(jax.random.key)(numbers.astype(np.uint32))
        self._time = 0
        self._episodes, frames = begin_games(self.environment, self._keys)
        self._frames = np.asarray(frames)
        return self._frames

    def under_way(self) -> tuple[Key[Array, " N"], Any]:
        """The copies' keys and episodes, on the device, for a program that plays on by itself."""
        return self._keys, self._episodes

    def send(self, actions: Int[np.ndarray, " N"]) -> None:
        """Start a step, which goes on in the background."""
        if self._time < 0:
            raise ValueError(f"{self.spec.name} has to be reset before its first step")
        count = len(self.spec.actions)
        actions = _checks.action_array("actions", actions, length=self.num_envs, num_actions=count)
        self._time += 1
        self._episodes, self._sent = step_games(
            self.environment,
            self._keys,
            np.int32(self._time),
            self._episodes,
            actions.astype(np.int32),
        )

    def receive(self) -> Step:
        """Wait for the step that was sent."""
        step: Step = jax.device_get(self._sent)
        self._frames = step.frame
        return step

    def render(self) -> np.ndarray:
        """A picture of the first environment's frame, RGB, [H, W, 3]."""
        if not can_draw(self.spec.frame_shape, self.spec.frame_dtype):
            raise NotImplementedError(f"the frames of {self.spec.name} are no pictures")
        return draw(self._frames[0])


@eqx.filter_jit
def begin_games(environment: JaxEnvironment[Any], keys: Key[Array, " N"]) -> tuple[Any, Array]:
    """New episodes, by their keys, and their first frames."""
    return jax.vmap(environment.reset)(_fold_in(keys, 0))


@eqx.filter_jit
def step_games(
    environment: JaxEnvironment[Any],
    keys: Key[Array, " N"],
    time: Any,
    episodes: Any,
    actions: Int[Any, " N"],
) -> tuple[Any, Step]:
    """Step number `time` of all episodes, or of each its own, counted from one."""
    return jax.vmap(environment.step)(_fold_in(keys, time), episodes, actions)


def _fold_in(keys: Key[Array, " N"], time: Any) -> Key[Array, " N"]:
    return jax.vmap(jax.random.fold_in)(keys, jnp.broadcast_to(time, keys.shape))


def _frame(spec: Spec, observation: Any) -> Array:
    return jnp.asarray(observation).reshape(spec.frame_shape).astype(spec.frame_dtype)
