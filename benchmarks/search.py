"""How fast the search is, beside one node, beside a plain way to write it, beside the emulator.

    python benchmarks/search.py                 sizes go by what JAX runs on
    --output FILE                               writes all numbers

Levels are those of the preset `paper-16` on Breakout with a Nature network (with fresh weights,
which make no difference to the time): 10,000 transitions, 2,500 gradient steps with batches of 32,
and pairs of a consistency buffer that holds all levels so far.

- A level with 16 nodes in parts of one with a single node: collecting, refining, scoring.
- The same level written plainly: for every node and minibatch, body and head run on the pictures
  of states, successors and pairs, and once more on all of them for the scores. Some minibatches
  are timed and multiplied; collecting is taken to be as fast as here.
- Transitions collected per second in parts of the emulator's steps with random actions.
- Refining alone, on features drawn at random: 1, 8, 16, 64 and (accelerators only) 256 and 512
  nodes, with minibatches of their own and with shared ones.
- Memory after 100 levels, in a process of its own, on features drawn at random.

What is compared is measured by turns; compilation is not counted.
"""

import argparse
import json
import pathlib
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from conqur.config import train_config
from conqur.consistency import Everything
from conqur.dqn import centred_rmsprop
from conqur.environments import make
from conqur.environments.interface import Transitions
from conqur.environments.journal import Journal
from conqur.regression import penalised_loss
from conqur.regressor import Architecture, Dense, Perceptron, Regressor, initial_regressor
from conqur.runs.manifest import make_manifest
from conqur.search.approximator import LinearTuning
from conqur.search.batches import Batch, Batches
from conqur.search.collecting import Collector, in_groups
from conqur.search.config import PRESETS
from conqur.search.growing import Grower, Growing
from conqur.search.node import Kind, Tree, dive, expand
from conqur.search.refining import Regression

PAPER = PRESETS["paper-16"]
GAME = "ALE/Breakout-v5"
SCORED_PAIRS = 20_000
GROWING = Growing(
    children="boltzmann",
    boltzmann_every=5,
    target_every=5,
    temperature=1.0,
    adapt_temperature=True,
    perturbation=1.0,
    scoring="loss",
)


def regression(**changes: Any) -> Regression:
    names = ("updates", "batch_size", "pairs", "discount", "learning_rate", "penalty_weight")
    settings = {name: PAPER[name] for name in (*names, "margin", "over_actions", "proximal")}
    fixed = {
        "scored_pairs": SCORED_PAIRS,
        "own_minibatches": True,
        "refit": "sgd",
        "gap_units": False,
    }
    return Regression(**settings | fixed | changes)


class Drawn(Batches):
    """A collector of random features, so that the rest of a level is measured alone."""

    def __init__(self, transitions: int, features: int, actions: int) -> None:
        self.example = jax.ShapeDtypeStruct((features,), jnp.float32)
        rng = np.random.default_rng(0)
        rows = np.maximum(rng.normal(size=(2, transitions, features)), 0).astype(np.float32)
        self.batch = Batch(
            Transitions(
                jnp.asarray(rows[0]),
                jnp.asarray(rng.integers(actions, size=transitions), jnp.int32),
                jnp.asarray(rng.normal(size=transitions), jnp.float32),
                jnp.asarray(rows[1]),
                jnp.zeros(transitions, bool),
            ),
            jnp.zeros(transitions, bool),
            (),
            0,
        )

    def collect(self, theta: Any) -> Batch:
        return self.batch


class Levels:
    """A search that can be taken level by level."""

    def __init__(
        self,
        approximator: Any,
        head: Dense,
        collector: Any,
        nodes: int,
        kept: int,
        **changes: Any,
    ) -> None:
        self.grower = Grower(
            approximator,
            jax.device_get(head),
            collector,
            growing=GROWING,
            regression=regression(**changes),
            population=Everything(),
            kept_levels=kept,
            transitions=PAPER["transitions"],
            width=nodes,
            seed=0,
        )
        self.tree = Tree.planted(self.grower.roots())
        self.nodes = nodes
        self.took: dict[str, list[float]] = {"collect": [], "train": []}
        self.level()  # to its full width
        for part in self.took.values():
            part.clear()

    def level(self) -> None:
        start = time.perf_counter()
        data = self.grower.collect(self.tree.frontier[0], self.tree.level)
        jax.block_until_ready(data.transitions)
        collected = time.perf_counter()
        filled = self.tree.frontier[0].kind is not Kind.ROOT
        births = dive(self.tree.frontier) if filled else expand(self.tree.frontier, self.nodes)
        children = self.grower.train(births, self.tree, data)
        self.tree = self.tree.after(children, children)
        self.took["collect"].append(collected - start)
        self.took["train"].append(time.perf_counter() - collected)

    def seconds(self) -> list[float]:
        return [sum(parts) for parts in zip(*self.took.values(), strict=True)]


