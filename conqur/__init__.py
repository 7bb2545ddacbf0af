"""ConQUR: consistent Q-update regression, against delusional bias in Q-learning."""

from conqur import exact, tabular
from conqur.assignment import (
    adaptive_temperature,
    boltzmann_assignment,
    greedy_assignment,
    q_labels,
    strict_assignment,
    successors,
)
from conqur.consistency import (
    ConsistencyBuffer,
    Decay,
    Everything,
    Population,
    Subsample,
    Widening,
    Window,
    penalty,
)
from conqur.regression import (
    annealed_penalty_weight,
    bellman_error,
    penalised_loss,
    penalised_update,
)

__version__ = "0.1.0"

__all__ = [
    "ConsistencyBuffer",
    "Decay",
    "Everything",
    "Population",
    "Subsample",
    "Widening",
    "Window",
    "adaptive_temperature",
    "annealed_penalty_weight",
    "bellman_error",
    "boltzmann_assignment",
    "exact",
    "greedy_assignment",
    "penalised_loss",
    "penalised_update",
    "penalty",
    "q_labels",
    "strict_assignment",
    "successors",
    "tabular",
]
