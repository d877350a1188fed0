"""Which of the leases in memory may be fetched now, and what the end of a request means for its domain.

Everything here is synchronous and touches memory only: Scrapy's scheduler and the fetches call it. What Redis
must know waits until the feed sends it.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable

from crawlproj.frontier.gate import Gate, Refusal, RobotsFetch
from crawlproj.frontier.leases import Leases, LeaseState
from crawlproj.frontier.rests import Rest, Rests
from crawlproj.model.clock import boot_clock
from crawlproj.model.records import Candidate, Lease, Outcome, Settlement
from crawlproj.model.urls import origin_of
from crawlproj.observe.crashpoints import passed
from crawlproj.observe.metrics import Metrics
from crawlproj.politeness.outage import Egress, Outage
from crawlproj.politeness.pacing import Ending, Pacer, Trouble

logger = logging.getLogger(__name__)

#: How long a domain waits while our own network seems to be down.
OUTAGE_WAIT_S = 30.0
#: How long a domain waits at most for the robots.txt of one of its hosts; its other hosts may be fine.
_ROBOTS_WAIT_S = 60.0
#: For how long what was sent into a cut link may still arrive, its abort right behind it: Linux keeps
#: packets for a neighbour that does not answer for three seconds.
_HELD_BACK_S = 3.0
#: Domains that become due within this time share one wake-up.
_WAKE_S = 0.01
#: Why a domain is parked: too many requests in a row failed.
_FAILING = "failures"
#: The robots.txt decision behind a refusal; any other refusal, and none, means that it allows the URL.
_DECISIONS = {"robots": "disallowed", "robots_unreachable": "unavailable"}


class Dispatcher:
    """Hands out leases whose domain may be requested, and takes their settlements.

    *failure_page* makes the page of a URL that is settled without a request. *batch* leases are held at most;
    a domain that rests longer than *chain_s* keeps nothing in memory. When all requests fail for *egress_s*,
    `egress` says so. *on_work* is called when there may be something to take.
    """

    def __init__(
        self,
        pacer: Pacer,
        gate: Gate,
        *,
        batch: int,
        chain_s: float,
        max_attempts: int,
        on_work: Callable[[], None],
        failure_page: Callable[[Lease, str], bytes] = lambda lease, reason: b"",
        metrics: Metrics | None = None,
        egress_s: float = math.inf,
        clock: Callable[[], float] = boot_clock,
    ) -> None:
        self.pacer = pacer
        self.gate = gate
        self.metrics = metrics or Metrics()
        self.clock = clock
        self.leases = Leases()
        #: What the feed sends next, besides the settlements of `leases`.
        self.candidates: list[Candidate] = []
        self.parking: dict[str, Rest] = {}
        self.rests = Rests()
        #: Until when this shard may fetch: after that it may have been replaced.
        self.owned_until_s = -math.inf
        #: When what is in flight then must have ended.
        self.lapses_at_s = math.inf
        self.is_paused = self.is_closing = False
        self.on_work = on_work
        #: Called when something waits to be sent to Redis; the feed's to set.
        self.on_change: Callable[[], None] = lambda: None
        #: Called when nothing may be in flight any more: somebody else may fetch from our domains.
        self.on_lapse: Callable[[], None] = lambda: None
        self._lapse: asyncio.TimerHandle | None = None
        self._batch = batch
        self._chain_s = chain_s
        self._max_attempts = max_attempts
        self._failure_page = failure_page
        self._outage = Outage()
        self.egress = Egress(egress_s)
        self._is_network_down = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0

    def hold(self, owned_until_s: float, lapses_at_s: float) -> None:
        """Fetch until *owned_until_s*, with nothing in flight from *lapses_at_s* on, unless called again."""
        self.owned_until_s, self.lapses_at_s = owned_until_s, lapses_at_s
        if self._lapse is not None:
            self._lapse.cancel()
        in_s = max(0.0, lapses_at_s - self.clock())
        self._lapse = asyncio.get_running_loop().call_later(in_s, self._end_hold)

    def _end_hold(self) -> None:
        if self.pacer.domains_in_flight():
            logger.warning(
                "no renewal reached Redis in time; aborting requests in flight before our hold expires"
            )
        self.on_lapse()

    # -- a lease's way --

    def take(self) -> Lease | RobotsFetch | None:
        """Return what may be fetched now: a lease, or the robots.txt that must come first.

        Its request must be ended (`request_ended` and `settle`, or `put_off`; for a robots.txt see
        `RobotsTurns`).
        """
        now_s = self.clock()
        # A shard that could not renew its hold in time may have been replaced: it must not fetch.
        if self.is_closing or self.is_paused or now_s >= self.owned_until_s or self.leases.is_full:
            return None
        while (lease := self.pacer.take(now_s)) is not None:
            verdict = self.gate.judge(lease, now_s, is_back=self.pacer.was_parked(lease))
            if isinstance(verdict, RobotsFetch):
                self.pacer.fetch_robots_first(lease)
                return verdict
            if isinstance(verdict, Refusal):
                self._count_decision(_DECISIONS.get(verdict.reason, "allowed"))
                next_at_s = self.pacer.skip(lease)
                if verdict.outcome is Outcome.RETRY:
                    self.wait_for_robots(lease, next_at_s, now_s)
                else:
                    self.settle_unfetched(lease, verdict.outcome, verdict.reason, next_at_s)
                continue
            self._count_decision("allowed")
            if verdict and self.pacer.slow_down(lease.domain, verdict):
                # A Crawl-delay learnt from another shard: the next owner must know it before this request
                # ends.
                self.publish_delay(lease)
            self.leases.hand_out(lease, now_s)
            passed("handed_out")
            if self.pacer.buffered < self._batch // 2:
                self.on_change()
            return lease
        self.arm_timer(now_s)
        return None

    def is_outage(self, domain: str, ending: Ending, url: str = "") -> bool:
        """Record how a request ended. Returns whether our own network is down: put it off then."""
        now_s = self.clock()
        if not ending.error:
            self.egress.answered(url)
            if self._outage.answered(now_s):
                logger.warning("sites answer again")
            return False
        self.egress.failed(domain, url, now_s)
        was_down = self._is_network_down
        self._is_network_down = ending.trouble is Trouble.SITE and self._outage.failed(domain, now_s)
        if self._is_network_down and not was_down:
            # An error, so that `scrapy run` and `scrapy status` show it: a person should look at the network.
            logger.error(
                "no site can be reached (%s); our own network may be down, so no site is blamed", ending.error
            )
        if self._is_network_down:
            self.metrics.fetch_errors[ending.error] += 1
        return self._is_network_down

    def request_ended(self, lease: Lease, ending: Ending, fetched_bytes: int = 0) -> bool:
        """Start the rest of the lease's domain. Returns whether the URL should be retried later."""
        held = self.leases.get(lease)
        if held is None or held.state is LeaseState.ENDED:
            return False
        now_s = self.clock()
        self.count_request(lease.extra.kind, ending, fetched_bytes)
        if ending.status or ending.error:
            self.metrics.fetch_seconds.add(now_s - held.handed_out_s)
        next_at_s, park = self.pacer.ended(lease, ending, now_s)
        self.leases.end(held, next_at_s, fetched_bytes)
        self.rest(lease.domain, next_at_s, park, now_s)
        passed("rested")
        if park and ending.trouble is Trouble.SITE:
            # It is parked with its site, however many attempts it had.
            return True
        most = self.pacer.rules.attempts(ending, self._max_attempts)
        return ending.retryable and lease.attempt + 1 < most

    def put_off(self, lease: Lease, wait_s: float | None) -> None:
        """Return *lease* unfetched: its domain waits that long first, None for its usual delay."""
        held = self.leases.get(lease)
        if held is None or held.state is LeaseState.ENDED:
            return
        next_at_s = self.clock() + self.rest_s(lease.domain, wait_s)
        self.pacer.skip(lease)
        self.gate.uncount(lease)
        # The later ones first: each is put before those already waiting.
        self.return_leases(self.pacer.withdraw(domain=lease.domain), next_at_s)
        self.return_leases([(lease, next_at_s)])

    def rest_s(self, domain: str, wait_s: float | None) -> float:
        """Return how long *domain* rests when a request was put off: *wait_s*, None for its usual delay.

        What was aborted because our hold lapsed may have been sent, and may still arrive.
        """
        delay_s = self.pacer.delay_s(domain)
        if self.clock() >= self.lapses_at_s:
            return _HELD_BACK_S + delay_s
        return delay_s if wait_s is None else wait_s

    def settle(self, settlement: Settlement) -> None:
        """Close a lease: nothing more will come of it."""
        lease = settlement.lease
        held = self.leases.get(lease)
        if held is None:
            return
        if held.state is not LeaseState.ENDED:
            # It never reached a download. Its domain rests anyway.
            self.request_ended(lease, Ending())
        if settlement.outcome not in (Outcome.DONE, Outcome.FAILED):
            settlement.page = b""
        settlement.fetched_bytes = held.fetched_bytes
        self._settle(settlement, held.next_at_s)

    def add(self, candidates: Iterable[Candidate]) -> None:
        """Admit *candidates* with the feed's next turn."""
        self.candidates += candidates
        self.on_change()

    # -- what happens to leases without a request --

    def settle_unfetched(self, lease: Lease, outcome: Outcome, reason: str, next_at_s: float) -> None:
        """Settle a URL that is not fetched, with a page that says why."""
        page = self._failure_page(lease, reason)
        self._settle(Settlement(lease, outcome, reason, page=page), next_at_s)

    def wait_for_robots(self, lease: Lease, next_at_s: float, now_s: float, why: str = "") -> None:
        """Put *lease* behind the others of its domain until its robots.txt may be reachable again.

        *why* names the error of the fetch that has just failed.
        """
        failures, retry_at_s = self.gate.trouble(origin_of(lease.url))
        give_up = self.pacer.rules.give_up
        if give_up and failures >= give_up and lease.fails < give_up:
            # Only this origin fails, or its domain would be parked.
            self.settle_unfetched(lease, Outcome.FAILED, "robots_unreachable", next_at_s)
            return
        retry_at_s = min(retry_at_s, now_s + _ROBOTS_WAIT_S)
        reason = f"retry_robots_{why}" if why else "retry_robots"
        settlement = Settlement(lease, Outcome.RETRY, reason, is_attempt=False)
        self._settle(settlement, max(next_at_s, retry_at_s))

    def return_leases(self, leases: Iterable[tuple[Lease, float]], not_before_s: float = 0.0) -> None:
        """Return leases unused; each comes with the time its domain may be requested next."""
        for lease, next_at_s in leases:
            self._settle(Settlement(lease, Outcome.RETURNED), max(next_at_s, not_before_s))

    def forget_all(self) -> None:
        """Drop everything but the rests of domains: what Redis knows of it is not what we know."""
        self.return_all()
        self.leases.drop_outbox()

    def known_rests_ms(self, flight_s: float) -> dict[str, int]:
        """Return how long domains must rest, as far as we know; a request in flight may take *flight_s*."""
        now_s = self.clock()
        rests = {domain: rest.wait_ms(now_s, 0) for domain, rest in self.rests.resting(now_s)}
        for domain in self.pacer.domains_in_flight():
            wait_ms = math.ceil((flight_s + self.pacer.delay_s(domain)) * 1000)
            rests[domain] = max(rests.get(domain, 0), wait_ms)
        return rests

    def park_again(self) -> None:
        """Park what we had parked once more: Redis may have lost it."""
        rests = self.rests.resting(self.clock())
        self.parking.update({domain: rest for domain, rest in rests if rest.reason})

    def return_all(self) -> None:
        """Return everything, as this shard stops; requests in flight are dropped."""
        self.return_leases(self.pacer.withdraw())
        for held in sorted(self.leases, key=lambda held: -held.lease.number):
            domain = held.lease.domain
            next_at_s = max(held.next_at_s, self.pacer.next_at_s(domain))
            if self.pacer.in_flight(domain):
                next_at_s = max(next_at_s, self.clock() + self.pacer.delay_s(domain))
            self.return_leases([(held.lease, next_at_s)])

    def retry_stuck(self, lease_s: float) -> None:
        """Settle what was handed out more than *lease_s* ago: its callback hangs, or the engine lost it."""
        now_s = self.clock()
        for held in self.leases:
            if now_s - held.handed_out_s <= lease_s:
                continue
            lease = held.lease
            logger.warning("lease not settled in time; retrying its URL", extra={"url": lease.url})
            if held.state is not LeaseState.ENDED:
                self.request_ended(lease, Ending(error="stuck"))
            outcome = Outcome.RETRY if lease.attempt + 1 < self._max_attempts else Outcome.FAILED
            self._settle(Settlement(lease, outcome, "stuck"), held.next_at_s)

    def rest(self, domain: str, next_at_s: float, park: str, now_s: float) -> None:
        """Keep nothing in memory of a domain that rests for long, or is parked."""
        if park:
            self.metrics.circuits_opened += park == _FAILING
            self.parking[domain] = Rest(next_at_s, park)
        if park or next_at_s - now_s > self._chain_s:
            self.return_leases(self.pacer.withdraw(domain=domain))

    def publish_delay(self, lease: Lease) -> None:
        """Publish the delay of the lease's domain to Redis now, for the next owner."""
        self.leases.publish_delay(lease, self.pacer.delay_s(lease.domain))
        self.on_change()

    def _settle(self, settlement: Settlement, next_at_s: float) -> None:
        self.metrics.retries += settlement.outcome is Outcome.RETRY
        if self.leases.settle(settlement, next_at_s):
            self.rests.note(settlement.lease.domain, Rest(next_at_s), self.clock())
            passed("settlement_queued")
            self.on_change()

    # -- metrics and the timer --

    @property
    def has_work(self) -> bool:
        return bool(len(self.leases) or self.candidates or self.leases.unsent or self.parking)

    @property
    def is_half_full(self) -> bool:
        return self.pacer.buffered > self._batch // 2

    def count_request(self, kind: str, ending: Ending, fetched_bytes: int = 0) -> None:
        """Count a request that was answered or failed; not one whose response was unwanted."""
        metrics, status = self.metrics, ending.status
        if status:
            metrics.fetches[kind] += 1
            metrics.fetched_bytes += fetched_bytes
            if status >= 400:
                metrics.fetch_errors[f"http_{status // 100}xx"] += 1
        elif ending.error:
            metrics.fetch_errors[ending.error] += 1

    def _count_decision(self, decision: str) -> None:
        if self.gate.robots is not None:
            self.metrics.robots_decisions[decision] += 1

    def arm_timer(self, now_s: float) -> None:
        """Call *on_work* when the next domain is due. Being early is harmless."""
        due_in_s = self.pacer.due_in_s(now_s)
        if due_in_s is None or self.is_closing:
            return
        due_in_s = max(due_in_s, _WAKE_S)
        if self._timer is not None:
            if self._timer_at_s <= now_s + due_in_s:
                return
            self._timer.cancel()
        self._timer_at_s = now_s + due_in_s
        self._timer = asyncio.get_running_loop().call_later(due_in_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.on_work()

    def close(self) -> None:
        """Hand out nothing more."""
        self.is_closing = True
        if self._lapse is not None and not self.pacer.domains_in_flight():
            self._lapse.cancel()
        if self._timer is not None:
            self._timer.cancel()
