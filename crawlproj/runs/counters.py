"""The counters of a run, as its leader and its status read them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from crawlproj.model.spill import SpillRecord
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient, pairs
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.stripes import read_groups, read_hash


@dataclass(slots=True)
class RunCounters:
    """Counters of a run, summed over its partitions. ``counts`` has every counter by name."""

    counts: Counter[str]
    owned: int
    queue_pages: int
    taken: dict[str, int]
    stored: int
    #: Of a run with a page limit: pages fetched or promised to shards.
    promised: int = 0
    #: How many were ever promised, those returned included.
    granted: int = 0
    #: Stored pages whose body was truncated.
    cut: int = 0
    #: Links that wait on the disks of parsers until Redis has room.
    spilled: int = 0

    @property
    def waiting(self) -> int:
        return self.counts["waiting"]

    @property
    def leased(self) -> int:
        """Leases handed out, less those that ended in one of these ways."""
        ended = ("done", "failed", "skipped", "trapped", "retry", "returned", "reclaimed")
        return self.counts["number"] - sum(self.counts[name] for name in ended)

    @property
    def fetched(self) -> int:
        return self.counts["done"]

    @property
    def admitted(self) -> int:
        return self.counts["admitted"]

    @property
    def unstored(self) -> int:
        """Pages queued or held by a parser."""
        return self.queue_pages + sum(self.taken.values())

    @property
    def parsed(self) -> int:
        """Pages stored, or held by a parser."""
        return self.stored + sum(self.taken.values())

    @property
    def outstanding(self) -> int:
        """URLs, pages and links that are not done."""
        return self.waiting + self.leased + self.unstored + self.spilled

    @property
    def is_left(self) -> bool:
        """Whether there is anything to do, now or when parked domains are tried again."""
        return bool(self.outstanding or self.counts["parked"])

    def steps(self) -> tuple[int, ...]:
        """Counters that only grow: if equal twice, nothing happened in between."""
        return (
            self.admitted,
            self.counts["number"],
            self.counts["done"] + self.counts["failed"] + self.counts["skipped"] + self.counts["trapped"],
            self.counts["retry"] + self.counts["returned"] + self.counts["reclaimed"],
            self.counts["pages"],
            self.stored,
        )


async def read_counters(client: RedisClient, run: str, partitions: int) -> RunCounters:
    """Read the counters of *run*, in two round trips; not one atomic snapshot."""
    stripes = client.stripes
    parsers = list(await read_hash(client, run, keys.parsers))
    metas, queues, lists, counters, spills, [promises] = await read_groups(
        client,
        [("HGETALL", keys.meta(run, p)) for p in range(partitions)],
        # Before the parsers' lists: a page taken in between counts twice rather than not at all.
        [("LLEN", keys.pages(run, stripe)) for stripe in stripes],
        [("LLEN", keys.pages_taken(run, parser, stripe)) for parser in parsers for stripe in stripes],
        [("HMGET", keys.page_counters(run, stripe), "stored", "cut") for stripe in stripes],
        # After the parsers' lists: a commit moves the links of its pages from there to here.
        [("HVALS", keys.spills(run, stripe)) for stripe in stripes],
        [("HMGET", keys.promises(run), "promised", "granted")],
    )
    counts: Counter[str] = Counter()
    owned = 0
    now_ms = await server_ms(client)
    for meta in metas:
        for name, value in pairs(meta):
            if name == "until":
                owned += int(value) > now_ms
            elif name not in keys.META_FIELDS:
                counts[name] += int(value)
    each = len(stripes)
    taken = {parser: sum(lists[n * each : (n + 1) * each]) for n, parser in enumerate(parsers)}
    stored, cut = (sum(int(value or 0) for value in column) for column in zip(*counters, strict=True))
    promised, granted = (int(value or 0) for value in promises)
    spilled = sum(SpillRecord.decode(value.decode()).links for values in spills for value in values)
    return RunCounters(counts, owned, sum(queues), taken, stored, promised, granted, cut, spilled)
