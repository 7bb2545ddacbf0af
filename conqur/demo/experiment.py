"""The demo's measurements: every method of the paper that has an exact answer, side by side."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Bool, Float

from conqur import exact, tabular
from conqur.exact import PolicyConsistent
from conqur.exact.information_sets import Cell

PENALTY_WEIGHT = 10.0
"""λ of the penalised regression."""
MARGIN = 0.01
"""Its hinge margin; without one it may end on a tie."""

Announce = Callable[[str], None]
"""Called with a few words before each piece of work."""


@dataclass(frozen=True)
class Method:
    """What one method arrived at on one problem."""

    key: str
    """Its name for programs."""
    name: str
    """Its name for people."""
    setting: str
    """How it was run, in a few words."""
    value: float
    """The exact value of the policy it ended with."""
    promised: float | None
    """What its own estimates said that policy was worth at the start; None if it makes none."""
    theta: Float[np.ndarray, " d"]
    """The regressor (or witness) it ended with."""
    path: Float[np.ndarray, "K d"]
    """The regressors on the way there, the start first; just `theta` where there is no way."""
    progress: tuple[float, ...]
    """The exact value of its policy, or its own estimate (PCVI, PCQL), along the way."""
    unit: str
    """What one step of `progress` is."""


@dataclass(frozen=True)
class Example:
    """One problem and all that was found out about it."""

    problem: tabular.Problem
    policies: dict[Cell, tuple[Float[np.ndarray, " d"], float]]
    """Every realizable greedy policy with a witness θ and its exact value."""
    methods: tuple[Method, ...]
    information_sets: PolicyConsistent
    """PCVI's cells."""
    best_realizable: float
    unconstrained: float

    def summary(self) -> dict[str, float]:
        """The value every method reached, and the two values to hold it against."""
        reached = {method.key: method.value for method in self.methods}
        bounds = {"unconstrained": self.unconstrained, "best_realizable": self.best_realizable}
        return reached | bounds


@dataclass(frozen=True)
class RandomStarts:
    """From how many random starts regression ends at the best policy of the four-state example."""

    starts: int
    """How many there were."""
    begun: int
    """How many of them were greedy for a best realizable policy already."""
    plain: int
    """From how many plain regression ended there."""
    penalised: int
    """From how many penalised regression did."""
    penalised_found: int
    """How many of those had not begun there."""


@dataclass(frozen=True)
class Demo:
    """The appendix's example, a random grid world, and how often the penalty alone suffices."""

    four_state: Example
    grid_world: Example
    random_starts: RandomStarts


def run_demo(seed: int, announce: Announce) -> Demo:
    """Run everything; about half a minute on two cores.

    Args:
        seed: of the grid world's random features.
        announce: called before each piece of work.
    """
    problem = tabular.four_state()
    four_state = _example(
        problem,
        partial(announce_as, announce, "four states"),
        epsilon=1.0,
        theta=np.array([-2.0, 0.5]),  # a witness of the best realizable policy
        steps=100_000,
    )
    grid_problem = tabular.grid_world(seed, size=3, num_features=3, slip=0.1)
    grid = _example(
        grid_problem,
        partial(announce_as, announce, "grid world"),
        epsilon=0.7,
        theta=np.zeros(3),
        steps=40_000,
    )
    announce("four states: plain and penalised regression from 20 random starts")
    random_starts = _random_starts(problem, four_state.best_realizable)
    return Demo(four_state, grid, random_starts)


def announce_as(announce: Announce, example: str, words: str) -> None:
    """Announce a piece of work on an example."""
    announce(f"{example}: {words}")


