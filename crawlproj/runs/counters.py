"""The counters of a run, as its leader and its status read them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass


@dataclass(slots=True)
class RunCounters:
    """Counters of a run, summed over its partitions. ``counts`` has every counter by name."""

    counts: Counter[str]
    owned: int
    queue_pages: int
    taken: dict[str, int]
    stored: int
    #: Of a run with a page limit: pages fetched or promised to shards.
    promised: int = 0
    #: How many were ever promised, those returned included.
    granted: int = 0
    #: Stored pages whose body was truncated.
    cut: int = 0
    #: Links that wait on the disks of parsers until Redis has room.
    spilled: int = 0

    @property
    def waiting(self) -> int:
        return self.counts["waiting"]

    @property
    def leased(self) -> int:
        """Leases handed out, less those that ended in one of these ways."""
        ended = ("done", "failed", "skipped", "trapped", "retry", "returned", "reclaimed")
        return self.counts["number"] - sum(self.counts[name] for name in ended)

    @property
    def fetched(self) -> int:
        return self.counts["done"]

    @property
    def admitted(self) -> int:
        return self.counts["admitted"]

    @property
    def unstored(self) -> int:
        """Pages queued or held by a parser."""
        return self.queue_pages + sum(self.taken.values())

    @property
    def outstanding(self) -> int:
        """URLs, pages and links that are not done."""
        return self.waiting + self.leased + self.unstored + self.spilled

    @property
    def is_left(self) -> bool:
        """Whether there is anything to do, now or when parked domains are tried again."""
        return bool(self.outstanding or self.counts["parked"])

    def steps(self) -> tuple[int, ...]:
        """Counters that only grow: if equal twice, nothing happened in between."""
        return (
            self.admitted,
            self.counts["number"],
            self.counts["done"] + self.counts["failed"] + self.counts["skipped"] + self.counts["trapped"],
            self.counts["retry"] + self.counts["returned"] + self.counts["reclaimed"],
            self.counts["pages"],
            self.stored,
        )
