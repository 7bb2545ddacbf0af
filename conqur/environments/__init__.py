"""Environments: Atari, MinAtar, any Gymnasium id, anything in JAX; and fixed data sets."""

from conqur.environments.data import FixedData, load_data, save_data
from conqur.environments.gymnasium_env import GymnasiumEnvironment
from conqur.environments.interface import (
    Episode,
    JaxEnvironment,
    Spec,
    Step,
    Transitions,
    VectorEnvironment,
    first_stack,
    push,
)
from conqur.environments.jax_env import GymnaxEnvironment, HostedJax, PgxEnvironment
from conqur.environments.making import make, make_jax

__all__ = [
    "make",
    "make_jax",
    "Spec",
    "Step",
    "Episode",
    "VectorEnvironment",
    "JaxEnvironment",
    "first_stack",
    "push",
    "GymnasiumEnvironment",
    "PgxEnvironment",
    "GymnaxEnvironment",
    "HostedJax",
    "FixedData",
    "Transitions",
    "load_data",
    "save_data",
]
