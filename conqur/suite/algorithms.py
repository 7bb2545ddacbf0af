"""What can be compared in studies that tune: the paper's search, its baseline, and controls."""

from typing import Any, NamedTuple

RANDOM = ("--children", "random", "--updates", "0", "--penalty-weight", "0")
ROLLOUTS = ("--scoring", "rollouts")


class Algorithm(NamedTuple):
    """A way to tune.

    Attributes:
        title: what people call it.
        options: of `conqur tune` that make it what it is.
        penalised: whether it has a penalty weight.
        learns: whether it makes the gradient steps of its preset.
    """

    title: str
    options: tuple[str, ...]
    penalised: bool = False
    learns: bool = False


ALGORITHMS = {
    "conqur": Algorithm("ConQUR", (), penalised=True, learns=True),
    "multi-dqn": Algorithm(
        "multi-DQN", ("--search", "independent", "--penalty-weight", "0"), learns=True
    ),
    "no-penalty": Algorithm("search without penalty", ("--penalty-weight", "0"), learns=True),
    "no-search": Algorithm(
        "penalty without search", ("--search", "independent"), penalised=True, learns=True
    ),
    "random": Algorithm("random children", RANDOM),
    "rollouts": Algorithm("ConQUR by rollouts", ROLLOUTS, penalised=True, learns=True),
    "random-rollouts": Algorithm("random children by rollouts", (*RANDOM, *ROLLOUTS)),
    "refit": Algorithm(
        "large-batch refit",
        (
            *("--search", "independent", "--nodes", "1", "--splitting-factor", "1"),
            *("--expanded", "1", "--penalty-weight", "0", "--refit", "lbfgs", "--updates", "50"),
            *("--data", "replay"),
        ),
    ),
}


def algorithm_of(config: dict[str, Any]) -> str:
    """The algorithm of a tuning run, by its settings."""
    if config["refit"] == "lbfgs":
        return "refit"
    if config["search"] == "independent":
        return "no-search" if config["penalty_weight"] else "multi-dqn"
    rollouts = config["scoring"] == "rollouts"
    if config["children"] == "random":
        return "random-rollouts" if rollouts else "random"
    if rollouts:
        return "rollouts"
    return "conqur" if config["penalty_weight"] else "no-penalty"
