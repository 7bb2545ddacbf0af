"""What runs say before they start, and where they write."""

import os
import re
import shlex
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from conqur.config import TrainConfig


def free_folder(name: str) -> tuple[Path, Path | None]:
    """The first folder of a run's name that is not there, and the last one that is, if any."""
    stem = re.sub(r"[^\w.-]+", "-", name).strip("-")
    before = None
    for number in count(1):
        path = Path("runs") / (stem if number == 1 else f"{stem}-{number}")
        if not path.exists():
            break
        before = path
    return path, before


def free_file(name: str) -> Path:
    """The first file of such a name that is not there: name.html, name-2.html, and so on."""
    path = Path(name)
    numbered = (path.with_stem(f"{path.stem}-{number}") for number in count(2))
    return next(free for free in chain([path], numbered) if not os.path.lexists(free))


def other_folder(command: str, before: Path, folder: Path) -> str:
    """That there was a run of this name, and how to go on with it."""
    from conqur.runs.checkpoint import Checkpoints
    from conqur.runs.layout import CHECKPOINTS

    if (before / "summary.json").is_file():
        return f"{before} exists (finished); writing to {folder}"
    kept = before / CHECKPOINTS
    steps = Checkpoints(kept).steps() if kept.is_dir() else []
    resume = shlex.join(["conqur", command, "--resume", "--run-dir", str(before)])
    there = f" (step {steps[0]:,}; to go on: {resume})" if steps else ""
    return f"{before} exists{there}; writing to {folder}"


def header(config: "TrainConfig", settings: str, folder: Path) -> str:
    """What is about to be trained, with what and where to.

    Args:
        config: of the run.
        settings: where they come from.
        folder: the run's.
    """
    import jax

    weights = ", ".join(_annealed(config, weight) for weight in config.penalty_weights)
    seeds = f"seed {config.seeds[0]}" if len(config.seeds) == 1 else f"{len(config.seeds)} seeds"
    several = len(config.members) > 1
    networks = f"{len(config.members)} networks" if several else "one network"
    means = "; return and loss are means over the networks" if several else ""
    return (
        f"{config.algorithm.upper()} on {config.environment}: {networks} (λ {weights}; {seeds}), "
        f"{config.steps:,} steps each, {settings}, on {jax.devices()[0].device_kind}, "
        f"in {folder}{means}"
    )


def _annealed(config: "TrainConfig", weight: float) -> str:
    """λ, and what of it is in effect when the run is over."""
    from conqur.environments.data import is_data
    from conqur.regression import annealed_penalty_weight

    begin = 0 if is_data(config.environment) else config.learning_starts
    updates = max(0, config.steps - begin) // config.update_every
    end = annealed_penalty_weight(weight, updates, halfway=config.anneal_halfway)
    return f"{weight:g}, annealed from 0 to {end:.2g}" if weight else f"{weight:g}"


def is_code(environment: str) -> bool:
    """Whether something is imported for an environment that its name tells."""
    from conqur.environments.data import is_data

    return ":" in environment and not is_data(environment)
