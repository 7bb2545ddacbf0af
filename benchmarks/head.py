"""How fast whole heads are decided, beside HiGHS' interior-point method.

    python benchmarks/head.py            1,000 states × 4 actions × 512 features, both solvers
    python benchmarks/head.py --large    20,000 × 18 × 512, ours alone (meant for a GPU)
    python benchmarks/head.py --large --states 4000 --actions 6 --features 128
    --json FILE                          writes the numbers too

Cold times include the compilation of the solver for the shape, warm times do not; the ratios are
those of HiGHS' time to both.
"""

import argparse
import json
import os
import pathlib
import time

import jax
import numpy as np
from scipy import sparse
from scipy.optimize import linprog

from conqur.exact import consistent_head, interior_point
from conqur.exact.verdict import Consistency


def gaussian(rng, states, features, rank):
    return rng.normal(size=(states, rank)) @ rng.normal(size=(rank, features))


def relu(rng, states, features):
    """Two random ReLU layers on four latents: sparse, dead units, condition about 5e6 at 512."""
    hidden = rng.normal(size=(states, 4)) * np.logspace(0, -3, 4)
    for _ in range(2):
        hidden = hidden @ rng.normal(size=(hidden.shape[1], features))
        hidden = np.maximum(hidden / hidden.std() + rng.normal(size=features), 0)
    return hidden


def random_labels(rng, phi, actions):
    return rng.integers(actions, size=len(phi))


def teacher_labels(rng, phi, actions):
    return (phi @ rng.normal(size=(phi.shape[1], actions)) + rng.normal(size=actions)).argmax(1)


def rare_labels(rng, phi, actions):
    """One action almost everywhere and a few exceptions at random."""
    return np.where(rng.random(len(phi)) < 0.98, 0, random_labels(rng, phi, actions))


def ours(phi, labels, actions):
    """The verdict, the seconds it took and the solver's steps."""
    steps, step = 0, interior_point.step

    def counted(*arguments):
        nonlocal steps
        steps += 1
        return step(*arguments)

    interior_point.step = counted
    start = time.perf_counter()
    verdict = consistent_head(phi, labels, actions)
    seconds = time.perf_counter() - start
    interior_point.step = step
    return verdict, seconds, steps


def highs(phi, labels, actions):
    """Whether max t with d̂·θ ≥ t, |θ_j| ≤ 1 is positive, and the seconds of the solver alone."""
    x = np.column_stack([phi, np.ones(len(phi))])
    x /= np.sqrt(2) * np.linalg.norm(x, axis=1, keepdims=True)
    pairs = [(s, b) for s in range(len(x)) for b in range(actions) if b != labels[s]]
    matrix = np.zeros((len(pairs), actions, x.shape[1]))
    for row, (state, rival) in enumerate(pairs):
        matrix[row, labels[state]], matrix[row, rival] = x[state], -x[state]
    matrix = matrix.reshape(len(pairs), -1)
    goal = np.append(np.zeros(matrix.shape[1]), -1.0)
    rows = sparse.csr_array(np.column_stack([-matrix, np.ones(len(pairs))]))
    bounds = [(-1, 1)] * matrix.shape[1] + [(None, None)]
    start = time.perf_counter()
    answer = linprog(goal, A_ub=rows, b_ub=np.zeros(len(pairs)), bounds=bounds, method="highs-ipm")
    return -answer.fun > 1e-7, time.perf_counter() - start


def beside_highs():
    states, actions, features = 1000, 4, 512
    rng = np.random.default_rng(0)
    cases = {
        "teacher": (full := gaussian(rng, states, features, features), teacher_labels),
        "random labels": (full, random_labels),
        "random labels, rank 384": (gaussian(rng, states, features, 384), random_labels),
        "random labels, rank 256": (gaussian(rng, states, features, 256), random_labels),
    }
    print(f"{states} states x {actions} actions x {features} features, {jax.devices()[0]}")
    print(
        f"{'case':24} {'outcome':13} {'cold s':>7} {'warm s':>7} {'HiGHS s':>8} ratios agree steps"
    )
    for name, (phi, labelling) in cases.items():
        labels = labelling(rng, phi, actions)
        jax.clear_caches()
        verdict, cold, steps = ours(phi, labels, actions)
        warm = ours(phi, labels, actions)[1]
        positive, reference = highs(phi, labels, actions)
        agree = verdict.outcome is (
            Consistency.CONSISTENT if positive else Consistency.INCONSISTENT
        )
        print(
            f"{name:24} {verdict.outcome.name:13} {cold:7.2f} {warm:7.2f} {reference:8.1f} "
            f"{reference / cold:3.0f}{reference / warm:4.0f} {'yes' if agree else 'NO':5} {steps}",
            flush=True,
        )
        yield {
            "case": name,
            "outcome": verdict.outcome.name,
            "cold_seconds": cold,
            "warm_seconds": warm,
            "highs_seconds": reference,
            "agree": bool(agree),
            "steps": steps,
        }


def large(states, actions, features):
    rng = np.random.default_rng(0)
    normal, sparse_units = rng.normal(size=(states, features)), relu(rng, states, features)
    cases = {
        "random labels": (normal, random_labels),
        "teacher": (normal, teacher_labels),
        "rare exceptions": (normal, rare_labels),
        "random labels on ReLU": (sparse_units, random_labels),
        "teacher on ReLU": (sparse_units, teacher_labels),
        "rare exceptions on ReLU": (sparse_units, rare_labels),
    }
    print(f"{states} states x {actions} actions x {features} features, {jax.devices()[0]}")
    print(f"{'case':24} {'outcome':13} {'cold s':>7} {'warm s':>7} steps   lower   upper  peak GiB")
    for name, (phi, labelling) in cases.items():
        labels = labelling(rng, phi, actions)
        jax.clear_caches()
        verdict, cold, steps = ours(phi, labels, actions)
        warm = ours(phi, labels, actions)[1]
        memory = (jax.devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**30
        lower, upper = verdict.margin_lower, verdict.margin_upper
        print(
            f"{name:24} {verdict.outcome.name:13} {cold:7.2f} {warm:7.2f} {steps:5} "
            f"{lower:7.1e} {upper:7.1e} {memory or float('nan'):8.2f}",
            flush=True,
        )
        yield {
            "case": name,
            "outcome": verdict.outcome.name,
            "cold_seconds": cold,
            "warm_seconds": warm,
            "steps": steps,
            "margin_lower": lower,
            "margin_upper": upper,
            "peak_gib": memory or None,
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", action="store_true", help="big instances, without HiGHS")
    parser.add_argument("--states", type=int, default=20_000, help="of the big instances")
    parser.add_argument("--actions", type=int, default=18, help="of the big instances")
    parser.add_argument("--features", type=int, default=512, help="of the big instances")
    parser.add_argument("--json", type=pathlib.Path, help="where to write the numbers")
    given = parser.parse_args()
    results = list(
        large(given.states, given.actions, given.features) if given.large else beside_highs()
    )
    if given.json:
        report = {
            "command": "python benchmarks/head.py" + " --large" * given.large,
            "device": f"{jax.devices()[0].device_kind}, {os.cpu_count()} CPU cores",
            "jax": jax.__version__,
            "results": results,
        }
        given.json.write_text(json.dumps(report, indent=2) + "\n")