def game(num_envs: int) -> tuple[Any, Dense, list[Journal]]:
    """A Nature network for the game, and the game."""
    settings = train_config(
        "tf-agents", environment=GAME, algorithm="dqn", penalty_weights=(0.0,), seeds=(0,)
    )
    environments = in_groups(
        lambda copies: make(GAME, copies, preprocessing=settings.preprocessing), num_envs, seed=0
    )
    spec = environments[0].spec
    architecture = Architecture("nature", spec.observation_shape, len(spec.actions), (512,))
    regressor = initial_regressor(jax.random.key(0), architecture)
    return regressor, regressor.head, environments


def collector(body: Any, environments: list[Journal]) -> Collector:
    return Collector(
        LinearTuning(body),
        environments,
        transitions=PAPER["transitions"],
        epsilon=PAPER["epsilon"],
        clip_rewards=True,
        seed=0,
    )


def levels(num_envs: int, rounds: int) -> dict[str, Any]:
    """One node and sixteen, level by level in turn; and the emulator alone."""
    searches = {}
    for nodes in (1, 16):
        regressor, head, environments = game(num_envs)
        played = collector(regressor.body, environments)
        searches[nodes] = Levels(LinearTuning(regressor.body), head, played, nodes, rounds + 2)
    alone = make(GAME, num_envs, preprocessing="dopamine")
    emulator = _emulator(alone, num_envs)
    emulator(20)
    steps = PAPER["transitions"] // num_envs
    rates = []
    for _ in range(rounds):
        start = time.perf_counter()
        emulator(steps)
        rates.append(steps * num_envs / (time.perf_counter() - start))
        for search in searches.values():
            search.level()
    one, many = (statistics.median(searches[nodes].seconds()) for nodes in (1, 16))
    collected = [PAPER["transitions"] / seconds for seconds in searches[16].took["collect"]]
    ratio = statistics.median(rate / alone for rate, alone in zip(collected, rates, strict=True))
    plain = plain_level(16) + statistics.median(searches[16].took["collect"])
    print(f"level with 16 nodes / with 1:          {many / one:8.2f}  ({many:.2f} s, {one:.2f} s)")
    print(f"level with 16 nodes / written plainly: {many / plain:8.4f}  (1/{plain / many:.0f})")
    print(
        f"collecting / emulator alone:           {ratio:8.2f}  ({statistics.median(rates):,.0f}/s)"
    )
    return {
        "num_envs": num_envs,
        "seconds_of_a_level": {n: s.seconds() for n, s in searches.items()},
        "parts": {n: s.took for n, s in searches.items()},
        "plain_seconds": plain,
        "emulator_steps_per_second": rates,
        "sixteen_by_one": many / one,
        "sixteen_by_plain": many / plain,
        "collected_by_emulator": ratio,
    }


