"""What a shard writes to Redis, and in which order: links before their page is settled, delays at once."""

from __future__ import annotations

import asyncio

from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate
from crawlproj.politeness.pacing import DelayRules
from crawlproj.politeness.robots import KnownRules, RobotsCache
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from tests.patience import PATIENCE_S, until
from tests.redis.shards import LONG, PARTITIONS, RUN, Shards, rules_of

PAGE, LINK = "https://a.test/", "https://b.test/"


def written(events: list[str]) -> list[str]:
    return [script for script in events if script in ("admit_urls", "settle_urls")]


async def test_links_are_admitted_before_their_page_is_settled(shards: Shards, events: list[str]) -> None:
    await shards.admit(PAGE)
    shard = await shards.open(limits=LONG)
    lease = await shard.take_one()
    events.clear()

    shard.dispatcher.add([Candidate(LINK)])
    shard.fetch(lease)
    link = await shard.take_one()

    assert link.url == LINK
    assert written(events) == ["admit_urls", "settle_urls"]


async def test_a_page_whose_links_redis_refused_is_not_settled_until_it_has_them(
    shards: Shards, client: RedisClient, events: list[str]
) -> None:
    meta = keys.meta(RUN, partition_of("b.test", PARTITIONS))
    assert meta != keys.meta(RUN, partition_of("a.test", PARTITIONS))
    await shards.admit(PAGE)
    shard = await shards.open(limits=LONG)
    lease = await shard.take_one()
    await client.pipeline([("RENAME", meta, "aside"), ("SET", meta, "not a hash")], transaction=True)
    events.clear()

    shard.dispatcher.add([Candidate(LINK)])
    shard.fetch(lease)
    await until(lambda: shard.ends)
    assert "settle_urls" not in events
    await client.command("RENAME", "aside", meta)
    await shard.feed.close()

    assert written(events) == ["admit_urls", "settle_urls"]
    counters = await shards.read_counters()
    assert (counters.admitted, counters.fetched, counters.waiting, counters.leased) == (2, 1, 1, 0)


async def test_a_domain_is_parked_before_the_lease_that_failed_is_settled(
    shards: Shards, events: list[str]
) -> None:
    await shards.admit(PAGE)
    shard = await shards.open(limits=LONG, rules=DelayRules(0.0, give_up=1, parked_s=600.0))
    lease = await shard.take_one()
    events.clear()

    shard.fail(lease)
    await until(lambda: "settle_urls" in events)

    # The other way round, a shard killed in between would leave a run that waits for the domain.
    assert [name for name in events if name in ("park_domains", "settle_urls")] == [
        "park_domains",
        "settle_urls",
    ]
    counters = await shards.read_counters()
    assert (counters.waiting, counters.counts["parked"]) == (0, 1)


async def test_a_crawl_delay_read_from_redis_is_published_before_the_first_request_has_ended(
    shards: Shards,
) -> None:
    known = KnownRules(rules_of("User-agent: *\nCrawl-delay: 9"), expires_at_s=100.0, failures=0)
    await shards.store().keep({partition_of("a.test", PARTITIONS): {"https://a.test": known}})
    shard = await shards.open(limits=LONG, robots=RobotsCache(10, 100))
    await shards.admit(PAGE)

    await shard.take_one()

    # The request has not ended: a shard that takes over meanwhile must keep the delay.
    async with asyncio.timeout(PATIENCE_S):
        while (await shards.state("a.test"))[5] != "9000":  # noqa: ASYNC110
            await asyncio.sleep(0.005)
