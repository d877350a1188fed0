"""The partitions a shard owns: renewed, acquired and released as the run's map changes."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from crawlproj.frontier.frontier import Frontier, Hold, Taken
from crawlproj.frontier.ownership import ShardNumber
from crawlproj.frontier.rests import Rest, Rests
from crawlproj.model.clock import Unchanged
from crawlproj.model.partition import partition_of, partitions_of
from crawlproj.model.run import RunState
from crawlproj.politeness.pacing import Pacer

logger = logging.getLogger(__name__)

#: A hold that is not renewed for so many times as long as it lasts has no owner, whatever clocks say.
_PATIENCE = 1.25
#: How long nothing is leased from a Redis that was restarted: in less time (see `acquire_partition`) all
#: shards that are alive have said which domains must rest, should it have lost that.
_CALM_S = 3.0
#: Shares of the time a hold lasts. How often it is renewed, and what is silent for longer than is usual; how
#: long after that its owner begins requests, and when those still in flight are aborted.
_RENEWED, _LATE = 1 / 3, 0.6
_FETCHES, _LAPSES = 0.75, 0.9
#: How soon to retry a partition that another shard still owns.
_RETRY_S = 1.0


class PageLimit(Protocol):
    """The limits of a run; `runs.Limits` is one."""

    @property
    def pages(self) -> int: ...

    def __bool__(self) -> bool: ...


class ShardMap(Protocol):
    """The shards, state and limits of a run; `runs.RunMap` is one."""

    shards: int
    state: RunState

    @property
    def alive(self) -> Mapping[int, object]:
        """The shards that hold their number, each with what changes when it is renewed."""

    @property
    def limits(self) -> PageLimit: ...


@dataclass(frozen=True, slots=True)
class Renewal:
    """The result of a renewal: ms until each partition has work, what to release, and the run's state."""

    due_in_ms: dict[int, int]
    unwanted: set[int]
    state: RunState
    limits: PageLimit
    is_retired: bool
    #: Whether another shard may have fetched from our domains, in what Redis has lost.
    may_have_been_replaced: bool
    #: Until when this shard may begin to fetch, and when all must have ended: after that it may have been
    #: replaced.
    owned_until_s: float
    lapses_at_s: float


