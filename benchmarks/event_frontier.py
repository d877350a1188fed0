"""The frontier of `simulate_frontier` followed URL by URL: what its averages are checked against.

Time is simulated; pacing is crawlproj's own Pacer, and leasing follows `Feed` and lease_urls.lua: the same
batches, chains, limits of memory and back-pressure. For some 100,000 pages.
"""

from __future__ import annotations

import heapq
import math
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, count

from simulate_frontier import Course, Crew, Moment, Web

from crawlproj.config import Config
from crawlproj.model.records import Lease
from crawlproj.politeness.pacing import Ending, Pacer

_DEFAULTS = Config()
#: As in `Feed`.
_LINGER_S, _QUEUE_LOOK_S = 0.01, 0.2
#: Domains are drawn in bulk, which is quicker.
_DRAWN = 100_000


@dataclass(slots=True, eq=False)
class _Domain:
    name: str
    size: int
    most: int
    seen: set[int] = field(default_factory=set)
    waiting: deque[int] = field(default_factory=deque)
    lent: int = 0
    due_s: float = 0.0
    fetched: int = 0
    has_robots: bool = False
    is_ready: bool = False


class _Frontier:
    """What Redis holds: seen, waiting, and by partition the domains that are due."""

    def __init__(self, web: Web, partitions: int) -> None:
        self.ready: list[list[tuple[float, int, _Domain]]] = [[] for _ in range(partitions)]
        self.waiting = self.seen = self.found = 0
        self._order = count()
        self._most_chain_s = _DEFAULTS.chain_seconds
        sizes = [int(web.size_of(rank)) for rank in range(web.domains)]
        self.domains = [
            _Domain(f"{rank % partitions} {rank}", size, min(size, web.budget or size))
            for rank, size in enumerate(sizes)
        ]
        self.sizes_so_far = list(accumulate(sizes))

    def admit(self, domain: _Domain, page: int, now_s: float) -> int:
        """Returns the partition to wake, or -1."""
        if page in domain.seen or len(domain.seen) >= domain.most:
            return -1
        self.found += not domain.seen
        domain.seen.add(page)
        domain.waiting.append(page)
        self.seen, self.waiting = self.seen + 1, self.waiting + 1
        return -1 if domain.lent else self._make_ready(domain, now_s)

    def lease(self, partition: int, room: int, behind: int, delay_s: float, now_s: float) -> list[_Domain]:
        """Lend URLs of domains that are due, as lease_urls.lua does: a domain for each of its URLs lent."""
        lent: list[_Domain] = []
        ready = self.ready[partition]
        while ready and room > 0 and ready[0][0] <= now_s:
            domain = heapq.heappop(ready)[2]
            domain.is_ready = False
            want = min(_DEFAULTS.chain, room, 1 + behind, len(domain.waiting))
            if not domain.fetched:
                want = 1
            elif delay_s:
                want = max(1, min(want, math.floor(self._most_chain_s / delay_s)))
            behind = min(behind, behind + 1 - want)
            for _ in range(want):
                domain.waiting.popleft()
            lent += [domain] * want
            domain.lent, room, self.waiting = want, room - want, self.waiting - want
        return lent

    def settle(self, domain: _Domain, due_s: float) -> None:
        domain.lent, domain.fetched = domain.lent - 1, domain.fetched + 1
        domain.due_s = max(domain.due_s, due_s)
        if not domain.lent and domain.waiting:
            self._make_ready(domain, due_s)

    def _make_ready(self, domain: _Domain, now_s: float) -> int:
        if domain.is_ready:
            return -1
        partition = int(domain.name.partition(" ")[0])
        domain.is_ready = True
        heapq.heappush(self.ready[partition], (max(now_s, domain.due_s), next(self._order), domain))
        return partition


