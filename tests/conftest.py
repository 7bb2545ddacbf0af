"""What holds in every test: shapes are checked, and no array is broadcast to another rank."""

import os
import signal

import hypothesis
import jax
import pytest
from jax.experimental.compilation_cache import compilation_cache

jax.config.update("jax_numpy_rank_promotion", "raise")

# Most programs of tests run once, on little: to compile them well takes longer than to run them.
OPTIMISED = os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1") == "0"
jax.config.update("jax_disable_most_optimizations", not OPTIMISED)

# Shells start what is in the background with Ctrl-C ignored, and that is inherited.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session", autouse=True)
def _compile_once(tmp_path_factory):
    """Programs are the same in all runs of a kind, in any process: compile them once."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:  # each worker has a folder of its own in a common one
        folder = folder.parent
    (folder / "compiled").mkdir(exist_ok=True)
    settings = {
        "jax_compilation_cache_dir": str(folder / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0.1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
        os.environ[name.upper()] = str(value)
    compilation_cache.reset_cache()
    yield
    for name, value in before.items():
        jax.config.update(name, value)
        del os.environ[name.upper()]
    compilation_cache.reset_cache()


@pytest.fixture
def optimised(monkeypatch):
    """Programs are compiled as users have them: for what has to hold to the last bit."""
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "0")
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
    yield
    jax.config.update("jax_disable_most_optimizations", not OPTIMISED)
    jax.clear_caches()
