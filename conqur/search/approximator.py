"""Two approximators, one search: what all nodes share, and what each has of its own.

    embed    s ↦ φ(s)          frozen, shared by all nodes, runs once per state
    predict  θ, φ ↦ Q_θ(s, ·)  of each node

A linear head on frozen features (the paper's linear tuning), whole networks (its "beyond warm
starts"), and features of states and actions as small exact problems have them. The search does not
know which.
"""

import abc
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from conqur.regressor import Body, Dense, Regressor

ROWS = 256
"""States that noise is measured on where they have to be embedded for it."""


class Approximator(eqx.Module):
    """How Q-values come about."""

    @abc.abstractmethod
    def embed(self, observations: Array) -> Array:
        """φ of observations [B, ...]."""

    @abc.abstractmethod
    def predict(self, theta: Any, features: Array) -> Float[Array, "B A"]:
        """Q_θ(s, ·) from φ(s)."""

    @abc.abstractmethod
    def node_axes(self, theta: Any) -> Any:
        """Where the axis N is in each array of many nodes' θ."""

    @abc.abstractmethod
    def regressor(self, theta: Any) -> Regressor:
        """The network of a node, whole."""

    @abc.abstractmethod
    def perturbed(self, key: Key[Array, ""], theta: Any, features: Array, size: Any) -> Any:
        """θ with noise that changes Q-values by about `size` (its standard deviation)."""

    def steepness(self, features: Array) -> Float[Array, ""]:
        """By how much Q-values change, on average, if every weight changes by one in size."""
        raise ValueError(
            f"units must be 'q' for {type(self).__name__}: a step in units of the action gap "
            "needs Q-values that are linear in θ"
        )


class LinearTuning(Approximator):
    """The head is θ; the body is frozen."""

    body: Body

    def embed(self, observations: Array) -> Float[Array, "B F"]:
        """The body's features."""
        return self.body(observations)

    def predict(self, theta: Dense, features: Float[Array, "B F"]) -> Float[Array, "B A"]:
        """The head's Q-values."""
        return theta(features)

    def node_axes(self, theta: Dense) -> Dense:
        """Nodes lie beside the actions: for all of them the head is one matrix [F, N·A]."""
        weight, bias = 1, 0
        axes: Dense = jax.tree.unflatten(jax.tree.structure(theta), (weight, bias))
        return axes

    def regressor(self, theta: Dense) -> Regressor:
        """The body with this head."""
        return Regressor(self.body, theta)

    def perturbed(
        self, key: Key[Array, ""], theta: Dense, features: Float[Array, "B F"], size: Any
    ) -> Dense:
        """The head with noise."""
        return perturbed_head(key, theta, features, size)

    def steepness(self, features: Float[Array, "B F"]) -> Float[Array, ""]:
        """The mean over states of Σ|φ|, and one for the bias."""
        return 1 + jnp.mean(jnp.sum(jnp.abs(features), axis=-1))


class WholeNetwork(Approximator):
    """All of the network is θ."""

    def embed(self, observations: Array) -> Array:
        """Observations as they are."""
        return observations

    def predict(self, theta: Regressor, features: Array) -> Float[Array, "B A"]:
        """The network's Q-values."""
        return theta(features)

    def node_axes(self, theta: Regressor) -> Any:
        """In front."""
        return jax.tree.map(lambda _: 0, theta)

    def regressor(self, theta: Regressor) -> Regressor:
        """The network."""
        return theta

    def perturbed(
        self, key: Key[Array, ""], theta: Regressor, features: Array, size: Any
    ) -> Regressor:
        """The network with noise on its head."""
        embedded = theta.embed(features[:ROWS])
        return Regressor(theta.body, perturbed_head(key, theta.head, embedded, size))


class StateActionFeatures(Approximator):
    """Q_θ(s, a) = θ·φ(s, a) in a finite problem, where states are numbers."""

    table: Float[Array, "S A d"]

    def embed(self, observations: Array) -> Float[Array, "B A d"]:
        """The features of all actions."""
        return self.table[observations]

    def predict(
        self, theta: Float[Array, " d"], features: Float[Array, "B A d"]
    ) -> Float[Array, "B A"]:
        """Their products with θ."""
        return features @ theta

    def node_axes(self, theta: Any) -> int:
        """In front."""
        return 0

    def regressor(self, theta: Any) -> Regressor:
        """There is none."""
        raise ValueError("a problem with state-action features has no network")

    def perturbed(
        self, key: Key[Array, ""], theta: Float[Array, " d"], features: Any, size: Any
    ) -> Float[Array, " d"]:
        """θ with noise."""
        length = jnp.sqrt(jnp.mean(jnp.sum(features**2, axis=-1)))
        return theta + size / length * jax.random.normal(key, theta.shape)


def perturbed_head(
    key: Key[Array, ""], head: Dense, features: Float[Array, "B F"], size: Any
) -> Dense:
    """A head with noise that changes Q-values by about `size` (its standard deviation)."""
    length = jnp.sqrt(1 + jnp.mean(jnp.sum(features**2, axis=-1)))
    keys = jax.random.split(key)
    return Dense(
        head.weight + size / length * jax.random.normal(keys[0], head.weight.shape),
        head.bias + size / length * jax.random.normal(keys[1], head.bias.shape),
    )
