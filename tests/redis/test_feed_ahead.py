"""Leases that wait in memory for their time: what becomes of them, and of who waits for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from crawlproj.frontier import feed
from crawlproj.frontier.gate import RobotsFetch
from crawlproj.model.clock import boot_clock
from crawlproj.model.partition import partition_of
from crawlproj.politeness.pacing import DelayRules, DomainRule, Ending
from crawlproj.politeness.robots import RobotsCache
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run, RunState
from tests.conftest import RedisServer
from tests.patience import until
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
)
from tests.waiting import due_of, lanes_of

#: Every URL comes from Redis by itself.
ALONE = replace(LONG, chain=1)
DELAY_S = 0.5
RULES = DelayRules(DELAY_S)


async def lend_ahead(shards: Shards, shard: Shard) -> float:
    """Have a domain fetched, and lent again before it is due. Returns when the request ended."""
    await shards.admit(*sites(1, 20))
    lease = await shard.take_one()
    while True:
        # Before: nobody may have been slow between the two.
        ended_s = boot_clock()
        shard.fetch(lease)
        await until(lambda: not shard.held)
        await until(lambda: shard.held)
        taken = shard.take_leases()
        if not taken:
            return ended_s
        # The machine was too busy for us to see it in time.
        [lease] = taken


async def test_a_domain_leased_ahead_keeps_its_time_when_its_shard_closes(shards: Shards) -> None:
    shard = await shards.open(limits=ALONE, rules=RULES)
    ended_s = await lend_ahead(shards, shard)

    await shard.feed.close()
    partition = partition_of("d0.test", PARTITIONS)
    due_ms = (await due_of(shards.client, RUN, partition))["d0.test"]

    # A full delay from its end, and not another from the close, by the time of its partition.
    due_s = (due_ms - shard.feed.frontier._offsets_ms[partition]) / 1000
    assert DELAY_S - 0.002 <= due_s - ended_s < 1.8 * DELAY_S
    assert (await shards.state("d0.test"))[1] == "0"


async def test_a_domain_leased_ahead_is_not_requested_sooner_by_the_next_owner(shards: Shards) -> None:
    shard = await shards.open(limits=ALONE, rules=RULES)
    ended_s = await lend_ahead(shards, shard)
    await shard.feed.close()

    await (await shards.open(limits=ALONE, rules=RULES)).take_one()

    assert boot_clock() - ended_s >= DELAY_S


async def test_a_domain_leased_ahead_rests_once_more_when_its_shard_is_killed(
    shards: Shards,
) -> None:
    shard = await shards.open(limits=replace(ALONE, shard_lease_s=0.6), rules=RULES)
    await lend_ahead(shards, shard)
    await shard.kill()
    partition = partition_of("d0.test", PARTITIONS)
    held_until_ms = int(await shards.client.command("HGET", keys.meta(RUN, partition), "until"))

    await shards.run.set_shards(2)
    heir = await shards.open(1, limits=replace(ALONE, shard_lease_s=0.6), rules=RULES)
    await heir.take_one()

    seconds, micros = await shards.client.command("TIME")
    assert int(seconds) * 1000 + int(micros) / 1000 >= held_until_ms + DELAY_S * 1000


async def test_a_domain_leased_ahead_is_returned_in_a_pause_and_keeps_its_time(
    shards: Shards,
) -> None:
    await shards.run.begin(is_first=True)
    shard = await shards.open(limits=ALONE, rules=RULES)
    ended_s = await lend_ahead(shards, shard)

    await shards.run.change(RunState.PAUSED)
    await until(lambda: not shard.held)
    await shards.run.change(RunState.RUNNING)
    await shard.take_one()

    assert boot_clock() - ended_s >= DELAY_S


async def test_the_scheduler_is_asked_again_when_a_renewal_took_longer_than_the_hold(
    redis_server_factory: Callable[..., RedisServer], tmp_path: Path
) -> None:
    server = redis_server_factory()
    client = await RedisClient.open(url=server.url, data_dir=tmp_path)
    shards = Shards(client, await Run.open(client, RUN, partitions=PARTITIONS, shards=1))
    shard = await shards.open(limits=replace(LIMITS, shard_lease_s=1.2))
    await shards.admit("https://a.test/")
    await until(lambda: shard.dispatcher.pacer.buffered)

    server.pause()
    await until(lambda: shard.feed._clock() >= shard.dispatcher.owned_until_s)
    assert shard.take() == []
    works = shard.works
    server.unpause()

    await until(lambda: shard.works > works)
    await shard.take_one()
    await shards.kill()
    await client.close()


# -- robots.txt --


async def test_pages_are_fetched_where_robots_txt_is_believed_for_less_than_the_delay(
    shards: Shards,
) -> None:
    await shards.admit(*sites(1, 2))
    shard = await shards.open(limits=LONG, rules=DelayRules(0.2), robots=RobotsCache(10, 0.1))
    fetched: list[str] = []

    def fetch() -> int:
        for one in shard.take():
            if isinstance(one, RobotsFetch):
                shard.robots.learn(one, rules_of(""), Ending(200))
            else:
                shard.fetch(one)
                fetched.append(one.url)
        return len(fetched)

    # It may be asked for more than once for each: we may be slower than it is believed.
    await until(lambda: fetch() == 2)

    assert sorted(fetched) == sites(1, 2)


@pytest.mark.parametrize("text", ["", "User-agent: *\nCrawl-delay: 9"], ids=["allows", "slows"])
async def test_a_robots_txt_that_comes_after_everything_was_returned_changes_nothing(
    shards: Shards, text: str
) -> None:
    await shards.admit(*sites(1, 2))
    shard = await shards.open(limits=LONG, rules=DelayRules(5.0), robots=RobotsCache(10, 100))
    fetch = await shard.take_robots()
    await shard.feed.close()

    shard.robots.learn(fetch, rules_of(text), Ending(200))

    assert not shard.dispatcher.has_work
    assert (await shards.read_counters()).waiting == 2


async def test_a_crawl_delay_that_was_learnt_elsewhere_is_noted_while_the_first_page_is_on_its_way(
    shards: Shards,
) -> None:
    shard = await shards.open(limits=LONG, robots=RobotsCache(10, 100))
    # As from a robots.txt that redirects to another domain.
    shard.robots.learn_elsewhere("https://d0.test", rules_of("User-agent: *\nCrawl-delay: 9"))
    await shards.admit(*sites(1))

    await shard.take_one()
    await until(lambda: not shard.dispatcher.leases.unsent)

    assert (await shards.state("d0.test"))[5] == "9000"


# -- room --


async def test_new_leases_come_when_half_of_them_are_out_and_before_any_has_ended(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing else makes the feed take a turn, once it has heard of these.
    monkeypatch.setattr(feed, "_MAX_REST_S", 60.0)
    await shards.admit(*sites(200))
    shard = await shards.open(limits=replace(LONG, batch=10, shard_lease_s=300.0))

    taken = await shard.take_some(200)

    assert len({lease.domain for lease in taken}) == len(taken)


async def test_domains_that_rest_after_their_robots_txt_make_room_for_others(shards: Shards) -> None:
    await shards.admit(*sites(20))
    limits = replace(LONG, batch=4, chain_s=60.0)
    shard = await shards.open(limits=limits, rules=DelayRules(30.0), robots=RobotsCache(100, 1000))
    asked: set[str] = set()

    def answer() -> bool:
        for fetch in shard.take():
            assert isinstance(fetch, RobotsFetch)
            asked.add(fetch.domain)
            shard.robots.learn(fetch, rules_of(""), Ending(200))
        return len(asked) == 20

    await until(answer)


async def test_a_lease_settled_without_a_request_lets_its_domain_rest(shards: Shards) -> None:
    await shards.admit(*sites(1, 2))
    shard = await shards.open(limits=LONG, rules=DelayRules(20.0))
    lease = await shard.take_one()

    # As a request that a middleware of the user dropped: a server may have seen something all the same.
    shard.settle(lease)
    await until(lambda: not shard.dispatcher.has_work)

    [due_s] = await ready_in_s(shards, "d0.test")
    assert 10 < due_s <= 20.1


async def test_a_host_without_robots_txt_keeps_its_domain_for_a_minute_at_most(shards: Shards) -> None:
    await shards.admit(*sites(1))
    shard = await shards.open(limits=LONG, robots=RobotsCache(10, 1000, retry_s=600.0))
    fetch = await shard.take_robots()

    shard.robots.learn(fetch, rules_of("", status=None), Ending(404))
    await until(lambda: not shard.dispatcher.has_work)

    [due_s] = await ready_in_s(shards, "d0.test")
    assert 30 < due_s <= 60.1


async def test_what_is_in_flight_when_a_shard_leaves_waits_in_its_old_order(shards: Shards) -> None:
    rules = DelayRules(0.0, domains={"d0.test": DomainRule(0.0, at_once=4)})
    await shards.admit(*sites(1))
    shard = await shards.open(limits=LONG, rules=rules)
    shard.fetch(await shard.take_one())
    await until(lambda: not shard.dispatcher.has_work)
    urls = [f"https://d0.test/p{number}" for number in range(4)]
    await shards.admit(*urls)
    await shard.take_some(4)

    await shard.feed.close()

    entries = (await lanes_of(shards.client, RUN, partition_of("d0.test", PARTITIONS), "d0.test"))[1]
    assert [entry[-2:] for entry in entries] == [url[-2:] for url in urls]


async def test_who_found_nothing_due_is_called_when_the_next_domain_is(shards: Shards) -> None:
    await shards.admit("https://a.test/1", "https://a.test/2", "https://a.test/3")
    shard = await shards.open(limits=LONG, rules=DelayRules(0.3))
    shard.fetch(await shard.take_one())
    shard.fetch(await shard.take_one())
    await until(lambda: shard.dispatcher.pacer.buffered == 1 and not shard.dispatcher.leases.unsent)

    assert shard.take() == []
    works = shard.works
    await until(lambda: shard.works > works)

    assert len(shard.take()) == 1
