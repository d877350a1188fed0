"""What size costs: one lease as the frontier grows, and Redis' memory per URL seen and per URL waiting.

Frontiers of all sizes are filled first and then measured in turn, so that a busy machine disturbs them alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha1
from itertools import islice
from pathlib import Path

from measuring import Goal, Options, RedisServer, Report, Table, median, read_options, say, spread
from scrapy import Request, Spider
from scrapy_redis import picklecompat
from workload import fill, hold_all, url_of

from crawlproj.frontier.frontier import Frontier, Hold
from crawlproj.model.records import Outcome, Settlement
from crawlproj.redisio import keys
from crawlproj.redisio.client import Door

PARTITIONS = 64
#: What a shard leases in one round trip, spread over its partitions.
LEASE_BATCH = 256
REPEATS = 7
SEEN_WANTED, WAITING_WANTED = 16, 120


@dataclass(slots=True)
class Size:
    domains: int
    pages: int

    @property
    def urls(self) -> int:
        return self.domains * self.pages

    def __str__(self) -> str:
        return f"{self.urls:,} URLs of {self.domains:,} domains"


#: The same number of domains with ever more URLs, ever more domains, and many domains with hardly any URL.
SAME_DOMAINS = [Size(10_000, 1), Size(10_000, 100), Size(10_000, 1000)]
MORE_DOMAINS = [Size(1000, 10), Size(100_000, 10), Size(1_000_000, 10)]
TINY_DOMAINS = Size(500_000, 2)
PEER_URLS = 10_000_000

QUICK_SAME_DOMAINS = [Size(1000, 1), Size(1000, 10), Size(1000, 100)]
QUICK_MORE_DOMAINS = [Size(500, 4), Size(1000, 4), Size(5000, 4)]
QUICK_TINY_DOMAINS = Size(10_000, 2)
QUICK_PEER_URLS = 20_000


@dataclass(slots=True)
class Filled:
    """A frontier of one size, in a Redis of its own, all partitions held."""

    size: Size
    server: RedisServer
    door: Door
    frontier: Frontier
    holds: list[Hold]
    empty_bytes: int
    costs_us: list[float] = field(default_factory=list)

    @classmethod
    async def open(cls, size: Size, server: RedisServer) -> Filled:
        door = await Door.open(url=server.url, data_dir=Path())
        frontier = Frontier(door, "growth", PARTITIONS)
        holds = await hold_all(frontier)
        empty_bytes = server.used_bytes()
        say(f"   filling: {size}")
        # Slices, so that pages of a domain do not all come at once.
        for first_page in range(0, size.pages, 100):
            await fill(frontier, size.domains, min(100, size.pages - first_page), first_page=first_page)
        return cls(size, server, door, frontier, holds, empty_bytes)

    async def measure_leases(self, rounds: int) -> None:
        """Lend and give back unused, so that the size stays what it is; only the lending is counted."""
        lent, used_s = 0, 0.0
        each = LEASE_BATCH // PARTITIONS
        for _ in range(rounds):
            before_s = self.server.cpu_s()
            leases, _ = await self.frontier.lease([(hold, each) for hold in self.holds], chain=1, chain_ms=0)
            used_s += self.server.cpu_since_s(before_s)
            lent += len(leases)
            await self.frontier.settle([Settlement(lease, Outcome.RETURNED) for lease in leases])
        self.costs_us.append(used_s / lent * 1e6)

    async def measure_memory(self) -> tuple[float, float]:
        """Bytes per URL seen, and per URL waiting with all that its domain needs. Destroys the frontier."""
        full_bytes = self.server.used_bytes()
        for partition in range(PARTITIONS):
            run = self.frontier.run
            count = int(await self.door.command("HGET", keys.meta(run, partition), "seen") or 0)
            # Buckets are numbered from 0, one for every 200 fingerprints.
            names = (f"{keys.seen_prefix(run, partition)}{bucket}" for bucket in range(count // 200 + 1))
            for batch in _batches(names, 500):
                await self.door.command("DEL", *batch)
        left_bytes = self.server.used_bytes()
        urls = self.size.urls
        return (full_bytes - left_bytes) / urls, (left_bytes - self.empty_bytes) / urls


def _batches(items: Iterator[str], size: int) -> Iterator[list[str]]:
    while batch := list(islice(items, size)):
        yield batch


async def main(options: Options) -> None:
    with RedisServer(options.redis_server) as server:
        report = Report(server.version)
    same, more, tiny, peer = (
        (QUICK_SAME_DOMAINS, QUICK_MORE_DOMAINS, QUICK_TINY_DOMAINS, QUICK_PEER_URLS)
        if options.quick
        else (SAME_DOMAINS, MORE_DOMAINS, TINY_DOMAINS, PEER_URLS)
    )
    same, more = ([size for size in sizes if size.urls <= options.most_urls] for sizes in (same, more))
    peer = min(peer, options.most_urls)
    await measure_tiny(report, options, tiny)
    await measure_growth(report, options, "the same domains", same)
    await measure_peer(report, options, peer)
    await measure_growth(report, options, "more domains", more)
    report.finish(options)


async def measure_growth(report: Report, options: Options, name: str, sizes: list[Size]) -> None:
    lease_table = report.table(
        f"one lease as the frontier grows, {name}",
        "frontier",
        "Redis us a lease, median",
        "to the first",
        "repetitions",
    )
    with ExitStack() as stack:
        filled = [
            await Filled.open(size, stack.enter_context(RedisServer(options.redis_server))) for size in sizes
        ]
        for _ in range(3 if options.quick else REPEATS):
            for each in filled:
                await each.measure_leases(rounds=5 if options.quick else 40)
        first = median(filled[0].costs_us)
        for each in filled:
            cost = median(each.costs_us)
            lease_table.add(each.size, f"{cost:.2f}", f"{cost / first:.2f}", spread(each.costs_us, ".2f"))
        highest = max(median(each.costs_us) for each in filled) / first
        report.goals.append(
            Goal(
                f"one lease, {name}, {sizes[0].urls:,} to {sizes[-1].urls:,} URLs waiting",
                "<= 1.20 times the first",
                f"{highest:.2f} times",
                highest <= 1.2,
            )
        )
        table = _memory_table(report, name)
        for each in filled[1:]:
            await _add_memory(report, table, each)
        for each in filled:
            await each.door.close()


async def measure_tiny(report: Report, options: Options, size: Size) -> None:
    table = _memory_table(report, "hardly any URL a domain")
    with RedisServer(options.redis_server) as server:
        filled = await Filled.open(size, server)
        await _add_memory(report, table, filled)
        await filled.door.close()


def _memory_table(report: Report, name: str) -> Table:
    return report.table(
        f"Redis bytes, {name}", "frontier", "a URL seen", "a URL waiting, its domain included"
    )


async def _add_memory(report: Report, table: Table, filled: Filled) -> None:
    seen, waiting = await filled.measure_memory()
    table.add(filled.size, f"{seen:.1f}", f"{waiting:.1f}")
    report.goals += [
        Goal(f"bytes a URL seen, {filled.size}", f"<= {SEEN_WANTED}", f"{seen:.1f}", seen <= SEEN_WANTED),
        Goal(
            f"bytes a URL waiting, {filled.size}",
            f"<= {WAITING_WANTED}",
            f"{waiting:.1f}",
            waiting <= WAITING_WANTED,
        ),
    ]


async def measure_peer(report: Report, options: Options, urls: int) -> None:
    """The keys of scrapy-redis: a set of fingerprints in hex, a zset of pickled requests."""
    requests = min(urls, 100_000)
    table = report.table("Redis bytes, scrapy-redis' structures", "structure", "URLs", "bytes a URL")
    with RedisServer(options.redis_server) as server:
        door = await Door.open(url=server.url, data_dir=Path())
        empty_bytes = server.used_bytes()
        for count, names in ((urls // 10, range(urls // 10)), (urls, range(urls // 10, urls))):
            prints = (sha1(b"%d" % name, usedforsecurity=False).hexdigest() for name in names)
            for batch in _batches(prints, 5000):
                await door.command("SADD", "peer:dupefilter", *batch)
            table.add("dupefilter", f"{count:,}", f"{(server.used_bytes() - empty_bytes) / count:.1f}")
        empty_bytes = server.used_bytes()
        spider = Spider(name="peer")
        for page in range(requests):
            request = Request(url_of(page % 10_000, page)).to_dict(spider=spider)
            await door.command("ZADD", "peer:requests", 0, picklecompat.dumps(request))
        table.add("requests", f"{requests:,}", f"{(server.used_bytes() - empty_bytes) / requests:.1f}")
        table.notes.append("The zset is measured with 100,000 requests: filling more takes too long.")
        await door.close()


if __name__ == "__main__":
    asyncio.run(main(read_options(__doc__ or "")))
