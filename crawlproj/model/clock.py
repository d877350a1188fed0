"""Durations by this machine's own clock, which nobody can set."""

from __future__ import annotations

import time
from collections.abc import Hashable


def boot_clock() -> float:
    """Return seconds of a clock that keeps running while the process, or the machine, is asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Unchanged:
    """How long values have stayed the same: what is not renewed for long is dead, whatever clocks say."""

    def __init__(self) -> None:
        self._seen: dict[Hashable, tuple[object, float]] = {}

    def for_s(self, name: Hashable, value: object, now_s: float) -> float:
        """Return how long *name* has had this *value*, as far as we saw."""
        known = self._seen.get(name)
        if known is None or known[0] != value:
            self._seen[name] = known = value, now_s
        return now_s - known[1]

    def forget(self, name: Hashable) -> None:
        self._seen.pop(name, None)
