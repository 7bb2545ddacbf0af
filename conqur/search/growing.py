"""The world of the searches: collected batches, and nodes whose regressors are trained on them."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, UInt8

from conqur.consistency import Population
from conqur.environments.interface import Transitions
from conqur.runs import flatten
from conqur.search.algorithms import World
from conqur.search.approximator import Approximator
from conqur.search.assigning import Assignment, action_gap, assign, labels_of, predict
from conqur.search.batches import Batch, Batches
from conqur.search.commitments import Commitments
from conqur.search.node import Birth, Kind, Node, Tree
from conqur.search.refining import (
    Regression,
    Weights,
    axes_of,
    begin,
    refine,
    stack,
    unstack,
)
from conqur.search.rollouts import is_finite
from conqur.search.saving import pick
from conqur.search.scoring import SCORES, Scores
from conqur.search.sharding import Devices
from conqur.search.store import Store

_KEY = 0
ASSIGN, REFINE, PERTURB, REPLAY = range(4)
"""What a random number is for."""

Sampler = Callable[..., Int[np.ndarray, " n"]]
"""A child's assignment worked out by the host, see `conqur.search.strict.StrictSampler`."""


@dataclass(frozen=True)
class Growing:
    """How children come about.

    Attributes:
        children: "boltzmann"; "max": always greedy; "random": greedy, and perturbed copies of their
            parents; with a sampler, any other name for what it does.
        boltzmann_every: levels; then dives sample their assignments, too.
        target_every: levels between copies of θ to the target θ⁻.
        temperature: τ.
        adapt_temperature: as in the paper.
        perturbation: how much noise "random" children get: the standard deviation of the change
            in Q-values, in units of the action gap.
        scoring: a name in `conqur.search.scoring.SCORES`, or "rollouts".
    """

    children: str
    boltzmann_every: int
    target_every: int
    temperature: float
    adapt_temperature: bool
    perturbation: float
    scoring: str


class _Resident(NamedTuple):
    """The nodes of the last level, whose weights and assignments are where they are needed next.

    Attributes:
        ids: of the nodes.
        weights: of all of them, on the devices; None if there are none.
    """

    ids: tuple[int, ...]
    weights: Weights | None


