"""The soft consistency penalty C_θ and the consistency buffer B it is taken over (Sec. 3.2)."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import array_api_compat
import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from conqur import _checks


def penalty(q_values: Any, assigned: Any, *, margin: float = 0.0) -> Any:
    """The soft consistency penalty C_θ(s, σ(s)) = Σ_a' [Q_θ(s, a') − Q_θ(s, σ(s))]₊ of each state.

    It is zero where the assigned action is greedy. Arrays of NumPy, JAX or torch; the result is of
    the same library and gradients flow through it.

    Args:
        q_values: Q_θ(s, ·), [..., A].
        assigned: σ(s), integers, [...].
        margin: the hinge margin: by how much the assigned action has to be ahead of each other one
            to cost nothing. The paper's penalty has none.
    """
    q_values = _checks.q_values("q_values", q_values)
    assigned = _checks.assigned("assigned", assigned, q_values)
    _checks.non_negative("margin", margin)
    xp = array_api_compat.array_namespace(q_values)
    lead = q_values - xp.take_along_axis(q_values, assigned[..., None], axis=-1)
    shortfall = lead + margin
    hinge = xp.where(shortfall > 0, shortfall, xp.zeros_like(shortfall))  # gradient 0 on a tie
    # The assigned action's own term is the margin itself: take it off again.
    return xp.sum(hinge, axis=-1) - margin


class Population(abc.ABC):
    """How the consistency buffer is populated: which pairs (s', σ(s')) count, and how much."""

    @abc.abstractmethod
    def admits(self, batch: Int[Array, ""], rows: int) -> Bool[Array, " rows"]:
        """Which pairs of batch number `batch` enter the buffer."""

    @abc.abstractmethod
    def weights(self, age: Int[Array, " C"], batches: Int[Array, ""]) -> Float[Array, " C"]:
        """The weight of pairs committed `age` batches ago (0: the newest of `batches` batches)."""


@dataclass(frozen=True)
class Everything(Population):
    """All choices ever committed: promotes full consistency."""

    def admits(self, batch: Int[Array, ""], rows: int) -> Bool[Array, " rows"]:
        """Admit all."""
        return jnp.ones(rows, bool)

    def weights(self, age: Int[Array, " C"], batches: Int[Array, ""]) -> Float[Array, " C"]:
        """One each."""
        return jnp.ones(age.shape)


@dataclass(frozen=True)
class Window(Population):
    """A sliding recency window over the newest `batches` batches; `Window(1)` is the newest one."""

    batches: int

    def __post_init__(self) -> None:
        _checks.positive("batches", self.batches)

    def admits(self, batch: Int[Array, ""], rows: int) -> Bool[Array, " rows"]:
        """Admit all."""
        return jnp.ones(rows, bool)

    def weights(self, age: Int[Array, " C"], batches: Int[Array, ""]) -> Float[Array, " C"]:
        """One inside the window, zero outside."""
        return jnp.where(age < self.batches, 1.0, 0.0)


@dataclass(frozen=True)
class Decay(Population):
    """Weight decay: a batch counts `rate` times as much as the batch after it."""

    rate: float

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ValueError(f"rate must lie strictly between 0 and 1, got {self.rate}")

    def admits(self, batch: Int[Array, ""], rows: int) -> Bool[Array, " rows"]:
        """Admit all."""
        return jnp.ones(rows, bool)

    def weights(self, age: Int[Array, " C"], batches: Int[Array, ""]) -> Float[Array, " C"]:
        """`rate` to the power of the age."""
        return self.rate ** age.astype(float)


@dataclass(frozen=True)
class Subsample(Population):
    """A random `fraction` of every batch, the same rows in all buffers with the same seed."""

    fraction: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction must lie above 0 and up to 1, got {self.fraction}")

    def admits(self, batch: Int[Array, ""], rows: int) -> Bool[Array, " rows"]:
        """Admit each row with probability `fraction`."""
        key = jax.random.fold_in(jax.random.key(self.seed), batch)
        return jax.random.bernoulli(key, self.fraction, (rows,))

    def weights(self, age: Int[Array, " C"], batches: Int[Array, ""]) -> Float[Array, " C"]:
        """One each."""
        return jnp.ones(age.shape)


@dataclass(frozen=True)
class Widening(Population):
    """A window over the newest `fraction` of all batches so far: it widens as training goes on.

    Early choices, made from poor estimates, are dropped; of late ones ever more are kept.
    """

    fraction: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ValueError(f"fraction must lie above 0 and up to 1, got {self.fraction}")

    def admits(self, batch: Int[Array, ""], rows: int) -> Bool[Array, " rows"]:
        """Admit all."""
        return jnp.ones(rows, bool)

    def weights(self, age: Int[Array, " C"], batches: Int[Array, ""]) -> Float[Array, " C"]:
        """One inside the window, zero outside."""
        return jnp.where(age < jnp.ceil(self.fraction * batches), 1.0, 0.0)


class ConsistencyBuffer(eqx.Module):
    """B: the multiset of pairs (s', σ(s')) that justify the labels used so far.

    A pytree of fixed size, so that it lives inside compiled loops; `add` returns a new buffer. For
    several nodes on the same data, `vmap` over `assigned` alone and share the rest. When it is
    full, the oldest pairs make room for new ones.
    """

    successors: Array
    """s' (or its features), [C, ...]."""
    assigned: Int[Array, " C"]
    """σ(s')."""
    born: Int[Array, " C"]
    """The number of the batch that committed the pair; −1 where the buffer is still empty."""
    batches: Int[Array, ""]
    """How many batches were added so far."""
    cursor: Int[Array, ""]
    """Where the next pair goes."""
    population: Population = eqx.field(static=True)

    @classmethod
    def empty(
        cls, capacity: int, successor: Any, *, population: Population | None = None
    ) -> "ConsistencyBuffer":
        """A buffer with nothing in it.

        Args:
            capacity: C, the most pairs it holds.
            successor: one s' (or its features) as an example of shape and dtype.
            population: which pairs count, and how much. All of them if not given.
        """
        _checks.positive("capacity", capacity)
        example = jnp.asarray(successor)
        return cls(
            successors=jnp.zeros((capacity, *example.shape), example.dtype),
            assigned=jnp.zeros(capacity, jnp.int32),
            born=jnp.full(capacity, -1),
            batches=jnp.array(0),
            cursor=jnp.array(0),
            population=Everything() if population is None else population,
        )

    @property
    def capacity(self) -> int:
        """C, the most pairs it holds."""
        return self.born.shape[0]

    def add(self, successors: Any, assigned: Any, *, terminal: Any = None) -> "ConsistencyBuffer":
        """Commit one batch's assignment; successors that ended an episode stay out.

        Args:
            successors: s' of the batch, [B, ...].
            assigned: σ(s'), [B].
            terminal: whether the episode ended at s', [B]; nowhere if not given.
        """
        successors, assigned = jnp.asarray(successors), jnp.asarray(assigned)
        rows = assigned.shape[0]
        terminal = jnp.zeros(rows, bool) if terminal is None else jnp.asarray(terminal) != 0
        self._check(successors, assigned, terminal)
        kept = self.population.admits(self.batches, rows) & ~terminal
        place = (self.cursor + jnp.cumsum(kept) - 1) % self.capacity
        place = jnp.where(kept, place, self.capacity)  # out of range: not written
        return ConsistencyBuffer(
            successors=self.successors.at[place].set(successors, mode="drop"),
            assigned=self.assigned.at[place].set(assigned, mode="drop"),
            born=self.born.at[place].set(self.batches, mode="drop"),
            batches=self.batches + 1,
            cursor=(self.cursor + jnp.sum(kept)) % self.capacity,
            population=self.population,
        )

    def weights(self) -> Float[Array, " C"]:
        """How much each pair counts; zero where there is none."""
        weights = self.population.weights(self.batches - 1 - self.born, self.batches)
        return jnp.where(self.born < 0, 0.0, weights)

    def sample(self, key: Key[Array, ""], size: int) -> tuple[Array, Int[Array, " size"]]:
        """Draw `size` pairs (s', σ(s')) with replacement, in proportion to their weights."""
        index = jax.random.categorical(key, jnp.log(self.weights()), shape=(size,))
        return self.successors[index], self.assigned[index]

    def penalty(self, q: Callable[[Array], Array], *, margin: float = 0.0) -> Float[Array, ""]:
        """C_θ(B): the weighted mean penalty over all pairs; zero for an empty buffer.

        Args:
            q: from successors [C, ...] to their Q-values [C, A].
            margin: the hinge margin.
        """
        weights = self.weights()
        penalties = penalty(q(self.successors), self.assigned, margin=margin)
        return jnp.sum(weights * penalties) / jnp.maximum(jnp.sum(weights), 1e-12)

    def _check(self, successors: Array, assigned: Array, terminal: Array) -> None:
        rows = assigned.shape[0] if assigned.ndim else 0
        if not 1 <= rows <= self.capacity:
            raise ValueError(
                f"assigned must hold 1 to {self.capacity} actions (the capacity), got {rows}"
            )
        if not jnp.issubdtype(assigned.dtype, jnp.integer):
            raise ValueError(f"assigned must hold integers (actions), got {assigned.dtype}")
        _checks.shape("successors", successors, (rows, *self.successors.shape[1:]))
        _checks.shape("terminal", terminal, (rows,))
        _checks.no_nan("successors", successors)
        actions = _checks.readable(assigned)
        if actions is not None and (actions < 0).any():
            raise ValueError(f"assigned holds {actions.min()}, but actions start at 0")
