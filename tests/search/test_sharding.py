"""Nodes over several devices."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = """
import json, sys
sys.path.insert(0, {tests!r})
import jax
from search.test_growing import beam, grower
from conqur.search.node import Tree
world = grower(width=8)
*_, tree = beam(Tree.planted(world.roots()), world, levels=6)
weights = [node.weights.theta.weight.tolist() for node in tree.pool]
ids = [node.id for node in tree.pool]
spread = len(world._commitments.buffer.assigned.sharding.device_set)
print(json.dumps([jax.device_count(), spread, ids, weights]))
"""


def searched(devices):
    tests = Path(__file__).parent.parent
    flags = {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(tests=str(tests))],
        env=os.environ | flags | {"JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.usefixtures("optimised")
def test_eight_devices_compute_what_one_does():
    count, spread, ids, weights = searched(8)
    assert (count, spread) == (8, 8)
    _, alone, expected_ids, expected = searched(1)
    assert alone == 1
    assert ids == expected_ids
    np.testing.assert_allclose(weights, expected, rtol=1e-4, atol=1e-6)