class Grower(World):
    """Collects data and trains nodes, all of a level at once.

    Nodes are padded to one width, so that there is one program, and what a node becomes does not
    depend on how many others there are.

    Attributes:
        found: what the last level's nodes were like, by name, for the log.
    """

    def __init__(
        self,
        approximator: Approximator,
        theta: Any,
        collector: Batches,
        *,
        growing: Growing,
        regression: Regression,
        population: Population,
        kept_levels: int,
        transitions: int,
        width: int,
        seed: int,
        half_precision: bool = True,
        replayed_levels: int = 0,
        sampler: Sampler | None = None,
        rollouts: Callable[[Sequence[Any], int], Sequence[float]] | None = None,
    ) -> None:
        """Grow a tree.

        Args:
            approximator: shared by all nodes.
            theta: θ₀, the root's regressor.
            collector: of batches.
            growing: how children come about.
            regression: how they are trained.
            population: of the consistency buffers.
            kept_levels: how many batches' choices the buffers hold.
            transitions: n, in a batch.
            width: the most nodes in a level.
            seed: of everything random.
            half_precision: keep the buffers' features in half the precision.
            replayed_levels: if above 0, how many batches there will be; nodes then learn from
                transitions drawn from all batches so far.
            sampler: of assignments, instead of the Boltzmann distribution.
            rollouts: from regressors and a level to what each scored more than θ₀, for scoring by
                rollouts.
        """
        self._approximator, self._theta = approximator, theta
        self._collector = collector
        self._growing, self._regression = growing, regression
        self._devices = Devices()
        self._width = self._devices.width(width)
        self._key = jax.random.fold_in(jax.random.key(seed), _KEY)
        self._sampler, self._rollouts = sampler, rollouts
        self._resident = _Resident((), None)
        self._commitments = Commitments(
            kept_levels * transitions,
            collector.example,
            population,
            width=self._width,
            half_precision=half_precision,
            devices=self._devices,
        )
        self._store: Store | None = None
        if replayed_levels:
            self._store = Store(
                replayed_levels, transitions, collector.example, half_precision=half_precision
            )
        self.found: dict[str, Any] = {}

    def roots(self, count: int = 1) -> tuple[Node, ...]:
        """Nodes with θ₀."""
        weights = jax.device_get(begin(self._theta))
        nan = math.nan
        return tuple(
            Node(i, None, -1, Kind.ROOT, "", nan, nan, nan, nan, nan, weights, ())
            for i in range(count)
        )

    def collect(self, node: Node, level: int) -> Batch:
        """D_k, or as many transitions out of all batches so far."""
        batch = self._collector.collect(node.weights.theta)
        if self._store is None:
            return batch
        self._store.add(batch, level)
        key = jax.random.fold_in(jax.random.fold_in(self._key, level), REPLAY)
        transitions, initial = self._store.draw(key, level)
        return batch._replace(transitions=transitions, initial=initial)

    def train(self, births: Sequence[Birth], tree: Tree, data: Batch) -> tuple[Node, ...]:
        """The children, trained on D_k."""
        if len(births) > self._width:
            raise ValueError(f"{len(births)} nodes in a level, but there is room for {self._width}")
        level, growing = tree.level, self._growing
        padded = [*births, *[births[0]] * (self._width - len(births))]
        ids = np.array([tree.next_id + i for i in range(self._width)], np.int32)
        key = jax.random.fold_in(self._key, level)

        weights = self._inherited(padded)
        batch, initial = self._devices.everywhere((data.transitions, data.initial))
        parents = weights.theta
        if level % growing.target_every == 0:
            weights = weights._replace(target=weights.theta)
        weights = self._perturbed(weights, padded, key, ids, batch)
        assignment, hows = self._assigned(weights, padded, key, ids, level, batch)
        self._commitments.add(batch.successors, assignment.assigned, batch.terminal)
        weights, scores = refine(
            self._approximator,
            weights,
            parents,
            self._theta,
            batch,
            initial,
            assignment,
            self._commitments.buffer,
            jax.random.fold_in(key, REFINE),
            jnp.asarray(ids),
            self._regression,
        )
        self._resident = _Resident(tuple(int(i) for i in ids[: len(births)]), weights)
        after = unstack(self._approximator, jax.device_get(weights), len(births))
        scores, assignment = jax.device_get((scores, assignment))
        values = self._values(births, scores, after, level, bool(data.initial.any()))
        self.found = _found(scores, assignment, len(births)) | {
            "returns": list(data.returns),
            "steps": data.steps,
        }
        return tuple(
            _child(births[i], int(ids[i]), level, hows[i], values[i], scores, i, after[i], row)
            for i, row in enumerate(assignment.assigned[: len(births)])
        )

    def state(self) -> dict[str, np.ndarray]:
        """What `restore` needs beside the rows of `levels`, as arrays."""
        collector = flatten(self._collector.state())
        return {"places": self._commitments.places()} | {
            f"collector/{name}": array for name, array in collector.items()
        }

    def levels(self, first: int, stop: int) -> dict[str, np.ndarray]:
        """What the levels from `first` to before `stop` left in the buffers, [K, ...]."""
        stored = {} if self._store is None else self._store.levels(first, stop)
        found = {"successors": self._commitments.levels(first, stop)}
        return found | {f"store/{name}": array for name, array in stored.items()}

    def restore(self, state: dict[str, np.ndarray], levels: dict[str, np.ndarray]) -> bool:
        """Go back; whether the environments came along.

        Args:
            state: as `state` gave it.
            levels: the newest levels' rows in a ring, level k at k modulo its length.
        """
        self._commitments.restore(state["places"], levels["successors"])
        self._resident = _Resident((), None)
        if self._store is not None:
            count = len(state["places"])
            self._store.restore({n: a[:count] for n, a in pick(levels, "store/").items()})
        return self._collector.restore(pick(state, "collector/"))

    def close(self) -> None:
        """Release the environments."""
        self._collector.close()

    def _inherited(self, births: Sequence[Birth]) -> Weights:
        """The parents' weights; the columns of commitments become theirs."""
        ids, weights = self._resident
        alive = (*ids, *ids[:1] * (self._width - len(ids)))
        parents = [birth.parent for birth in births]
        if weights is not None and tuple(parent.id for parent in parents) == alive:
            return weights  # everything is where it is needed
        self._commitments.become(parents)
        stacked = stack(self._approximator, [parent.weights for parent in parents])
        return self._devices.apart(stacked, axes_of(self._approximator, self._theta))

    def _perturbed(
        self, weights: Weights, births: Sequence[Birth], key: Any, ids: Any, batch: Transitions
    ) -> Weights:
        if self._growing.children != "random":
            return weights
        # The first child of a node is its parent itself.
        first = {birth.parent.id: birth for birth in reversed(births)}
        moved = jnp.array([birth is not first[birth.parent.id] for birth in births])
        scale = jnp.where(moved, self._growing.perturbation, 0.0)
        keys = _keys(jax.random.fold_in(key, PERTURB), ids)
        return _perturb(self._approximator, weights, keys, scale, batch.states)

    def _assigned(
        self,
        weights: Weights,
        births: Sequence[Birth],
        key: Any,
        ids: Any,
        level: int,
        batch: Transitions,
    ) -> tuple[Assignment, list[str]]:
        growing, discount = self._growing, self._regression.discount
        due = level % growing.boltzmann_every == 0
        draws = [
            growing.children == "boltzmann" and (due or birth.kind is Kind.EXPANSION)
            for birth in births
        ]
        if self._sampler is not None:
            given = self._sampled(self._sampler, weights, births, key, ids, batch)
            found = labels_of(self._approximator, weights.target, batch, given, discount=discount)
            return found, [growing.children] * len(births)
        assignment = assign(
            self._approximator,
            weights.target,
            batch,
            _keys(jax.random.fold_in(key, ASSIGN), ids),
            jnp.array(draws) if any(draws) else None,
            temperature=growing.temperature,
            adapt=growing.adapt_temperature,
            gap_units=self._regression.gap_units,
            discount=discount,
        )
        return assignment, ["boltzmann" if drawn else "max" for drawn in draws]

    def _sampled(
        self,
        sampler: Sampler,
        weights: Weights,
        births: Sequence[Birth],
        key: Any,
        ids: Any,
        batch: Transitions,
    ) -> UInt8[Array, "N n"]:
        """Assignments by the host; terminal successors have any action, since none counts."""
        keys = _keys(jax.random.fold_in(key, ASSIGN), ids)
        q_values, successors, terminal = jax.device_get(
            (_target_values(self._approximator, weights, batch), batch.successors, batch.terminal)
        )
        assigned = np.zeros(q_values.shape[:2], np.uint8)
        for i, birth in enumerate(births):
            if i and birth is births[0]:  # only there to fill the width
                assigned[i] = assigned[0]
                continue
            assigned[i, ~terminal] = sampler(
                birth,
                keys[i],
                q_values[i, ~terminal],
                successors[~terminal],
                self._commitments.of(birth.parent),
            )
        return jnp.asarray(assigned)

    def _values(
        self,
        births: Sequence[Birth],
        scores: Scores,
        weights: list[Weights],
        level: int,
        begun: bool,
    ) -> list[float]:
        """The nodes' scores; `begun`: some episode began in the batch."""
        if self._rollouts is not None and self._growing.scoring == "rollouts":
            gains = self._rollouts([one.theta for one in weights], level)
            return [-float(gain) for gain in gains]
        values = SCORES[self._growing.scoring](scores)
        if self._growing.scoring == "initial-label" and not begun:
            values = [birth.parent.score for birth in births]  # the batch says nothing of starts
        return [
            float(value) if is_finite(one.theta) else math.nan
            for value, one in zip(values, weights, strict=False)
        ]


