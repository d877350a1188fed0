"""Shards of one run in the test's own loop: feeds on a real Redis, and what was said to them and by them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

from scrapy.crawler import Crawler
from scrapy.utils.test import get_crawler

from crawlproj.config import load_config
from crawlproj.download.client import Answer, HttpRequest
from crawlproj.errors import CrawlError
from crawlproj.frontier.dispatcher import Dispatcher
from crawlproj.frontier.exclusions import load_rules
from crawlproj.frontier.feed import Feed
from crawlproj.frontier.frontier import Frontier
from crawlproj.frontier.gate import Gate, Robots, RobotsFetch
from crawlproj.frontier.ownership import ShardNumber
from crawlproj.frontier.pressure import FeedLimits, QueueLimits
from crawlproj.frontier.robots import RobotsStore
from crawlproj.frontier.robots_turns import RobotsTurns
from crawlproj.frontier.traps import TrapDetector
from crawlproj.model.clock import boot_clock
from crawlproj.model.domain import DomainState
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate, Lease, Outcome, Settlement
from crawlproj.politeness.pacing import DelayRules, Ending, Pacer, Trouble
from crawlproj.politeness.robots import RobotRules, RobotsCache
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient, pairs
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Run, RunCounters
from crawlproj.runs.telemetry import Telemetry
from crawlproj.shard.context import ShardContext, set_context
from crawlproj.shard.fetch import Fetcher
from crawlproj.shard.results import Results
from crawlproj.shard.robotstxt import RobotsTxt
from crawlproj.shard.stock import write_robots
from tests.patience import PATIENCE_S, until
from tests.waiting import due_of

AGENT = "crawlproj"
RUN = "web"
PARTITIONS = 8
#: Of tests of what happens when a hold ends. A machine that is busy for as long ends it, too.
SHARD_LEASE_S = 0.6
LIMITS = FeedLimits(
    batch=100,
    chain=4,
    chain_s=2.0,
    lease_s=60.0,
    shard_lease_s=SHARD_LEASE_S,
    queue=QueueLimits(5, 10),
)
#: Too long to end during a test.
LONG = replace(LIMITS, shard_lease_s=30.0)


@dataclass
class Shard:
    """A feed, and what was said to it and by it."""

    feed: Feed
    skew_s: float = 0.0
    works: int = 0
    ends: list[tuple[str, CrawlError | None]] = field(default_factory=list)

    @property
    def dispatcher(self) -> Dispatcher:
        return self.feed.dispatcher

    @property
    def robots(self) -> RobotsTurns:
        return RobotsTurns(self.dispatcher)

    @property
    def held(self) -> int:
        return len(self.dispatcher.leases)

    def settle(
        self, lease: Lease, outcome: Outcome = Outcome.DONE, reason: str = "", page: bytes = b""
    ) -> None:
        self.dispatcher.settle(Settlement(lease, outcome, reason, page=page))

    def take(self) -> list[Lease | RobotsFetch]:
        taken = []
        while (one := self.dispatcher.take()) is not None:
            taken.append(one)
        return taken

    def take_leases(self) -> list[Lease]:
        taken = self.take()
        assert all(isinstance(one, Lease) for one in taken)
        return [one for one in taken if isinstance(one, Lease)]

    async def take_one(self) -> Lease:
        """Wait for a lease; there must be one."""
        [lease] = await self.take_some()
        return lease

    async def take_some(self, count: int = 1) -> list[Lease]:
        """Wait for so many leases."""
        taken: list[Lease] = []

        def take() -> bool:
            taken.extend(self.take_leases())
            return len(taken) >= count

        await until(take)
        return taken

    async def take_robots(self) -> RobotsFetch:
        """Wait for a robots.txt to be asked for; there must be one, and nothing else."""
        taken: list[Lease | RobotsFetch] = []

        def take() -> bool:
            taken.extend(self.take())
            return bool(taken)

        await until(take)
        [fetch] = taken
        assert isinstance(fetch, RobotsFetch)
        return fetch

    def fetch(self, lease: Lease, status: int = 200, page: bytes = b"") -> None:
        self.dispatcher.request_ended(lease, Ending(status))
        self.settle(lease, page=page)

    def fail(self, lease: Lease, ending: Ending | None = None) -> None:
        """As a fetch does whose request failed."""
        ending = ending or Ending(error="dns", error_means=Trouble.SITE)
        again = self.dispatcher.request_ended(lease, ending)
        self.settle(lease, Outcome.RETRY if again else Outcome.FAILED, "dns")

    async def kill(self) -> None:
        """As SIGKILL would: no word to anybody."""
        for task in self.feed._tasks:
            task.cancel()
        await asyncio.gather(*self.feed._tasks, return_exceptions=True)
        self.feed._tasks = []

    def fetcher(
        self,
        exchange: Callable[[HttpRequest], Awaitable[Answer]],
        *,
        count: Callable[[str], None] = lambda name: None,
        follows_sitemaps: bool = False,
    ) -> Fetcher:
        """Return what fetches for this shard, with *exchange* in place of the network."""
        robots = RobotsTxt(self.robots, AGENT, follows_sitemaps=follows_sitemaps)
        results = Results(RUN, 0, load_rules(load_config({}))[0], 5)
        return Fetcher(self.feed, robots, results, write=write_robots, exchange=exchange, count=count)

    def crawler(self) -> Crawler:
        """Return a crawler whose components find this shard."""
        crawler, config = get_crawler(), load_config({})
        run = Run(self.feed.frontier.client, RUN, PARTITIONS)
        rules, _ = load_rules(config)
        results = Results(RUN, 0, rules, 5)
        set_context(crawler, ShardContext(config, run, self.feed, Telemetry(), rules, results))
        return crawler


class Shards:
    """Makes shards of one run."""

    def __init__(self, client: RedisClient, run: Run) -> None:
        self.client = client
        self.run = run
        self.made: list[Shard] = []

    async def open(
        self,
        number: int = 0,
        *,
        limits: FeedLimits = LONG,
        rules: DelayRules | None = None,
        robots: RobotsCache | None = None,
        traps: TrapDetector | None = None,
        refusal: Callable[[str], str | None] = lambda url: None,
        domain_bytes: int = 0,
        process: ProcessName | None = None,
        starting: bool = False,
    ) -> Shard:
        shard: Shard

        def on_work() -> None:
            shard.works += 1

        # Of another machine, so that it cannot be known to be dead before its hold ends.
        process = process or replace(ProcessName.of_this(), machine="elsewhere")
        dispatcher = Dispatcher(
            Pacer(rules or DelayRules(0.0)),
            Gate(
                self.client,
                self.run.name,
                PARTITIONS,
                robots=Robots(AGENT, robots, self.store()) if robots is not None else None,
                traps=traps,
                refusal=refusal,
            ),
            batch=limits.batch,
            chain_s=limits.chain_s,
            max_attempts=3,
            on_work=on_work,
            failure_page=lambda lease, reason: reason.encode(),
            clock=lambda: boot_clock() + shard.skew_s,
        )
        feed = Feed(
            Frontier(self.client, self.run.name, PARTITIONS, domain_bytes=domain_bytes),
            ShardNumber(self.client, self.run.name, number, process, int(limits.shard_lease_s * 1000)),
            self.run.read_map,
            dispatcher,
            limits,
            promises=self.run,
            on_stop=lambda reason, error: shard.ends.append((reason, error)),
        )
        feed.starting = starting
        shard = Shard(feed)
        await feed.open()
        self.made.append(shard)
        return shard

    def store(self) -> RobotsStore:
        return RobotsStore(self.client, self.run.name, PARTITIONS, 10_000_000, AGENT)

    async def read_counters(self) -> RunCounters:
        return await self.run.read_counters()

    async def counted(self, name: str, count: int) -> None:
        """Wait until Redis has counted so many, taking what shards have to fetch without fetching it."""
        async with asyncio.timeout(PATIENCE_S):
            while (await self.read_counters()).counts[name] != count:
                for shard in self.made:
                    shard.take()
                await asyncio.sleep(0.005)

    async def admit(self, *urls: str) -> int:
        """As a process outside would."""
        return (
            await Frontier(self.client, self.run.name, PARTITIONS).admit(Candidate(url) for url in urls)
        ).new

    async def unpark(self, domain: str) -> int:
        """As a person would."""
        frontier = Frontier(self.client, self.run.name, PARTITIONS)
        return await frontier.unpark({partition_of(domain, PARTITIONS): [domain]})

    async def state(self, domain: str) -> list[str]:
        """What the frontier knows: next out fails admitted fetched delay bytes parked."""
        name = keys.domains(RUN, partition_of(domain, PARTITIONS))
        value: bytes = await self.client.command("HGET", name, domain)
        return value.decode().partition("\n")[0].split(" ")

    async def parked(self) -> dict[str, str]:
        """The domains set aside, with the reason."""
        states = await self.client.pipeline([("HGETALL", keys.domains(RUN, p)) for p in range(PARTITIONS)])
        known = [(name, DomainState.decode(text)) for partition in states for name, text in pairs(partition)]
        return {domain: state.parked for domain, state in known if state.parked}

    async def kill(self) -> None:
        for shard in self.made:
            await shard.kill()
            if shard.dispatcher._timer:
                shard.dispatcher._timer.cancel()


async def ready_in_s(shards: Shards, *domains: str) -> list[float]:
    """In how many seconds each domain is due, by the server's clock."""
    seconds, micros = await shards.client.command("TIME")
    now_s = int(seconds) + int(micros) / 1e6
    due = []
    for domain in domains:
        waiting = await due_of(shards.client, RUN, partition_of(domain, PARTITIONS))
        assert domain in waiting, f"{domain} is not ready"
        due.append(waiting[domain] / 1000 - now_s)
    return due


def rules_of(text: str, status: int | None = 200) -> RobotRules:
    """Return the rules of a robots.txt; *status* None: it could not be fetched."""
    if status is None:
        return RobotRules(AGENT, retry=True)
    return RobotRules.from_response(status, text.encode(), AGENT)


def sites(count: int, pages: int = 1) -> list[str]:
    return [f"https://d{number}.test/{page}" for page in range(pages) for number in range(count)]
