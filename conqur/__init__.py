"""ConQUR: consistent Q-update regression, against delusional bias in Q-learning."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conqur import exact, pretrained, search, tabular
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
    from conqur.pretrained import Pretrained, load, write_like
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
    "Pretrained",
    "Subsample",
    "Widening",
    "Window",
    "adaptive_temperature",
    "annealed_penalty_weight",
    "bellman_error",
    "boltzmann_assignment",
    "exact",
    "greedy_assignment",
    "load",
    "penalised_loss",
    "penalised_update",
    "penalty",
    "pretrained",
    "q_labels",
    "search",
    "strict_assignment",
    "successors",
    "tabular",
    "write_like",
]

_PACKAGES = ("exact", "pretrained", "search", "tabular")
_MODULES = ("assignment", "consistency", "pretrained", "regression")

if not TYPE_CHECKING:  # else every name would be right

    def __getattr__(name: str) -> Any:
        """Import a public name when it is asked for.

        Importing JAX takes a second, in which Ctrl-C would be a traceback if the command line had
        to wait for it.
        """
        if name in _PACKAGES:
            return importlib.import_module(f"conqur.{name}")
        if name in __all__:
            for module in _MODULES:
                found = vars(importlib.import_module(f"conqur.{module}"))
                if name in found:
                    return found[name]
        raise AttributeError(f"module 'conqur' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
