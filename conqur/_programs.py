"""Compiled programs that outlive a process."""

import os
from pathlib import Path

import jax


def keep_programs() -> None:
    """On accelerators, keep what is compiled from now on for other processes.

    There the compiler tries out what is fastest, and two processes may end up with programs that
    differ in the last bits: a run that is resumed has to run the very ones it was started with.
    They are kept where JAX was told to or, if it was not, in the user's cache folder.
    """
    if jax.default_backend() == "cpu":  # compiles to the same program every time
        return
    users = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    told = jax.config.jax_compilation_cache_dir  # type: ignore[attr-defined]
    settings = {
        "jax_compilation_cache_dir": told or str(users / "conqur" / "programs"),
        # All of them, however small and soon compiled.
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    for name, value in settings.items():
        jax.config.update(name, value)  # type: ignore[no-untyped-call]