class Holdings:
    """The partitions this shard holds.

    One that another shard should own is *leaving*: nothing more is leased from it, and it is released once
    *is_empty* says that it has no leases left. *rests* are those of its domains as we know
    them, in case Redis has lost them.
    """

    def __init__(
        self,
        frontier: Frontier,
        number: ShardNumber,
        read_map: Callable[[], Awaitable[ShardMap]],
        pacer: Pacer,
        *,
        shard_lease_s: float,
        flight_s: float,
        answer_s: float,
        is_empty: Callable[[int], bool],
        rests: Rests,
        clock: Callable[[], float],
    ) -> None:
        self.holds: dict[int, Hold] = {}
        self.leaving: set[int] = set()
        #: When the holds are to be renewed.
        self.renew_at_s = 0.0
        #: When to try partitions that should be ours, but that another shard still owns.
        self.try_at_s: dict[int, float] = {}
        self._frontier = frontier
        self._number = number
        self._read_map = read_map
        self._pacer = pacer
        self._shard_lease_s = shard_lease_s
        self._flight_s = flight_s
        # Of an owner that is alive nothing is in flight when its hold expires, and its last sign of life was
        # a while before that. What a suspended one has sent is answered by then, or not at all.
        silent_s = (1 - _RENEWED) * shard_lease_s
        self._silent_flight_s = max(0.0, min(flight_s, answer_s) - silent_s)
        self._is_empty = is_empty
        self._rests = rests
        #: How often we have started over, each time as another owner.
        self.restarts = 0
        #: Partitions that nobody else has had since we had them, and from when on no request of others is in
        #: flight.
        self._ours: dict[int, float] = {}
        #: Those that the map gives to us, whoever is absent.
        self._assigned: set[int] = set()
        self._unchanged = Unchanged()
        self._clock = clock
        self._kept_s = self._owned_until_s = -math.inf
        #: The Redis of the last renewal; the one we know of, and until when we lease nothing from it.
        self._renewed_in = self._server = ""
        self._calm_until_s = -math.inf
        #: From when on an absent shard counts as dead.
        self._judges_from_s = math.inf

    async def renew(self, *, starting: bool) -> Renewal:
        """Renew all holds, release parked domains that are due, and read the map. Raises Fenced."""
        before_s = self._clock()
        ttl_ms = int(self._shard_lease_s * 1000)
        due_in_ms, returning = await self._frontier.renew(list(self.holds.values()), ttl_ms)
        if returning:
            await self._frontier.unpark(dict.fromkeys(returning, ()))
        await self._number.renew(starting=starting, generation=self._frontier.generation)
        after_s = self._clock()
        if after_s - self._kept_s > self._shard_lease_s / 2:
            # We just started, Redis was unreachable, or we were suspended. The others may be late as well,
            # and the first one back must not take their partitions.
            self._judges_from_s = after_s + self._shard_lease_s
            self._unchanged = Unchanged()
        before, self._renewed_in = self._renewed_in, self._frontier.client.incarnation
        may_have_been_replaced = (
            bool(self.holds) and before != self._renewed_in and before_s >= self._owned_until_s
        )
        self._kept_s = before_s
        self._owned_until_s = before_s + self._shard_lease_s * _FETCHES
        self.renew_at_s = before_s + self._shard_lease_s * _RENEWED
        run_map = await self._read_map()
        unwanted = self._follow(run_map, after_s)
        is_retired = self._number.number >= run_map.shards and not self.holds
        return Renewal(
            due_in_ms,
            unwanted,
            run_map.state,
            run_map.limits,
            is_retired,
            may_have_been_replaced,
            self._owned_until_s,
            before_s + self._shard_lease_s * _LAPSES,
        )

    def calm_s(self) -> float:
        """Return for how long nothing may be leased, since Redis was restarted."""
        before, self._server = self._server, self._frontier.client.incarnation
        if before not in ("", self._server):
            self._calm_until_s = self._clock() + _CALM_S
        return max(0.0, self._calm_until_s - self._clock())

    def _follow(self, run_map: ShardMap, now_s: float) -> set[int]:
        """Update what we want by the map; returns the partitions that are no longer ours."""
        silent_s = {
            number: self._unchanged.for_s(f"shard {number}", holder, now_s)
            for number, holder in run_map.alive.items()
        }
        patience_s = _PATIENCE * self._shard_lease_s
        alive = {number for number, seconds in silent_s.items() if seconds < patience_s}
        if max(silent_s.values(), default=0.0) > _LATE * self._shard_lease_s:
            # It has missed a renewal: notice at once when its hold expires.
            self.renew_at_s = min(self.renew_at_s, now_s + _RETRY_S)
        everyone = set(range(run_map.shards))
        if now_s < self._judges_from_s:
            alive = everyone
        cut_off = {n for n, holder in run_map.alive.items() if getattr(holder, "cut_off", False)}
        others = (holder for n, holder in run_map.alive.items() if n not in cut_off)
        self._number.others_fetch = any(map(self._is_elsewhere, others))
        # Who reaches no site leaves its domains to others, unless there are none.
        alive = alive - cut_off or alive
        number, partitions = self._number.number, self._frontier.partitions
        self._assigned = partitions_of(number, partitions, run_map.shards, everyone)
        wanted = partitions_of(number, partitions, run_map.shards, alive)
        self.try_at_s = {p: self.try_at_s.get(p, now_s) for p in wanted - set(self.holds)}
        self.leaving -= wanted
        unwanted = set(self.holds) - wanted - self.leaving
        self.leaving |= unwanted
        return unwanted

    def _is_elsewhere(self, holder: object) -> bool:
        process = getattr(holder, "process", None)
        return process is not None and process.machine != self._number.process.machine

    async def release_empty(self) -> list[int]:
        """Release partitions that are leaving and empty; returns them."""
        gone = [self.holds[p] for p in self.leaving if self._is_empty(p)]
        if not gone:
            return []
        await self._frontier.release(gone)
        for hold in gone:
            self.leaving.discard(hold.partition)
            self._ours.pop(hold.partition, None)
            del self.holds[hold.partition]
        await self._number.announce()
        logger.info("released %d partitions", len(gone))
        return [hold.partition for hold in gone]

    async def acquire_wanted(self) -> list[int]:
        """Acquire partitions that should be ours and are free; returns them."""
        now_s = self._clock()
        taken: list[int] = []
        due = [p for p, at_s in self.try_at_s.items() if at_s <= now_s]
        # At once: one after the other they would outlast a hold if Redis is far away.
        for partition, hold in zip(due, await asyncio.gather(*map(self._acquire, due)), strict=True):
            if isinstance(hold, Taken):
                self.try_at_s[partition] = now_s + _RETRY_S
                if self._unchanged.for_s(partition, hold, now_s) >= _PATIENCE * self._shard_lease_s:
                    hold = await self._acquire(partition, expired=hold.until)
            if isinstance(hold, Taken):
                self._ours.pop(partition, None)
                continue
            del self.try_at_s[partition]
            self._ours[partition] = max(self._ours.get(partition, 0.0), now_s + hold.others_ms / 1000)
            self.holds[partition] = hold
            taken.append(partition)
            self._unchanged.forget(partition)
        if taken:
            logger.info("acquired %d partitions, holding %d", len(taken), len(self.holds))
        return taken

    async def _acquire(self, partition: int, expired: int = 0) -> Hold | Taken:
        rules = self._pacer.rules
        # If Redis lost that we released it, another shard may have requests in flight.
        earlier = map(self._owner, range(self.restarts)) if partition in self._ours else ()
        return await self._frontier.acquire(
            partition,
            self._owner(),
            ttl_ms=int(self._shard_lease_s * 1000),
            delay_ms=int(rules.delay_s * 1000),
            delays_ms={d: int(rule.delay_s * 1000) for d, rule in rules.domains.items()},
            heir_of=[*self._number.heir_of, *earlier],
            flight_ms=int(self._flight_s * 1000),
            silent_flight_ms=int(self._silent_flight_s * 1000),
            expired=expired,
            was_ours=partition in self._ours if self.restarts or partition not in self._assigned else None,
        )

    async def park(self, parking: dict[str, Rest]) -> None:
        """Park the domains in *parking* that are ours, and empty it. Raises Fenced."""
        now_s, partitions = self._clock(), self._frontier.partitions
        by_partition: defaultdict[int, list[str]] = defaultdict(list)
        for domain in parking:
            by_partition[partition_of(domain, partitions)].append(domain)
        for partition, domains in by_partition.items():
            hold = self.holds.get(partition)
            if hold is not None:
                rests = ((domain, parking[domain]) for domain in domains)
                waits = [(domain, rest.reason, rest.wait_ms(now_s, -1)) for domain, rest in rests]
                await self._frontier.park(hold, waits)
                logger.debug("domains parked", extra={"domains": domains[:10], "count": len(domains)})
            for domain in domains:
                self._rests.note(domain, parking.pop(domain), now_s)

    async def start_over(self) -> None:
        """Forget all holds: what Redis says we own is reclaimed before it is ours again.

        Raises RunMismatch if the run is gone, or another one.
        """
        await self._read_map()
        self.restarts += 1
        now_s = self._clock()
        # A hold that may have ended in what Redis has lost may have been another shard's.
        has_lapsed = now_s >= self._kept_s + self._shard_lease_s
        self._ours = {} if has_lapsed else {p: at_s for p, at_s in self._ours.items() if at_s <= now_s}
        self.holds.clear()
        self.leaving.clear()
        self.try_at_s.clear()
        self.renew_at_s = 0.0

    def _owner(self, restarts: int | None = None) -> str:
        """Return our name as an owner, now or after so many restarts."""
        return f"{self._number.process.instance}.{self.restarts if restarts is None else restarts}"
