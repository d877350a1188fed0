"""When a domain may be requested again, and which of the leases in memory may be fetched now.

The frontier leases a domain to one shard at a time; meanwhile the Pacer is that domain's clock.
"""

from __future__ import annotations

import heapq
import sys
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import count

from crawlproj.config import Config
from crawlproj.model.records import Lease
from crawlproj.model.urls import domain_of_host

#: The server asks us to slow down, or a proxy in front of it cannot reach it.
_SITE_STATUSES = frozenset({429, 502, 503, 504, 520, 521, 522, 523, 524})
#: These double the delay of a domain; every good response reduces it by a twentieth, so a site that throttles
#: us at times settles at a rate it can bear.
_THROTTLED = frozenset({429, 503})
_SLOWER, _FASTER = 2.0, 0.95
#: A retry of this page may succeed; the site is fine.
_PAGE_STATUSES = frozenset({408, 500})
#: A longer Retry-After is cut to this.
MOST_RETRY_AFTER_S = 30 * 86400.0
#: How many stale domains the heap may hold.
_MOST_GONE = 100
#: A domain that was never reached is parked after so many failures, by default within a minute: most often
#: its name is wrong.
_UNREACHED_FAILURES = 3


class Trouble(Enum):
    """What a failed request says about its site, and about a retry."""

    NONE = "none"
    #: A retry may succeed.
    PAGE = "page"
    #: The site was reached, but the response was incomplete: the page's fault or the site's.
    ANSWER = "answer"
    #: The site is unreachable, or asks us to slow down; not the page's fault.
    SITE = "site"
    #: A retry would fail the same way.
    FINAL = "final"


@dataclass(slots=True)
class Ending:
    """How a request ended, as far as politeness is concerned.

    ``error`` names why there was no response, and ``error_means`` what that says about the site; ``trouble``
    sums up status and error.
    """

    status: int = 0
    latency_s: float = 0.0
    retry_after_s: float | None = None
    error: str = ""
    error_means: Trouble = Trouble.ANSWER
    trouble: Trouble = field(init=False)

    def __post_init__(self) -> None:
        if self.error:
            self.trouble = self.error_means
        elif self.status in _SITE_STATUSES:
            self.trouble = Trouble.SITE
        else:
            self.trouble = Trouble.PAGE if self.status in _PAGE_STATUSES else Trouble.NONE

    @property
    def name(self) -> str:
        """The name of the trouble, ``http_503`` or ``connect_timeout``; '' for none."""
        return "" if self.trouble is Trouble.NONE else self.error or f"http_{self.status}"

    @property
    def retryable(self) -> bool:
        return self.trouble is not Trouble.NONE and self.trouble is not Trouble.FINAL

    @property
    def hurts_site(self) -> bool:
        return self.trouble is Trouble.ANSWER or self.trouble is Trouble.SITE


@dataclass(frozen=True, slots=True)
class DomainRule:
    delay_s: float
    at_once: int = 1


def domain_rules(config: Config) -> dict[str, DomainRule]:
    """Return what DOWNLOAD_SLOTS says, by domain. Of two hosts of one domain the slower counts."""
    rules: dict[str, DomainRule] = {}
    for host, slot in config.download_slots.items():
        domain = domain_of_host(host.lower())
        rule = DomainRule(float(slot.get("delay", config.download_delay)), int(slot.get("concurrency", 1)))
        other = rules.get(domain, rule)
        rules[domain] = DomainRule(max(rule.delay_s, other.delay_s), min(rule.at_once, other.at_once))
    return rules


@dataclass(frozen=True, slots=True)
class Rest:
    """How long a domain rests, and why it is parked meanwhile ('': it is not)."""

    wait_s: float
    park: str = ""


@dataclass(frozen=True, slots=True)
class DelayRules:
    """The settings: ``delay_s`` for every domain, ``domains`` for some, and the bounds.

    A failing site is retried after ``backoff_s``, then after twice as long each time, up to
    ``max_backoff_s``. After ``give_up`` failures in a row (0: never) it is parked for ``parked_s``; if it was
    never reached, after three at most. Each time it fails again, it is parked for twice as long.
    """

    delay_s: float = 1.0
    domains: Mapping[str, DomainRule] = field(default_factory=dict)
    factor: float = 0.0
    max_delay_s: float = 300.0
    backoff_s: float = 10.0
    max_backoff_s: float = 3600.0
    give_up: int = 0
    parked_s: float = 86400.0

    def rule(self, domain: str) -> DomainRule:
        return self.domains.get(domain) or DomainRule(self.delay_s)

    def attempts(self, ended: Ending, most: int) -> int:
        """Return how many attempts a URL has, usually *most*, when one *ended* like this.

        Failures of the site count against the site, which is parked before its URLs run out of attempts.
        """
        if ended.trouble is not Trouble.SITE:
            return most
        return max(most, self.give_up) if self.give_up else sys.maxsize

    def patience(self, *, was_reached: bool) -> int:
        """Return after how many failures in a row a domain is parked; 0: never."""
        return self.give_up if was_reached else min(self.give_up, _UNREACHED_FAILURES)

    def rest(self, delay_s: float, ended: Ending, fails: int, *, was_reached: bool = True) -> Rest:
        """Return how a domain rests after a request, *fails* being its failures in a row before."""
        if not ended.hurts_site:
            return Rest(max(delay_s, min(self.max_delay_s, self.factor * ended.latency_s)))
        wanted_s = min(ended.retry_after_s or 0.0, MOST_RETRY_AFTER_S)
        patience = self.patience(was_reached=was_reached)
        if 0 < patience <= fails + 1:
            # Longer each time it comes back in vain: a run with many dead sites would never be without one.
            parked_s = min(self.parked_s * 2.0 ** min(fails + 1 - patience, 30), MOST_RETRY_AFTER_S)
            return Rest(max(parked_s, self.parked_s, wanted_s), "failures")
        if wanted_s > self.max_backoff_s:
            # Longer than a run should wait for one site.
            return Rest(wanted_s, "retry_after")
        # Doubles with every failure. At the first one a Retry-After counts alone, even a shorter one.
        rest_s = min(self.max_backoff_s, self.backoff_s * 2.0 ** min(fails, 30))
        if ended.retry_after_s is not None:
            rest_s = max(rest_s if fails else 0.0, wanted_s)
        return Rest(max(delay_s, rest_s))


