"""Is it consistency that keeps networks from being ruined, or just being held to where they were?

    python experiments/holding.py --output results/holding        an hour and a half on one core

For networks of MinAtar games, writes `runs.csv`, with `means.csv` and `distances.svg` made of it:
what the node that a search ranks first in the end scores on fresh starts, and how far its head is
from the checkpoint's. The arms are the penalty (λ = 10), and instead of it a weight ρ on
½‖θ − θ₀‖², which holds heads to the checkpoint's and knows nothing of choices; ρ = 0 is the search
without penalty. Most runs are of two games, one in which the search ruins networks without the
penalty and one in which it does with it; there is also λ = 10 with a temperature τ so low that the
search samples few choices but greedy ones. Which ρ and τ are tried was chosen on the networks with
seed 15, ρ by the distances. Runs that are there already are not made again.
"""

import argparse
import csv
import itertools
import json
import pathlib
import shlex
import statistics
import sys
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from conqur import pretrained
from conqur._files import replacing
from conqur.environments import make
from conqur.pretrained import Pretrained
from conqur.runs.manifest import make_manifest
from conqur.search.approximator import LinearTuning
from conqur.search.compiled import collector
from conqur.search.config import TuneConfig, tune_config
from conqur.search.node import top
from conqur.statistics import student_interval
from conqur.suite.tables import as_csv
from conqur.tuning import FINAL, Tuning, settings_of, starts

NETWORKS = pathlib.Path(__file__).parent.parent / "results" / "networks"
GAMES = ("SpaceInvaders", "Freeway")
OTHERS = ("Asterix", "Breakout", "Seaquest")
SEEDS = (10, 11, 12, 13, 14, 16, 17, 18, 19)
ARMS = (("ρ", 0.0), ("λ", 10.0), ("ρ", 100.0), ("τ", 0.001))
MORE = (("ρ", 1.0), ("ρ", 10.0))
RUNS = (
    *itertools.product(SEEDS, GAMES, (*ARMS, *MORE)),
    *itertools.product(SEEDS[:5], OTHERS, ARMS),
)
TEMPERATURES = (1.0, 0.001)
EPISODES = 64
STATES = 10_000


class Run(NamedTuple):
    """A search, and the node that it ranks first."""

    network: str
    arm: str
    weight: float
    checkpoint: float
    score: float
    distance: float
    """‖θ − θ₀‖ / ‖θ₀‖"""
    changed: float
    """The share of states that the checkpoint comes to in which the greedy action is another."""
    commit: str = ""
    """Of the code; "" if that is not known."""


class Sampled(NamedTuple):
    """Choices that a search samples in its first level."""

    network: str
    temperature: float
    """τ, before it is adapted to states."""
    greedy: float
    """The share of them that are greedy."""


class Mean(NamedTuple):
    """Of networks: the ratio of mean scores, of heads and checkpoints, with its interval."""

    game: str
    arm: str
    weight: float
    networks: int
    score: float
    low: float
    high: float
    distance: float
    changed: float


def search(name: str, arm: str, weight: float) -> Run:
    network = pretrained.load(str(NETWORKS / f"{name}.safetensors"))
    config = _config(
        network,
        penalty_weight={"λ": weight, "τ": 10.0}.get(arm, 0.0),
        temperature=weight if arm == "τ" else None,
        proximal=weight if arm == "ρ" else 0.0,
    )
    tuning = Tuning(config, network)
    *_, tree = tuning.search(tuning.planted())
    first, root = top(tree.pool, 1)[0].weights.theta, tuning.root
    assert tuning.rollouts is not None
    before, after = tuning.rollouts.play(
        [root, first], episodes=EPISODES, seed=starts(FINAL, config.seed)
    )
    tuning.close()
    states = visited(network)
    values = [tuning.approximator.predict(jax.device_put(theta), states) for theta in (root, first)]
    greedy = [np.argmax(each, axis=1) for each in values]
    return Run(
        network=name,
        arm=arm,
        weight=weight,
        checkpoint=before.mean,
        score=after.mean,
        distance=_norm(jax.tree.map(np.subtract, first, root)) / _norm(root),
        changed=float(np.mean(greedy[0] != greedy[1])),
    )


