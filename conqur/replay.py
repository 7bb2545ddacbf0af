"""Experience replay on the accelerator: every frame is stored once, stacks are built on sampling.

N environments write one row per step: at time t the frame o_t that was seen, the action taken there
and what came of it; the successor's newest frame is that of time t + 1. The replay does not count
the steps itself, so that many replays that are written together share one count. A step that began
a new episode is a row too, but no transition, and is never drawn.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Integer, Key

from conqur.environments.interface import Spec, Step, Transitions


def least_rows(spec: Spec) -> int:
    """The fewest rows of a replay: those that the oldest stack reaches back to, and two more, of
    which one at least is a transition."""
    return spec.stack + 2


class Replay(eqx.Module):
    """A ring of T rows for N environments; a pytree that lives inside compiled loops."""

    frames: Array
    """o_t, [T, N, *frame_shape]."""
    first: Bool[Array, "T N"]
    """Whether o_t is the first frame of its episode."""
    actions: Integer[Array, "T N"]
    rewards: Float[Array, "T N"]
    terminal: Bool[Array, "T N"]
    drawable: Bool[Array, "T N"]
    """Whether row t is a transition: false where the step began a new episode."""
    spec: Spec = eqx.field(static=True)

    @classmethod
    def begin(cls, spec: Spec, frames: Any, rows: int) -> "Replay":
        """A ring that holds nothing but the first frames [N, ...] of N environments."""
        num_envs = frames.shape[0]
        if rows < least_rows(spec):
            raise ValueError(f"rows must be at least {least_rows(spec)}, got {rows}")
        ring = jnp.zeros((rows, num_envs, *spec.frame_shape), spec.frame_dtype)
        flags = jnp.zeros((rows, num_envs), bool)
        return cls(
            frames=ring.at[0].set(frames),
            first=flags.at[0].set(True),
            actions=jnp.zeros((rows, num_envs), jnp.uint8 if len(spec.actions) <= 256 else int),
            rewards=jnp.zeros((rows, num_envs), jnp.float32),
            terminal=flags,
            drawable=flags,
            spec=spec,
        )

    @property
    def rows(self) -> int:
        """T."""
        return self.first.shape[0]

    def add(self, time: Any, actions: Any, step: Step) -> "Replay":
        """Take in what N environments gave at time t for their actions."""
        now, after = time % self.rows, (time + 1) % self.rows
        return Replay(
            frames=self.frames.at[after].set(step.frame),
            first=self.first.at[after].set(step.reset),
            actions=self.actions.at[now].set(actions.astype(self.actions.dtype)),
            rewards=self.rewards.at[now].set(step.reward),
            terminal=self.terminal.at[now].set(step.terminal),
            drawable=self.drawable.at[now].set(~step.reset),
            spec=self.spec,
        )

    def observations(self, time: Any) -> Array:
        """What the N environments show at time t, the newest, [N, *observation_shape]."""
        num_envs = self.first.shape[1]
        return self._stack(jnp.full(num_envs, time), jnp.arange(num_envs))

    def sample(self, key: Key[Array, ""], size: int, time: Any) -> Transitions:
        """Draw B transitions uniformly, with replacement, when t is the newest time.

        A step that begins an episode follows one that ended one, so about half of all rows or more
        are transitions: of 4 B + 64 rows drawn, B or more are (fewer once in 10¹⁸ times).
        """
        time_key, env_key = jax.random.split(key)
        draws = (4 * size + 64,)
        # A full ring has lost the rows that the oldest stacks reach back to.
        oldest = jnp.where(time < self.rows, 0, time - self.rows + self.spec.stack)
        times = jax.random.randint(time_key, draws, oldest, jnp.maximum(time, 1))
        envs = jax.random.randint(env_key, draws, 0, self.first.shape[1])
        rank = jnp.argsort(~self.drawable[times % self.rows, envs], stable=True)[:size]
        times, envs = times[rank], envs[rank]
        row = times % self.rows
        return Transitions(
            states=self._stack(times, envs),
            actions=self.actions[row, envs].astype(jnp.int32),
            rewards=self.rewards[row, envs],
            successors=self._stack(times + 1, envs),
            terminal=self.terminal[row, envs],
        )

    def _stack(self, times: Int[Array, " B"], envs: Int[Array, " B"]) -> Array:
        """Observations at these times in these environments, [B, *observation_shape]."""
        if self.spec.stack == 1:
            return self.frames[times % self.rows, envs]
        back = jnp.arange(self.spec.stack - 1, -1, -1)[None]  # oldest to newest
        history = jnp.maximum(times[:, None] - back, 0)
        begins = self.first[history % self.rows, envs[:, None]]
        # How far back the episode's first frame lies, if that is within the stack.
        age = jnp.min(jnp.where(begins, back, self.spec.stack), axis=1)[:, None]
        if self.spec.pad_with_first:
            history = jnp.maximum(history, times[:, None] - age)
        frames = self.frames[history % self.rows, envs[:, None]]  # [B, stack, ...]
        if not self.spec.pad_with_first:
            ours = (back <= age).reshape(*history.shape, *(1,) * len(self.spec.frame_shape))
            frames = jnp.where(ours, frames, jnp.zeros_like(frames))
        return jnp.moveaxis(frames, 1, -1)
