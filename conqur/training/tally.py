"""What happened between two rows of a training run's log."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from conqur.dqn import Diagnostics
from conqur.environments.interface import Step


class Tally(eqx.Module):
    """What happened since the last row of the log."""

    running: Float[Array, " N"]
    """The return so far of the games under way."""
    episodes: Int[Array, ""]
    returns: Float[Array, ""]
    """Sum over the games that ended."""
    updates: Int[Array, ""]
    loss: Float[Array, ""]
    """Sum over the updates."""
    looks: Int[Array, ""]
    found: Diagnostics
    """Sum over the looks at the network."""

    @classmethod
    def empty(cls, num_envs: int) -> "Tally":
        """Nothing happened yet."""
        zero = jnp.zeros((), jnp.float32)
        none = jnp.zeros((), jnp.int32)
        found = Diagnostics(*(zero for _ in Diagnostics._fields))
        return cls(jnp.zeros(num_envs, jnp.float32), none, zero, none, zero, none, found)

    def looked(self, found: Diagnostics) -> "Tally":
        """Count a look at the network."""
        return eqx.tree_at(
            lambda tally: (tally.looks, tally.found),
            self,
            (self.looks + 1, jax.tree.map(jnp.add, self.found, found)),
        )

    def learned(self, losses: Float[Array, " U"]) -> "Tally":
        """Count updates."""
        return eqx.tree_at(
            lambda tally: (tally.updates, tally.loss),
            self,
            (self.updates + losses.size, self.loss + jnp.sum(losses)),
        )

    def absorbed(self, step: Step, *, cut: Any = False) -> "Tally":
        """Count rewards and finished games; where `cut`, the games under way do not count.

        A lost life may begin a new episode (`reset`), but it is the game that has a score.
        """
        running = jnp.where(cut, 0.0, self.running) + step.reward
        over = step.game_over
        return eqx.tree_at(
            lambda tally: (tally.running, tally.episodes, tally.returns),
            self,
            (
                jnp.where(over, 0.0, running),
                self.episodes + jnp.sum(over),
                self.returns + jnp.sum(jnp.where(over, running, 0.0)),
            ),
        )

    def cleared(self) -> "Tally":
        """A new count; the games under way go on."""
        return eqx.tree_at(
            lambda tally: tally.running, Tally.empty(len(self.running)), self.running
        )
