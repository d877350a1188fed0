"""Whether a URL may be fetched: by the user's exclusions, by robots.txt, and by trap detection.

What is learnt of a site is kept in memory, and published to Redis for the next owner.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from crawlproj.frontier.robots import RobotsStore
from crawlproj.frontier.traps import TrapDetector
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Lease, Outcome
from crawlproj.model.urls import domain_of, origin_of
from crawlproj.politeness.robots import KnownRules, RobotRules, RobotsCache
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient, pairs


@dataclass(frozen=True, slots=True)
class Robots:
    """The rules of sites for *agent*: those in memory, and those that all shards share."""

    agent: str
    cache: RobotsCache
    store: RobotsStore


@dataclass(frozen=True, slots=True)
class RobotsFetch:
    """The robots.txt to fetch before anything else of that origin, as its domain's one request."""

    origin: str
    domain: str
    url: str
    redirects: int = 0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a URL is not fetched; RETRY when it may be later."""

    outcome: Outcome
    reason: str


class Gate:
    """Judges leases. ``refusal`` names the rule of the user that forbids a URL now, or is None."""

    def __init__(
        self,
        client: RedisClient,
        run: str,
        partitions: int,
        *,
        robots: Robots | None,
        traps: TrapDetector | None = None,
        refusal: Callable[[str], str | None] = lambda url: None,
    ) -> None:
        self.robots = robots
        self._client = client
        self._run = run
        self._partitions = partitions
        self._traps = traps
        self._refusal = refusal
        self._moved: dict[str, RobotsFetch] = {}
        self._robots_news: dict[str, KnownRules] = {}

    @property
    def agent(self) -> str:
        """Return the name that robots.txt rules apply to."""
        return self.robots.agent if self.robots else ""

    def judge(self, lease: Lease, now_s: float, *, is_back: bool = False) -> RobotsFetch | Refusal | float:
        """Return the Crawl-delay of its site (0: none) if *lease* may be fetched.

        Else why not, or the robots.txt to fetch first.

        *is_back*: its domain was parked and is retried now, and so is a robots.txt that could not be fetched.
        """
        if (reason := self._refusal(lease.url)) is not None:
            return Refusal(Outcome.SKIPPED, reason)
        delay_s = 0.0
        if self.robots is not None and not lease.extra.robots_for:
            origin = origin_of(lease.url)
            rules = self.robots.cache.get(origin, now_s)
            if rules is None or (rules.retry and is_back):
                fetch = RobotsFetch(origin, lease.domain, f"{origin}/robots.txt")
                return self._moved.pop(origin, fetch)
            if rules.retry:
                return Refusal(Outcome.RETRY, "robots_unreachable")
            if not rules.may_fetch(lease.url):
                return Refusal(Outcome.SKIPPED, "robots")
            delay_s = rules.crawl_delay_s or 0.0
        # Once per URL: retries were counted before.
        if self._traps is None or lease.attempt or lease.extra.is_freed:
            return delay_s
        reason = self._traps.judge(lease.domain, lease.url)
        return Refusal(Outcome.TRAPPED, reason) if reason is not None else delay_s

    def uncount(self, lease: Lease) -> None:
        """Uncount *lease*, which was allowed but not fetched."""
        if self._traps is not None and not lease.attempt:
            self._traps.uncount(lease.domain, lease.url)

    def learn(self, origin: str, rules: RobotRules, now_s: float, *, least_s: float = 0.0) -> KnownRules:
        """Store the rules of *origin*, valid for at least *least_s*; returns what is in force now."""
        assert self.robots is not None
        known = self._robots_news[origin] = self.robots.cache.put(origin, rules, now_s, least_s=least_s)
        return known

    def trouble(self, origin: str) -> tuple[int, float]:
        """Return how often in a row the robots.txt of *origin* failed, and when to retry."""
        assert self.robots is not None
        return self.robots.cache.trouble(origin)

    def fetch_next(self, fetch: RobotsFetch) -> None:
        """Fetch this robots.txt next for its origin, for example after a redirect."""
        self._moved[fetch.origin] = fetch

    @property
    def has_news(self) -> bool:
        return bool(self._robots_news or (self._traps and self._traps.news))

    async def publish(self, now_s: float) -> None:
        """Write what was learnt to Redis."""
        if self.robots is not None and self._robots_news:
            news = dict(self._robots_news)
            by_partition: defaultdict[int, dict[str, KnownRules]] = defaultdict(dict)
            for origin, known in news.items():
                # A time that counts from now, for a server whose clock is another.
                shared = replace(known, expires_at_s=known.expires_at_s - now_s)
                by_partition[self._partition_of(domain_of(f"{origin}/"))][origin] = shared
            await self.robots.store.keep(by_partition)
            for origin, known in news.items():
                if self._robots_news[origin] is known:
                    del self._robots_news[origin]
        if self._traps is not None and self._traps.news:
            closed = list(self._traps.news)
            await self._client.pipeline(
                [
                    ("HSET", keys.traps(self._run, self._partition_of(domain)), f"{domain} {shape}", reason)
                    for domain, shape, reason in closed
                ]
            )
            del self._traps.news[: len(closed)]

    async def recall_robots(self, leases: Iterable[Lease], now_s: float, ahead_s: float = 0.0) -> None:
        """Read from Redis the robots.txt rules for those *leases* that are due within *ahead_s*."""
        if self.robots is None:
            return
        unknown: defaultdict[int, set[str]] = defaultdict(set)
        for lease in leases:
            origin = origin_of(lease.url)
            if self.robots.cache.get(origin, now_s + ahead_s) is None and origin not in self._robots_news:
                unknown[lease.partition].add(origin)
        if unknown:
            for origin, known in (await self.robots.store.read(unknown)).items():
                self.robots.cache.recall(origin, replace(known, expires_at_s=known.expires_at_s + now_s))

    async def recall_traps(self, partitions: Iterable[int]) -> None:
        """Read from Redis which URL shapes earlier owners of *partitions* closed as traps."""
        if self._traps is None:
            return
        for known in await self._client.pipeline([("HGETALL", keys.traps(self._run, p)) for p in partitions]):
            for name, reason in pairs(known):
                domain, _, shape = name.partition(" ")
                self._traps.close(domain, shape, reason)

    def _partition_of(self, domain: str) -> int:
        return partition_of(domain, self._partitions)
