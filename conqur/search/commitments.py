"""What the nodes of a search are committed to: a consistency buffer for the lineage of each.

The states are there once; a node's choices are a column beside them. Nodes keep their lineage's
choices themselves, level by level, so that the column of any node can be made again.
"""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt8

from conqur.consistency import ConsistencyBuffer, Population
from conqur.search.node import Node
from conqur.search.scoring import NO_ACTION
from conqur.search.sharding import Devices
from conqur.search.store import as_stored, stored_dtype


class Commitments:
    """The consistency buffers of N nodes.

    Attributes:
        buffer: the states, and in columns [C, N] the nodes' choices.
    """

    buffer: ConsistencyBuffer

    def __init__(
        self,
        capacity: int,
        example: jax.ShapeDtypeStruct,
        population: Population,
        *,
        width: int,
        half_precision: bool,
        devices: Devices,
    ) -> None:
        """With nothing in them.

        Args:
            capacity: C, how many states they hold.
            example: the shape and dtype of φ(s).
            population: of the buffers.
            width: N.
            half_precision: keep features in half the precision.
            devices: where everything lies.
        """
        dtype = stored_dtype(example.dtype, half_precision)
        empty = ConsistencyBuffer.empty(
            capacity,
            jax.ShapeDtypeStruct(example.shape, dtype),  # type: ignore[no-untyped-call]
            population=population,
            action_dtype=jnp.uint8,
            nodes=(width,),
        )
        self._devices, self._width = devices, width
        self.buffer = devices.buffer(empty)
        self._places: list[Int[np.ndarray, " n"]] = []

    def become(self, nodes: Sequence[Node]) -> None:
        """From here on the columns are those of these nodes."""
        columns = self._devices.apart(self._columns(nodes), 1)
        self.buffer = eqx.tree_at(lambda buffer: buffer.assigned, self.buffer, columns)

    def add(
        self, successors: Array, assigned: UInt8[Array, "N n"], terminal: Bool[Array, " n"]
    ) -> None:
        """A level's choices; those in terminal states do not count."""
        self._places.append(np.asarray(self.buffer.places(terminal)))
        self.buffer = _added(self.buffer, (successors, assigned.T, terminal))

    def of(self, node: Node) -> tuple[np.ndarray, np.ndarray]:
        """φ of the states, and the actions, that a node is committed to."""
        column = self._columns([node])[:, 0]
        kept = (column != NO_ACTION) & (np.asarray(self.buffer.weights()) > 0)
        return np.asarray(self.buffer.successors)[kept].astype(np.float32), column[kept].astype(int)

    def places(self) -> Int[np.ndarray, "K n"]:
        """Where in the buffer the states of each level were put; C: nowhere."""
        return (np.stack(self._places) if self._places else np.zeros((0, 0))).astype(np.int32)

    def levels(self, first: int, stop: int) -> np.ndarray:
        """φ of the states of the levels from `first` to before `stop`, zero where not kept."""
        places = np.stack(self._places[first:stop])
        kept = places < self.buffer.capacity
        rows = np.asarray(self.buffer.successors[np.where(kept, places, 0)])
        return np.where(
            kept.reshape(kept.shape + (1,) * (rows.ndim - 2)), rows, np.zeros_like(rows)
        )

    def restore(self, places: Int[np.ndarray, "K n"], ring: np.ndarray) -> None:
        """Go back; the columns are nobody's until `become`.

        Args:
            places: as `places` gave them.
            ring: what `levels` gave of the newest levels, level k at k modulo its length.
        """
        buffer = self.buffer
        self._places = list(places)
        for level, row in enumerate(self._places):
            # Levels that are no longer in the ring have no weight in the buffer any more.
            nothing = np.zeros((len(row), self._width), np.uint8)
            out = row >= buffer.capacity
            given = (ring[level % len(ring)], nothing, out)
            buffer = _added(buffer, self._devices.everywhere(given))
        assert int(buffer.batches) == len(places)
        self.buffer = buffer

    def _columns(self, nodes: Sequence[Node]) -> UInt8[np.ndarray, "C N"]:
        """The nodes' assignments, where the buffer has the states they belong to."""
        capacity = self.buffer.capacity
        columns = np.full((capacity, len(nodes)), NO_ACTION, np.uint8)
        for i, node in enumerate(nodes):
            history = (*node.history, *[None] * (len(self._places) - len(node.history)))
            for places, assigned in zip(self._places, history, strict=True):
                kept = places < capacity
                columns[places[kept], i] = NO_ACTION if assigned is None else assigned[kept]
        return columns


@eqx.filter_jit(donate="all")
def _added(buffer: ConsistencyBuffer, given: Any) -> ConsistencyBuffer:
    successors, assigned, terminal = given
    successors = as_stored(successors, buffer.successors.dtype)
    return buffer.add(successors, assigned, terminal=terminal)
