"""Information sets (cells) and sums of functions on them, after Lu, Schuurmans & Boutilier (2018).

A cell is the set of all θ whose greedy policy keeps a set of commitments [s ↦ a]; it is written as
a tuple with an action, or `LinearPolicies.FREE`, for every state. Every Q[s, a] of the
policy-consistent algorithms is a function on disjoint cells. Adding two such functions intersects
the cells of one with those of the other; which intersections are empty depends on the cells alone,
not on the values, so it is worked out once and remembered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from conqur.exact.linear import LinearPolicies

Cell = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Cells:
    """Disjoint, non-empty cells. Equal ones are the same object (see `InformationSets.intern`)."""

    commitments: tuple[Cell, ...]

    def __len__(self) -> int:
        return len(self.commitments)

    @cached_property
    def array(self) -> Int[np.ndarray, "K S"]:
        """The commitments as one array."""
        return np.array(self.commitments, dtype=np.int16)


@dataclass(frozen=True, eq=False)
class CellValues:
    """A function from cells to values: Q[s, a] or ConQ[s]."""

    cells: Cells
    values: Float[np.ndarray, " K"]

    def affine(self, scale: float, shift: float = 0.0) -> "CellValues":
        """`scale` times the function plus `shift`."""
        return CellValues(self.cells, scale * self.values + shift)

    def best(self) -> tuple[Cell, float]:
        """The cell with the highest value, and that value."""
        index = int(np.argmax(self.values))
        return self.cells.commitments[index], float(self.values[index])


class InformationSets:
    """The cells of a linear policy class, and the operations that keep values consistent."""

    def __init__(self, policies: LinearPolicies, max_cells: int) -> None:
        """Take the policy class and the largest number of cells that one function may have."""
        self.policies = policies
        self.max_cells = max_cells
        self._interned: dict[tuple[Cell, ...], Cells] = {}
        self._meet = cache(self._intersections)
        self._commit = cache(self._restrictions)

    def constant(self, value: float) -> CellValues:
        """The function with this value on the cell of all θ."""
        free = (LinearPolicies.FREE,) * self.policies.num_states
        return CellValues(self.intern((free,)), np.array([value]))

    def add(self, first: CellValues, second: CellValues) -> CellValues:
        """⊕: add the values wherever two cells have a θ in common."""
        cells, i, j = self._meet(first.cells, second.cells)
        return CellValues(cells, first.values[i] + second.values[j])

    def con_q(self, q: Sequence[CellValues], state: int) -> CellValues:
        """ConQ[s] = ∪_a Q[s, a] restricted to the θ that are greedy for a in s."""
        cells, kept = self._commit(tuple(function.cells for function in q), state)
        return CellValues(cells, np.concatenate([function.values for function in q])[kept])

    def intern(self, commitments: tuple[Cell, ...]) -> Cells:
        """The one `Cells` object for these commitments, so that caches can go by identity."""
        if not commitments:
            raise ValueError("features let no θ be strictly greedy in all these states together")
        if len(commitments) > self.max_cells:
            raise ValueError(f"max_cells is {self.max_cells}, but {len(commitments)} are needed")
        return self._interned.setdefault(commitments, Cells(commitments))

    def _intersections(self, first: Cells, second: Cells) -> tuple[Cells, np.ndarray, np.ndarray]:
        """All non-empty intersections, and which cell of each side they came from."""
        if first is second:  # disjoint cells meet no other than themselves
            return first, np.arange(len(first)), np.arange(len(first))
        left, right = np.nonzero(_agree(first.array, second.array))
        unions = np.maximum(first.array[left], second.array[right])  # FREE is the smallest
        found: dict[Cell, tuple[int, int]] = {}
        for union, i, j in zip(unions.tolist(), left.tolist(), right.tolist(), strict=True):
            cell = tuple(union)
            if self.policies.witness(cell) is not None:
                found[cell] = i, j
        cells = self.intern(tuple(sorted(found)))
        origins = np.array([found[cell] for cell in cells.commitments])
        return cells, origins[:, 0], origins[:, 1]

    def _restrictions(self, cells: tuple[Cells, ...], state: int) -> tuple[Cells, np.ndarray]:
        """The cells of each action's Q[s, a], cut down to [s ↦ a] where that leaves something.

        Also returns where they stand in the concatenation of all actions' cells.
        """
        found: dict[Cell, int] = {}
        position = 0
        for action, part in enumerate(cells):
            for cell in part.commitments:
                restricted = (*cell[:state], action, *cell[state + 1 :])
                fits = cell[state] in (LinearPolicies.FREE, action)
                if fits and self.policies.witness(restricted) is not None:
                    found[restricted] = position
                position += 1
        restricted_cells = self.intern(tuple(sorted(found)))
        return restricted_cells, np.array([found[c] for c in restricted_cells.commitments])


def _agree(
    first: Int[np.ndarray, "K S"], second: Int[np.ndarray, "L S"]
) -> Bool[np.ndarray, "K L"]:
    """Which cells of one side commit no state to another action than those of the other side."""
    free = LinearPolicies.FREE
    agree = np.ones((len(first), len(second)), dtype=bool)
    for one, other in zip(first.T, second.T, strict=True):
        agree &= (one[:, None] == other) | (one == free)[:, None] | (other == free)
    return agree