@eqx.filter_jit
def _target_values(approximator: Approximator, weights: Weights, batch: Transitions) -> Array:
    def one(target: Any) -> Array:
        return predict(approximator, target, batch.successors)

    axes = approximator.node_axes(weights.target)
    return jax.vmap(one, in_axes=(axes,))(weights.target)


@eqx.filter_jit
def _keys(key: Any, ids: Any) -> Any:
    """A key for each node, whatever its place is."""
    return jax.vmap(jax.random.fold_in, (None, 0))(key, ids)


@eqx.filter_jit
def _perturb(
    approximator: Approximator, weights: Weights, keys: Any, scale: Any, states: Any
) -> Weights:
    def one(theta: Any, key: Any, scale: Any) -> Any:
        gap = action_gap(predict(approximator, theta, states))
        return approximator.perturbed(key, theta, states, scale * gap)

    axes = approximator.node_axes(weights.theta)
    theta = jax.vmap(one, in_axes=(axes, 0, 0), out_axes=axes)(weights.theta, keys, scale)
    return weights._replace(theta=theta)


def _child(
    birth: Birth,
    number: int,
    level: int,
    how: str,
    value: float,
    scores: Scores,
    i: int,
    weights: Weights,
    assigned: UInt8[np.ndarray, " n"],
) -> Node:
    parent = birth.parent
    gap: tuple[None, ...] = (None,) * (level - len(parent.history))
    expanded = birth.kind is Kind.EXPANSION
    return Node(
        id=number,
        parent=parent.id,
        level=level,
        kind=birth.kind,
        assigned_how=how,
        score=value,
        calibrated=value,
        reference=parent.calibrated if expanded else parent.reference,
        bellman=float(scores.bellman[i]),
        penalty=float(scores.penalty[i]),
        weights=weights,
        history=(*parent.history, *gap, assigned.copy()),  # a view would keep all nodes' alive
    )


def _found(scores: Scores, assignment: Assignment, count: int) -> dict[str, Any]:
    names = {**scores._asdict(), **assignment._asdict()}
    del names["assigned"], names["labels"]
    return {name: _mean(np.asarray(values[:count])) for name, values in names.items()}


def _mean(values: np.ndarray) -> float:
    """Over the nodes that did not diverge."""
    whole = values[np.isfinite(values)]
    return float(np.mean(whole)) if whole.size else math.nan
