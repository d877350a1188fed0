"""Tunes memory for a parser, which allocates and frees thousands of small objects per page."""

from __future__ import annotations

import ctypes
import gc
import resource

#: Allocations between collections of the young generation; 700 by default.
_YOUNG = 50_000
# Parameters of mallopt in glibc.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
#: Free memory kept for the next page. The tree of a page of 1 MB takes 20 MB.
_KEPT_BYTES = 64 << 20
_PAD_BYTES = 1 << 20
#: Larger allocations are mapped and unmapped one by one.
_LARGE_BYTES = 4 << 20


def settle_memory() -> None:
    """Make this process keep the memory of one page for the next, and collect garbage less often.

    By default glibc returns the memory of each page to the system and gets it back, zeroed, for the next,
    which takes as long as parsing it. A page's objects are freed by their reference counts, so the collector
    finds little. With another C library only the collector is tuned.
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
    """Limit the memory of this process: allocating more raises MemoryError."""
    # Not RLIMIT_AS, which counts what libraries reserve and never use.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
