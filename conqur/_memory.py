"""Memory: how much there is, and who keeps it."""

import ctypes
import os
import sys

_MMAP_MAX, _TRIM_THRESHOLD, _TOP_PAD = -4, -1, -2
"""What glibc's malloc.h calls M_MMAP_MAX, M_TRIM_THRESHOLD and M_TOP_PAD."""


def machine_memory() -> int:
    """How many bytes this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def device_memory() -> int:
    """How many bytes the accelerator has, or, where that is the processor, the machine."""
    import jax

    limit = (jax.devices()[0].memory_stats() or {}).get("bytes_limit")
    return limit or machine_memory()


def keep_memory() -> None:
    """Have this process keep memory that it no longer needs, where the C library is glibc.

    On a CPU, compiled programs allocate all their temporary memory anew in every call. If that is
    more than 32 MB, it would go back to the system each time, which has to clear every page before
    it gives it again; training on pictures would be far slower. (Requests above 64 MB from other
    threads than the first still go back; one arena for all threads would mend that, and made
    programs of many small requests slower.)
    """
    if sys.platform != "linux" or _told_otherwise():
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(_TOP_PAD, 64 << 20)


def _told_otherwise() -> bool:
    """Whether whoever began the process has chosen how memory is allocated."""
    return any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
