"""Leases that wait in memory for their time: what becomes of them, and of who waits for them."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from crawlproj.frontier.gate import RobotsFetch
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Lease
from crawlproj.politeness.pacing import DelayRules, Ended
from crawlproj.politeness.robots import RobotsCache
from crawlproj.redisio import keys
from crawlproj.runs import RunState
from tests.redis.shards import (
    LIMITS,
    LONG,
    PARTITIONS,
    RUN,
    Shard,
    Shards,
    ready_in_s,
    rules_of,
    sites,
    until,
)

#: Every URL comes from Redis by itself.
ALONE = replace(LONG, chain=1)
DELAY_S = 0.5
RULES = DelayRules(DELAY_S)


async def lend_ahead(shards: Shards, shard: Shard) -> float:
    """Have a domain fetched, and lent again before it is due. Returns when the request ended."""
    await shards.admit(*sites(1, 20))
    lease = await shard.take_one()
    while True:
        shard.fetch(lease)
        ended_s = asyncio.get_running_loop().time()
        await until(lambda: not shard.feed.held)
        await until(lambda: shard.feed.held)
        taken = shard.take_leases()
        if not taken:
            return ended_s
        # The machine was too busy for us to see it in time.
        [lease] = taken


async def test_a_domain_lent_before_it_is_due_keeps_its_time_when_its_shard_closes(shards: Shards) -> None:
    shard = await shards.open(limits=ALONE, rules=RULES)
    ended_s = await lend_ahead(shards, shard)

    await shard.feed.close()
    [due_s] = await ready_in_s(shards, "d0.test")
    now_s = asyncio.get_running_loop().time()

    # A full delay from its end, and not another from the close.
    assert DELAY_S - 0.002 <= now_s + due_s - ended_s < 1.8 * DELAY_S
    assert (await shards.state("d0.test"))[1] == "0"


async def test_a_domain_lent_before_it_is_due_is_not_asked_sooner_by_who_takes_over(shards: Shards) -> None:
    shard = await shards.open(limits=ALONE, rules=RULES)
    ended_s = await lend_ahead(shards, shard)
    await shard.feed.close()

    await (await shards.open(limits=ALONE, rules=RULES)).take_one()

    assert asyncio.get_running_loop().time() - ended_s >= DELAY_S


async def test_a_domain_lent_before_it_is_due_rests_once_more_when_its_shard_is_killed(
    shards: Shards,
) -> None:
    shard = await shards.open(limits=replace(ALONE, shard_lease_s=0.6), rules=RULES)
    await lend_ahead(shards, shard)
    await shard.kill()
    partition = partition_of("d0.test", PARTITIONS)
    held_until_ms = int(await shards.door.command("HGET", keys.meta(RUN, partition), "until"))

    await shards.run.set_shards(2)
    heir = await shards.open(1, limits=replace(ALONE, shard_lease_s=0.6), rules=RULES)
    await until(lambda: partition in heir.feed.partitions)

    due_ms = int((await shards.state("d0.test"))[0])
    assert due_ms >= held_until_ms + DELAY_S * 1000


async def test_a_domain_lent_before_it_is_due_is_given_back_in_a_pause_and_keeps_its_time(
    shards: Shards,
) -> None:
    await shards.run.begin(is_first=True)
    shard = await shards.open(limits=ALONE, rules=RULES)
    ended_s = await lend_ahead(shards, shard)

    await shards.run.change(RunState.PAUSED)
    await until(lambda: not shard.feed.held)
    await shards.run.change(RunState.RUNNING)
    await shard.take_one()

    assert asyncio.get_running_loop().time() - ended_s >= DELAY_S


async def test_the_scheduler_is_asked_again_when_a_renewal_took_longer_than_the_hold(shards: Shards) -> None:
    shard = await shards.open(limits=replace(LIMITS, shard_lease_s=1.2))
    await shards.admit("https://a.test/")
    await until(lambda: shard.feed.pacer.buffered)
    holdings = shard.feed._holdings
    renewed_s = holdings.owned_until_s
    await until(lambda: holdings.owned_until_s > renewed_s)

    # Held for 0.9 s from now; the next renewal begins in 0.4 s, and its answer comes 0.7 s later.
    await shards.door.command("CLIENT", "PAUSE", 1100)
    await until(lambda: shard.feed._clock() >= holdings.owned_until_s)
    assert shard.take() == []
    works = shard.works

    await until(lambda: shard.works > works, limit_s=3.0)
    await shard.take_one()


# -- robots.txt --


async def test_pages_are_fetched_where_robots_txt_is_believed_for_less_than_the_delay(
    shards: Shards,
) -> None:
    await shards.admit(*sites(1, 2))
    shard = await shards.open(limits=LONG, rules=DelayRules(0.2), robots=RobotsCache(10, 0.1))
    asked: list[Lease | RobotsFetch] = []

    def fetch() -> int:
        for one in shard.take():
            asked.append(one)
            if isinstance(one, RobotsFetch):
                shard.feed.robots_ended(one, rules_of(""), Ended(200))
            else:
                shard.fetch(one)
        return sum(isinstance(one, Lease) for one in asked)

    await until(lambda: fetch() == 2, limit_s=4.0)

    assert len(asked) <= 4


@pytest.mark.parametrize("text", ["", "User-agent: *\nCrawl-delay: 9"], ids=["allows", "slows"])
async def test_a_robots_txt_that_comes_after_all_was_given_back_changes_nothing(
    shards: Shards, text: str
) -> None:
    await shards.admit(*sites(1, 2))
    shard = await shards.open(limits=LONG, rules=DelayRules(5.0), robots=RobotsCache(10, 100))
    fetch = await shard.take_robots()
    await shard.feed.close()

    shard.feed.robots_ended(fetch, rules_of(text), Ended(200))

    assert not shard.feed.has_work
    assert (await shards.figures()).waiting == 2


async def test_a_crawl_delay_that_was_learnt_elsewhere_is_noted_while_the_first_page_is_on_its_way(
    shards: Shards,
) -> None:
    shard = await shards.open(limits=LONG, robots=RobotsCache(10, 100))
    # As from a robots.txt that redirects to another domain.
    shard.feed.keep_robots("https://d0.test", rules_of("User-agent: *\nCrawl-delay: 9"))
    await shards.admit(*sites(1))

    await shard.take_one()
    await until(lambda: not shard.feed._settlements)

    assert (await shards.state("d0.test"))[5] == "9000"
