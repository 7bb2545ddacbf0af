"""A trained network and what is known about it."""

from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from conqur.regressor import Architecture, Dense, Regressor


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A network and what is known about it.

    Attributes:
        regressor: the network.
        architecture: what it is made of.
        environment: the name of what it was trained on; "" if its file does not say so.
        preprocessing: how Atari pictures were made for it; "" for other environments.
        origin: everything else its file says, such as "seed" and "penalty_weight".
        format: of the file it comes from, such as "conqur" or "sb3".
    """

    regressor: Regressor
    architecture: Architecture
    environment: str
    preprocessing: str
    origin: dict[str, Any]
    format: str = "conqur"

    @property
    def discount(self) -> float | None:
        """γ that it was trained with, if its file says so."""
        found = self.origin.get("discount")
        if not isinstance(found, int | float) or not 0 <= found <= 1:
            return None
        return float(found)

    @property
    def head(self) -> Dense:
        """The last layer."""
        return self.regressor.head

    def embed(self, observations: Any) -> Float[Array, "B F"]:
        """φ(s) of observations [B, ...], images with their channels last."""
        return _embed(self.regressor, self._checked(observations))

    def q_values(self, observations: Any) -> Float[Array, "B A"]:
        """Q_θ(s, ·) of observations [B, ...]."""
        return _q_values(self.regressor, self._checked(observations))

    def _checked(self, observations: Any) -> Array:
        seen, shape = jnp.asarray(observations), self.architecture.observation_shape
        if seen.shape[1:] != shape:
            raise ValueError(
                f"observations must have shape [B, {', '.join(map(str, shape))}], "
                f"got {list(seen.shape)}"
            )
        return seen

    def with_head(self, head: Dense) -> "Pretrained":
        """The same network with another last layer."""
        if head.weight.shape != self.head.weight.shape:
            raise ValueError(
                f"head must have weights of shape {list(self.head.weight.shape)}, "
                f"got {list(head.weight.shape)}"
            )
        return replace(self, regressor=eqx.tree_at(lambda r: r.head, self.regressor, head))


@eqx.filter_jit
def _embed(regressor: Regressor, observations: Array) -> Float[Array, "B F"]:
    return regressor.embed(observations)


@eqx.filter_jit
def _q_values(regressor: Regressor, observations: Array) -> Float[Array, "B A"]:
    return regressor(observations)
