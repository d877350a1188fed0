"""Memory as a parser uses it: thousands of small pieces that go with their page, again and again."""

from __future__ import annotations

import ctypes
import gc
import resource

#: Allocations between two looks at the young objects; 700 in Python. The rest as Python has it.
_YOUNG = 50_000
# Parameters of mallopt in glibc.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
#: Free memory kept for the next page. The tree of a page of a megabyte takes 20 MB.
_KEPT_BYTES = 64 << 20
_PAD_BYTES = 1 << 20
#: Larger pieces come from the system one by one and go back to it.
_LARGE_BYTES = 4 << 20


def settle_memory() -> None:
    """Make this process keep the memory of one page for the next, and collect garbage less often.

    By default the C library returns the memory of each page to the system and gets it again for the
    next, zeroed piece by piece: that takes as long as parsing it. A page's objects go away by
    themselves, so there is little for the collector to find. Where the C library is another, only the
    collector is set.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_TOP_PAD, _PAD_BYTES)
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)


def limit_memory(most_bytes: int) -> None:
    """Have this process get no more memory than that: what a page asks for beyond it is a MemoryError."""
    # Not RLIMIT_AS, which counts what libraries reserve and never use.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