def visited(network: Pretrained) -> Any:
    """Features of states that a network comes to."""
    played = collector(
        LinearTuning(network.regressor.body),
        lambda copies: make(network.environment, copies),
        64,
        transitions=STATES,
        epsilon=0.01,
        clip_rewards=False,
        seed=0,
    ).collect(jax.device_get(network.regressor.head))
    return played.transitions.states


def sampled(name: str, temperature: float) -> float:
    """Which share of the choices that a search samples first are greedy ones."""
    network = pretrained.load(str(NETWORKS / f"{name}.safetensors"))
    config = _config(network, temperature=temperature, levels=1)
    tuning = Tuning(config, network)
    list(tuning.search(tuning.planted()))
    tuning.close()
    return float(tuning.grower.found["greedy"])


def _config(network: Pretrained, **changes: Any) -> TuneConfig:
    settings = settings_of(network) | {"num_envs": 64, "minibatches": "shared"}
    return tune_config("paper-8", **settings | changes)


def _norm(theta: Any) -> float:
    return float(np.linalg.norm(np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(theta)])))


def read(path: pathlib.Path) -> list[Run]:
    if not path.exists():
        return []
    with path.open(encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    return [Run(*row[:2], *map(float, row[2:7]), row[7]) for row in rows]


def means(runs: list[Run]) -> Iterator[Mean]:
    for game, (arm, weight) in itertools.product((*GAMES, *OTHERS), sorted({*ARMS, *MORE})):
        own = [run for run in runs if (_game(run), run.arm, run.weight) == (game, arm, weight)]
        if own:
            yield Mean(
                game,
                arm,
                weight,
                len(own),
                float(np.mean(in_parts(own))),
                *student_interval(in_parts(own)),
                float(np.mean([run.distance for run in own])),
                float(np.mean([run.changed for run in own])),
            )


def in_parts(runs: list[Run]) -> list[float]:
    """What each network adds to the ratio of mean scores, of heads and checkpoints.

    Their mean is the ratio, and their spread that of a ratio estimator: a network whose score is
    the usual part of its checkpoint's adds none, however much it scores.
    """
    before = statistics.mean(run.checkpoint for run in runs)
    ratio = statistics.mean(run.score for run in runs) / before
    return [ratio + (run.score - ratio * run.checkpoint) / before for run in runs]


def table(found: Iterable[Mean]) -> str:
    """For results/README.md."""
    lines = [
        "| game | arm | networks | score | distance, % | greedy actions changed, % |",
        "|---|---|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {mean.game} | {_label(mean.arm, mean.weight)} | {mean.networks} | {mean.score:.2f} "
        f"({mean.low:.2f} to {mean.high:.2f}) | {100 * mean.distance:.2g} | "
        f"{100 * mean.changed:.0f} |"
        for mean in found
    ]
    return "\n".join(lines)


WIDTH, HEIGHT, LEFT, TOP = 200, 160, 40, 30
NEAREST, FARTHEST, HIGHEST = -6.0, -1.0, 3.0
COLOURS = {
    ("λ", 10.0): "#d55e00",
    ("ρ", 0.0): "#000000",
    ("ρ", 1.0): "#0072b2",
    ("ρ", 10.0): "#56b4e9",
    ("ρ", 100.0): "#009e73",
    ("τ", 0.001): "#e69f00",
}
"""Safe for the colour-blind."""


def picture(runs: list[Run]) -> str:
    """A panel for each game: a point for each run, by distance and score."""
    parts = []
    for number, game in enumerate((*GAMES, *OTHERS)):
        left = LEFT + number * (WIDTH + LEFT)
        parts.append(f'<text x="{left}" y="{TOP - 10}" class="name">{game}</text>')
        for score in (0, 1, 2):
            y = TOP + HEIGHT * (1 - score / HIGHEST)
            parts.append(
                f'<path d="M{left} {y:.1f}h{WIDTH}" stroke="{"#777" if score == 1 else "#ddd"}"/>'
                f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{score}</text>'
            )
        for exponent in (-4, -3, -2):
            x = left + WIDTH * (exponent - NEAREST) / (FARTHEST - NEAREST)
            label = f"{100 * 10.0**exponent:g} %"
            parts.append(
                f'<text x="{x:.1f}" y="{TOP + HEIGHT + 15}" text-anchor="middle">{label}</text>'
            )
        for run in (run for run in runs if _game(run) == game):
            x = left + WIDTH * (np.log10(run.distance) - NEAREST) / (FARTHEST - NEAREST)
            assert NEAREST < np.log10(run.distance) < FARTHEST
            assert run.score / run.checkpoint < HIGHEST
            y = TOP + HEIGHT * (1 - run.score / run.checkpoint / HIGHEST)
            parts.append(
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{COLOURS[run.arm, run.weight]}" '
                f'fill-opacity="0.7"><title>{run.network}, {_label(run.arm, run.weight)}: '
                f"{run.checkpoint:.1f} to {run.score:.1f}</title></circle>"
            )
    for i, ((arm, weight), colour) in enumerate(COLOURS.items()):
        x, y = LEFT + i * 90, TOP + HEIGHT + 40
        parts.append(
            f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>'
            f'<text x="{x + 10}" y="{y + 4}">{_label(arm, weight)}</text>'
        )
    parts.append(
        f'<text x="{LEFT + len(COLOURS) * 90 + 60}" y="{TOP + HEIGHT + 44}">across: distance to '
        "the checkpoint's head; upwards: score in parts of its own checkpoint's</text>"
    )
    width, height = LEFT + len((*GAMES, *OTHERS)) * (WIDTH + LEFT), TOP + HEIGHT + 55
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif" font-size="11" role="img" '
        'aria-label="Scores of tuned heads by their distance to the checkpoint\'s">'
        "<style>svg { background: #fff } .name { font-weight: bold }</style>"
        f"{''.join(parts)}</svg>\n"
    )


