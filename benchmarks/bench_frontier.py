"""How fast Redis serves the frontier: URLs admitted, and leases lent and settled, per second of its CPU time.

The peer is scrapy-redis, by its own code: RFPDupeFilter.request_seen, PriorityQueue.push and pop.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import redis
from measuring import Goal, Options, RedisServer, Report, median, read_options, spread
from scrapy import Request, Spider
from scrapy_redis.dupefilter import RFPDupeFilter
from scrapy_redis.queue import PriorityQueue
from workload import domains_of_partition, fill, hold_all, url_of

from crawlproj.frontier.frontier import Frontier, Hold
from crawlproj.model.records import Candidate, Outcome, Settlement
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient

REPEATS = 5
BATCH = 500
LEASE_BATCH = 256
NEW_SHARE = 0.6
PARTITIONS = 64
PAGE = random.Random(1).randbytes(8192)


async def main(options: Options) -> None:
    with RedisServer(options.redis_server) as server, RedisServer(options.redis_server, aof=True) as durable:
        report = Report(server.version)
        await measure_admit(report, options, server, durable)
        await measure_lease_settle(report, options, server, durable)
    report.finish(options)


async def measure_admit(report: Report, options: Options, server: RedisServer, durable: RedisServer) -> None:
    batches = 20 if options.quick else 100
    # All in one partition: the grouping by partition is the client's, and each call has a batch of 500.
    many = domains_of_partition(0, PARTITIONS)
    domains = [next(many) for _ in range(1000 if options.quick else 5000)]
    table = report.table(
        f"admit: batches of {BATCH}, {NEW_SHARE:.0%} new, all in one partition, one client",
        "batch",
        "URLs/s of Redis CPU, median",
        "us a URL",
        "repetitions",
    )
    # Up to 512 fields Redis keeps a hash as a list, searched from the start: small partitions are slower.
    few, small, large = "8 domains", "500 domains, there are no others", f"500 of {len(domains):,} domains"
    shapes = {
        few: (server, domains[:8], 8),
        small: (server, domains[:BATCH], BATCH),
        large: (server, domains, BATCH),
        f"{few}, AOF everysec": (durable, domains[:8], 8),
    }
    rates: dict[str, list[float]] = {name: [] for name in [*shapes, "scrapy-redis"]}
    admitters = {name: await Admitter.open(*shape) for name, shape in shapes.items()}
    for _ in range(3 if options.quick else REPEATS):
        for name, admitter in admitters.items():
            rates[name].append(await admitter.rate(batches))
        rates["scrapy-redis"].append(enqueue_rate(server, batches * BATCH // 20))
    for name, values in rates.items():
        label = "scrapy-redis: dupefilter and push, one at a time" if name == "scrapy-redis" else name
        table.add(label, f"{median(values):,.0f}", f"{1e6 / median(values):.2f}", spread(values, ",.0f"))
    for admitter in admitters.values():
        await admitter.close()
    for name in (few, small, large):
        rate = median(rates[name])
        report.goals.append(
            Goal(
                f"admit, batches of 500: {name}", ">= 100,000 URLs/s", f"{rate:,.0f} URLs/s", rate >= 100_000
            )
        )
    ratio = median(rates[few]) / median(rates["scrapy-redis"])
    table.notes.append(f"{few}: {ratio:.1f} times scrapy-redis in the same run")


class Admitter:
    """Admits batch after batch, each of some domains out of many, with some URLs admitted before."""

    def __init__(
        self, server: RedisServer, client: RedisClient, domains: Sequence[int], at_once: int
    ) -> None:
        self._server = server
        self._client = client
        self._frontier = Frontier(client, f"admit-{len(domains)}", PARTITIONS)
        self._domains = domains
        self._at_once = at_once
        #: Pages 0 to this one, exclusive, of each domain were admitted.
        self._admitted = dict.fromkeys(domains, 0)
        self._random = random.Random(7)

    @classmethod
    async def open(cls, server: RedisServer, domains: Sequence[int], at_once: int) -> Admitter:
        admitter = cls(server, await RedisClient.open(url=server.url, data_dir=Path()), domains, at_once)
        # No domain is new in what is measured.
        await admitter._frontier.admit([admitter._new(domain) for domain in domains for _ in range(10)])
        return admitter

    async def close(self) -> None:
        await self._client.close()

    async def rate(self, batches: int) -> float:
        made = [self._batch() for _ in range(batches)]
        before_s = self._server.cpu_s()
        for batch in made:
            await self._frontier.admit(batch)
        return batches * BATCH / self._server.cpu_since_s(before_s)

    def _batch(self) -> list[Candidate]:
        domains = self._random.sample(self._domains, self._at_once)
        places = [domains[place % self._at_once] for place in range(BATCH)]
        return [self._new(d) if self._random.random() < NEW_SHARE else self._old(d) for d in places]

    def _new(self, domain: int) -> Candidate:
        self._admitted[domain] += 1
        return Candidate(url_of(domain, self._admitted[domain] - 1), 1)

    def _old(self, domain: int) -> Candidate:
        return Candidate(url_of(domain, self._random.randrange(self._admitted[domain])), 1)


def enqueue_rate(server: RedisServer, requests: int) -> float:
    """What scrapy-redis does with the same mix: a fingerprint into a set, a pickled request into a zset."""
    client = redis.Redis.from_url(server.url)
    client.delete("peer:requests", "peer:dupefilter")
    spider = Spider(name="peer")
    seen = RFPDupeFilter(client, "peer:dupefilter")
    queue = PriorityQueue(client, spider, "peer:requests")
    fresh = round(requests * NEW_SHARE)
    pages = [*range(fresh), *(page % fresh for page in range(requests - fresh))]
    made = [Request(url_of(page % 8, page)) for page in pages]
    before_s = server.cpu_s()
    for request in made:
        if not seen.request_seen(request):
            queue.push(request)
    rate = requests / server.cpu_since_s(before_s)
    client.close()
    return rate


async def measure_lease_settle(
    report: Report, options: Options, server: RedisServer, durable: RedisServer
) -> None:
    domains, pages = (1000, 60) if options.quick else (10_000, 70)
    rounds = 10 if options.quick else 40
    shards = {
        "no AOF": await Shard.open(server, domains, pages),
        "AOF everysec": await Shard.open(durable, domains, pages // 2),
    }
    plain = shards["no AOF"]
    variants: dict[str, tuple[Shard, int, int, bytes]] = {
        "chain 1, one partition a call": (plain, 1, 1, b""),
        "chain 1, all 64 partitions in a round trip": (plain, 1, PARTITIONS, b""),
        "chain 16, one partition a call": (plain, 16, 1, b""),
        "chain 16, 16 partitions in a round trip": (plain, 16, 16, b""),
        "chain 1, one partition a call, pages of 8 KB": (plain, 1, 1, PAGE),
        "chain 16, one partition a call, pages of 8 KB": (plain, 16, 1, PAGE),
        "chain 16, one partition a call, AOF everysec": (shards["AOF everysec"], 16, 1, b""),
    }
    costs: dict[str, list[tuple[float, float]]] = {name: [] for name in variants}
    peers: list[float] = []
    for _ in range(3 if options.quick else REPEATS):
        for name, (shard, chain, spread_over, page) in variants.items():
            costs[name].append(await shard.cost_us(rounds, chain, spread_over, page))
        peers.append(pop_rate(server, rounds * LEASE_BATCH // 8))
    table = report.table(
        f"lease + settle: batches of {LEASE_BATCH}, {domains:,} ready domains",
        "variant",
        "pairs/s of Redis CPU, median",
        "lease us",
        "settle us",
        "repetitions (pairs/s)",
    )
    rates = {name: [1e6 / (lease + settle) for lease, settle in pairs] for name, pairs in costs.items()}
    for name, values in rates.items():
        lease, settle = (median(column) for column in zip(*costs[name], strict=True))
        table.add(name, f"{median(values):,.0f}", f"{lease:.2f}", f"{settle:.2f}", spread(values, ",.0f"))
    table.add(
        "scrapy-redis: pop of one priority queue", f"{median(peers):,.0f}", "", "", spread(peers, ",.0f")
    )
    table.notes.append("scrapy-redis has one queue, no delay per domain, and forgets what it popped.")
    for name in ("chain 1, one partition a call", "chain 16, one partition a call"):
        value = median(rates[name])
        report.goals.append(
            Goal(
                f"lease + settle, {domains:,} ready domains, {name}",
                ">= 50,000 pairs/s",
                f"{value:,.0f} pairs/s",
                value >= 50_000,
            )
        )
    for shard in shards.values():
        await shard.close()


class Shard:
    """Owns all partitions of a frontier whose domains were all fetched from once, so that chains are long."""

    def __init__(
        self, server: RedisServer, client: RedisClient, frontier: Frontier, holds: list[Hold]
    ) -> None:
        self._server = server
        self._client = client
        self._frontier = frontier
        self._holds = holds
        self._turn = 0

    @classmethod
    async def open(cls, server: RedisServer, domains: int, pages: int) -> Shard:
        client = await RedisClient.open(url=server.url, data_dir=Path())
        frontier = Frontier(client, "lease", PARTITIONS)
        await fill(frontier, domains, pages)
        shard = cls(server, client, frontier, await hold_all(frontier))
        fetched = 0
        while fetched < domains:
            leases, _ = await frontier.lease([(hold, 64) for hold in shard._holds], chain=1, chain_ms=0)
            fetched += len(leases)
            # Due again only after all the others.
            await frontier.settle([Settlement(lease, Outcome.DONE, wait_ms=1) for lease in leases])
        return shard

    async def close(self) -> None:
        await self._client.close()

    async def cost_us(self, rounds: int, chain: int, spread_over: int, page: bytes) -> tuple[float, float]:
        """Redis CPU of one lease and of one settlement."""
        lent, lease_s, settle_s = 0, 0.0, 0.0
        for _ in range(rounds):
            wanted = []
            for _ in range(spread_over):
                wanted.append((self._holds[self._turn % PARTITIONS], LEASE_BATCH // spread_over))
                self._turn += 1
            before_s = self._server.cpu_s()
            leases, _ = await self._frontier.lease(wanted, chain=chain, chain_ms=10_000)
            lease_s += self._server.cpu_since_s(before_s)
            lent += len(leases)
            settlements = [Settlement(lease, Outcome.DONE, "", page=page) for lease in leases]
            before_s = self._server.cpu_s()
            await self._frontier.settle(settlements)
            settle_s += self._server.cpu_since_s(before_s)
            if page:
                await self._client.command("DEL", keys.pages(self._frontier.run))
        return lease_s / lent * 1e6, settle_s / lent * 1e6


def pop_rate(server: RedisServer, requests: int) -> float:
    client = redis.Redis.from_url(server.url)
    client.delete("peer:requests")
    queue = PriorityQueue(client, Spider(name="peer"), "peer:requests")
    for page in range(requests):
        queue.push(Request(url_of(page % 8, page)))
    before_s = server.cpu_s()
    for _ in range(requests):
        queue.pop()
    rate = requests / server.cpu_since_s(before_s)
    client.close()
    return rate


if __name__ == "__main__":
    asyncio.run(main(read_options(__doc__ or "")))
