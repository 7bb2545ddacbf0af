"""Policy-consistent value iteration and Q-learning (PCVI, PCQL; Lu, Schuurmans & Boutilier 2018).

Both are tabular: the linear approximator only decides which policies are realizable. Every
Q[s, a] maps information sets to values, and only values whose commitments some θ can keep together
are ever added, so what comes out is the best realizable policy.
"""

from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from conqur import _checks
from conqur.exact.information_sets import Cell, CellValues, InformationSets
from conqur.exact.linear import LinearPolicies, greedy_policy
from conqur.mdp import MDP, Batch, check_mdp, sample_batch

Table = list[list[CellValues]]


@dataclass(frozen=True, eq=False)
class PolicyConsistent:
    """What PCVI or PCQL found.

    Attributes:
        value: the value of the best cell at the start.
        policy: the greedy policy of the best cell's witness, [S].
        theta: that witness, [d].
        cells: every cell at the start and its value. A cell is a tuple with the committed action,
            or `LinearPolicies.FREE`, for every state.
        cell_counts: how many different cells all ConQ[s] had: after each sweep, that which changed
            nothing included (PCVI), or at 100 moments along the way (PCQL).
        values: the value of the best cell at those moments.
        sweeps: sweeps until no value changed any more (PCVI) or transitions seen (PCQL).
    """

    value: float
    policy: Int[np.ndarray, " S"]
    theta: Float[np.ndarray, " d"]
    cells: dict[Cell, float]
    cell_counts: tuple[int, ...]
    values: tuple[float, ...]
    sweeps: int


def pcvi(
    mdp: Any,
    features: Any,
    *,
    tolerance: Any = 1e-10,
    max_sweeps: Any = 10_000,
    max_cells: Any = 50_000,
) -> PolicyConsistent:
    """Policy-consistent value iteration: the exact best value over all realizable greedy policies.

    Args:
        mdp: the problem.
        features: φ, [S, A, d], which decides the policy class.
        tolerance: a sweep that changes no value by more ends the iteration.
        max_sweeps: an error if it has not ended by then.
        max_cells: an error if a function needs more cells.
    """
    _checks.number("tolerance", tolerance, above=0)
    _checks.count("max_sweeps", max_sweeps)
    sets = InformationSets(_policies(mdp, features), _checks.count("max_cells", max_cells))
    q = _zero_table(sets)
    counts, values = [], []
    for sweep in range(1, max_sweeps + 1):
        con_q = [sets.con_q(row, state) for state, row in enumerate(q)]
        previous, q = (
            q,
            [
                [_backup(mdp, sets, con_q, s, a) for a in range(mdp.num_actions)]
                for s in range(mdp.num_states)
            ],
        )
        at_start = _at_start(mdp, sets, q)
        counts.append(_count(sets, q))
        values.append(at_start.best()[1])
        if _change(previous, q) <= tolerance:
            return _answer(sets, at_start, counts, values, sweep - 1)
    raise ValueError(f"max_sweeps is {max_sweeps}, but values still change after that many sweeps")


