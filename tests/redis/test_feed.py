"""The feed: several shards in one loop on a real Redis; they share, die, are replaced, resized and closed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scrapy import Request
from scrapy.exceptions import DownloadCancelledError

from crawlproj.errors import CrawlError, Fenced
from crawlproj.frontier.gate import RobotsFetch
from crawlproj.frontier.pressure import QueueLimits
from crawlproj.middlewares import RetriedLater, RetryLater
from crawlproj.model.clock import boot_clock
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate, Lease, Outcome, Settlement
from crawlproj.model.urls import domain_of
from crawlproj.politeness.pacing import DelayRules, DomainRule, Ending
from crawlproj.politeness.robots import RobotsCache
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Run, RunState
from crawlproj.shard.requests import SETTLEMENT
from tests.patience import PATIENCE_S, until
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

# -- work comes and goes --


async def test_urls_admitted_are_leased_fetched_and_settled_until_nothing_is_left(shards: Shards) -> None:
    await shards.admit(*sites(40, 5))
    # Nothing takes the pages out of the queue.
    shard = await shards.open(limits=replace(LONG, queue=QueueLimits(200, 201)))
    seen: list[str] = []

    def crawl() -> bool:
        for lease in shard.take_leases():
            seen.append(lease.url)
            shard.fetch(lease, page=lease.url.encode())
        return len(seen) >= 200 and not shard.dispatcher.has_work

    await until(crawl)

    counters = await shards.read_counters()
    assert sorted(seen) == sorted(sites(40, 5))
    assert (counters.waiting, counters.leased, counters.counts["done"], counters.queue_pages) == (
        0,
        0,
        200,
        200,
    )


async def test_an_idle_shard_wakes_at_once_when_work_is_admitted_elsewhere(shards: Shards) -> None:
    # Without a message it would look again at its next renewal.
    shard = await shards.open(limits=replace(LONG, shard_lease_s=6 * PATIENCE_S))
    await until(lambda: len(shard.feed.partitions) == PARTITIONS)

    for number in range(20):
        await until(
            lambda: (
                not shard.dispatcher.has_work
                and shard.feed._due.at_s
                and min(shard.feed._due.at_s.values()) == math.inf
            )
        )
        await shards.admit(f"https://d{number}.test/")
        await until(lambda: shard.dispatcher.pacer.buffered)
        [lease] = shard.take_leases()
        shard.fetch(lease)


async def test_what_redis_refused_is_sent_again_on_close(shards: Shards, client: RedisClient) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(limits=LONG)
    await until(lambda: shard.dispatcher.pacer.buffered)
    [lease] = shard.take_leases()
    meta = [keys.meta(RUN, p) for p in range(PARTITIONS)]
    saved = [await client.command("DUMP", name) for name in meta]
    for name in meta:
        await client.command("SET", name, "not a hash")

    shard.dispatcher.add([Candidate("https://b.test/")])
    shard.fetch(lease)
    await until(lambda: shard.ends)
    for name, value in zip(meta, saved, strict=True):
        await client.command("DEL", name)
        if value:
            await client.command("RESTORE", name, 0, value)
    await shard.feed.close()

    counters = await shards.read_counters()
    assert (counters.admitted, counters.counts["done"], counters.leased, counters.waiting) == (2, 1, 0, 1)


async def test_a_domain_is_asked_one_at_a_time_with_its_delay_after_each_end(shards: Shards) -> None:
    await shards.admit(*sites(1, 4))
    shard = await shards.open(rules=DelayRules(0.15))
    ended_s: list[float] = []
    gaps_s: list[float] = []

    def crawl() -> bool:
        leases = shard.take_leases()
        assert len(leases) <= 1
        for lease in leases:
            if ended_s:
                gaps_s.append(boot_clock() - ended_s[-1])
            # Before: nobody may have been slow between the two.
            ended_s.append(boot_clock())
            shard.fetch(lease)
        return len(ended_s) == 4

    await until(crawl)

    assert min(gaps_s) >= 0.149


async def test_a_request_that_failed_is_tried_again_until_its_attempts_are_used_up(shards: Shards) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(rules=DelayRules(0.0, backoff_s=0.01))
    attempts = []

    for again in (True, True, False):
        lease = await shard.take_one()
        attempts.append(lease.attempt)
        assert shard.dispatcher.request_ended(lease, Ending(error="timeout")) is again
        shard.settle(lease, Outcome.RETRY if again else Outcome.FAILED, "timeout", b"page")

    await until(lambda: not shard.dispatcher.has_work)
    counters = await shards.read_counters()
    assert attempts == [0, 1, 2]
    assert (counters.counts["retry"], counters.counts["failed"], counters.queue_pages) == (2, 1, 1)


async def test_a_domain_with_a_long_retry_after_returns_its_other_urls(shards: Shards) -> None:
    shard = await shards.open(limits=LONG, rules=DelayRules(0.0, max_delay_s=300.0))
    await shards.admit("https://a.test/first")
    shard.fetch(await shard.take_one())
    await until(lambda: not shard.dispatcher.has_work)
    await shards.admit(*(f"https://a.test/{number}" for number in range(4)))
    await until(lambda: shard.dispatcher.pacer.buffered == 4)
    [lease] = shard.take_leases()

    shard.dispatcher.request_ended(lease, Ending(429, retry_after_s=100.0))
    shard.settle(lease, Outcome.RETRY, "429")
    await until(lambda: not shard.dispatcher.has_work)

    counters = await shards.read_counters()
    assert (counters.waiting, counters.leased, counters.counts["returned"]) == (4, 0, 3)
    [due] = await ready_in_s(shards, "a.test")
    assert 50 < due <= 100.5


# -- several shards --


async def test_two_shards_never_have_a_domain_in_common(shards: Shards) -> None:
    await shards.run.set_shards(2)
    await shards.admit(*sites(60))
    one, other = await shards.open(0), await shards.open(1)
    await until(lambda: one.dispatcher.pacer.buffered + other.dispatcher.pacer.buffered == 60)

    first, second = ({lease.domain for lease in shard.take_leases()} for shard in (one, other))

    assert first & second == set()
    assert first
    assert second
    assert one.feed.partitions | other.feed.partitions == set(range(PARTITIONS))


async def test_a_dead_shards_urls_are_taken_over_when_its_hold_ends_not_before_and_after_a_full_delay(
    shards: Shards, client: RedisClient
) -> None:
    await shards.run.set_shards(2)
    await shards.admit(*sites(40))
    rules, limits = DelayRules(0.25), replace(LIMITS, shard_lease_s=3.0)
    one, other = [await shards.open(number, limits=limits, rules=rules) for number in (0, 1)]
    await until(lambda: one.dispatcher.pacer.buffered + other.dispatcher.pacer.buffered == 40)
    theirs = {lease.url for lease in other.take_leases()}
    mine = {lease.url for lease in one.take_leases()}
    await other.kill()
    held = {partition_of(domain_of(url), PARTITIONS) for url in theirs}
    until_ms = [int(await client.command("HGET", keys.meta(RUN, p), "until")) for p in held]

    again = await one.take_some(len(theirs))

    assert {lease.url for lease in again} == theirs
    assert mine & theirs == set()
    seconds, micros = await client.command("TIME")
    assert int(seconds) * 1000 + int(micros) / 1000 >= max(until_ms) + 250 - 2
    assert (await shards.read_counters()).counts["reclaimed"] == len(theirs)


async def test_a_shard_that_reaches_no_site_leaves_its_partitions_to_others_and_takes_them_back(
    shards: Shards,
) -> None:
    await shards.run.set_shards(2)
    one, other = await shards.open(0, limits=LONG), await shards.open(1, limits=LONG)
    await until(lambda: len(one.feed.partitions) == len(other.feed.partitions) == PARTITIONS // 2)

    other.feed.number.cut_off = True
    other.feed.renew_soon()
    await until(lambda: not other.feed.partitions)
    one.feed.renew_soon()
    await until(lambda: len(one.feed.partitions) == PARTITIONS)

    other.feed.number.cut_off = False
    other.feed.renew_soon()
    await until(lambda: one.feed.renew_soon() or len(other.feed.partitions) == PARTITIONS // 2)


async def test_shards_that_all_reach_no_site_keep_their_partitions(shards: Shards) -> None:
    await shards.run.set_shards(2)
    both = [await shards.open(number, limits=LONG) for number in (0, 1)]
    for shard in both:
        shard.feed.number.cut_off = True

    def have_half() -> bool:
        for shard in both:
            shard.feed.renew_soon()
        return all(len(shard.feed.partitions) == PARTITIONS // 2 for shard in both)

    await until(have_half)


async def test_what_is_in_flight_is_aborted_before_the_hold_ends_if_it_is_not_renewed(shards: Shards) -> None:
    shard = await shards.open(limits=replace(LIMITS, shard_lease_s=1.5))
    aborted: list[float] = []
    shard.dispatcher.on_lapse = lambda: aborted.append(shard.dispatcher.clock())
    renewed_s = shard.dispatcher.clock()
    await shard.kill()

    await until(lambda: aborted)

    assert shard.dispatcher.owned_until_s < shard.dispatcher.lapses_at_s < renewed_s + 1.5


async def test_what_was_aborted_at_the_end_of_the_hold_may_still_arrive_so_its_domain_rests_longer(
    shards: Shards,
) -> None:
    shard = await shards.open(limits=replace(LIMITS, shard_lease_s=1.5))
    usual_s = shard.dispatcher.rest_s("a.test", None)
    await shard.kill()

    await until(lambda: shard.dispatcher.clock() >= shard.dispatcher.lapses_at_s)

    assert shard.dispatcher.rest_s("a.test", None) == usual_s + 3
    assert shard.dispatcher.rest_s("a.test", 0.0) == usual_s + 3


async def test_a_shard_paused_and_replaced_is_fenced_and_settles_nothing(shards: Shards) -> None:
    await shards.admit("https://a.test/")
    limits = replace(LIMITS, shard_lease_s=1.5)
    paused = await shards.open(limits=limits)
    lease = await paused.take_one()
    await paused.kill()
    await asyncio.sleep(limits.shard_lease_s)
    successor = await shards.open(limits=limits)
    await until(lambda: successor.dispatcher.pacer.buffered)

    paused.fetch(lease, page=b"page")
    paused.feed._tasks = [asyncio.create_task(paused.feed._guard(paused.feed._pump, "feed"))]
    await until(lambda: paused.ends)
    await paused.feed.close()

    [(reason, error)] = paused.ends
    assert reason == "Replaced"
    assert isinstance(error, Fenced)
    assert paused.dispatcher.take() is None
    counters = await shards.read_counters()
    assert (counters.counts["done"], counters.queue_pages, counters.leased) == (0, 0, 1)
    assert successor.ends == []


async def test_a_shard_whose_hold_may_have_ended_hands_out_nothing_until_it_is_renewed(
    shards: Shards,
) -> None:
    shard = await shards.open(limits=LONG)
    await shards.admit(*sites(3))
    await until(lambda: shard.dispatcher.pacer.buffered == 3)
    works = shard.works

    shard.skew_s += 23.0
    assert shard.dispatcher.take() is None

    # The pump rests by the loop's clock, which did not jump.
    shard.feed._stir.set()
    await until(lambda: shard.works > works)
    assert len(shard.take_leases()) == 3


async def test_the_number_of_shards_goes_from_two_to_one_and_back_while_running(shards: Shards) -> None:
    everything = sites(60, 3)
    await shards.run.set_shards(2)
    await shards.admit(*everything)
    one, other = await shards.open(0), await shards.open(1)
    done: list[str] = []
    holding: list[tuple[Shard, Lease]] = []

    def work(count: int) -> Callable[[], bool]:
        """Fetch slowly: a request is in flight for one round."""

        def step() -> bool:
            nonlocal holding
            flying = [lease.domain for _, lease in holding]
            assert len(flying) == len(set(flying)), "a domain in two places at once"
            for shard, lease in holding:
                done.append(lease.url)
                shard.fetch(lease)
            holding = []
            for shard in shards.made:
                while len(holding) < 10 and isinstance(taken := shard.dispatcher.take(), Lease):
                    holding.append((shard, taken))
            return len(done) >= count

        return step

    await until(work(20))
    await shards.run.set_shards(1)
    await until(lambda: work(0)() and other.ends == [("retired", None)])
    assert other.feed.partitions == set()
    await other.feed.close()
    await until(lambda: work(0)() and len(one.feed.partitions) == PARTITIONS)
    await shards.run.set_shards(2)
    again = await shards.open(1)
    await until(lambda: work(0)() and len(again.feed.partitions) == PARTITIONS // 2)
    assert len(one.feed.partitions) == PARTITIONS // 2
    await until(
        lambda: work(len(everything))() and not any(shard.dispatcher.has_work for shard in (one, again))
    )

    counters = await shards.read_counters()
    assert sorted(done) == sorted(everything)
    assert (counters.waiting, counters.leased, counters.counts["done"]) == (0, 0, len(everything))
    assert counters.counts["reclaimed"] == 0


async def test_a_partition_to_be_released_is_not_leased_from_until_it_is_wanted_again(
    shards: Shards,
) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(limits=LONG)
    # As long as it is in flight, its partition cannot be released.
    lease = await shard.take_one()
    await shards.run.set_shards(2)
    await until(lambda: len(shard.feed.partitions) == PARTITIONS // 2 + 1)
    beside = next(url for url in sites(100) if partition_of(domain_of(url), PARTITIONS) == lease.partition)
    kept = next(url for url in sites(100) if partition_of(domain_of(url), PARTITIONS) == 0)
    await shards.admit(beside, kept)
    assert (await shard.take_one()).url == kept

    await shards.run.set_shards(1)
    await until(lambda: len(shard.feed.partitions) == PARTITIONS)
    assert (await shard.take_one()).url == beside


async def test_a_restarted_shard_owns_what_its_dead_process_owned_at_once(shards: Shards) -> None:
    # A process of this machine that is gone: no need to wait until its hold ends.
    dead = await shards.open(limits=LONG, process=replace(ProcessName.of_this(), started="before"))
    await until(lambda: len(dead.feed.partitions) == PARTITIONS)
    await dead.kill()

    restarted = await shards.open(limits=LONG)

    await until(lambda: len(restarted.feed.partitions) == PARTITIONS)


async def test_a_shard_beyond_the_number_of_shards_owns_nothing_and_retires(shards: Shards) -> None:
    late = await shards.open(3)

    await until(lambda: late.ends)

    assert late.ends == [("retired", None)]
    assert late.feed.partitions == set()


async def test_a_finished_run_ends_every_shard(shards: Shards) -> None:
    await shards.run.change(RunState.RUNNING)
    shard = await shards.open(limits=LONG)

    await shards.run.change(RunState.FINISHED)
    await until(lambda: shard.ends)

    # Plain text, and no member of an enumeration: people read it among the statistics.
    assert repr(shard.ends) == "[('finished', None)]"


# -- leaving --


async def test_closing_returns_every_lease_and_partition(shards: Shards) -> None:
    await shards.admit(*sites(30, 2))
    shard = await shards.open(limits=LONG, rules=DelayRules(7.0))
    await until(lambda: shard.dispatcher.pacer.buffered == 30)
    in_flight = shard.dispatcher.take()
    done = shard.dispatcher.take()
    assert isinstance(in_flight, Lease)
    assert isinstance(done, Lease)
    shard.fetch(done, page=b"page")

    await shard.feed.close()

    counters = await shards.read_counters()
    assert (counters.waiting, counters.leased, counters.counts["returned"], counters.queue_pages) == (
        59,
        0,
        29,
        1,
    )
    assert counters.owned == 0
    assert (await shards.run.read_map()).alive == {}
    for due_s in await ready_in_s(shards, in_flight.domain, done.domain):
        assert 3 < due_s <= 7.1


@pytest.mark.parametrize("turns", range(6))
async def test_closing_in_the_middle_of_a_turn_leaves_nothing_behind(shards: Shards, turns: int) -> None:
    await shards.admit(*sites(30))
    shard = await shards.open(limits=LONG)

    for _ in range(turns * 3):
        await asyncio.sleep(0)
    await shard.feed.close()

    counters = await shards.read_counters()
    assert (counters.waiting, counters.leased, counters.owned) == (30, 0, 0)


async def test_a_shard_that_left_is_followed_without_waiting(shards: Shards) -> None:
    # Longer than we wait for anything.
    limits = replace(LIMITS, shard_lease_s=2 * PATIENCE_S)
    first = await shards.open(limits=limits)
    await until(lambda: len(first.feed.partitions) == PARTITIONS)
    await first.feed.close()

    second = await shards.open(limits=limits)
    await until(lambda: len(second.feed.partitions) == PARTITIONS)


async def test_closing_while_the_robots_txt_is_on_its_way_lets_the_domain_rest(shards: Shards) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(limits=LONG, rules=DelayRules(7.0), robots=RobotsCache(10, 60.0))
    await until(lambda: shard.dispatcher.pacer.buffered)
    [fetch] = shard.take()
    assert isinstance(fetch, RobotsFetch)

    await shard.feed.close()

    [due_s] = await ready_in_s(shards, "a.test")
    assert 3 < due_s <= 7.1


# -- limits --


async def test_nothing_is_leased_at_the_hard_limit_until_the_queue_is_below_the_soft_one(
    shards: Shards, client: RedisClient
) -> None:
    await client.command("RPUSH", keys.pages(RUN), *range(10))
    shard = await shards.open()
    await shards.admit(*sites(30))
    await until(lambda: shard.feed.metrics.back_pressure["hard"] == 1)
    assert shard.dispatcher.pacer.buffered == 0

    await client.command("LTRIM", keys.pages(RUN), 0, 6)
    looked_s = shard.feed._backlog._pressure._read_s
    await until(lambda: shard.feed._backlog._pressure._read_s > looked_s + 0.3)
    assert shard.dispatcher.pacer.buffered == 0

    await client.command("LTRIM", keys.pages(RUN), 0, 3)
    await until(lambda: shard.dispatcher.pacer.buffered == 30)
    assert shard.feed.metrics.back_pressure["hard"] == 1


async def test_nothing_is_leased_at_the_hard_limit_in_bytes(shards: Shards, client: RedisClient) -> None:
    await client.command("HSET", keys.page_counters(RUN), "queued_bytes", 5000)
    shard = await shards.open(limits=replace(LONG, queue=QueueLimits(5, 10, 2000, 4000)))
    await shards.admit(*sites(30))
    await until(lambda: shard.feed.metrics.back_pressure["hard"] == 1)
    assert shard.dispatcher.pacer.buffered == 0

    await client.command("HSET", keys.page_counters(RUN), "queued_bytes", 1000)

    await until(lambda: shard.dispatcher.pacer.buffered == 30)


async def test_less_is_leased_between_the_limits(shards: Shards, client: RedisClient) -> None:
    await client.command("RPUSH", keys.pages(RUN), *range(9))
    await shards.admit(*sites(300))

    shard = await shards.open(limits=replace(LONG, batch=100))
    await until(lambda: shard.dispatcher.pacer.buffered)

    assert shard.dispatcher.pacer.buffered <= 20 + PARTITIONS


async def test_memory_holds_no_more_leases_than_its_batch_and_a_few(shards: Shards) -> None:
    await shards.admit(*sites(500))

    shard = await shards.open(limits=replace(LONG, batch=50))
    await until(lambda: shard.dispatcher.pacer.buffered >= 50)

    assert shard.dispatcher.pacer.buffered <= 50 + PARTITIONS


async def test_a_lease_that_hangs_is_leased_again_and_its_late_end_is_ignored(shards: Shards) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(limits=replace(LONG, lease_s=0.3), rules=DelayRules(0.0, backoff_s=0.05))
    stuck = await shard.take_one()

    again = await shard.take_one()
    shard.fetch(stuck, page=b"late")
    shard.fetch(again)
    await until(lambda: not shard.dispatcher.has_work)

    counters = await shards.read_counters()
    assert (again.url, again.attempt) == (stuck.url, 1)
    assert (counters.counts["done"], counters.counts["retry"], counters.queue_pages) == (1, 1, 0)
    assert counters.counts["reason:stuck"] == 1


async def test_a_url_that_is_stuck_in_its_last_attempt_fails(shards: Shards) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(limits=LONG, rules=DelayRules(0.0))
    for _ in range(2):
        shard.fail(await shard.take_one(), Ending(500))
    await shard.take_one()

    shard.dispatcher.retry_stuck(-1.0)
    await until(lambda: not shard.dispatcher.has_work)

    counters = await shards.read_counters()
    assert (counters.counts["failed"], counters.waiting) == (1, 0)


async def test_a_shard_that_stops_because_of_an_error_hands_out_nothing_more(shards: Shards) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(limits=LONG)
    await until(lambda: shard.dispatcher.pacer.buffered)

    shard.feed.stop("broken", CrawlError("broken"))

    assert shard.take() == []


# -- robots.txt --


async def robots_shard(shards: Shards, *urls: str, delay_s: float = 0.0, retry_s: float = 60.0) -> Shard:
    await shards.admit(*urls)
    shard = await shards.open(
        limits=LONG,
        rules=DelayRules(delay_s, backoff_s=0.01),
        robots=RobotsCache(100, 3600.0, retry_s),
    )
    await until(lambda: shard.dispatcher.pacer.buffered)
    return shard


async def test_robots_txt_is_fetched_first_and_once_and_forbidden_urls_are_skipped(shards: Shards) -> None:
    shard = await robots_shard(shards, "https://a.test/no/1", "https://a.test/yes", "https://a.test/no/2")

    [fetch] = shard.take()
    assert isinstance(fetch, RobotsFetch)
    assert fetch.url == "https://a.test/robots.txt"
    shard.robots.learn(fetch, rules_of("User-agent: *\nDisallow: /no/"), Ending(200))
    taken = await shard.take_some()
    assert [lease.url for lease in taken] == ["https://a.test/yes"]
    shard.fetch(taken[0])
    await until(lambda: not shard.take() and not shard.dispatcher.has_work)
    await until_settled(shards)

    counters = await shards.read_counters()
    assert (counters.counts["done"], counters.counts["skipped"], counters.counts["reason:robots"]) == (
        1,
        2,
        2,
    )


async def until_settled(shards: Shards) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while (counters := await shards.read_counters()).waiting or counters.leased:
            for shard in shards.made:
                for one in shard.take_leases():
                    shard.fetch(one)
            await asyncio.sleep(0.01)


async def test_a_crawl_delay_holds_for_every_page_and_for_the_next_owner(shards: Shards) -> None:
    shard = await robots_shard(shards, *(f"https://a.test/{number}" for number in range(4)))
    [fetch] = shard.take()
    assert isinstance(fetch, RobotsFetch)
    ended_s, gaps_s = [boot_clock()], []
    shard.robots.learn(fetch, rules_of("User-agent: *\nCrawl-delay: 0.3"), Ending(200))

    def crawl() -> bool:
        for lease in shard.take_leases():
            gaps_s.append(boot_clock() - ended_s[-1])
            ended_s.append(boot_clock())
            shard.fetch(lease)
        return len(gaps_s) == 3

    await until(crawl)
    await until(lambda: not shard.dispatcher.leases.unsent)

    assert min(gaps_s) >= 0.299
    assert (await shards.state("a.test"))[5] == "300"


async def test_a_crawl_delay_is_noted_before_the_first_page_is_fetched(shards: Shards) -> None:
    shard = await robots_shard(shards, "https://a.test/")
    [fetch] = shard.take()
    assert isinstance(fetch, RobotsFetch)

    shard.robots.learn(fetch, rules_of("User-agent: *\nCrawl-delay: 1.5"), Ending(200))
    await until(lambda: not shard.dispatcher.leases.unsent)

    assert (await shards.state("a.test"))[5] == "1500"
    assert (await shards.read_counters()).leased == 1


async def test_a_crawl_delay_longer_than_a_chain_gives_the_urls_back_until_then(shards: Shards) -> None:
    shard = await robots_shard(shards, "https://a.test/")
    [fetch] = shard.take()
    assert isinstance(fetch, RobotsFetch)

    shard.robots.learn(fetch, rules_of("User-agent: *\nCrawl-delay: 20"), Ending(200))
    await until(lambda: not shard.dispatcher.has_work)

    assert (await shards.state("a.test"))[5] == "20000"
    assert (await shards.read_counters()).waiting == 1
    [due_s] = await ready_in_s(shards, "a.test")
    assert 10 < due_s <= 20.1


async def test_robots_txt_that_cannot_be_fetched_sends_the_urls_back_for_later(shards: Shards) -> None:
    shard = await robots_shard(shards, "https://a.test/1", "https://a.test/2")
    [fetch] = shard.take()
    assert isinstance(fetch, RobotsFetch)

    shard.robots.learn(fetch, rules_of("", 503), Ending(503))
    await until(lambda: not shard.take() and not shard.dispatcher.has_work)

    counters = await shards.read_counters()
    assert (counters.waiting, counters.leased, counters.counts["reason:retry_robots_http_503"]) == (2, 0, 1)
    [due_s] = await ready_in_s(shards, "a.test")
    assert 30 < due_s <= 60.5


async def test_a_redirected_robots_txt_is_the_domains_next_request(shards: Shards) -> None:
    shard = await robots_shard(shards, "https://a.test/")
    [fetch] = shard.take()
    assert isinstance(fetch, RobotsFetch)

    shard.robots.redirect(fetch, "https://www.a.test/robots.txt", Ending(301))
    [moved] = shard.take()

    assert moved == RobotsFetch("https://a.test", "a.test", "https://www.a.test/robots.txt", 1)


async def test_a_partition_is_not_released_while_a_robots_txt_of_it_is_in_flight(shards: Shards) -> None:
    await shards.run.set_shards(2)
    shard = await robots_shard(shards, *sites(20), delay_s=0.2)
    fetches = shard.take()
    held = set(shard.feed.partitions)
    shard.feed.number.number = 1
    await shards.run.set_shards(1)
    await until(lambda: shard.feed._holdings.leaving == held)

    assert shard.ends == []
    for fetch in fetches:
        assert isinstance(fetch, RobotsFetch)
        shard.robots.learn(fetch, rules_of("User-agent: *\nCrawl-delay: 1"), Ending(200))

    assert shard.ends == []
    assert shard.held == len(fetches)


async def test_a_domain_handed_over_after_its_robots_txt_was_fetched_rests_first(shards: Shards) -> None:
    shard = await robots_shard(shards, "https://a.test/", delay_s=9.0)
    [fetch] = shard.take()
    assert isinstance(fetch, RobotsFetch)
    shard.robots.learn(fetch, rules_of(""), Ending(200))

    shard.feed.number.number = 5
    await shards.run.set_shards(1)
    await until(lambda: shard.ends == [("retired", None)])

    [due_s] = await ready_in_s(shards, "a.test")
    assert 4 < due_s <= 9.1


async def test_a_domain_with_several_at_once_gets_them(shards: Shards) -> None:
    shard = await shards.open(limits=LONG, rules=DelayRules(5.0, {"own.test": DomainRule(0.0, at_once=3)}))
    await shards.admit("https://own.test/first")
    shard.fetch(await shard.take_one())
    await until(lambda: not shard.dispatcher.has_work)

    await shards.admit(*(f"https://own.test/{number}" for number in range(6)))
    await until(lambda: shard.dispatcher.pacer.buffered == 4)

    assert len(shard.take_leases()) == 3


# -- what the middlewares report to it --


@pytest.mark.parametrize(("error", "again"), [(TimeoutError(), True), (DownloadCancelledError(), False)])
async def test_a_download_we_cut_ourselves_is_not_tried_again_nor_held_against_its_domain(
    shards: Shards, error: Exception, again: bool
) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(limits=LONG, rules=DelayRules(0.0, backoff_s=60.0))
    lease = await shard.take_one()
    request = Request(lease.url, meta={SETTLEMENT: Settlement(lease, Outcome.DONE)})

    with pytest.raises(RetriedLater) if again else nullcontext():
        RetryLater(shard.crawler()).process_exception(request, error)

    held = shard.dispatcher.leases.get(lease)
    assert held is not None
    assert (held.next_at_s > boot_clock() + 30) is again


async def test_the_first_shard_back_after_a_redis_outage_takes_nothing_from_late_ones(
    redis_server_factory: Callable[..., Any], tmp_path: Path
) -> None:
    server = redis_server_factory()
    client = await RedisClient.open(url=server.url, data_dir=tmp_path)
    shards = Shards(client, await Run.open(client, RUN, partitions=PARTITIONS, shards=2))
    first, late = [await shards.open(number, limits=LIMITS) for number in (0, 1)]
    await until(lambda: len(first.feed.partitions) == len(late.feed.partitions) == PARTITIONS // 2)
    # Past the time in which they leave each other's partitions alone because both have just come.
    await until(lambda: boot_clock() > first.feed._holdings._judges_from_s)

    server.pause()
    await late.kill()
    lost_s = boot_clock()
    await until(lambda: boot_clock() > lost_s + 2 * LIMITS.shard_lease_s)
    server.unpause()
    back_s = boot_clock()
    await until(lambda: first.feed._holdings._judges_from_s > back_s)

    assert first.feed._holdings.try_at_s == {}
    assert len(first.feed.partitions) == PARTITIONS // 2
    # Until it is plain that the other does not come back.
    await until(lambda: len(first.feed.partitions) == PARTITIONS)
    await first.kill()
    await client.close()
