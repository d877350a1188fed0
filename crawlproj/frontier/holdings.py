"""The partitions a shard owns: kept by renewing, taken and given up as the run's map changes."""

from __future__ import annotations

import logging
import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Protocol

from crawlproj.frontier.frontier import Frontier, Hold
from crawlproj.frontier.ownership import ShardNumber
from crawlproj.model.partition import partitions_of
from crawlproj.politeness.pacing import DelayRules

logger = logging.getLogger(__name__)

#: How soon a partition that is still another's is tried again.
_TRY_AGAIN_S = 1.0


class PageLimit(Protocol):
    """What a run says of its limits; `runs.Limits` is one."""

    @property
    def pages(self) -> int: ...

    def __bool__(self) -> bool: ...


class ShardMap(Protocol):
    """What the run says about its shards, its state and its limits; `runs.RunMap` is one."""

    shards: int
    state: str

    @property
    def alive(self) -> Collection[int]: ...

    @property
    def limits(self) -> PageLimit: ...


@dataclass(frozen=True, slots=True)
class Kept:
    """What a renewal brought: ms until each partition has work, what is to be given up, how it was before."""

    due_in_ms: dict[int, int]
    unwanted: set[int]
    state: str
    limits: PageLimit
    is_retired: bool
    had_lapsed: bool


class Holdings:
    """The partitions this shard holds.

    One that others should own is *leaving*: nothing more is leased from it, and it is released when
    *is_empty* says that nothing is lent from it any more.
    """

    def __init__(
        self,
        frontier: Frontier,
        number: ShardNumber,
        read_map: Callable[[], Awaitable[ShardMap]],
        rules: DelayRules,
        *,
        shard_lease_s: float,
        flight_s: float,
        is_empty: Callable[[int], bool],
        clock: Callable[[], float],
    ) -> None:
        self.holds: dict[int, Hold] = {}
        self.leaving: set[int] = set()
        #: Until when this shard may fetch: after that it may have been replaced.
        self.owned_until_s = -math.inf
        #: When the holds are to be renewed.
        self.keep_at_s = 0.0
        #: When partitions that are ours, but still another's, are tried.
        self.try_at_s: dict[int, float] = {}
        self._frontier = frontier
        self._number = number
        self._read_map = read_map
        self._rules = rules
        self._shard_lease_s = shard_lease_s
        self._flight_s = flight_s
        self._is_empty = is_empty
        self._clock = clock
        self._kept_s = -math.inf
        #: From when on a shard that is not there counts as dead.
        self._judges_from_s = math.inf

    async def keep(self, *, starting: bool) -> Kept:
        """Renew all holds, let parked domains go on when it is time, and look at the map. Raises Fenced."""
        before_s = self._clock()
        ttl_ms = int(self._shard_lease_s * 1000)
        due_in_ms, returning = await self._frontier.renew(list(self.holds.values()), ttl_ms)
        if returning:
            await self._frontier.unpark(dict.fromkeys(returning, ()))
        await self._number.keep(starting=starting)
        after_s = self._clock()
        if after_s - self._kept_s > self._shard_lease_s / 2:
            # Just come, or Redis was away, or we were asleep: the others may be late as well. Whoever is back
            # first must not take what is theirs.
            self._judges_from_s = after_s + self._shard_lease_s
        self._kept_s = before_s
        # Also when that was while we waited for the answers.
        had_lapsed = after_s >= self.owned_until_s
        self.owned_until_s = before_s + self._shard_lease_s * 0.75
        self.keep_at_s = before_s + self._shard_lease_s / 3
        run_map = await self._read_map()
        unwanted = self._follow(run_map, after_s)
        is_retired = self._number.number >= run_map.shards and not self.holds
        return Kept(due_in_ms, unwanted, run_map.state, run_map.limits, is_retired, had_lapsed)

    def _follow(self, run_map: ShardMap, now_s: float) -> set[int]:
        """Want what the map gives us; returns what it does not give us any more."""
        alive = set(run_map.alive)
        if now_s < self._judges_from_s:
            alive = set(range(run_map.shards))
        wanted = partitions_of(self._number.number, self._frontier.partitions, run_map.shards, alive)
        self.try_at_s = {p: self.try_at_s.get(p, now_s) for p in wanted - set(self.holds)}
        self.leaving -= wanted
        unwanted = set(self.holds) - wanted - self.leaving
        self.leaving |= unwanted
        return unwanted

    async def release_empty(self) -> list[int]:
        """Release what is leaving and empty; returns those partitions."""
        gone = [self.holds[p] for p in self.leaving if self._is_empty(p)]
        if not gone:
            return []
        await self._frontier.release(gone)
        for hold in gone:
            self.leaving.discard(hold.partition)
            del self.holds[hold.partition]
        await self._number.tell_others()
        logger.info("gave up %d partitions", len(gone))
        return [hold.partition for hold in gone]

    async def acquire_wanted(self) -> list[int]:
        """Acquire what is ours and free; returns those partitions."""
        now_s = self._clock()
        taken: list[int] = []
        for partition in [p for p, at_s in self.try_at_s.items() if at_s <= now_s]:
            hold = await self._frontier.acquire(
                partition,
                self._number.process.instance,
                ttl_ms=int(self._shard_lease_s * 1000),
                delay_ms=int(self._rules.delay_s * 1000),
                delays_ms={d: int(rule.delay_s * 1000) for d, rule in self._rules.domains.items()},
                heir_of=self._number.heir_of,
                flight_ms=int(self._flight_s * 1000),
            )
            if hold is None:
                self.try_at_s[partition] = now_s + _TRY_AGAIN_S
                continue
            del self.try_at_s[partition]
            self.holds[partition] = hold
            taken.append(partition)
        if taken:
            logger.info("took %d partitions, holding %d", len(taken), len(self.holds))
        return taken
