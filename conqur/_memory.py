"""How much memory there is."""

import os

import jax


def machine_memory() -> int:
    """How many bytes this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def device_memory() -> int:
    """How many bytes the accelerator has, or, where that is the processor, the machine."""
    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    return limit or machine_memory()