def _example(
    problem: tabular.Problem,
    announce: Announce,
    *,
    epsilon: float,
    theta: Float[np.ndarray, " d"],
    steps: int,
) -> Example:
    mdp, features = problem
    announce("all realizable policies")
    policies = {
        policy: (witness, mdp.value(np.array(policy)))
        for policy, witness in tabular.greedy_policies(features).items()
    }
    announce("Q-learning")
    q_learning = _q_learning(problem, theta, epsilon=epsilon, steps=steps)
    announce("plain and penalised regression")
    plain = _regression_method(problem, theta, penalty_weight=0.0)
    penalised = _regression_method(problem, theta, penalty_weight=PENALTY_WEIGHT)
    announce("Algorithm 1")
    algorithm_1 = _algorithm_1(problem)
    announce("PCVI")
    pcvi = exact.pcvi(mdp, features)
    announce("PCQL")
    pcql = exact.pcql(mdp, features, steps=steps // 2, episode_steps=60)
    return Example(
        problem=problem,
        policies=policies,
        methods=(
            q_learning,
            plain,
            penalised,
            algorithm_1,
            _policy_consistent(problem, "pcvi", pcvi, "sweep"),
            _policy_consistent(problem, "pcql", pcql, f"{steps // 200} transitions"),
        ),
        information_sets=pcvi,
        best_realizable=max(value for _, value in policies.values()),
        unconstrained=mdp.value(mdp.optimal_policy()),
    )


def _q_learning(
    problem: tabular.Problem, theta: Float[np.ndarray, " d"], *, epsilon: float, steps: int
) -> Method:
    mdp, features = problem
    result = tabular.q_learning(
        mdp, features, epsilon=epsilon, steps=steps, theta=theta, episode_steps=60
    )
    behaviour = "uniform behaviour" if epsilon == 1 else f"ε-greedy behaviour, ε = {epsilon}"
    return Method(
        key="q_learning",
        name="Q-learning",
        setting=f"online, {behaviour}, {steps:,} transitions, from θ = {_written(theta)}",
        value=mdp.value(result.policy),
        promised=_promised(problem, result.theta),
        theta=result.theta,
        path=np.vstack([theta, result.thetas]),
        progress=_policy_values(problem, result.thetas),
        unit=f"{steps // 100:,} transitions",
    )


def _regression_method(
    problem: tabular.Problem, theta: Float[np.ndarray, " d"], *, penalty_weight: float
) -> Method:
    result = _regression(problem, theta, penalty_weight=penalty_weight)
    penalty = f"λ = {penalty_weight:g}, margin {MARGIN:g}, all labels in the buffer, "
    return Method(
        key="penalised" if penalty_weight else "regression",
        name="the penalty alone" if penalty_weight else "batch regression",
        setting=f"20 batches, {penalty * bool(penalty_weight)}from θ = {_written(theta)}",
        value=problem.mdp.value(result.policy),
        promised=_promised(problem, result.theta),
        theta=result.theta,
        path=np.vstack([theta, result.thetas]),
        progress=_policy_values(problem, result.thetas),
        unit="batch of 1,000",
    )


def _regression(
    problem: tabular.Problem, theta: Float[np.ndarray, " d"], *, penalty_weight: float
) -> tabular.QLearning:
    mdp, features = problem
    batches = [tabular.sample_batch(mdp, k, 1_000, episode_steps=60) for k in range(20)]
    return tabular.fitted_q_iteration(
        batches,
        features,
        discount=mdp.discount,
        theta=theta,
        penalty_weight=penalty_weight,
        margin=MARGIN,
    )


def _algorithm_1(problem: tabular.Problem) -> Method:
    mdp, features = problem
    result = exact.search(
        [tabular.sample_batch(mdp, k, 500, episode_steps=60) for k in range(2)],
        features,
        lambda theta: mdp.value(tabular.greedy_policy(features, theta)),
        discount=mdp.discount,
        start_states=np.flatnonzero(mdp.start),
    )
    scores = np.maximum.accumulate(list(result.leaves.values()))
    return Method(
        key="algorithm_1",
        name="Algorithm 1",
        setting=f"two batches, {result.nodes:,} nodes, leaves scored by exact value",
        value=result.score,
        promised=_promised(problem, result.theta),
        theta=result.theta,
        path=result.theta[None],
        progress=tuple(scores.tolist()),
        unit="leaf",
    )


def _policy_consistent(
    problem: tabular.Problem, key: str, result: PolicyConsistent, unit: str
) -> Method:
    effort = f"{result.sweeps:,} {'sweeps' if key == 'pcvi' else 'transitions'}"
    return Method(
        key=key,
        name=key.upper(),
        setting=f"{effort}, {result.cell_counts[-1]:,} information sets",
        value=problem.mdp.value(result.policy),
        promised=result.value,
        theta=result.theta,
        path=result.theta[None],
        progress=result.values,
        unit=unit,
    )


def _random_starts(problem: tabular.Problem, best: float) -> RandomStarts:
    starts = np.random.default_rng(0).normal(size=(20, 2))

    def at_best(thetas: Float[np.ndarray, "K d"]) -> Bool[np.ndarray, " K"]:
        return np.array(_policy_values(problem, thetas)) > best - 1e-9

    def ends(penalty_weight: float) -> Bool[np.ndarray, " K"]:
        results = (_regression(problem, start, penalty_weight=penalty_weight) for start in starts)
        return at_best(np.stack([result.theta for result in results]))

    begun, penalised = at_best(starts), ends(PENALTY_WEIGHT)
    return RandomStarts(
        starts=len(starts),
        begun=int(begun.sum()),
        plain=int(ends(0.0).sum()),
        penalised=int(penalised.sum()),
        penalised_found=int((penalised & ~begun).sum()),
    )


def _promised(problem: tabular.Problem, theta: Float[np.ndarray, " d"]) -> float:
    """Σ_s p₀(s) max_a Q_θ(s, a)."""
    return float(problem.mdp.start @ (problem.features @ theta).max(axis=1))


def _policy_values(problem: tabular.Problem, thetas: Float[np.ndarray, "K d"]) -> tuple[float, ...]:
    policies = [tabular.greedy_policy(problem.features, theta) for theta in thetas]
    return tuple(problem.mdp.value(policy) for policy in policies)


def _written(theta: Float[np.ndarray, " d"]) -> str:
    return f"({', '.join(f'{part:g}' for part in theta)})".replace("-", "−")
