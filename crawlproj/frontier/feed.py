"""The frontier as a shard sees it: leases in memory, settlements on their way, one task that talks to Redis.

Everything the scheduler calls is synchronous and touches memory only. The pump writes before it reads:
new candidates first, then settlements, so that a URL is never settled before its links are safe.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from crawlproj.errors import CrawlError, Fenced
from crawlproj.frontier.frontier import Frontier
from crawlproj.frontier.gate import ROBOTS_FOR, Gate, Refusal, RobotsFetch
from crawlproj.frontier.holdings import Holdings, ShardMap
from crawlproj.frontier.ownership import ShardNumber
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate, Lease, Outcome, Settlement
from crawlproj.model.urls import domain_of, origin_of
from crawlproj.observe.metrics import Metrics
from crawlproj.politeness.outage import Outage
from crawlproj.politeness.pacing import Ended, Pacer, Trouble
from crawlproj.politeness.robots import RobotRules
from crawlproj.redisio import keys

logger = logging.getLogger(__name__)

#: Collect settlements and candidates for this long before a turn, so that one round trip serves many.
_LINGER_S = 0.01
#: Domains that are due as soon as this are leased with those that are, so that they can be asked in time.
_AHEAD_S = 0.1
#: How long before a domain is due its partition is looked at: about as long as a turn takes.
_EARLY_S = 0.03
#: How often a turn is taken when nothing calls for one.
_MAX_REST_S = 5.0
#: How often a shard asks whether the limit of pages leaves something for it.
_LIMIT_LOOK_S = 0.5
#: States of a run after which nothing is fetched.
_ENDS = frozenset({"finished", "stopped", "failed"})
#: How often the length of the page queue is looked at.
_QUEUE_LOOK_S = 0.2
#: Bytes of pages on their way to Redis at which nothing more is fetched, and those sent in one round trip.
_UNSENT_BYTES, _SENT_BYTES = 32_000_000, 8_000_000
#: Why a domain is parked: too many requests in a row failed, or as much was fetched from it as may be.
_FAILING, _SPENT = "failures", "byte_budget"
#: What a refusal says of robots.txt; any other, and none, that it allows the URL.
_DECISIONS = {"robots": "disallowed", "robots_unreachable": "unavailable"}
#: How long a domain waits while our own network seems to be away.
AWAY_S = 30.0
#: How long a domain waits at most for the robots.txt of one of its hosts; others of its hosts may be well.
_ROBOTS_LOOK_S = 60.0


def boot_clock() -> float:
    """Return seconds of a clock that goes on while the process, or the machine, is asleep."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True, slots=True)
class FeedLimits:
    """``batch`` leases in memory at most; ``chain`` of one domain, none longer than ``chain_s`` to fetch."""

    batch: int
    chain: int
    chain_s: float
    lease_s: float
    shard_lease_s: float
    max_attempts: int
    queue_soft: int
    queue_hard: int
    #: How long a request may be on its way that an owner of whom nothing is known has left behind.
    flight_s: float = 0.0
    queue_soft_bytes: int = 2**62
    queue_hard_bytes: int = 2**62


@dataclass(slots=True)
class _Held:
    """A lease between its coming and its settlement."""

    lease: Lease
    handed_out_s: float = math.inf
    next_at_s: float = 0.0
    has_ended: bool = False
    page: bytes = b""
    fetched_bytes: int = 0
    outcome: Outcome = Outcome.DONE
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Parking:
    partition: int
    reason: str
    until_s: float


class Promises(Protocol):
    """The pages a run with a limit may still fetch; `runs.Run` keeps them."""

    async def promise_pages(self, wanted: int, most: int) -> int: ...

    async def take_back_promises(self, count: int) -> None: ...