def _label(arm: str, weight: float) -> str:
    return f"{'λ = 10, ' if arm == 'τ' else ''}{arm} = {weight:g}"


def _game(run: Run) -> str:
    return run.network.partition("-")[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, required=True, help="a folder")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    path = given.output / "runs.csv"
    found = read(path)
    done = {(run.network, run.arm, run.weight) for run in found}
    made_with = make_manifest(seeds=(0,), command=shlex.join(["python", *sys.argv]))
    for seed, game, (arm, weight) in RUNS:
        name = f"{game}-{seed}"
        if (name, arm, weight) not in done:
            found.append(search(name, arm, weight)._replace(commit=made_with["commit"]))
            print(*found[-1], flush=True)
            with replacing(path) as file:
                file.write(as_csv(Run, found).encode())
            _write(given.output / "made_with.json", json.dumps(made_with, indent=2) + "\n")
    shares = given.output / "sampled.csv"
    if not shares.exists():
        names = [f"{game}-{SEEDS[0]}" for game in (*GAMES, *OTHERS)]
        drawn = [Sampled(name, tau, sampled(name, tau)) for name in names for tau in TEMPERATURES]
        _write(shares, as_csv(Sampled, drawn))
    _write(given.output / "distances.svg", picture(found))
    summary = list(means(found))
    _write(given.output / "means.csv", as_csv(Mean, summary))
    print(table(summary))


def _write(path: pathlib.Path, text: str) -> None:
    with replacing(path) as file:
        file.write(text.encode())


if __name__ == "__main__":
    main()
