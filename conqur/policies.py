"""Several policies as one function."""

import abc

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int


class Policies(eqx.Module):
    """K policies as one function that can also be had of some of them."""

    @abc.abstractmethod
    def __call__(self, observations: Array) -> Float[Array, "K E A"]:
        """Q-values of observations [K, E, ...]: policy k answers for [k]."""

    @abc.abstractmethod
    def some(self, places: Int[np.ndarray, " J"]) -> "Policies":
        """Those in these places, in this order."""