@dataclass(slots=True, eq=False)
class _Line:
    """The URLs of one domain in memory, and its clock."""

    domain: str
    #: The delay set for it, or its Crawl-delay.
    least_delay_s: float
    #: The current delay: longer while it throttles us.
    delay_s: float
    at_once: int
    fails: int
    #: Whether its server has ever answered.
    was_reached: bool
    next_at_s: float
    waiting: deque[Lease] = field(default_factory=deque)
    in_flight: int = 0
    queued: bool = False
    #: Its robots.txt is being fetched; nothing else may go.
    fetches_robots: bool = False

    def note(self, lease: Lease) -> None:
        """Write the domain's failures and delay into *lease*, for its settlement."""
        lease.fails, lease.delay_ms = self.fails, round(self.delay_s * 1000)


class Pacer:
    """The domains leased to this shard: one request of each at a time, with a delay after each."""

    def __init__(self, rules: DelayRules) -> None:
        self.rules = rules
        #: Leases in memory that were not handed out yet.
        self.buffered = 0
        self._lines: dict[str, _Line] = {}
        self._heap: list[tuple[float, int, _Line]] = []
        self._order = count()

    def change(self, rules: DelayRules) -> None:
        """Follow other *rules* from now on; what a site itself asked for stays."""
        before, self.rules = self.rules, rules
        for line in self._lines.values():
            was, now = before.rule(line.domain), rules.rule(line.domain)
            is_throttled = line.delay_s > line.least_delay_s
            if line.least_delay_s <= was.delay_s:
                # No Crawl-delay asks for more.
                line.least_delay_s, line.at_once = now.delay_s, now.at_once
            line.least_delay_s = max(line.least_delay_s, now.delay_s)
            line.delay_s = max(line.least_delay_s, line.delay_s if is_throttled else 0.0)

    def add(self, lease: Lease, now_s: float) -> None:
        """Take in *lease*, which was received at *now_s*."""
        line = self._lines.get(lease.domain)
        if line is None:
            rule = self.rules.rule(lease.domain)
            delay_s = max(rule.delay_s, lease.delay_ms / 1000)
            due_s = now_s + lease.wait_ms / 1000
            was_reached = lease.fetched > 0
            line = _Line(lease.domain, rule.delay_s, delay_s, rule.at_once, lease.fails, was_reached, due_s)
            self._lines[lease.domain] = line
        line.waiting.append(lease)
        self.buffered += 1
        self._queue(line)

    def take(self, now_s: float) -> Lease | None:
        """Return a lease whose domain is due. Then call `ended`, `skip` or `fetch_robots_first`."""
        while self._heap and self._heap[0][0] <= now_s:
            line = heapq.heappop(self._heap)[2]
            line.queued = False
            if line.next_at_s > now_s:
                self._queue(line)
            elif line.waiting and line.in_flight < line.at_once and not line.fetches_robots:
                lease = line.waiting.popleft()
                line.note(lease)
                line.in_flight += 1
                self.buffered -= 1
                # Where several are allowed at once, the delay counts from start to start, as in Scrapy.
                line.next_at_s = now_s + line.delay_s if line.at_once > 1 else now_s
                self._queue(line)
                return lease
        return None

    def fetch_robots_first(self, lease: Lease) -> None:
        """Put *lease* back to the front: the robots.txt of its host is fetched first."""
        line = self._lines[lease.domain]
        line.waiting.appendleft(lease)
        line.fetches_robots = True
        self.buffered += 1

    def skip(self, lease: Lease) -> float:
        """Record that *lease* needed no request. Returns when its domain may be requested next."""
        line = self._lines[lease.domain]
        line.note(lease)
        return self._end(line, 0.0)

    def ended(self, lease: Lease, ended: Ending, now_s: float) -> tuple[float, str]:
        """Record that the request of *lease* ended.

        Returns when its domain may be requested next, and why to park it until then ('': do not).
        """
        line = self._lines[lease.domain]
        ends = self._ended(line, ended, now_s)
        line.note(lease)
        return ends

    def robots_ended(self, domain: str, ended: Ending, now_s: float) -> tuple[float, str]:
        """The same for the request of a robots.txt, which blocked all others of *domain*."""
        self._lines[domain].fetches_robots = False
        return self._ended(self._lines[domain], ended, now_s)

    def robots_skipped(self, domain: str) -> None:
        """Record that the robots.txt that blocked all others of *domain* was not requested after all."""
        self._lines[domain].fetches_robots = False
        self._end(self._lines[domain], 0.0)

    def was_parked(self, lease: Lease) -> bool:
        """Return whether the domain of *lease*, just taken, has failed often enough to be parked."""
        return 0 < self.rules.patience(was_reached=self._lines[lease.domain].was_reached) <= lease.fails

    def slow_down(self, domain: str, delay_s: float) -> bool:
        """Take a longer delay for *domain*, such as a Crawl-delay. Returns whether it changed."""
        line = self._lines[domain]
        delay_s = min(delay_s, self.rules.max_delay_s)
        if delay_s <= line.least_delay_s:
            return False
        line.least_delay_s, line.at_once = delay_s, 1
        is_longer = delay_s > line.delay_s
        line.delay_s = max(delay_s, line.delay_s)
        return is_longer

    def delay_s(self, domain: str) -> float:
        line = self._lines.get(domain)
        return line.delay_s if line else self.rules.rule(domain).delay_s

    def next_at_s(self, domain: str) -> float:
        line = self._lines.get(domain)
        return line.next_at_s if line else 0.0

    def in_flight(self, domain: str) -> bool:
        line = self._lines.get(domain)
        return line is not None and line.in_flight > 0

    def domains_in_flight(self) -> list[str]:
        """Return the domains that have a request on its way, robots.txt included."""
        return [line.domain for line in self._lines.values() if line.in_flight]

    def due_in_s(self, now_s: float) -> float | None:
        """Return how long until `take` may return something; None if that does not depend on time."""
        return max(0.0, self._heap[0][0] - now_s) if self._heap else None

    def withdraw(
        self, unwanted: Callable[[Lease], bool] = lambda lease: True, *, domain: str = ""
    ) -> list[tuple[Lease, float]]:
        """Remove and return the leases not handed out yet for which *unwanted* is true, newest first.

        Only those of *domain* if given. Each comes with the time its domain may be requested next. One whose
        robots.txt is being fetched stays: that request belongs to it.
        """
        withdrawn: list[tuple[Lease, float]] = []
        lines = self._lines
        for line in [lines[domain]] if domain in lines else [] if domain else list(lines.values()):
            first = line.waiting[0] if line.fetches_robots else None
            gone = [lease for lease in line.waiting if lease is not first and unwanted(lease)]
            if gone:
                line.waiting = deque(lease for lease in line.waiting if lease not in gone)
                self.buffered -= len(gone)
                for lease in gone:
                    line.note(lease)
                withdrawn += ((lease, line.next_at_s) for lease in gone)
                self._forget_if_empty(line)
        withdrawn.sort(key=lambda pair: (pair[0].partition, -pair[0].number))
        return withdrawn

    def _ended(self, line: _Line, ended: Ending, now_s: float) -> tuple[float, str]:
        line.was_reached |= ended.status > 0
        rest = self.rules.rest(line.delay_s, ended, line.fails, was_reached=line.was_reached)
        if ended.hurts_site:
            line.fails += 1
        elif ended.trouble is not Trouble.FINAL:
            line.fails = 0
        if ended.status in _THROTTLED:
            longest_s = max(self.rules.max_delay_s, line.delay_s)
            line.delay_s = min(longest_s, line.delay_s * _SLOWER)
        elif ended.trouble is Trouble.NONE:
            line.delay_s = max(line.least_delay_s, line.delay_s * _FASTER)
        return self._end(line, now_s + rest.wait_s), rest.park

    def _end(self, line: _Line, next_at_s: float) -> float:
        line.in_flight -= 1
        line.next_at_s = max(line.next_at_s, next_at_s)
        self._queue(line)
        self._forget_if_empty(line)
        return line.next_at_s

    def _queue(self, line: _Line) -> None:
        if line.waiting and line.in_flight < line.at_once and not line.queued and not line.fetches_robots:
            line.queued = True
            heapq.heappush(self._heap, (line.next_at_s, next(self._order), line))

    def _forget_if_empty(self, line: _Line) -> None:
        # The frontier has its clock then: every settlement says when the domain is due.
        if not line.waiting and not line.in_flight:
            del self._lines[line.domain]
            if len(self._heap) > 2 * len(self._lines) + _MOST_GONE:
                # Stale entries may be due only in a day, and could be a million by then.
                self._heap = [entry for entry in self._heap if self._lines.get(entry[2].domain) is entry[2]]
                heapq.heapify(self._heap)
