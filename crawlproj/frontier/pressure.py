"""How much a shard leases at a time: less while parsers are behind, and no more than a limit leaves.

Pure: what Redis answered, and the time, are arguments.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

#: How often the length of the page queue is read.
QUEUE_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Sizes of the page queue: above ``soft`` shards lease less, from ``hard`` on nothing.

    From ``redis_share`` of Redis' memory on, they lease nothing until the pages in it are stored.
    """

    soft: int
    hard: int
    soft_bytes: int = 2**62
    hard_bytes: int = 2**62
    redis_share: float = 1.0


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """``batch`` leases in memory at most; ``chain`` of one domain, none longer than ``chain_s`` to fetch."""

    batch: int
    chain: int
    chain_s: float
    lease_s: float
    shard_lease_s: float
    queue: QueueLimits
    #: How long a request may take that a lost owner left in flight.
    flight_s: float = 0.0
    #: How long a server may take to answer a request; what takes longer is aborted.
    answer_s: float = math.inf


class Promises(Protocol):
    """The pages a run with a limit may still fetch; `runs.Run` keeps them."""

    async def promise_pages(self, wanted: int, most: int) -> int: ...

    async def return_promises(self, count: int, generation: int | None = None) -> None: ...

    def forget_returned(self) -> None: ...


class QueuePressure:
    """What the length of the page queue, and the memory of Redis, mean for leasing.

    From a hard limit on nothing is leased until the queue is below both soft limits again. While Redis is
    short of room nothing is leased either, until all pages are stored: then only fetching what waits makes
    room.
    """

    def __init__(self, limits: QueueLimits) -> None:
        #: The part of its room that a shard may fill.
        self.share = 1.0
        self._limits = limits
        self._is_full = self._is_short = False
        self._read_s = -math.inf

    def is_stale(self, now_s: float) -> bool:
        return now_s - self._read_s >= QUEUE_LOOK_S

    def update(self, pages: int, size: int, now_s: float, *, unstored_when_short: int | None = None) -> str:
        """Record the length of the queue in pages and bytes.

        *unstored_when_short* counts the pages queued or held by a parser; None: Redis has room. Returns
        "hard", "soft" or "memory" when that limit has been passed since the last update, else "".
        """
        limits = self._limits
        # 0 at the soft limit, 1 at the hard one.
        level = max(
            (pages - limits.soft) / max(1, limits.hard - limits.soft),
            (size - limits.soft_bytes) / max(1, limits.hard_bytes - limits.soft_bytes),
        )
        self._read_s = now_s
        was_full, was_short, was_share = self._is_full, self._is_short, self.share
        self._is_full = level >= 1 or (was_full and level >= 0)
        self._is_short = unstored_when_short is not None
        self.share = 0.0 if self._is_full or unstored_when_short else min(1.0, 1.0 - level)
        if self._is_full and not was_full:
            return "hard"
        if self._is_short:
            return "" if was_short else "memory"
        return "soft" if self.share < 1.0 <= was_share else ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Which partitions to lease from, and how many URLs of each."""

    partitions: list[int]
    each: int

    @property
    def total(self) -> int:
        return self.each * len(self.partitions)


def plan_leases(due_at_s: Mapping[int, float], room: int) -> Plan:
    """Spread *room* evenly over the partitions that are due; the longest waiting go first."""
    partitions = sorted(due_at_s, key=due_at_s.__getitem__)[:room]
    return Plan(partitions, math.ceil(room / len(partitions)))


def within_promise(plan: Plan, promised: int) -> Plan:
    """Return *plan* cut down to the pages that the run's limit leaves; *promised* is at least 1."""
    partitions = plan.partitions[:promised]
    return Plan(partitions, promised // len(partitions))
