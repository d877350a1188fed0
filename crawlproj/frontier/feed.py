"""The task that moves leases and settlements between a shard's memory and Redis.

Each turn writes before it reads: new candidates first, then settlements, so that a URL is never settled
before its links are safe; then it renews what the shard owns, and leases.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain

from crawlproj.errors import CrawlError, Fenced, Replaced, SetBack
from crawlproj.frontier.backlog import Backlog
from crawlproj.frontier.dispatcher import Dispatcher
from crawlproj.frontier.due import DueTimes
from crawlproj.frontier.frontier import Frontier
from crawlproj.frontier.holdings import Holdings, ShardMap
from crawlproj.frontier.ownership import ShardNumber
from crawlproj.frontier.pressure import QUEUE_LOOK_S, FeedLimits, Promises, plan_leases, within_promise
from crawlproj.model.records import Candidate, Outcome
from crawlproj.model.run import RunState
from crawlproj.redisio import keys

logger = logging.getLogger(__name__)

#: Collect settlements and candidates for this long before a turn, so that one round trip serves many.
_LINGER_S = 0.01
#: Domains due within this time are leased ahead, so that they can be requested in time.
_AHEAD_S = 0.1
#: How often a turn is taken when nothing requires one.
_MAX_REST_S = 5.0
#: How often a shard checks whether the page limit leaves something for it.
_LIMIT_POLL_S = 0.5
#: How often a shard that starts over checks whether its requests in flight have ended.
_DRAIN_POLL_S = 0.05
#: Why a domain is parked: as much was fetched from it as its budget allows.
_SPENT = "byte_budget"


class Feed:
    """Leases into the *dispatcher*, settlements out of it, for the partitions this shard owns.

    *on_stop* is called once, with the reason: the run is over, this shard is retired, or (with the error) it
    must stop. Open before use, close after.
    """

    def __init__(
        self,
        frontier: Frontier,
        number: ShardNumber,
        read_map: Callable[[], Awaitable[ShardMap]],
        dispatcher: Dispatcher,
        limits: FeedLimits,
        *,
        promises: Promises,
        on_stop: Callable[[str, CrawlError | None], None],
    ) -> None:
        self.frontier = frontier
        self.number = number
        self.dispatcher = dispatcher
        self.metrics = dispatcher.metrics
        self.starting = True
        #: Whether the run may end before everything is fetched.
        self.has_limits = False
        #: Called when Redis was set back and may have lost what was admitted at the start.
        self.on_set_back: Callable[[], Awaitable[None]] | None = None
        self._limits = limits
        self._promises = promises
        self._on_stop = on_stop
        self._clock = dispatcher.clock
        self._backlog = Backlog(frontier.client, frontier.run, limits.queue)
        self._holdings = Holdings(
            frontier,
            number,
            read_map,
            dispatcher.pacer,
            shard_lease_s=limits.shard_lease_s,
            flight_s=limits.flight_s,
            answer_s=limits.answer_s,
            is_empty=dispatcher.leases.is_empty,
            rests=dispatcher.rests,
            clock=dispatcher.clock,
        )
        self._due = DueTimes()
        self._most_pages = 0
        self._is_stopped = self._is_fenced = False
        #: Whether Redis has what was admitted at the start.
        self._is_seeded = True
        self._tasks: list[asyncio.Task[None]] = []
        self._renewed_s = math.inf
        self._stir = asyncio.Event()
        dispatcher.on_change = self._stir.set

    # -- what the process calls --

    async def open(self) -> None:
        """Claim the shard number and start. Raises ShardTaken, Fenced or what Redis answers."""
        self.frontier.generation = self.frontier.client.generation
        await self.number.claim()
        await self._renew()
        self._tasks = [
            asyncio.create_task(self._guard(self._pump, "feed"), name="feed pump"),
            asyncio.create_task(self._guard(self._listen, "listener"), name="feed listener"),
        ]

    async def close(self) -> None:
        """Send all settlements, return all leases, release all partitions."""
        self.dispatcher.close()
        self._stir.set()
        for listener in self._tasks[1:]:
            listener.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        if self._is_fenced:
            return
        self.dispatcher.return_all()
        try:
            await self._flush()
            await self.frontier.release(list(self._holdings.holds.values()))
            await self.number.drop()
        except (Fenced, SetBack) as exc:
            logger.warning("left without returning leases: %s", exc)

    def stop(self, reason: str, error: CrawlError | None = None) -> None:
        """Stop this shard, once; with an *error* it fetches nothing more."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self.dispatcher.is_closing = self.dispatcher.is_closing or error is not None
        if isinstance(error, Fenced):
            self._is_fenced = True
            self.metrics.ownership_changes["fenced"] += len(self._holdings.holds)
        self._on_stop(reason, error)

    async def admit_now(self, candidates: Iterable[Candidate]) -> int:
        """Admit *candidates* at once; returns how many were new."""
        return (await self.frontier.admit(candidates)).new

    def stop_starting(self) -> None:
        """Let the other shards know that this one's seeds are admitted."""
        self.starting = False
        self.renew_soon()

    def renew_soon(self) -> None:
        self._holdings.renew_at_s = 0.0
        self._stir.set()

    @property
    def partitions(self) -> set[int]:
        return set(self._holdings.holds)

    @property
    def heartbeat_age_s(self) -> float:
        """Seconds since the number and the partitions were renewed."""
        return max(0.0, self._clock() - self._renewed_s)

    # -- the pump --

    async def _guard(self, work: Callable[[], Awaitable[None]], name: str) -> None:
        """Do *work*; stop this shard if it fails."""
        try:
            await work()
        except CrawlError as exc:
            self.stop(type(exc).__name__, exc)
        except Exception as exc:
            logger.exception("the %s of shard %d broke", name, self.number.number)
            self.stop("broken", CrawlError(f"the {name} of shard {self.number.number} broke: {exc!r}"))

    async def _pump(self) -> None:
        trouble: CrawlError | None = None
        # A turn is never cancelled: the result of a step, such as leases, would be lost.
        while not self.dispatcher.is_closing:
            try:
                if trouble is not None:
                    await self._start_over(trouble)
                    trouble = None
                await self._turn()
            except Replaced:
                raise
            except (Fenced, SetBack) as exc:
                trouble = exc
                continue
            await self._rest()

    async def _turn(self) -> None:
        dispatcher = self.dispatcher
        await self._flush()
        if self._clock() >= self._holdings.renew_at_s:
            await self._renew()
        if dispatcher.is_closing:
            return
        if dispatcher.is_paused:
            # In every turn: a domain whose robots.txt is being fetched becomes free only when that ends.
            dispatcher.return_leases(dispatcher.pacer.withdraw())
        await self._change_ownership()
        if await self._lease():
            dispatcher.on_work()

    async def _start_over(self, reason: CrawlError) -> None:
        """Drop all leases and acquire all partitions anew: what Redis holds is not what we know.

        Domains keep their rests: requests in flight end first, and we remember what we sent to Redis.
        """
        dispatcher = self.dispatcher
        logger.warning("dropping %d leases and starting over: %s", len(dispatcher.leases), reason)
        self.metrics.ownership_changes["fenced"] += len(self._holdings.holds)
        dispatcher.is_paused = True
        await self._keep_rests()
        claim_at_s = 0.0
        while dispatcher.pacer.domains_in_flight() and not dispatcher.is_closing:
            if self.frontier.generation != self.frontier.client.generation:
                # Set back again.
                await self._keep_rests()
            if self._clock() >= claim_at_s:
                # Nobody may take us for dead, and fetch from the same domains.
                claim_at_s = self._clock() + self._limits.shard_lease_s / 3
                await self.number.claim_again()
            dispatcher.retry_stuck(self._limits.lease_s)
            await asyncio.sleep(_DRAIN_POLL_S)
        dispatcher.forget_all()
        await self._holdings.start_over()
        self._due = DueTimes()
        self._promises.forget_returned()
        await self._keep_rests()
        await self.number.claim_again()
        await self.frontier.readmit()
        if not self._is_seeded and self.on_set_back is not None:
            await self.on_set_back()
        self._is_seeded = True

    async def _keep_rests(self) -> None:
        """Take what Redis holds now for what we know, and let domains rest that must, whoever owns them."""
        before, self.frontier.generation = self.frontier.generation, self.frontier.client.generation
        self._is_seeded = self._is_seeded and self.frontier.generation == before
        await self.frontier.rest(self.dispatcher.known_rests_ms(self._limits.flight_s))

    async def _rest(self) -> None:
        now_s = self._clock()
        wake_s = min(
            [
                self._holdings.renew_at_s,
                now_s + _MAX_REST_S,
                *self._holdings.try_at_s.values(),
                *(due_s for p, due_s in self._due.at_s.items() if self._may_lease(p)),
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
        # Candidates and settlements stay in their lists until Redis has them: a step that failed is repeated.
        dispatcher, leases = self.dispatcher, self.dispatcher.leases
        while candidates := list(dispatcher.candidates):
            # Where redirects lead must not hold up settlements; what a spider's code finds waits for room.
            are_few = not any(candidate.extra.request for candidate in candidates)
            await self.frontier.admit(candidates, even_when_full=are_few)
            del dispatcher.candidates[: len(candidates)]
        # Before its lease is settled: a crash in between would leave a run that waits for the domain.
        await self._holdings.park(dispatcher.parking)
        was_full = leases.is_full
        # Those that come meanwhile wait for the next turn.
        left = leases.unsent
        while batch := leases.next_batch(left, now_s := self._clock()):
            left -= len(batch)
            self._due.begin_call()
            due_in_ms, spent = await self.frontier.settle(batch)
            leases.sent(batch)
            self._due.note(due_in_ms, self._holdings.holds, self._clock())
            fetched = (Outcome.DONE, Outcome.PACED)
            await self._return_promises(sum(settlement.outcome not in fetched for settlement in batch))
            for domain in chain.from_iterable(spent.values()):
                dispatcher.rest(domain, math.inf, _SPENT, now_s)
        if was_full:
            dispatcher.on_work()
        await self._holdings.park(dispatcher.parking)
        if dispatcher.gate.has_news:
            await dispatcher.gate.publish(self._clock())

    async def _renew(self) -> None:
        """Renew all holds, and apply the run's state and limits."""
        dispatcher = self.dispatcher
        self._due.begin_call()
        now_s = self._clock()
        kept = await self._holdings.renew(starting=self.starting)
        self._renewed_s = now_s
        had_lapsed = self._clock() >= dispatcher.owned_until_s
        dispatcher.hold(kept.owned_until_s, kept.lapses_at_s)
        if had_lapsed and dispatcher.pacer.buffered:
            # `take` refused them meanwhile, and no timer is armed.
            dispatcher.on_work()
        self._due.note(kept.due_in_ms, self._holdings.holds, self._clock())
        dispatcher.retry_stuck(self._limits.lease_s)
        self._most_pages, self.has_limits = kept.limits.pages, bool(kept.limits)
        if kept.state.is_end:
            # As plain text: it becomes a statistic of Scrapy's.
            self.stop(kept.state.value)
        elif kept.is_retired:
            self.stop("retired")
        dispatcher.is_paused = kept.state is RunState.PAUSED
        unwanted = self.partitions if kept.may_have_been_replaced else kept.unwanted
        if unwanted:
            dispatcher.return_leases(dispatcher.pacer.withdraw(lambda lease: lease.partition in unwanted))

    async def _return_promises(self, pages: int) -> None:
        """Return promised pages that are not fetched."""
        if self._most_pages and pages > 0:
            await self._promises.return_promises(pages, self.frontier.generation)

    async def _change_ownership(self) -> None:
        for partition in await self._holdings.release_empty():
            self.metrics.ownership_changes["given_up"] += 1
            self._due.at_s.pop(partition, None)
        taken = await self._holdings.acquire_wanted()
        self.metrics.ownership_changes["taken"] += len(taken)
        self._due.put_off(taken, self._clock())
        if taken:
            if self._holdings.restarts:
                # Before anything is leased.
                self.dispatcher.park_again()
                await self._holdings.park(self.dispatcher.parking)
            await self.dispatcher.gate.recall_traps(taken)
            await self._return_promises(sum(self._holdings.holds[p].reclaimed for p in taken))

    async def _lease(self) -> bool:
        """Fill memory with leases of domains that are due. Returns whether there are new ones."""
        dispatcher, limits, now_s = self.dispatcher, self._limits, self._clock()
        due = {p: due_s for p, due_s in self._due.at_s.items() if due_s <= now_s and self._may_lease(p)}
        room = limits.batch - dispatcher.pacer.buffered
        if not due or room <= 0 or dispatcher.is_closing or self._is_stopped:
            return False
        if calm_s := self._holdings.calm_s():
            self._due.put_off(due, now_s + calm_s)
            return False
        if level := await self._backlog.read(now_s):
            self.metrics.back_pressure[level] += 1
        room = int(room * self._backlog.share)
        if room <= 0:
            self._due.put_off(due, now_s + QUEUE_LOOK_S)
            return False
        plan = plan_leases(due, room)
        promised = 0
        if self._most_pages:
            promised = await self._promises.promise_pages(plan.total, self._most_pages)
            if not promised:
                self._due.put_off(plan.partitions, now_s + _LIMIT_POLL_S)
                return False
            plan = within_promise(plan, promised)
        self._due.begin_call()
        started_s = self._clock()
        leases, due_in_ms = await self.frontier.lease(
            [(self._holdings.holds[p], plan.each) for p in plan.partitions],
            chain=limits.chain,
            chain_ms=int(limits.chain_s * 1000),
            # These wait for their domain's delay: half of the room is for those that can go at once.
            behind=max(0, limits.batch // 2 - dispatcher.pacer.buffered) // len(plan.partitions),
            ahead_ms=int(_AHEAD_S * 1000),
        )
        leased_s = self._clock()
        self.metrics.refill_seconds.add(leased_s - started_s)
        for lease in leases:
            dispatcher.leases.add(lease)
        self._due.note(due_in_ms, self._holdings.holds, self._clock())
        await self._return_promises(promised - len(leases))
        await dispatcher.gate.recall_robots(leases, self._clock(), _AHEAD_S)
        if self._holdings.calm_s():
            # It was restarted meanwhile.
            dispatcher.return_leases((lease, 0.0) for lease in leases)
            return False
        for lease in leases:
            dispatcher.pacer.add(lease, leased_s)
        return bool(leases)

    async def _listen(self) -> None:
        """Listen for new work and changes. After a reconnect read everything: messages may be missing."""
        holdings = self._holdings
        async with self.frontier.client.subscribe(keys.wake_channel(self.frontier.run)) as messages:
            async for message in messages:
                now_s = self._clock()
                word = message[1] if message else b""
                if word.isdigit():
                    self._due.wake({int(word)} & self.partitions, now_s)
                else:
                    holdings.renew_at_s = now_s
                    self._due.wake(self.partitions, now_s)
                    holdings.try_at_s = dict.fromkeys(holdings.try_at_s, now_s)
                self._stir.set()

    def _may_lease(self, partition: int) -> bool:
        if self.dispatcher.pacer.buffered >= self._limits.batch or self.dispatcher.is_paused:
            return False
        return partition not in self._holdings.leaving
