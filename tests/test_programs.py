"""What is compiled on an accelerator is there for the next process."""

import os
import subprocess
import sys

import pytest

COMPILE = """
import sys
import jax, jax.numpy as jnp
jax.jit(lambda x: x - 1)(jnp.ones(3))  # too early to be kept, and no obstacle
jax.default_backend = lambda: sys.argv[1]
from conqur._programs import keep_programs
keep_programs()
jax.jit(lambda x: x + 1)(jnp.ones(3))
"""


@pytest.mark.parametrize(
    ("backend", "told", "kept"),
    [
        ("gpu", {"XDG_CACHE_HOME": "cache"}, "cache/conqur/programs"),
        ("gpu", {"XDG_CACHE_HOME": "", "HOME": "home"}, "home/.cache/conqur/programs"),
        ("gpu", {"JAX_COMPILATION_CACHE_DIR": "mine", "XDG_CACHE_HOME": "cache"}, "mine"),
        ("cpu", {"XDG_CACHE_HOME": "cache", "HOME": "home"}, None),
    ],
)
def test_programs_are_kept(tmp_path, backend, told, kept):
    environment = {name: value for name, value in os.environ.items() if "CACHE" not in name}
    told = {name: str(tmp_path / folder) if folder else "" for name, folder in told.items()}
    subprocess.run([sys.executable, "-c", COMPILE, backend], env=environment | told, check=True)
    folders = {path.parent for path in tmp_path.rglob("*") if path.is_file()}
    assert folders == ({tmp_path / kept} if kept else set())
