"""What glibc is told to do with memory that is given back."""

import os
import platform
import subprocess
import sys

import pytest

SCRIPT = """
import ctypes, resource
from conqur._memory import keep_memory

keep_memory()
c = ctypes.CDLL(None)
c.malloc.restype, c.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
c.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
c.free.argtypes = [ctypes.c_void_p]


def use():
    place = c.malloc(48 << 20)
    c.memset(place, 1, 48 << 20)
    c.free(place)


use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of glibc")
def test_memory_stays_unless_the_user_has_chosen_otherwise():
    def pages(**variables):
        ours = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_TUN"))}
        environment = ours | variables
        command = [sys.executable, "-c", SCRIPT]
        return int(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)

    mapped_anew = pages(MALLOC_ARENA_MAX="4")
    assert mapped_anew >= 5  # with transparent huge pages there are few, and some for every time
    assert pages() < 0.1 * mapped_anew
