"""The axis of nodes over several devices: each trains some of them, on data that all have."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from conqur.consistency import ConsistencyBuffer


class Devices:
    """Puts what nodes have of their own on one device each, and what they share on all."""

    def __init__(self) -> None:
        """Take all devices of this process."""
        self._mesh = Mesh(np.array(jax.local_devices()), ("nodes",))

    def width(self, nodes: int) -> int:
        """The least number of nodes from `nodes` on that the devices share evenly."""
        return -(-nodes // self._mesh.size) * self._mesh.size

    def apart(self, tree: Any, axes: Any) -> Any:
        """Arrays of all nodes; `axes` says where the nodes' axis is in each."""
        return jax.tree.map(lambda axis, leaf: self._put(leaf, axis), axes, tree)

    def everywhere(self, tree: Any) -> Any:
        """Arrays that all nodes share."""
        return jax.tree.map(lambda leaf: self._put(leaf, None), tree)

    def buffer(self, buffer: ConsistencyBuffer) -> ConsistencyBuffer:
        """A consistency buffer: the states on all devices, the assignments with their nodes."""
        shared = self.everywhere(eqx.tree_at(lambda b: b.assigned, buffer, np.zeros((), np.uint8)))
        assigned = self._put(buffer.assigned, 1)
        return eqx.tree_at(lambda b: b.assigned, shared, assigned)

    def _put(self, leaf: Any, axis: int | None) -> Any:
        names = () if axis is None else (*[None] * axis, "nodes")
        spec = PartitionSpec(*names)  # type: ignore[no-untyped-call]
        return jax.device_put(leaf, NamedSharding(self._mesh, spec))
