"""Make the networks that come with conqur, and their cards, from runs of `conqur train`.

    python scripts/bundle.py RUN... [--seeds 3] [--episodes 30]

Of each run the networks of the first seeds with λ = 0 (of Atari games, of the first) are written to
conqur/pretrained/bundled in half precision, and evaluated as they are written, by `conqur
evaluate`. A card says how a network was trained (the run's command, steps, seed, hardware and
learning curve) and what it scores.
"""

import argparse
import json
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from conqur.environments.atari import is_atari
from conqur.pretrained import load

ROOT = pathlib.Path(__file__).parents[1]
FOLDER = ROOT / "conqur" / "pretrained" / "bundled"
POINTS = 50
"""Of a learning curve."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--episodes", type=int, default=30)
    given = parser.parse_args()
    for run in given.runs:
        found = sorted((run / "networks").glob("weight-0-seed-*.safetensors"))
        seeds = 1 if is_atari(load(found[0]).environment) else given.seeds
        for source in found[:seeds]:
            bundle(run, source, given.episodes)


def bundle(run: pathlib.Path, source: pathlib.Path, episodes: int) -> None:
    """One network and its card."""
    network = load(source)
    seed, steps = network.origin["seed"], network.origin["step"]
    atari = is_atari(network.environment)
    game = network.environment.removeprefix("ALE/").removesuffix("-v5").replace("/", "-")
    name = game if atari else f"{game}-{seed}"
    target = FOLDER / f"{name}.safetensors"
    with safetensors.safe_open(source, framework="np") as file:
        half = {key: file.get_tensor(key).astype(np.float16) for key in file.keys()}  # noqa: SIM118
        target.write_bytes(safetensors.numpy.save(half, metadata=file.metadata()))
    manifest = json.loads((run / "manifest.json").read_text())
    card = {
        "name": name,
        "environment": network.environment,
        "preprocessing": network.preprocessing,
        "command": manifest["command"],
        "steps": steps,
        "frames": 4 * steps if atari else steps,
        "seed": seed,
        "hardware": manifest["device"]["kind"],
        "conqur": manifest["conqur"],
        "precision": "float16",
        "licence": "Apache-2.0",
        "curve": curve(run, seed),
        "score": score(target, f"bundled:{name}", episodes),
    }
    (FOLDER / f"{name}.json").write_text(json.dumps(card, indent=1) + "\n")
    print(name, card["score"]["mean"], card["score"]["interval"], flush=True)


def curve(run: pathlib.Path, seed: int) -> list[list[float]]:
    """The learning curve, thinned: pairs of a step and the mean return since the row before."""
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    known = [
        [row["step"], float(f"{row['return']:.6g}")]
        for row in rows
        if row["seed"] == seed and row["penalty_weight"] == 0 and row["return"] is not None
    ]
    every = -(-len(known) // POINTS)
    return known[::-every][::-1]


def score(file: pathlib.Path, name: str, episodes: int) -> dict[str, Any]:
    """What `conqur evaluate` measures."""
    options = ["--episodes", str(episodes), "--json"]
    command = [sys.executable, "-m", "conqur", "evaluate", str(file), *options]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return {
        "command": " ".join(["conqur", "evaluate", name, *options]),
        "mean": found["mean"],
        "interval": found["interval"],
        "human_normalised": found["human_normalised"],
        "episodes": found["episodes"],
    }


if __name__ == "__main__":
    main()
