"""What the size of the frontier costs: CPU of admit, lease and settle, in Redis and in Python, and memory.

Three curves: ever more URLs waiting of the same domains, ever more domains with as many URLs in all, and ever
more URLs seen with none waiting. Frontiers of all sizes are filled first and measured in turn, so that a busy
machine disturbs them alike.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha1
from itertools import islice
from pathlib import Path

from measuring import Goal, Options, RedisServer, Report, median, read_options, say, spread
from plots import draw, want_flat
from scrapy import Request, Spider
from scrapy_redis import picklecompat
from workload import fill, hold_all, url_of

from crawlproj.frontier.frontier import Frontier, Hold
from crawlproj.model.records import Candidate, Outcome, Settlement
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient, pairs

PARTITIONS = 64
#: What a shard leases in one round trip, and what a parser admits in one: links of so many pages.
LEASE_BATCH = 256
ADMIT_BATCH = 1000
#: A batch of links goes to this many sites, or to as many as are needed; most links are known already.
ADMIT_SITES = 80
NEW_SHARE = 0.2
REPEATS = 7
ADMIT_ROUNDS, LEASE_ROUNDS = 5, 20
SEEN_WANTED = 16
#: For a million URLs waiting, their fingerprints and domains included.
WAITING_WANTED_MB = 120
STEPS = ("admit", "lease", "settle")


@dataclass(frozen=True, slots=True)
class Size:
    domains: int
    pages: int

    @property
    def urls(self) -> int:
        return self.domains * self.pages

    def __str__(self) -> str:
        return f"{self.urls:,} URLs of {self.domains:,} domains"


MORE_WAITING = [Size(10_000, pages) for pages in (1, 10, 100, 1000)]
MORE_DOMAINS = [100, 1000, 10_000, 100_000]
#: How many URLs all these domains have together.
SHARED_URLS = 1_000_000
#: Hardly any URL a domain: what a domain needs counts most.
TINY_DOMAINS = Size(500_000, 2)
PEER_URLS = 10_000_000

QUICK_MORE_WAITING = [Size(1000, pages) for pages in (1, 10, 50)]
QUICK_MORE_DOMAINS = [100, 1000, 5000]
QUICK_SHARED_URLS = 20_000
QUICK_TINY_DOMAINS = Size(10_000, 2)
QUICK_PEER_URLS = 20_000


@dataclass(slots=True)
class Costs:
    """us a URL of one step, repetition by repetition."""

    redis: list[float] = field(default_factory=list)
    python: list[float] = field(default_factory=list)


@dataclass(slots=True)
class Filled:
    """A frontier of one size, in a Redis of its own, all partitions held."""

    size: Size
    server: RedisServer
    client: RedisClient
    frontier: Frontier
    holds: list[Hold]
    empty_bytes: int
    #: The page that each domain gets next.
    next_page: int
    chance: random.Random = field(default_factory=lambda: random.Random(7))
    costs: dict[str, Costs] = field(default_factory=lambda: {step: Costs() for step in STEPS})

    @classmethod
    async def open(cls, size: Size, server: RedisServer) -> Filled:
        client = await RedisClient.open(url=server.url, data_dir=Path())
        frontier = Frontier(client, "growth", PARTITIONS)
        holds = await hold_all(frontier)
        empty_bytes = server.used_bytes()
        say(f"   filling: {size}")
        # Slices, so that pages of a domain do not all come at once.
        for first_page in range(0, size.pages, 100):
            await fill(frontier, size.domains, min(100, size.pages - first_page), first_page=first_page)
        return cls(size, server, client, frontier, holds, empty_bytes, size.pages)

    async def measure(self) -> None:
        await self.measure_admits()
        await self.measure_leases()

    async def measure_admits(self) -> None:
        """Admit links, most of them known, so that the size stays nearly what it is."""
        batches = [self._links() for _ in range(ADMIT_ROUNDS)]
        meter = Meter(self.server)
        meter.go_on()
        for batch in batches:
            await self.frontier.admit(batch)
        meter.pause()
        meter.add_to(self.costs["admit"], ADMIT_ROUNDS * ADMIT_BATCH)

    async def measure_leases(self) -> None:
        """Lend URLs and give them back unused, so that the size stays what it is."""
        each = LEASE_BATCH // PARTITIONS
        lease, settle, lent = Meter(self.server), Meter(self.server), 0
        for _ in range(LEASE_ROUNDS):
            lease.go_on()
            leases, _ = await self.frontier.lease([(hold, each) for hold in self.holds], chain=1, chain_ms=0)
            lease.pause()
            lent += len(leases)
            settlements = [Settlement(one, Outcome.RETURNED) for one in leases]
            settle.go_on()
            await self.frontier.settle(settlements)
            settle.pause()
        lease.add_to(self.costs["lease"], lent)
        settle.add_to(self.costs["settle"], lent)

    def _links(self) -> list[Candidate]:
        """Links to some sites' pages, no two to the same. The new ones are pages not yet requested."""
        known = ADMIT_BATCH - int(ADMIT_BATCH * NEW_SHARE)
        sites = max(ADMIT_SITES, math.ceil(known / self.size.pages))
        chosen = self.chance.sample(range(self.size.domains), sites)
        pages = [
            (domain, page)
            for domain in chosen
            for page in self.chance.sample(range(self.size.pages), known // sites)
        ]
        new = range(self.next_page, self.next_page + ADMIT_BATCH - known)
        pages += [(chosen[number % sites], page) for number, page in enumerate(new)]
        self.next_page = new.stop
        return [Candidate(url_of(domain, page), 1) for domain, page in pages]

    async def forget_waiting(self) -> None:
        """Leave only what was seen, as if all had been fetched."""
        for partition in range(PARTITIONS):
            run = self.frontier.run
            prefix, states = keys.queue_prefix(run, partition), keys.domains(run, partition)
            known = dict(pairs(await self.client.command("HGETALL", states)))
            for batch in _batches(iter(known), 500):
                await self.client.command("DEL", *(f"{prefix}1:{domain}" for domain in batch))
                lines = [(domain, known[domain].partition("\n")[0]) for domain in batch]
                await self.client.command("HSET", states, *(word for line in lines for word in line))
            await self.client.command("DEL", keys.ready(run, partition), keys.newcomers(run, partition))
            await self.client.command("HSET", keys.meta(self.frontier.run, partition), "waiting", 0)

    async def forget_seen(self) -> int:
        """Forget what was seen; returns the bytes that this frees."""
        full_bytes = self.server.used_bytes()
        for partition in range(PARTITIONS):
            run = self.frontier.run
            count = int(await self.client.command("HGET", keys.meta(run, partition), "seen") or 0)
            # Buckets are numbered from 0, one for every 200 fingerprints.
            names = (f"{keys.seen_prefix(run, partition)}{bucket}" for bucket in range(count // 200 + 1))
            for batch in _batches(names, 500):
                await self.client.command("DEL", *batch)
        return full_bytes - self.server.used_bytes()

    async def seen(self) -> int:
        """How many URLs were ever admitted, those of the measurements included."""
        counts = await self.client.pipeline(
            [("HGET", keys.meta(self.frontier.run, partition), "seen") for partition in range(PARTITIONS)]
        )
        return sum(int(count or 0) for count in counts)


class Meter:
    """CPU of Redis and of this process while it is not paused."""

    def __init__(self, server: RedisServer) -> None:
        self._server = server
        self._redis_s = self._python_s = 0.0

    def go_on(self) -> None:
        self._redis_from_s = self._server.cpu_s()
        self._python_from_s = time.process_time()

    def pause(self) -> None:
        self._python_s += time.process_time() - self._python_from_s
        self._redis_s += self._server.cpu_since_s(self._redis_from_s)

    def add_to(self, costs: Costs, urls: int) -> None:
        costs.redis.append(self._redis_s / urls * 1e6)
        costs.python.append(self._python_s / urls * 1e6)


def _batches(items: Iterator[str], size: int) -> Iterator[list[str]]:
    while batch := list(islice(items, size)):
        yield batch


async def main(options: Options) -> None:
    with RedisServer(options.redis_server) as server:
        report = Report(server.version)
    waiting, domains, shared, tiny, peer = (
        (QUICK_MORE_WAITING, QUICK_MORE_DOMAINS, QUICK_SHARED_URLS, QUICK_TINY_DOMAINS, QUICK_PEER_URLS)
        if options.quick
        else (MORE_WAITING, MORE_DOMAINS, SHARED_URLS, TINY_DOMAINS, PEER_URLS)
    )
    urls = min(shared, options.most_urls)
    by_domains = [Size(number, urls // number) for number in domains if number <= urls]
    by_waiting = [size for size in waiting if size.urls <= options.most_urls]
    await measure_growth(report, options, "domains", "domains", by_domains)
    await measure_growth(report, options, "waiting", "URLs waiting", by_waiting)
    if tiny.urls <= options.most_urls:
        await measure_tiny(report, options, tiny)
    await measure_peer(report, options, min(peer, options.most_urls))
    report.finish(options)


async def measure_growth(report: Report, options: Options, name: str, what: str, sizes: list[Size]) -> None:
    with ExitStack() as stack:
        filled = [
            await Filled.open(size, stack.enter_context(RedisServer(options.redis_server))) for size in sizes
        ]
        memory = {each.size: each.server.used_bytes() - each.empty_bytes for each in filled}
        await take_turns(filled, Filled.measure, options)
        show_costs(report, options, name, what, filled, STEPS)
        if name == "waiting":
            for each in filled:
                await each.forget_waiting()
                each.costs = {"admit": Costs()}
            await take_turns(filled, Filled.measure_admits, options)
            show_costs(report, options, "seen", "URLs seen, none waiting", filled, ("admit",))
        await show_memory(report, options, name, what, filled, memory)
        for each in filled:
            await each.client.close()


async def take_turns(
    filled: list[Filled], measure: Callable[[Filled], Awaitable[None]], options: Options
) -> None:
    for _ in range(3 if options.quick else REPEATS):
        for each in filled:
            await measure(each)


def show_costs(
    report: Report, options: Options, name: str, what: str, filled: list[Filled], steps: Sequence[str]
) -> None:
    table = report.table(
        f"CPU us a URL, by {what}",
        "frontier",
        "step",
        "Redis, median",
        "Python, median",
        "Redis, repetitions",
    )
    curves: dict[str, list[tuple[float, float]]] = {}
    for step in steps:
        for each in filled:
            costs = each.costs[step]
            for process, values in (("Redis", costs.redis), ("Python", costs.python)):
                size = each.size.domains if name == "domains" else each.size.urls
                curves.setdefault(f"{step}, {process}", []).append((size, median(values)))
            medians = (f"{median(values):.2f}" for values in (costs.redis, costs.python))
            table.add(each.size, step, *medians, spread(costs.redis, ".2f"))
    for label, curve in curves.items():
        want_flat(report, f"{label}: us a URL by {what}", curve)
    draw(options, f"growth-{name}", f"CPU of the frontier, by {what}", what, "us a URL", curves)


async def show_memory(
    report: Report, options: Options, name: str, what: str, filled: list[Filled], memory: Mapping[Size, int]
) -> None:
    """Report the memory of each when it was full. Destroys the frontiers."""
    table = report.table(
        f"Redis bytes a URL, by {what}", "frontier", "seen", "waiting, its domain included", "both"
    )
    curves: dict[str, list[tuple[float, float]]] = {"seen": [], "both": []}
    for each in filled:
        seen = await each.forget_seen() / await each.seen()
        both = memory[each.size] / each.size.urls
        table.add(each.size, f"{seen:.1f}", f"{both - seen:.1f}", f"{both:.1f}")
        size = each.size.domains if name == "domains" else each.size.urls
        curves["seen"].append((size, seen))
        curves["both"].append((size, both))
        if each.size.urls >= 1_000_000:
            report.goals += [
                Goal(
                    f"bytes a URL seen, {each.size}", f"<= {SEEN_WANTED}", f"{seen:.1f}", seen <= SEEN_WANTED
                ),
                Goal(
                    f"Redis per million URLs waiting, seen included, {each.size}",
                    f"<= {WAITING_WANTED_MB} MB",
                    f"{both:.1f} MB",
                    both <= WAITING_WANTED_MB,
                ),
            ]
    if len(filled) > 1:
        draw(options, f"growth-{name}-memory", f"Redis memory, by {what}", what, "bytes a URL", curves)


async def measure_tiny(report: Report, options: Options, size: Size) -> None:
    with RedisServer(options.redis_server) as server:
        filled = await Filled.open(size, server)
        memory = {size: server.used_bytes() - filled.empty_bytes}
        await show_memory(report, options, "tiny", "URLs of domains with hardly any", [filled], memory)
        await filled.client.close()


async def measure_peer(report: Report, options: Options, urls: int) -> None:
    """The keys of scrapy-redis: a set of fingerprints in hex, a zset of pickled requests."""
    requests = min(urls, 100_000)
    table = report.table("Redis bytes, scrapy-redis' structures", "structure", "URLs", "bytes a URL")
    with RedisServer(options.redis_server) as server:
        client = await RedisClient.open(url=server.url, data_dir=Path())
        empty_bytes = server.used_bytes()
        for count, names in ((urls // 10, range(urls // 10)), (urls, range(urls // 10, urls))):
            prints = (sha1(b"%d" % name, usedforsecurity=False).hexdigest() for name in names)
            for batch in _batches(prints, 5000):
                await client.command("SADD", "peer:dupefilter", *batch)
            table.add("dupefilter", f"{count:,}", f"{(server.used_bytes() - empty_bytes) / count:.1f}")
        empty_bytes = server.used_bytes()
        spider = Spider(name="peer")
        for page in range(requests):
            request = Request(url_of(page % 10_000, page)).to_dict(spider=spider)
            await client.command("ZADD", "peer:requests", 0, picklecompat.dumps(request))
        table.add("requests", f"{requests:,}", f"{(server.used_bytes() - empty_bytes) / requests:.1f}")
        table.notes.append("The zset is measured with 100,000 requests: filling more takes too long.")
        await client.close()


if __name__ == "__main__":
    asyncio.run(main(read_options(__doc__ or "")))
