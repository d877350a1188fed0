"""What a feed counts of what happens to its URLs."""

from __future__ import annotations

from crawlproj.errors import Fenced
from crawlproj.model.extra import Extra
from crawlproj.model.records import Candidate
from crawlproj.politeness.pacing import DelayRules, Ending, Trouble
from crawlproj.politeness.robots import RobotsCache
from tests.patience import until
from tests.redis.shards import Shards, rules_of, sites


async def test_answers_are_counted_and_errors_by_their_reason(shards: Shards) -> None:
    await shards.admit(*sites(4))
    shard = await shards.open()
    good, gone, broken, refused = await shard.take_some(4)

    shard.dispatcher.request_ended(good, Ending(200), 1000)
    shard.dispatcher.request_ended(gone, Ending(404), 50)
    shard.dispatcher.request_ended(broken, Ending(503), 10)
    shard.fail(refused, Ending(error="connection_refused", error_means=Trouble.SITE))

    metrics = shard.feed.metrics
    assert metrics.fetches == {"page": 3, "robots": 0, "sitemap": 0}
    assert metrics.fetch_errors == {"http_4xx": 1, "http_5xx": 1, "connection_refused": 1}
    assert metrics.fetched_bytes == 1060
    assert sum(metrics.fetch_seconds.counts) == 4
    assert metrics.fetch_seconds.sum >= 0
    assert metrics.retries == 1


async def test_a_url_whose_end_is_recorded_twice_or_never_is_counted_once_or_not_at_all(
    shards: Shards,
) -> None:
    await shards.admit(*sites(2))
    shard = await shards.open()
    twice, never = await shard.take_some(2)

    shard.dispatcher.request_ended(twice, Ending(200))
    shard.dispatcher.request_ended(twice, Ending(200))
    shard.settle(never)

    assert shard.feed.metrics.fetches["page"] == 1
    assert sum(shard.feed.metrics.fetch_seconds.counts) == 1


async def test_a_sitemap_is_counted_as_one(shards: Shards) -> None:
    shard = await shards.open()
    shard.dispatcher.add([Candidate("https://a.test/sitemap.xml", extra=Extra(sitemap_level=1))])
    lease = await shard.take_one()

    shard.fetch(lease)

    assert shard.feed.metrics.fetches == {"page": 0, "robots": 0, "sitemap": 1}


async def test_robots_txt_and_what_it_decides_are_counted(shards: Shards) -> None:
    await shards.admit("https://a.test/open", "https://a.test/closed")
    shard = await shards.open(robots=RobotsCache(10, 3600, 10))
    fetch = await shard.take_robots()

    shard.robots.learn(fetch, rules_of("User-agent: *\nDisallow: /closed"), Ending(200), 31)
    decided = shard.feed.metrics.robots_decisions

    def crawl() -> bool:
        for lease in shard.take_leases():
            shard.fetch(lease)
        return sum(decided.values()) == 2

    await until(crawl)

    assert shard.feed.metrics.fetches == {"page": 1, "robots": 1, "sitemap": 0}
    assert shard.feed.metrics.fetched_bytes == 31
    assert decided == {"allowed": 1, "disallowed": 1, "unavailable": 0}


async def test_refills_partitions_and_circuits_are_counted(shards: Shards) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(rules=DelayRules(0.0, give_up=1))
    lease = await shard.take_one()

    shard.fail(lease)

    metrics = shard.feed.metrics
    assert metrics.ownership_changes["taken"] == len(shard.feed.partitions) > 0
    assert sum(metrics.refill_seconds.counts) >= 1
    assert metrics.circuits_opened == 1


async def test_a_domain_that_asks_for_a_long_rest_opens_no_circuit(shards: Shards) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(rules=DelayRules(0.0, max_backoff_s=60.0))
    lease = await shard.take_one()

    shard.fail(lease, Ending(429, retry_after_s=7200.0))

    assert shard.dispatcher.parking["a.test"].reason == "retry_after"
    assert shard.feed.metrics.circuits_opened == 0


async def test_a_shard_that_is_fenced_counts_what_it_lost(shards: Shards) -> None:
    shard = await shards.open()
    await until(lambda: bool(shard.feed.partitions))
    held = len(shard.feed.partitions)

    shard.feed.stop("Fenced", Fenced("another has the number"))

    assert shard.feed.metrics.ownership_changes["fenced"] == held


async def test_the_age_of_the_heartbeat_grows_until_it_is_renewed(shards: Shards) -> None:
    shard = await shards.open()
    before_s = shard.feed.heartbeat_age_s

    shard.skew_s += 5

    assert 0 <= before_s < 5 <= shard.feed.heartbeat_age_s
