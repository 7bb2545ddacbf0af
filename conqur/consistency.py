"""The soft consistency penalty C_θ and the consistency buffer B it is taken over (Sec. 3.2)."""

import abc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import array_api_compat
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer, Key

from conqur import _checks


def penalty(q_values: Any, assigned: Any, *, margin: Any = 0.0, over_actions: str = "sum") -> Any:
    """The soft consistency penalty C_θ(s, σ(s)) = Σ_a' [Q_θ(s, a') − Q_θ(s, σ(s))]₊ of each state.

    It is zero where the assigned action is greedy. Arrays of NumPy, JAX or torch; the result is of
    the same library and gradients flow through it.

    Args:
        q_values: Q_θ(s, ·), [..., A].
        assigned: σ(s), integers, [...].
        margin: the hinge margin: by how much the assigned action has to be ahead of each other one
            to cost nothing. The paper's penalty has none.
        over_actions: "sum", as in the paper, or "mean".
    """
    q_values = _checks.q_values("q_values", q_values)
    assigned = _checks.assigned("assigned", assigned, q_values)
    _checks.number("margin", margin, at_least=0)
    if over_actions not in ("sum", "mean"):
        raise ValueError(f"over_actions must be 'sum' or 'mean', got {over_actions!r}")
    xp = array_api_compat.array_namespace(q_values)
    lead = q_values - xp.take_along_axis(q_values, assigned[..., None], axis=-1)
    shortfall = lead + margin
    # Gradient 0 on a tie; and NaN, also of an action that is not there, stays NaN.
    hinge = xp.where(shortfall <= 0, xp.zeros_like(shortfall), shortfall)
    # The assigned action's own term is the margin itself: take it off again.
    total = xp.sum(hinge, axis=-1) - margin
    return total / q_values.shape[-1] if over_actions == "mean" else total


class Population(abc.ABC):
    """How the consistency buffer is populated: which pairs (s', σ(s')) count, and how much."""

    recent_alike: ClassVar[bool] = False
    """Whether the newest pairs, however many, count alike and older ones not at all: then they
    are drawn without looking at each one's weight."""

    @abc.abstractmethod
    def admits(self, batch: Int[Array, ""], rows: int) -> Bool[Array, " rows"]:
        """Which pairs of batch number `batch` enter the buffer."""

    @abc.abstractmethod
    def weights(self, age: Int[Array, " C"], batches: Int[Array, ""]) -> Float[Array, " C"]:
        """The weight of pairs committed `age` batches ago (0: the newest of `batches` batches)."""


@dataclass(frozen=True)
class Everything(Population):
    """All choices ever committed: promotes full consistency."""

    recent_alike = True

    def admits(self, batch: Int[Array, ""], rows: int) -> Bool[Array, " rows"]:
        """Admit all."""
        return jnp.ones(rows, bool)

    def weights(self, age: Int[Array, " C"], batches: Int[Array, ""]) -> Float[Array, " C"]:
        """One each."""
        return jnp.ones(age.shape)


@dataclass(frozen=True)
class Window(Population):
    """A sliding recency window over the newest `batches` batches; `Window(1)` is the newest one."""

    recent_alike = True
    batches: int

    def __post_init__(self) -> None:
        _checks.count("batches", self.batches)

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
        _checks.number("rate", self.rate, above=0, below=1)

    def admits(self, batch: Int[Array, ""], rows: int) -> Bool[Array, " rows"]:
        """Admit all."""
        return jnp.ones(rows, bool)

    def weights(self, age: Int[Array, " C"], batches: Int[Array, ""]) -> Float[Array, " C"]:
        """`rate` to the power of the age."""
        return self.rate ** age.astype(float)