class Feed:
    """Leases in, settlements out, for the partitions this shard owns.

    ``failure_page`` makes the page for a URL that ended before it was asked for. ``on_work`` is called when
    `take` may have something; ``on_end`` once, when the run is over, this shard is retired, or (with the
    error) when it must stop. Open before use, close after.
    """

    def __init__(
        self,
        frontier: Frontier,
        number: ShardNumber,
        read_map: Callable[[], Awaitable[ShardMap]],
        pacer: Pacer,
        gate: Gate,
        limits: FeedLimits,
        *,
        promises: Promises,
        failure_page: Callable[[Lease, str], bytes] = lambda lease, reason: b"",
        metrics: Metrics | None = None,
        on_work: Callable[[], None],
        on_end: Callable[[str, CrawlError | None], None],
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self.frontier = frontier
        self.number = number
        self.pacer = pacer
        self.starting = True
        self._limits = limits
        self._gate = gate
        self._promises = promises
        self._failure_page = failure_page
        self.metrics = metrics or Metrics()
        self._on_work = on_work
        self._on_end = on_end
        self._clock = clock
        self._holdings = Holdings(
            frontier,
            number,
            read_map,
            pacer.rules,
            shard_lease_s=limits.shard_lease_s,
            flight_s=limits.flight_s,
            is_empty=lambda partition: not self._by_partition.get(partition),
            clock=clock,
        )
        self._due_at_s: dict[int, float] = {}
        self._woken: set[int] = set()
        self._held: dict[bytes, _Held] = {}
        self._by_partition: dict[int, int] = {}
        # What the next turn writes.
        self._candidates: list[Candidate] = []
        self._settlements: list[tuple[Settlement, float]] = []
        #: Bytes of the pages among them.
        self._unsent_bytes = 0
        self._parking: dict[str, _Parking] = {}
        self._most_pages = 0
        self._has_limits = self._is_paused = self._is_away = False
        self._outage = Outage()
        self._queue_checked_s = -math.inf
        self._queue_full = False
        self._share = 1.0
        self._closing = False
        self._ended = False
        self._error: CrawlError | None = None
        self._stir = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0
        #: When the holds were last renewed.
        self._kept_s = math.inf

    # -- what the scheduler calls: memory only --

    def take(self) -> Lease | RobotsFetch | None:
        """Return what may be fetched now. Its end must be told: `ended` and `finish`, or `robots_ended`."""
        now_s = self._clock()
        # A shard that could not renew its hold in time may have been replaced: it must not fetch.
        if self._closing or self._is_paused or now_s >= self._holdings.owned_until_s:
            return None
        if self._unsent_bytes >= _UNSENT_BYTES:
            return None
        while (lease := self.pacer.take(now_s)) is not None:
            give_up = self.pacer.rules.give_up
            verdict = self._gate.look(lease, now_s, is_back=0 < give_up <= lease.fails)
            if isinstance(verdict, RobotsFetch):
                self.pacer.ask_first(lease)
                return verdict
            held = self._held[lease.token]
            if isinstance(verdict, Refusal):
                self._count_decision(_DECISIONS.get(verdict.reason, "allowed"))
                held.has_ended = True
                self._refuse(lease, verdict, self.pacer.skip(lease), now_s)
                continue
            self._count_decision("allowed")
            if verdict and self.pacer.slow_down(lease.domain, verdict):
                # Learnt elsewhere: whoever takes over from us has to know before this request has ended.
                self._settle_later(Settlement(lease, Outcome.PACED), 0.0)
            held.handed_out_s = now_s
            if self.pacer.buffered < self._limits.batch // 2:
                self._stir.set()
            return lease
        self._arm_timer(now_s)
        return None

    def ended(self, lease: Lease, ended: Ended, fetched_bytes: int = 0) -> bool:
        """Tell that the request of *lease* ended. Returns whether it should be tried again later."""
        held = self._held.get(lease.token)
        if held is None or held.has_ended:
            return False
        now_s = self._clock()
        self._count_end(_kind_of(lease), ended, fetched_bytes)
        if ended.status or ended.error:
            self.metrics.fetch_seconds.add(now_s - held.handed_out_s)
        held.has_ended = True
        held.fetched_bytes = fetched_bytes
        held.next_at_s, park = self.pacer.ended(lease, ended, now_s)
        self._let_rest(lease.domain, lease.partition, held.next_at_s, park, now_s)
        if park and ended.trouble is Trouble.SITE:
            # It is parked with its site, however often it was tried.
            return True
        most = self.pacer.rules.attempts(ended, self._limits.max_attempts)
        return ended.retryable and lease.attempt + 1 < most

    def is_excused(self, domain: str, ended: Ended) -> bool:
        """Tell how a request ended. Returns whether our own network is to blame: put it off then."""
        now_s = self._clock()
        if not ended.error:
            if self._outage.answered(now_s):
                logger.warning("sites answer again")
            return False
        was_away = self._is_away
        self._is_away = ended.trouble is Trouble.SITE and self._outage.failed(domain, now_s)
        if self._is_away and not was_away:
            logger.warning(
                "no site can be reached; our own network may be away, so they are not blamed",
                extra={"error": ended.error},
            )
        if self._is_away:
            self.metrics.fetch_errors[ended.error] += 1
        return self._is_away

    def put_off(self, lease: Lease, wait_s: float | None) -> None:
        """Give *lease* back, not fetched after all: its domain is to wait for so long, None for its delay."""
        held = self._held.get(lease.token)
        if held is None or held.has_ended:
            return
        now_s = self._clock()
        wait_s = self.pacer.delay_s(lease.domain) if wait_s is None else wait_s
        held.has_ended = True
        self.pacer.skip(lease)
        self._gate.take_back(lease)
        held.next_at_s = now_s + wait_s
        held.outcome = Outcome.RETURNED
        self._return_leases(self._withdraw_domain(lease.domain), held.next_at_s)

    def hold_page(self, lease: Lease, page: bytes) -> None:
        """Keep *page* to be handed on in the step that settles its lease."""
        held = self._held.get(lease.token)
        if held is not None:
            held.page = page

    def judge(self, lease: Lease, outcome: Outcome, reason: str) -> None:
        """Say how *lease* will have ended when it is finished; DONE unless told otherwise."""
        held = self._held.get(lease.token)
        if held is not None:
            held.outcome, held.reason = outcome, reason

    def finish(self, lease: Lease) -> None:
        """Settle *lease*: nothing more will come of it."""
        held = self._held.get(lease.token)
        if held is None:
            return
        if not held.has_ended:
            # No download told its end: it never reached one. The domain rests all the same.
            self.ended(lease, Ended())
        page = held.page if held.outcome in (Outcome.DONE, Outcome.FAILED) else b""
        settlement = Settlement(lease, held.outcome, held.reason, page=page, fetched_bytes=held.fetched_bytes)
        self._settle_later(settlement, held.next_at_s)

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Admit *candidates* with the next turn."""
        self._candidates += candidates
        self._stir.set()

    # -- robots.txt --

    def robots_ended(
        self, fetch: RobotsFetch, rules: RobotRules, ended: Ended, fetched_bytes: int = 0
    ) -> None:
        """Tell what the robots.txt of an origin says, or that it could not be had."""
        self._count_end("robots", ended, fetched_bytes)
        self._robots_known(fetch, rules, ended)

    def _robots_known(self, fetch: RobotsFetch, rules: RobotRules, ended: Ended) -> None:
        now_s = self._clock()
        if rules.crawl_delay_s and self.pacer.slow_down(fetch.domain, rules.crawl_delay_s):
            behind = [h.lease for h in self._held.values() if h.lease.domain == fetch.domain]
            # None when it came so late that everything was given back.
            if behind:
                self._settle_later(Settlement(behind[0], Outcome.PACED), 0.0)
        next_at_s, park = self.pacer.asked(fetch.domain, ended, now_s)
        # Rules that end before their domain may be asked again would be fetched over and over, and no page.
        known = self._gate.learn(fetch.origin, rules, now_s, least_s=2 * (next_at_s - now_s))
        if known.rules.retry:
            for lease, _ in self._withdraw_origin(fetch):
                self._wait_for_robots(lease, next_at_s, now_s)
        if next_at_s > now_s and self.pacer.buffered > self._limits.batch // 2:
            # Or leases that wait for their delay take all places, while other domains are due.
            self._return_leases(self._withdraw_domain(fetch.domain))
        self._let_rest(fetch.domain, self._partition_of(fetch.domain), next_at_s, park, now_s)
        self._stir.set()
        self._arm_timer(now_s)

    def robots_moved(self, fetch: RobotsFetch, url: str, ended: Ended, fetched_bytes: int = 0) -> None:
        """Tell that a robots.txt redirects.

        Within its domain it is asked for there, as the next request. In another domain it has to wait for
        that one's turn, so it becomes a candidate there; until it is answered this origin cannot tell.
        """
        self._count_end("robots", ended, fetched_bytes)
        if domain_of(url) != fetch.domain:
            self.ask_elsewhere(fetch.origin, url, fetch.redirects + 1)
            self._robots_known(fetch, RobotRules(self._gate.agent, retry=True), ended)
            return
        now_s = self._clock()
        self._gate.ask_next(replace(fetch, url=url, redirects=fetch.redirects + 1))
        self.pacer.asked(fetch.domain, ended, now_s)
        self._arm_timer(now_s)

    def ask_elsewhere(self, origin: str, url: str, hops: int) -> None:
        """Have the robots.txt of *origin* fetched at *url*, in another domain, by whoever owns that."""
        extra = f'{ROBOTS_FOR}{json.dumps(origin)},"hops":{hops}}}'
        self.add([Candidate(url, priority=1, extra=extra, mark=None)])

    def robots_put_off(self, fetch: RobotsFetch, wait_s: float | None) -> None:
        """The same for the request for a robots.txt."""
        wait_s = self.pacer.delay_s(fetch.domain) if wait_s is None else wait_s
        self.pacer.not_asked(fetch.domain)
        if fetch.redirects:
            self._gate.ask_next(fetch)
        self._return_leases(self._withdraw_domain(fetch.domain), self._clock() + wait_s)

    def robots_impossible(self, fetch: RobotsFetch, reason: str) -> None:
        """Tell that a robots.txt can never be had, nor anything else of its origin."""
        now_s = self._clock()
        ended = Ended(error=reason, error_means=Trouble.FINAL)
        self._count_end("robots", ended)
        self.pacer.asked(fetch.domain, ended, now_s)
        for lease, next_at_s in self._withdraw_origin(fetch):
            self._end_unfetched(lease, Outcome.FAILED, reason, next_at_s)
        self._arm_timer(now_s)

    def keep_robots(self, origin: str, rules: RobotRules) -> None:
        """Have the rules of an origin, perhaps another shard's, known to all."""
        self._gate.learn(origin, rules, self._clock())
        self._stir.set()

    # -- figures --

    @property
    def has_work(self) -> bool:
        return bool(self._held or self._candidates or self._settlements or self._parking)

    @property
    def held(self) -> int:
        """How many leases this shard has, waiting or in flight."""
        return len(self._held)

    @property
    def has_unsent(self) -> bool:
        """Whether candidates wait for the next turn."""
        return bool(self._candidates)

    @property
    def has_limits(self) -> bool:
        """Whether the run may end before everything is fetched."""
        return self._has_limits

    @property
    def partitions(self) -> set[int]:
        return set(self._holdings.holds)

    @property
    def heartbeat_age_s(self) -> float:
        """Since when the hold on the number and the partitions was not renewed."""
        return max(0.0, self._clock() - self._kept_s)

    # -- what the process calls --

    async def open(self) -> None:
        """Claim the shard number and start. Raises ShardTaken, Fenced or what Redis has to say."""
        await self.number.claim()
        await self._keep()
        self._tasks = [
            asyncio.create_task(self._pump(), name="feed pump"),
            asyncio.create_task(self._listen(), name="feed listener"),
        ]

    async def close(self) -> None:
        """Settle what ended, give back what did not, and leave. Everything lent is returned."""
        self._closing = True
        if self._timer:
            self._timer.cancel()
        await self._stop_tasks()
        if self._ended_by_fence:
            return
        self._return_leases(self.pacer.withdraw())
        for token in sorted(self._held, key=lambda token: -self._held[token].lease.number):
            held = self._held[token]
            held.next_at_s = max(held.next_at_s, self.pacer.next_at_s(held.lease.domain))
            if self.pacer.in_flight(held.lease.domain):
                # Still on its way when we leave, or its robots.txt is: it ends with us.
                held.next_at_s = max(held.next_at_s, self._clock() + self.pacer.delay_s(held.lease.domain))
            self._settle_later(Settlement(held.lease, Outcome.RETURNED), held.next_at_s)
        try:
            await self._flush()
            await self.frontier.release(list(self._holdings.holds.values()))
            await self.number.drop()
        except Fenced as exc:
            logger.warning("left without giving back: %s", exc)

    def stop(self, error: CrawlError) -> None:
        """Have this shard stop because of *error*; what it holds is given back."""
        self._end(type(error).__name__, error)

    async def admit_now(self, candidates: Iterable[Candidate]) -> int:
        """Admit *candidates* before going on; returns how many were new."""
        return (await self.frontier.admit(candidates)).new

    def stop_starting(self) -> None:
        """Tell the others that this shard's seeds are admitted."""
        self.starting = False
        self._holdings.keep_at_s = 0.0
        self._stir.set()

    # -- the pump --

    async def _pump(self) -> None:
        try:
            # A turn is never cut: what a step did unseen, such as leasing, nobody would undo.
            while not self._closing:
                await self._turn()
                await self._rest()
        except CrawlError as exc:
            self._end(type(exc).__name__, exc)
        except Exception as exc:
            logger.exception("the feed of shard %d broke", self.number.number)
            self._end("broken", CrawlError(f"the feed of shard {self.number.number} broke: {exc!r}"))

    async def _turn(self) -> None:
        await self._flush()
        if self._clock() >= self._holdings.keep_at_s:
            await self._keep()
        if self._closing:
            return
        if self._is_paused:
            # In every turn: one whose robots.txt was being asked for comes free only when that has ended.
            self._return_leases(self.pacer.withdraw())
        await self._change_ownership()
        if await self._lease():
            self._on_work()

    async def _rest(self) -> None:
        now_s = self._clock()
        wake_s = min(
            [
                self._holdings.keep_at_s,
                now_s + _MAX_REST_S,
                *self._holdings.try_at_s.values(),
                *(due_s for p, due_s in self._due_at_s.items() if self._may_lease(p)),
            ]
        )
        if not self._stir.is_set():
            try:
                async with asyncio.timeout(max(wake_s - now_s, _LINGER_S)):
                    await self._stir.wait()
            except TimeoutError:
                return
        self._stir.clear()
        await asyncio.sleep(_LINGER_S)

    async def _flush(self) -> None:
        # Both stay in their lists until Redis has them: a step that failed is taken again on close.
        while candidates := list(self._candidates):
            await self.frontier.admit(candidates)
            del self._candidates[: len(candidates)]
        was_full = self._unsent_bytes >= _UNSENT_BYTES
        # Those that come meanwhile wait for the next turn.
        left = len(self._settlements)
        while settlements := self._next_settlements(left):
            left -= len(settlements)
            now_s = self._clock()
            self._woken.clear()
            for settlement, next_at_s in settlements:
                settlement.wait_ms = max(0, math.ceil((next_at_s - now_s) * 1000))
            due_in_ms, spent = await self.frontier.settle(settlement for settlement, _ in settlements)
            del self._settlements[: len(settlements)]
            for settlement, _ in settlements:
                self._unsent_bytes -= len(settlement.page)
                self._forget(settlement)
            self._note_due(due_in_ms)
            await self._take_back(sum(_is_unfetched(settlement) for settlement, _ in settlements))
            for partition, domains in spent.items():
                for domain in domains:
                    self._let_rest(domain, partition, math.inf, _SPENT, now_s)
        if was_full:
            self._on_work()
        await self._flush_parking()
        if self._gate.has_news:
            await self._gate.tell(self._clock())

    def _next_settlements(self, most: int) -> list[tuple[Settlement, float]]:
        """Return the oldest, up to *most* and as many as should be sent at once; one if it is large."""
        oldest, sent_bytes = self._settlements[:most], 0
        for number, (settlement, _) in enumerate(oldest, 1):
            sent_bytes += len(settlement.page)
            if sent_bytes >= _SENT_BYTES:
                return oldest[:number]
        return oldest

    async def _flush_parking(self) -> None:
        now_s = self._clock()
        by_partition: defaultdict[int, list[tuple[str, str, int]]] = defaultdict(list)
        for domain, parking in self._parking.items():
            wait_s = parking.until_s - now_s
            wait_ms = math.ceil(max(0.0, wait_s) * 1000) if math.isfinite(wait_s) else -1
            by_partition[parking.partition].append((domain, parking.reason, wait_ms))
        for partition, domains in by_partition.items():
            hold = self._holdings.holds.get(partition)
            if hold is not None:
                await self.frontier.park(hold, domains)
                logger.debug("domains parked", extra={"domains": domains[:10], "count": len(domains)})
            for domain, _, _ in domains:
                del self._parking[domain]

    async def _keep(self) -> None:
        """Renew all holds; look at the map."""
        self._woken.clear()
        now_s = self._clock()
        kept = await self._holdings.keep(starting=self.starting)
        self._kept_s = now_s
        if kept.had_lapsed and self.pacer.buffered:
            # `take` refused them meanwhile, and no timer will ask again.
            self._on_work()
        self._note_due(kept.due_in_ms)
        self._drop_stuck(now_s)
        self._most_pages, self._has_limits = kept.limits.pages, bool(kept.limits)
        if kept.state in _ENDS:
            self._end(kept.state, None)
        elif kept.is_retired:
            self._end("retired", None)
        self._is_paused = kept.state == "paused"
        if kept.unwanted:
            self._return_leases(self.pacer.withdraw(lambda lease: lease.partition in kept.unwanted))

    async def _take_back(self, pages: int) -> None:
        """Give back promised pages that are not fetched."""
        if self._most_pages and pages > 0:
            await self._promises.take_back_promises(pages)

    async def _change_ownership(self) -> None:
        for partition in await self._holdings.release_empty():
            self.metrics.ownership_changes["given_up"] += 1
            self._due_at_s.pop(partition, None)
        taken = await self._holdings.acquire_wanted()
        self.metrics.ownership_changes["taken"] += len(taken)
        self._due_at_s.update(dict.fromkeys(taken, self._clock()))
        if taken:
            await self._gate.recall_traps(taken)
            await self._take_back(sum(self._holdings.holds[p].reclaimed for p in taken))

    async def _lease(self) -> bool:
        """Fill memory with leases of domains that are due. Returns whether there are new ones."""
        now_s = self._clock()
        due = [p for p, due_s in self._due_at_s.items() if due_s <= now_s and self._may_lease(p)]
        room = self._limits.batch - self.pacer.buffered
        if not due or room <= 0 or self._closing or self._ended:
            return False
        await self._look_at_queue(now_s)
        room = int(room * self._share)
        if room <= 0:
            self._due_at_s.update(dict.fromkeys(due, now_s + _QUEUE_LOOK_S))
            return False
        # Where there is room for less than one of each, those that wait longest.
        due = sorted(due, key=self._due_at_s.__getitem__)[:room]
        each = math.ceil(room / len(due))
        promised = 0
        if self._most_pages:
            promised = await self._promises.promise_pages(each * len(due), self._most_pages)
            if not promised:
                self._due_at_s.update(dict.fromkeys(due, now_s + _LIMIT_LOOK_S))
                return False
            due = due[:promised]
            each = promised // len(due)
        self._woken.clear()
        asked_s = self._clock()
        leases, due_in_ms = await self.frontier.lease(
            [(self._holdings.holds[p], each) for p in due],
            chain=self._limits.chain,
            chain_ms=int(self._limits.chain_s * 1000),
            # They wait here for their domain's delay: half of the room is for those that can go at once.
            behind=max(0, self._limits.batch // 2 - self.pacer.buffered) // len(due),
            ahead_ms=int(_AHEAD_S * 1000),
        )
        lent_s = self._clock()
        self.metrics.refill_seconds.add(lent_s - asked_s)
        for lease in leases:
            self._held[lease.token] = _Held(lease)
            self._by_partition[lease.partition] = self._by_partition.get(lease.partition, 0) + 1
        self._note_due(due_in_ms)
        await self._take_back(promised - len(leases))
        await self._gate.recall_robots(leases, self._clock(), _AHEAD_S)
        for lease in leases:
            self.pacer.add(lease, lent_s)
        return bool(leases)

    async def _look_at_queue(self, now_s: float) -> None:
        """Lease less while parsers are behind: nothing from a hard limit until below both soft ones."""
        if now_s - self._queue_checked_s < _QUEUE_LOOK_S:
            return
        self._queue_checked_s = now_s
        limits, run = self._limits, self.frontier.run
        pages, size = await self.frontier.door.pipeline(
            [("LLEN", keys.pages(run)), ("HGET", keys.page_counters(run), "queued_bytes")]
        )
        # 0 at the soft limit, 1 at the hard one.
        level = max(
            (int(pages) - limits.queue_soft) / max(1, limits.queue_hard - limits.queue_soft),
            (int(size or 0) - limits.queue_soft_bytes)
            / max(1, limits.queue_hard_bytes - limits.queue_soft_bytes),
        )
        was_full, was_share = self._queue_full, self._share
        self._queue_full = level >= 1 or (was_full and level >= 0)
        self._share = 0.0 if self._queue_full else min(1.0, 1.0 - level)
        if self._queue_full and not was_full:
            self.metrics.back_pressure["hard"] += 1
            facts = {"pages": int(pages), "bytes": int(size or 0)}
            logger.info("page queue full, leasing nothing until parsers catch up", extra=facts)
        elif self._share < 1.0 <= was_share:
            self.metrics.back_pressure["soft"] += 1

    async def _listen(self) -> None:
        """Hear of new work and of changes. After a reconnect look at all: some may have been missed."""
        try:
            async with self.frontier.door.subscribe(keys.wake_channel(self.frontier.run)) as messages:
                async for message in messages:
                    now_s = self._clock()
                    word = message[1] if message else b""
                    if word.isdigit():
                        self._woken.add(int(word))
                        if int(word) in self._holdings.holds:
                            self._due_at_s[int(word)] = now_s
                    else:
                        holdings = self._holdings
                        holdings.keep_at_s = now_s
                        self._woken.update(holdings.holds)
                        self._due_at_s = dict.fromkeys(holdings.holds, now_s)
                        holdings.try_at_s = dict.fromkeys(holdings.try_at_s, now_s)
                    self._stir.set()
        except CrawlError as exc:
            self._end(type(exc).__name__, exc)
        except Exception as exc:
            logger.exception("the listener of shard %d broke", self.number.number)
            self._end("broken", CrawlError(f"the listener of shard {self.number.number} broke: {exc!r}"))

    # -- small steps --

    def _may_lease(self, partition: int) -> bool:
        if self.pacer.buffered >= self._limits.batch or self._is_paused:
            return False
        return partition not in self._holdings.leaving

    def _note_due(self, due_in_ms: dict[int, int]) -> None:
        now_s = self._clock()
        for partition, ms in due_in_ms.items():
            # A wake that came while we waited for this answer is newer than the answer.
            if partition in self._holdings.holds and partition not in self._woken:
                self._due_at_s[partition] = now_s + ms / 1000 - _EARLY_S if ms >= 0 else math.inf

    def _settle_later(self, settlement: Settlement, next_at_s: float) -> None:
        if settlement.outcome is Outcome.RETRY:
            self.metrics.retries += 1
        if settlement.outcome is Outcome.PACED:
            settlement.delay_ms = int(self.pacer.delay_s(settlement.lease.domain) * 1000)
        else:
            # Told once: whatever else is said about it from now on finds nothing.
            if self._held.pop(settlement.lease.token, None) is None:
                return
            settlement.delay_ms, settlement.fails = settlement.lease.delay_ms, settlement.lease.fails
        self._settlements.append((settlement, next_at_s))
        self._unsent_bytes += len(settlement.page)
        self._stir.set()

    def _return_leases(self, leases: Iterable[tuple[Lease, float]], not_before_s: float = 0.0) -> None:
        for lease, next_at_s in leases:
            self._settle_later(Settlement(lease, Outcome.RETURNED), max(next_at_s, not_before_s))

    def _forget(self, settlement: Settlement) -> None:
        if settlement.outcome is not Outcome.PACED:
            self._by_partition[settlement.lease.partition] -= 1

    def _refuse(self, lease: Lease, refusal: Refusal, next_at_s: float, now_s: float) -> None:
        """Settle *lease*, which may not be fetched: for good, or until its robots.txt can be read."""
        if refusal.outcome is Outcome.RETRY:
            self._wait_for_robots(lease, next_at_s, now_s)
        else:
            self._end_unfetched(lease, refusal.outcome, refusal.reason, next_at_s)

    def _wait_for_robots(self, lease: Lease, next_at_s: float, now_s: float) -> None:
        """Put *lease* behind the others of its domain until its robots.txt may have become readable."""
        failures, again_at_s = self._gate.trouble(origin_of(lease.url))
        give_up = self.pacer.rules.give_up
        if give_up and failures >= give_up and lease.fails < give_up:
            # Its domain is well, or it would be parked; this origin of it is not.
            self._end_unfetched(lease, Outcome.FAILED, "robots_unreachable", next_at_s)
            return
        again_at_s = min(again_at_s, now_s + _ROBOTS_LOOK_S)
        settlement = Settlement(lease, Outcome.RETRY, "retry_robots", is_attempt=False)
        self._settle_later(settlement, max(next_at_s, again_at_s))

    def _end_unfetched(self, lease: Lease, outcome: Outcome, reason: str, next_at_s: float) -> None:
        """Settle a URL that is not fetched; it has a row that says why."""
        page = self._failure_page(lease, reason)
        self._settle_later(Settlement(lease, outcome, reason, page=page), next_at_s)

    def _let_rest(self, domain: str, partition: int, next_at_s: float, park: str, now_s: float) -> None:
        """Keep nothing in memory of a domain that rests for long, or is parked."""
        if park:
            self.metrics.circuits_opened += park == _FAILING
            self._parking[domain] = _Parking(partition, park, next_at_s)
        if park or next_at_s - now_s > self._limits.chain_s:
            self._return_leases(self._withdraw_domain(domain))

    def _withdraw_domain(self, domain: str) -> list[tuple[Lease, float]]:
        return self.pacer.withdraw(domain=domain)

    def _withdraw_origin(self, fetch: RobotsFetch) -> list[tuple[Lease, float]]:
        return self.pacer.withdraw(lambda lease: origin_of(lease.url) == fetch.origin, domain=fetch.domain)

    def _count_decision(self, decision: str) -> None:
        if self._gate.robots is not None:
            self.metrics.robots_decisions[decision] += 1

    def _count_end(self, kind_of: str, ended: Ended, fetched_bytes: int = 0) -> None:
        """Count a request that was answered, or failed; not one that we did not want an answer to."""
        metrics, status = self.metrics, ended.status
        if status:
            metrics.fetches[kind_of] += 1
            metrics.fetched_bytes += fetched_bytes
            if status >= 400:
                metrics.fetch_errors[f"http_{status // 100}xx"] += 1
        elif ended.error:
            metrics.fetch_errors[ended.error] += 1

    def _partition_of(self, domain: str) -> int:
        return partition_of(domain, self.frontier.partitions)

    def _drop_stuck(self, now_s: float) -> None:
        """Try again what was handed out too long ago: its callback hangs, or the engine lost it."""
        stuck = [h for h in self._held.values() if now_s - h.handed_out_s > self._limits.lease_s]
        for held in stuck:
            logger.warning("lease not finished in time, lent again", extra={"url": held.lease.url})
            if not held.has_ended:
                self.ended(held.lease, Ended(error="stuck"))
            again = held.lease.attempt + 1 < self._limits.max_attempts
            outcome = Outcome.RETRY if again else Outcome.FAILED
            self._settle_later(Settlement(held.lease, outcome, "stuck"), held.next_at_s)

    def _arm_timer(self, now_s: float) -> None:
        """Have the scheduler asked when time alone brings something. To ring too early does no harm."""
        due_in_s = self.pacer.due_in_s(now_s)
        if due_in_s is None or self._closing:
            return
        # Those that become due meanwhile go with it: a turn of the engine for each would cost more.
        due_in_s = max(due_in_s, _LINGER_S)
        if self._timer is not None:
            if self._timer_at_s <= now_s + due_in_s:
                return
            self._timer.cancel()
        self._timer_at_s = now_s + due_in_s
        self._timer = asyncio.get_running_loop().call_later(due_in_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._on_work()

    def _end(self, reason: str, error: CrawlError | None) -> None:
        if not self._ended:
            self._ended = True
            self._closing = self._closing or error is not None
            self._error = error
            if isinstance(error, Fenced):
                self.metrics.ownership_changes["fenced"] += len(self._holdings.holds)
            self._on_end(reason, error)

    @property
    def _ended_by_fence(self) -> bool:
        return self._ended and isinstance(self._error, Fenced)

    async def _stop_tasks(self) -> None:
        self._stir.set()
        for listener in self._tasks[1:]:
            listener.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []


def _kind_of(lease: Lease) -> str:
    """What a lease is fetched as; most have no extra."""
    if not lease.extra:
        return "page"
    if lease.extra.startswith(ROBOTS_FOR):
        return "robots"
    return "sitemap" if '"sitemap":' in lease.extra else "page"


def _is_unfetched(settlement: Settlement) -> bool:
    return settlement.outcome not in (Outcome.DONE, Outcome.PACED)