def plain_level(nodes: int, minibatches: int = 20) -> float:
    """Seconds of training and scoring when body and head run for every node and minibatch."""
    regressor, _, (environment,) = game(1)
    environment.close()
    rng = np.random.default_rng(0)
    shape = environment.spec.observation_shape
    pictures = rng.integers(256, size=(3, 1024, *shape), dtype=np.uint8)
    actions = rng.integers(len(environment.spec.actions), size=(2, 1024))
    optimizer = centred_rmsprop(PAPER["learning_rate"])

    @jax.jit
    def update(head: Dense, state: Any, seen: Any, after: Any, pairs: Any, chosen: Any) -> Any:
        labels = jnp.max(Regressor(regressor.body, head)(after), axis=-1)

        def loss(head: Dense) -> Any:
            network = Regressor(regressor.body, head)
            return penalised_loss(
                network(seen),
                chosen[0],
                labels,
                network(pairs),
                chosen[1],
                penalty_weight=PAPER["penalty_weight"],
                over_actions=PAPER["over_actions"],
            )

        step, state = optimizer.update(jax.grad(loss)(head), state)
        return jax.tree.map(jnp.add, head, step), state

    @jax.jit
    def values(head: Dense, seen: Any) -> Any:
        return Regressor(regressor.body, head)(seen)

    head, state = regressor.head, optimizer.init(regressor.head)

    def score(count: int) -> None:
        for _ in range(count):
            seen = values(head, pictures[0])
        jax.block_until_ready(seen)

    def run(count: int) -> None:
        nonlocal head, state
        for _ in range(count):
            rows = rng.integers(1024, size=PAPER["batch_size"])
            head, state = update(head, state, *(part[rows] for part in pictures), actions[:, rows])
        jax.block_until_ready(head)

    run(3)
    score(1)
    start = time.perf_counter()
    run(minibatches)
    training = (time.perf_counter() - start) / minibatches * PAPER["updates"]
    start = time.perf_counter()
    score(4)
    # Of states, with θ and the parent's, of successors with θ and θ⁻, and of pairs.
    scored = 4 * PAPER["transitions"] + SCORED_PAIRS
    scoring = (time.perf_counter() - start) / (4 * 1024) * scored
    return (training + scoring) * nodes


def refining(sizes: tuple[int, ...], rounds: int, *, own: bool) -> dict[str, Any]:
    """Refining and scoring alone, with so many nodes, and minibatches of their own or shared."""
    how = "own" if own else "shared"
    found: dict[int, list[float]] = {}
    for nodes in sizes:
        head = Dense.initial(jax.random.key(0), 512, 18)
        kept = rounds + 2
        drawn = Drawn(10_000, 512, 18)
        search = Levels(LinearTuning(Perceptron(())), head, drawn, nodes, kept, own_minibatches=own)
        for _ in range(rounds):
            search.level()
        found[nodes] = search.took["train"]
        seconds = statistics.median(found[nodes])
        print(f"refining {nodes:3} nodes, {how:6}:            {seconds:8.3f} s")
    ratio = statistics.median(found[sizes[-1]]) / statistics.median(found[16])
    print(f"refining {sizes[-1]} nodes / 16, {how:6}:       {ratio:8.2f}")
    return {"seconds": found, "ratio": ratio}


def memory() -> dict[str, Any]:
    """The most memory of a process that takes 100 levels with 16 nodes."""
    script = f"import sys; sys.path.insert(0, {str(pathlib.Path(__file__).parent)!r}); "
    script += "import search; search.hundred_levels()"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    gibibytes = float(done.stdout.split()[-1])
    print(f"memory after 100 levels:               {gibibytes:8.2f} GiB")
    return {"gibibytes": gibibytes}


def hundred_levels() -> None:
    head = Dense.initial(jax.random.key(0), 512, 18)
    search = Levels(LinearTuning(Perceptron(())), head, Drawn(10_000, 512, 18), 16, 100)
    for _ in range(99):
        search.level()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def _emulator(environment: Any, num_envs: int) -> Callable[[int], None]:
    rng = np.random.default_rng(0)
    environment.reset(range(num_envs))

    def run(steps: int) -> None:
        for actions in rng.integers(len(environment.spec.actions), size=(steps, num_envs)):
            environment.step(actions)

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=pathlib.Path, help="where to write the numbers")
    parser.add_argument("--memory", action="store_true", help="measure memory, too (minutes)")
    given = parser.parse_args()
    on_cpu = jax.default_backend() == "cpu"
    print(jax.devices()[0].device_kind)
    report: dict[str, Any] = {
        "made_with": make_manifest(seeds=(0,), command="python benchmarks/search.py"),
        "levels": levels(num_envs=16 if on_cpu else 64, rounds=3 if on_cpu else 5),
    }
    sizes = (1, 8, 16, 64) if on_cpu else (1, 8, 16, 64, 256, 512)
    for name, own in (("refining", True), ("refining_shared", False)):
        report[name] = refining(sizes, rounds=2 if on_cpu else 6, own=own)
    if given.memory:
        report["memory"] = memory()
    if given.output:
        given.output.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