class _Shard:
    def __init__(self, run: Run, partitions: list[int]) -> None:
        self.run = run
        self.partitions = partitions
        self.pacer = Pacer(run.crew.rules)
        self.in_flight = 0
        self._ended: list[tuple[_Domain, float]] = []
        self._cpu_free_s = 0.0
        self._turn_at_s = self._take_at_s = math.inf
        self._numbers = count()
        self._share, self._is_full, self._looked_s = 1.0, False, -math.inf

    def stir(self, at_s: float) -> None:
        if at_s < self._turn_at_s:
            self._turn_at_s = at_s
            self.run.at(at_s, self._turn)

    def _turn(self) -> None:
        now_s = self.run.now_s
        if now_s < self._turn_at_s:
            return
        self._turn_at_s = math.inf
        for domain, due_s in self._ended:
            self.run.frontier.settle(domain, due_s)
        self._ended.clear()
        self._lease(now_s)
        self.take()
        ready = self.run.frontier.ready
        if self.pacer.buffered < self.run.crew.lease_batch:
            due_s = min((ready[p][0][0] for p in self.partitions if ready[p]), default=math.inf)
            if due_s < math.inf:
                self.stir(max(due_s, now_s + (_LINGER_S if self._share else _QUEUE_LOOK_S)))

    def _lease(self, now_s: float) -> None:
        ready = self.run.frontier.ready
        due = [p for p in self.partitions if ready[p] and ready[p][0][0] <= now_s]
        self._look_at_queue(now_s)
        room = int((self.run.crew.lease_batch - self.pacer.buffered) * self._share)
        if not due or room <= 0:
            return
        due = sorted(due, key=lambda p: ready[p][0][0])[:room]
        behind = max(0, self.run.crew.lease_batch // 2 - self.pacer.buffered) // len(due)
        delay_s = self.run.crew.delay_s
        for partition in due:
            for domain in self.run.frontier.lease(
                partition, math.ceil(room / len(due)), behind, delay_s, now_s
            ):
                number = next(self._numbers)
                lease = Lease(b"", partition, 0, number, 1, domain.name, 0, 0, "", "", 0, 0)
                self.pacer.add(lease, now_s)

    def _look_at_queue(self, now_s: float) -> None:
        if now_s - self._looked_s < _QUEUE_LOOK_S:
            return
        self._looked_s = now_s
        soft, hard = _DEFAULTS.page_queue_soft, _DEFAULTS.page_queue_hard
        level = (self.run.queued - soft) / (hard - soft)
        self._is_full = level >= 1 or (self._is_full and level >= 0)
        self._share = 0.0 if self._is_full else min(1.0, 1.0 - level)

    def take(self) -> None:
        now_s, crew = self.run.now_s, self.run.crew
        while self.in_flight < crew.concurrency and (lease := self.pacer.take(now_s)) is not None:
            domain = self.run.frontier.domains[int(lease.domain.partition(" ")[2])]
            self.in_flight += 1
            latency_s = crew.latency_median_s * math.exp(self.run.random.gauss(0, crew.latency_sigma))
            self._cpu_free_s = max(now_s, self._cpu_free_s) + crew.shard_page_s
            ended_s = self._cpu_free_s + latency_s
            if domain.has_robots:
                self.run.at(ended_s, partial(self._end, lease, domain, latency_s))
            else:
                domain.has_robots = True
                self.pacer.fetch_robots_first(lease)
                self.run.at(ended_s, partial(self._asked, lease, latency_s))
            if self.pacer.buffered < self.run.crew.lease_batch // 2:
                self.stir(now_s + _LINGER_S)
        due_in_s = self.pacer.due_in_s(now_s)
        if due_in_s is not None and self.in_flight < crew.concurrency:
            self._take_later(now_s + due_in_s)

    def _take_later(self, at_s: float) -> None:
        if at_s < self._take_at_s:
            self._take_at_s = at_s
            self.run.at(at_s, self._take_now)

    def _take_now(self) -> None:
        if self.run.now_s >= self._take_at_s:
            self._take_at_s = math.inf
            self.take()

    def _asked(self, lease: Lease, latency_s: float) -> None:
        self.in_flight -= 1
        self.pacer.robots_ended(lease.domain, Ending(status=200, latency_s=latency_s), self.run.now_s)
        self.take()

    def _end(self, lease: Lease, domain: _Domain, latency_s: float) -> None:
        self.in_flight -= 1
        due_s, _ = self.pacer.ended(lease, Ending(status=200, latency_s=latency_s), self.run.now_s)
        self._ended.append((domain, due_s))
        self.stir(self.run.now_s + _LINGER_S)
        self.run.parse(domain)
        self.take()


class Run:
    """One simulated run; `go` returns its course."""

    def __init__(self, web: Web, crew: Crew, *, partitions: int = 64, seed: int = 1) -> None:
        self.web, self.crew = web, crew
        self.random = random.Random(seed)
        self.frontier = _Frontier(web, partitions)
        self.now_s = 0.0
        self.fetched = self.queued = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._parser_free_s = [0.0] * crew.parsers
        self._owner = [partition % crew.shards for partition in range(partitions)]
        self._shards = [
            _Shard(self, [p for p, owner in enumerate(self._owner) if owner == shard])
            for shard in range(crew.shards)
        ]
        self._drawn: list[int] = []

    def at(self, at_s: float, step: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self._order), step))

    def go(self, pages: int) -> Course:
        course = Course()
        for rank, domain in enumerate(self.frontier.domains):
            if self.web.is_seed(rank):
                self._admit(domain, 0)
        looked = 0
        while self._events and self.fetched < pages:
            self.now_s, _, step = heapq.heappop(self._events)
            step()
            if self.fetched >= looked:
                looked = self.fetched + max(1, pages // 400)
                course.moments.append(self._moment())
        course.moments.append(self._moment())
        return course

    def parse(self, domain: _Domain) -> None:
        """Hand a fetched page of *domain* to the parser that is free first."""
        self.queued += 1
        parsed_s = max(self.now_s, heapq.heappop(self._parser_free_s)) + self.crew.parser_page_s
        heapq.heappush(self._parser_free_s, parsed_s)
        self.at(parsed_s, lambda: self._parsed(domain))

    def _parsed(self, domain: _Domain) -> None:
        self.queued -= 1
        self.fetched += 1
        for _ in range(self._whole(self.web.inside)):
            self._admit(domain, self.random.randrange(domain.size))
        for _ in range(self._whole(self.web.outside)):
            target = self.frontier.domains[self._draw()]
            self._admit(target, self.random.randrange(target.size))

    def _whole(self, links: float) -> int:
        return int(links) + (self.random.random() < links % 1)

    def _draw(self) -> int:
        """The domain of a page drawn from all pages of the web."""
        if not self._drawn:
            sizes = self.frontier.sizes_so_far
            self._drawn = self.random.choices(range(len(sizes)), cum_weights=sizes, k=_DRAWN)
        return self._drawn.pop()

    def _admit(self, domain: _Domain, page: int) -> None:
        partition = self.frontier.admit(domain, page, self.now_s)
        if partition >= 0:
            self._shards[self._owner[partition]].stir(self.now_s + _LINGER_S)

    def _moment(self) -> Moment:
        frontier = self.frontier
        rate = self.fetched / self.now_s if self.now_s else 0.0
        waiting = frontier.seen - self.fetched
        return Moment(self.now_s, self.fetched, rate, 0.0, waiting, frontier.seen, frontier.found)