@dataclass(frozen=True)
class Subsample(Population):
    """A random `fraction` of every batch, the same rows in all buffers with the same seed."""

    recent_alike = True
    fraction: float
    seed: int = 0

    def __post_init__(self) -> None:
        _checks.number("fraction", self.fraction, above=0, at_most=1)

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

    recent_alike = True
    fraction: float = 0.5

    def __post_init__(self) -> None:
        _checks.number("fraction", self.fraction, above=0, at_most=1)

    def admits(self, batch: Int[Array, ""], rows: int) -> Bool[Array, " rows"]:
        """Admit all."""
        return jnp.ones(rows, bool)

    def weights(self, age: Int[Array, " C"], batches: Int[Array, ""]) -> Float[Array, " C"]:
        """One inside the window, zero outside."""
        return jnp.where(age < jnp.ceil(self.fraction * batches - 1e-5), 1.0, 0.0)


class ConsistencyBuffer(eqx.Module):
    """B: the multiset of pairs (s', σ(s')) that justify the labels used so far.

    A pytree of fixed size, so that it lives inside compiled loops; `add` returns a new buffer. For
    several nodes on the same data `vmap` a function of `assigned` that puts it into the shared
    buffer with `equinox.tree_at`. When it is full, the oldest pairs make room for new ones.
    """

    successors: Array
    """s' (or its features), [C, ...]."""
    assigned: Integer[Array, "C *N"]
    """σ(s'), or those of N nodes with the same s'."""
    born: Int[Array, " C"]
    """The number of the batch that committed the pair; −1 where the buffer is still empty."""
    batches: Int[Array, ""]
    """How many batches were added so far."""
    cursor: Int[Array, ""]
    """Where the next pair goes."""
    population: Population = eqx.field(static=True)

    @classmethod
    def empty(
        cls,
        capacity: int,
        example: Any,
        *,
        population: Population | None = None,
        action_dtype: Any = jnp.int32,
        nodes: tuple[int, ...] = (),
    ) -> "ConsistencyBuffer":
        """A buffer with nothing in it.

        Args:
            capacity: C, the most pairs it holds.
            example: one s' (or its features), for its shape and dtype; an array or a
                `jax.ShapeDtypeStruct`.
            population: which pairs count, and how much. All of them if not given.
            action_dtype: of σ; `jnp.uint8` holds up to 256 actions in a byte each.
            nodes: (N,) if N nodes share s'; σ then has a second axis N.
        """
        _checks.count("capacity", capacity)
        if not isinstance(population, Population | None):
            raise ValueError(f"population must be a Population such as Window(5), got {population}")
        if not isinstance(example, jax.ShapeDtypeStruct):
            example = jnp.asarray(example)
        return cls(
            successors=jnp.zeros((capacity, *example.shape), example.dtype),
            assigned=jnp.zeros((capacity, *nodes), action_dtype),
            born=jnp.full(capacity, -1, jnp.int32),
            batches=jnp.zeros((), jnp.int32),
            cursor=jnp.zeros((), jnp.int32),
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
            assigned: σ(s'), [B], or [B, N] of N nodes.
            terminal: whether the episode ended at s', [B]; nowhere if not given.
        """
        assigned = _checks.as_array("assigned", assigned)
        self._check(_checks.as_array("successors", successors), assigned)
        rows = assigned.shape[0]
        terminal = _checks.flags("terminal", np.zeros(rows, bool) if terminal is None else terminal)
        _checks.shape("terminal", terminal, (rows,))
        successors = jnp.asarray(successors).astype(self.successors.dtype)
        assigned = jnp.asarray(assigned).astype(self.assigned.dtype)
        place = self.places(jnp.asarray(terminal))

        def written(ring: Array, values: Array) -> Array:
            return ring.at[place].set(values, mode="drop", unique_indices=True)

        return ConsistencyBuffer(
            successors=written(self.successors, successors),
            assigned=written(self.assigned, assigned),
            born=written(self.born, self.batches),
            batches=self.batches + 1,
            cursor=(self.cursor + jnp.sum(place < self.capacity)) % self.capacity,
            population=self.population,
        )

    def places(self, terminal: Bool[Array, " B"]) -> Int[Array, " B"]:
        """Where the pairs of the next batch go; out of range for those that stay out."""
        rows = terminal.shape[0]
        kept = self.population.admits(self.batches, rows) & ~terminal
        place = (self.cursor + jnp.cumsum(kept) - 1) % self.capacity
        # No two alike: a compiler that knows this need not lock.
        return jnp.where(kept, place, self.capacity + jnp.arange(rows))

    def weights(self) -> Float[Array, " C"]:
        """How much each pair counts; zero where there is none."""
        weights = self.population.weights(self.batches - 1 - self.born, self.batches)
        return jnp.where(self.born < 0, 0.0, weights)

    def draw(self, key: Key[Array, ""], size: int) -> tuple[Int[Array, " size"], Any]:
        """Where to find `size` pairs, drawn with replacement in proportion to their weights.

        Returns their places, and whether there was anything to draw from.
        """
        weights = self.weights()
        if self.population.recent_alike:
            drawable = jnp.sum(weights > 0)
            age = jax.random.randint(key, (size,), 0, jnp.maximum(drawable, 1))
            index = (self.cursor - 1 - age) % self.capacity
        else:
            cumulative = jnp.cumsum(weights)
            draws = cumulative[-1] * (1 - jax.random.uniform(key, (size,)))  # in (0, total]
            index = jnp.clip(jnp.searchsorted(cumulative, draws), 0, self.capacity - 1)
        return index, jnp.any(weights > 0)

    def sample(
        self, key: Key[Array, ""], size: int
    ) -> tuple[Array, Integer[Array, "size *N"], Float[Array, " size"]]:
        """Draw `size` pairs with replacement, in proportion to their weights.

        Returns s', σ(s') and the weight of each drawn pair in a mean: 1, or 0 if there was nothing
        to draw from.
        """
        index, found = self.draw(key, size)
        return self.successors[index], self.assigned[index], jnp.full(size, found, float)

    def penalty(
        self, q: Callable[[Array], Array], *, margin: float = 0.0, over_actions: str = "sum"
    ) -> Float[Array, ""]:
        """C_θ(B): the weighted mean penalty over all pairs; zero for an empty buffer.

        Args:
            q: from successors [C, ...] to their Q-values [C, A]; finite for zeros, which slots hold
                that are not filled yet.
            margin: the hinge margin.
            over_actions: "sum", as in the paper, or "mean" of a pair's penalty over the actions.
        """
        q_values = q(self.successors)
        if q_values.ndim != 2 or q_values.shape[0] != self.capacity:
            raise ValueError(
                f"q must give Q-values of shape [{self.capacity}, A], got {list(q_values.shape)}"
            )
        weights = self.weights()
        penalties = penalty(q_values, self.assigned, margin=margin, over_actions=over_actions)
        total = jnp.sum(weights)
        return jnp.sum(weights * penalties) / jnp.where(total > 0, total, 1.0)

    def _check(self, successors: Any, assigned: Any) -> None:
        rows = assigned.shape[0] if assigned.ndim else 0
        if not 1 <= rows <= self.capacity:
            raise ValueError(
                f"assigned must hold 1 to {self.capacity} actions (the capacity), got {rows}"
            )
        if not jnp.issubdtype(assigned.dtype, np.integer):
            raise ValueError(f"assigned must hold integers (actions), got {assigned.dtype}")
        actions = _checks.readable(assigned)
        last = np.iinfo(self.assigned.dtype).max
        if actions is not None and not (actions.min() >= 0 and actions.max() <= last):
            raise ValueError(
                f"assigned holds {actions.min()} to {actions.max()}, but actions are 0 to {last}"
            )
        _checks.shape("successors", successors, (rows, *self.successors.shape[1:]))
        wanted = self.successors.dtype
        given = jax.dtypes.canonicalize_dtype(successors.dtype)  # 32 bits unless x64 is on
        both_floating = all(jnp.issubdtype(dtype, np.floating) for dtype in (wanted, given))
        if not both_floating and jnp.result_type(given, wanted) != wanted:
            raise ValueError(
                f"successors must have dtype {self.successors.dtype}, got {successors.dtype}"
            )
        _checks.no_nan("successors", successors)
