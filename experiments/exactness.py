"""How consistent is what training commits to, and what does the penalty become when λ grows?

    python experiments/exactness.py --output results/exactness        half an hour on one core

For the first bundled network of each MinAtar game, writes

- `unions.csv`: `conqur diagnose` with λ = 1, 10, 100 and 1000, three repetitions each. Plain
  Q-learning of the last layer goes on for ten batches, and a penalised copy learns from the same
  ones; labels are of the max. Of all choices that their labels rest on: how many a copy's own
  greedy policy breaks; how many no policy can keep, as a state got several actions; in how many
  repetitions no last layer can keep each state's most frequent one either (proved); and how many
  the best last layer that was found breaks.
- `limit.csv`: one regression on 2,000 transitions from the network's own play, with the max labels
  and 300 of the choices behind them. The exact minimisers of the penalised loss for growing λ,
  beside the exact constrained one (λ = ∞) and plain least squares (λ = 0).
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from conqur import exact, penalty, pretrained
from conqur.environments import make
from conqur.search.approximator import LinearTuning
from conqur.search.compiled import collector
from conqur.suite.tables import as_csv

GAMES = ("Asterix", "Breakout", "Freeway", "Seaquest", "SpaceInvaders")
WEIGHTS = (1, 10, 100, 1000)
LIMIT = (1, 10, 100, 1e3, 1e4, 1e5, 1e6)
TRANSITIONS, CHOICES = 2_000, 300
MARGIN = 0.01
DISCOUNT = 0.99


class Union(NamedTuple):
    """The choices that training rests on; means over repetitions, with Student's 95 % intervals."""

    game: str
    penalty_weight: float
    choices: int
    broken: float
    broken_low: float
    broken_high: float
    broken_by_any_policy: float
    broken_at_best_found: float
    repetitions: int
    inconsistent: int
    undecided: int


class Fitted(NamedTuple):
    """The minimiser for one λ."""

    game: str
    penalty_weight: float
    error: float
    broken: float
    penalty: float
    apart: float
    """Root mean square of the difference of predictions to the constrained minimiser's."""


def conqur(*arguments: str) -> str:
    command = [sys.executable, "-m", "conqur", *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def unions(game: str) -> Iterator[Union]:
    for weight in WEIGHTS:
        with tempfile.TemporaryDirectory() as folder:
            options = ["--penalty-weight", str(weight), "--json", "--output", f"{folder}/page.html"]
            found = json.loads(conqur("diagnose", f"bundled:MinAtar-{game}-0", *options))
        if weight == WEIGHTS[0]:
            yield _union(game, 0, found["plain"])
        yield _union(game, weight, found["penalised"])


def _union(game: str, weight: float, copy: dict[str, Any]) -> Union:
    low, high = copy["broken"]["interval"]
    outcomes = [repetition["satisfiable"]["resolved"] for repetition in copy["repetitions"]]
    return Union(
        game=game,
        penalty_weight=weight,
        choices=copy["choices"],
        broken=copy["broken"]["mean"],
        broken_low=low,
        broken_high=high,
        broken_by_any_policy=1 - copy["any_policy"]["mean"],
        broken_at_best_found=1 - copy["found"]["mean"],
        repetitions=len(outcomes),
        inconsistent=outcomes.count("inconsistent"),
        undecided=outcomes.count("undecided"),
    )


def limit(game: str) -> Iterator[Fitted]:
    network = pretrained.load(f"bundled:MinAtar-{game}-0")
    head = network.regressor.head
    played = collector(
        LinearTuning(network.regressor.body),
        lambda copies: make(network.environment, copies),
        16,
        transitions=TRANSITIONS,
        epsilon=0.01,
        clip_rewards=False,
        seed=0,
    ).collect(jax.device_get(head))
    states, actions, rewards, successors, terminal = (
        np.asarray(part, np.float64 if part.dtype.kind == "f" else None)
        for part in played.transitions
    )
    features = _by_action(successors, head.weight.shape[1])
    theta = np.concatenate([np.asarray(head.weight), np.asarray(head.bias)[None]]).T.ravel()
    values = features @ theta
    labels = rewards + DISCOUNT * np.where(terminal, 0, values.max(axis=1))
    inputs = _by_action(states, head.weight.shape[1])[np.arange(len(states)), actions]
    chosen = np.random.default_rng(0).choice(np.flatnonzero(~terminal), CHOICES, replace=False)
    pairs = (features[chosen], values[chosen].argmax(axis=1))
    constrained = exact.fit_consistent(inputs, labels, *pairs, margin=MARGIN)
    assert constrained.theta is not None
    fits = {0.0: np.linalg.lstsq(inputs, labels, rcond=None)[0]}
    for weight in LIMIT:
        fits[weight] = exact.fit_penalised(
            inputs, labels, *pairs, penalty_weight=weight, margin=MARGIN
        )
    fits[np.inf] = constrained.theta
    for weight, fit in fits.items():
        yield _fitted(game, weight, fit, (inputs, labels), pairs, constrained.theta)


def _by_action(features: np.ndarray, actions: int) -> np.ndarray:
    """φ(s, a) of a linear head with biases: the state's features and a one, where a's are."""
    rows = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    return np.einsum("sd,ab->sabd", rows, np.eye(actions)).reshape(len(rows), actions, -1)


def _fitted(
    game: str,
    weight: float,
    theta: np.ndarray,
    regression: tuple[np.ndarray, np.ndarray],
    pairs: tuple[np.ndarray, np.ndarray],
    constrained: np.ndarray,
) -> Fitted:
    inputs, labels = regression
    features, assigned = pairs
    values = features @ theta
    return Fitted(
        game=game,
        penalty_weight=weight,
        error=float(np.mean((inputs @ theta - labels) ** 2)),
        broken=float(np.mean(values.argmax(axis=1) != assigned)),
        penalty=float(penalty(values, assigned, margin=MARGIN).mean()),
        apart=float(np.sqrt(np.mean((inputs @ (theta - constrained)) ** 2))),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, required=True, help="a folder")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    limits = [row for game in GAMES for row in limit(game)]
    (given.output / "limit.csv").write_text(as_csv(Fitted, limits), encoding="utf-8")
    found = []
    for game in GAMES:
        found += unions(game)
        (given.output / "unions.csv").write_text(as_csv(Union, found), encoding="utf-8")


if __name__ == "__main__":
    main()
