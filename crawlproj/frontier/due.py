"""When each partition of a shard has a domain due, as Redis answers and messages from others say."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping

#: How long before a domain is due its partition is read: about as long as a turn takes.
_EARLY_S = 0.03


class DueTimes:
    """Of the partitions that are owned. The time is passed in."""

    def __init__(self) -> None:
        self.at_s: dict[int, float] = {}
        #: Partitions woken since the calls in flight were made.
        self._woken: set[int] = set()

    def begin_call(self) -> None:
        """A call is about to be made, whose answer says what is due."""
        self._woken.clear()

    def note(self, due_in_ms: Mapping[int, int], owned: Container[int], now_s: float) -> None:
        """Take up an answer: ms until each partition has a domain due; below 0: it has none."""
        for partition, ms in due_in_ms.items():
            # A wake that came while we waited for this answer is newer than the answer.
            if partition in owned and partition not in self._woken:
                self.at_s[partition] = now_s + ms / 1000 - _EARLY_S if ms >= 0 else math.inf

    def wake(self, partitions: Iterable[int], now_s: float) -> None:
        """Others have changed these partitions: they are to be read now."""
        self._woken.update(partitions)
        self.put_off(partitions, now_s)

    def put_off(self, partitions: Iterable[int], until_s: float) -> None:
        self.at_s.update(dict.fromkeys(partitions, until_s))