def pcql(
    mdp: Any,
    features: Any,
    *,
    seed: int = 0,
    steps: int = 20_000,
    behaviour: Any = None,
    episode_steps: int | None = None,
    rate_decay: float = 0.7,
    max_cells: int = 50_000,
) -> PolicyConsistent:
    """Policy-consistent Q-learning, from sampled transitions alone.

    Q[s, a] ← (1 − α) Q[s, a] ⊕ α (r + γ ConQ[s']), where α = n^−`rate_decay` at the n-th visit.

    Args:
        mdp: where the transitions are sampled.
        features: φ, [S, A, d], which decides the policy class.
        seed: of the random generator.
        steps: how many transitions.
        behaviour: the probabilities of the actions in each state, [S, A]; uniform if not given.
        episode_steps: an episode is cut after so many steps; None: never.
        rate_decay: between 0.5 and 1; 1 averages, less forgets early estimates faster.
        max_cells: an error if a function needs more cells.
    """
    _checks.number("rate_decay", rate_decay, above=0.5, at_most=1)
    _checks.count("steps", steps)
    sets = InformationSets(_policies(mdp, features), _checks.count("max_cells", max_cells))
    data = sample_batch(mdp, seed, steps, behaviour=behaviour, episode_steps=episode_steps)
    q = _zero_table(sets)
    visits = np.zeros((mdp.num_states, mdp.num_actions))
    counts, values = [], []
    log_every = max(1, steps // 100)
    for i in range(steps):
        _learn(mdp, sets, q, visits, data, i, rate_decay)
        if (i + 1) % log_every == 0:
            counts.append(_count(sets, q))
            values.append(_at_start(mdp, sets, q).best()[1])
    return _answer(sets, _at_start(mdp, sets, q), counts, values, steps)


def _policies(mdp: Any, features: Any) -> LinearPolicies:
    check_mdp(mdp)
    policies = LinearPolicies(features)
    wanted = (mdp.num_states, mdp.num_actions, policies.num_features)
    _checks.shape("features", policies.features, wanted)
    return policies


def _zero_table(sets: InformationSets) -> Table:
    policies = sets.policies
    return [[sets.constant(0.0)] * policies.num_actions for _ in range(policies.num_states)]


def _backup(
    mdp: MDP, sets: InformationSets, con_q: list[CellValues], state: int, action: int
) -> CellValues:
    """R(s, a) + γ Σ_s' P(s' | s, a) ConQ[s'], summed with ⊕."""
    total = sets.constant(float(mdp.rewards[state, action]))
    probabilities = mdp.discount * mdp.transitions[state, action]
    for successor in np.flatnonzero(probabilities):
        total = sets.add(total, con_q[successor].affine(float(probabilities[successor])))
    return total


def _learn(
    mdp: MDP, sets: InformationSets, q: Table, visits: np.ndarray, data: Batch, i: int, decay: float
) -> None:
    """One PCQL update, in place."""
    state, action = int(data.state[i]), int(data.action[i])
    visits[state, action] += 1
    rate = float(visits[state, action] ** -decay)
    label = sets.constant(0.0)
    if not data.terminal[i]:
        successor = int(data.successor[i])
        label = sets.con_q(q[successor], successor)
    label = label.affine(rate * mdp.discount, rate * float(data.reward[i]))
    q[state][action] = sets.add(q[state][action].affine(1 - rate), label)


def _at_start(mdp: MDP, sets: InformationSets, q: Table) -> CellValues:
    """Σ_s p₀(s) ConQ[s], summed with ⊕: what every cell is worth at the start."""
    total = sets.constant(0.0)
    for state in np.flatnonzero(mdp.start).tolist():
        total = sets.add(total, sets.con_q(q[state], state).affine(float(mdp.start[state])))
    return total


def _count(sets: InformationSets, q: Table) -> int:
    con_q = [sets.con_q(row, state) for state, row in enumerate(q)]
    return len({cell for function in con_q for cell in function.cells.commitments})


def _change(before: Table, after: Table) -> float:
    """The largest change of a value; infinite while cells still split."""
    change = 0.0
    for old, new in zip(chain(*before), chain(*after), strict=True):
        if old.cells is not new.cells:
            return np.inf
        change = max(change, float(np.abs(old.values - new.values).max()))
    return change


def _answer(
    sets: InformationSets, at_start: CellValues, counts: list[int], values: list[float], sweeps: int
) -> PolicyConsistent:
    cell, value = at_start.best()
    theta = sets.policies.witness(cell)
    assert theta is not None  # cells are kept only with a witness
    return PolicyConsistent(
        value=value,
        policy=greedy_policy(sets.policies.features, theta),
        theta=theta,
        cells=dict(zip(at_start.cells.commitments, at_start.values.tolist(), strict=True)),
        cell_counts=tuple(counts),
        values=tuple(values),
        sweeps=sweeps,
    )
