"""Shards of a run that is paused, stopped, or may fetch only so many pages."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from crawlproj.model.records import Lease, Outcome
from crawlproj.politeness.pacing import Ending
from crawlproj.politeness.robots import RobotsCache
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Leader, Limits, RunCounters, RunState
from tests.patience import PATIENCE_S, until
from tests.redis.shards import LIMITS, LONG, Shard, Shards, rules_of, sites


class Crawl:
    """Fetches whatever the shards lend, a few at a time, and counts."""

    def __init__(self, shards: Shards) -> None:
        self.shards = shards
        self.fetched: list[str] = []
        self.in_flight: list[tuple[Shard, Lease]] = []

    def step(self) -> int:
        """End what is in flight, take more; returns how many pages were fetched by now."""
        for shard, lease in self.in_flight:
            shard.fetch(lease)
            self.fetched.append(lease.url)
        self.in_flight = []
        for shard in self.shards.made:
            if shard.feed._tasks:
                self.in_flight += ((shard, lease) for lease in _a_few(shard))
        return len(self.fetched)

    async def until_fetched(self, count: int) -> None:
        await until(lambda: self.step() >= count)

    async def until_nothing_moves(self) -> RunCounters:
        """Crawl until nothing is leased and nothing is added any more; returns the counters."""
        deadline_s = time.monotonic() + PATIENCE_S
        quiet_rounds = 0
        # Longer than a shard waits before it asks again for pages it may fetch. In rounds: while nothing
        # runs, nothing can move.
        while quiet_rounds < 80:
            before = len(self.fetched)
            self.step()
            counters = await self.shards.read_counters()
            if counters.leased or self.in_flight or len(self.fetched) > before:
                quiet_rounds = -1
            quiet_rounds += 1
            assert time.monotonic() < deadline_s, counters
            await asyncio.sleep(0.01)
        return counters


def _a_few(shard: Shard) -> list[Lease]:
    return [lease for _ in range(5) if isinstance(lease := shard.dispatcher.take(), Lease)]


@pytest.fixture
async def running(shards: Shards) -> Shards:
    """Shards of a run in progress."""
    await shards.run.begin(is_first=True)
    return shards


def leader_of(shards: Shards) -> Leader:
    return Leader(shards.run, ProcessName.of_this(), 5000)


# -- paused and stopped --


async def test_a_paused_shard_gives_its_leases_back_and_takes_none(running: Shards) -> None:
    await running.admit(*sites(20, 2))
    shard = await running.open(limits=LONG)
    crawl = Crawl(running)
    await crawl.until_fetched(5)

    await running.run.change(RunState.PAUSED)
    counters = await crawl.until_nothing_moves()

    assert shard.held == 0
    assert (counters.leased, counters.waiting) == (0, 40 - len(crawl.fetched))
    assert len(shard.feed.partitions) == running.run.partitions
    assert shard.ends == []


async def test_what_was_in_flight_when_a_run_was_paused_is_settled(running: Shards) -> None:
    await running.admit("https://a.test/1", "https://a.test/2")
    shard = await running.open(limits=LONG)
    lease = await shard.take_one()

    await running.run.change(RunState.PAUSED)
    await until(lambda: shard.held == 1)
    shard.fetch(lease)
    await until(lambda: not shard.dispatcher.has_work)

    counters = await running.read_counters()
    assert (counters.fetched, counters.waiting, counters.leased) == (1, 1, 0)


async def test_a_shard_continues_at_once_when_its_run_is_resumed(running: Shards) -> None:
    await running.admit(*sites(20, 20))
    # Without a message it would hear of it at its next renewal.
    await running.open(limits=replace(LONG, shard_lease_s=6 * PATIENCE_S))
    crawl = Crawl(running)
    await crawl.until_fetched(5)
    await running.run.change(RunState.PAUSED)
    assert (await crawl.until_nothing_moves()).waiting

    await running.run.change(RunState.RUNNING)
    await crawl.until_fetched(400)

    assert sorted(crawl.fetched) == sorted(sites(20, 20))


async def test_a_shard_that_starts_in_a_paused_run_waits(shards: Shards) -> None:
    await shards.run.change(RunState.PAUSED)
    await shards.admit(*sites(10))
    shard = await shards.open(limits=LONG)
    crawl = Crawl(shards)

    assert (await crawl.until_nothing_moves()).waiting == 10
    await shards.run.change(RunState.RUNNING)
    await crawl.until_fetched(10)

    assert shard.ends == []


async def test_a_url_whose_robots_txt_comes_during_a_pause_is_not_fetched(running: Shards) -> None:
    await running.admit("https://a.test/1")
    shard = await running.open(limits=LONG, robots=RobotsCache(100, 60.0, 60.0))
    fetch = await shard.take_robots()

    await running.run.change(RunState.PAUSED)
    await until(lambda: shard.dispatcher.is_paused)
    shard.robots.learn(fetch, rules_of(""), Ending(200))

    assert shard.take() == []
    await until(lambda: not shard.dispatcher.has_work)
    assert (await running.read_counters()).waiting == 1
    await running.run.change(RunState.RUNNING)
    assert (await shard.take_one()).url == "https://a.test/1"


@pytest.mark.parametrize("state", [RunState.STOPPED, RunState.FAILED, RunState.FINISHED])
async def test_the_shards_of_an_ended_run_return_everything_and_exit(
    running: Shards, state: RunState
) -> None:
    await running.admit(*sites(20, 2))
    shard = await running.open(limits=LONG)
    await until(lambda: shard.dispatcher.pacer.buffered)

    await running.run.change(state)
    await until(lambda: shard.ends)
    await shard.feed.close()

    assert shard.ends == [(state, None)]
    assert ((await running.read_counters()).waiting, (await running.read_counters()).leased) == (40, 0)


# -- so many pages and no more --


@pytest.mark.parametrize("most", [1, 7, 100])
async def test_several_shards_fetch_exactly_as_many_pages_as_they_may(running: Shards, most: int) -> None:
    await running.run.set_shards(3)
    await running.run.set_limits(Limits(pages=most))
    await running.admit(*sites(60, 4))
    for number in range(3):
        await running.open(number, limits=replace(LONG, batch=20))
    crawl = Crawl(running)

    counters = await crawl.until_nothing_moves()

    assert (len(crawl.fetched), counters.fetched, counters.promised) == (most, most, most)
    assert counters.waiting == 240 - most
    assert await leader_of(running).step()
    assert (await running.run.read_map()).reason == "max_pages"


async def test_a_higher_limit_is_heard_of_and_kept(running: Shards) -> None:
    await running.run.set_limits(Limits(pages=5))
    await running.admit(*sites(40))
    await running.open(limits=LONG)
    crawl = Crawl(running)
    await crawl.until_nothing_moves()

    await running.run.set_limits(Limits(pages=12))
    counters = await crawl.until_nothing_moves()

    assert (len(crawl.fetched), counters.fetched) == (12, 12)


async def test_a_limit_set_while_shards_hold_leases_counts_these(running: Shards) -> None:
    await running.admit(*sites(40, 2))
    shard = await running.open(limits=replace(LONG, batch=10))
    await until(lambda: shard.held >= 10)

    await running.run.set_limits(Limits(pages=20))
    counters = await Crawl(running).until_nothing_moves()

    assert counters.fetched == 20


async def test_a_removed_limit_lets_everything_through(running: Shards) -> None:
    await running.run.set_limits(Limits(pages=5))
    await running.admit(*sites(30))
    await running.open(limits=LONG)
    crawl = Crawl(running)
    await crawl.until_nothing_moves()

    await running.run.set_limits(Limits())
    await crawl.until_fetched(30)


async def test_what_fails_or_is_put_off_does_not_use_up_the_limit(running: Shards) -> None:
    await running.run.set_limits(Limits(pages=3))
    await running.admit(*sites(9))
    shard = await running.open(limits=LONG)
    ends = [Outcome.FAILED, Outcome.SKIPPED, Outcome.RETURNED]

    for outcome in ends:
        for lease in await shard.take_some(3):
            shard.dispatcher.request_ended(lease, Ending(200))
            shard.settle(lease, outcome, "why")
    counters = await Crawl(running).until_nothing_moves()

    assert (counters.fetched, counters.promised) == (3, 3)


async def test_promises_of_a_killed_shard_come_back_with_its_partitions(running: Shards) -> None:
    await running.run.set_shards(2)
    await running.run.set_limits(Limits(pages=20))
    await running.admit(*sites(60))
    limits = replace(LIMITS, shard_lease_s=1.5)
    victim = await running.open(1, limits=limits)
    # All that may be promised is leased: what is promised and not leased yet, only the leader can mend.
    await until(lambda: victim.held == 20)
    await running.open(0, limits=limits)
    crawl = Crawl(running)

    await victim.kill()
    await until(lambda: bool(crawl.step()) and len(running.made[1].feed.partitions) == 8)
    counters = await crawl.until_nothing_moves()

    assert (counters.fetched, counters.promised) == (20, 20)


async def test_promises_a_shard_died_with_before_it_leased_are_mended_by_the_leader(running: Shards) -> None:
    await running.run.set_limits(Limits(pages=30))
    await running.admit(*sites(60))
    # Of a shard that asked and was killed before it had the answer.
    assert await running.run.promise_pages(10, 30) == 10
    await running.open(limits=LIMITS)
    crawl, leader = Crawl(running), leader_of(running)
    assert (await crawl.until_nothing_moves()).fetched == 20

    looks = [await leader.step() for _ in range(2)]
    counters = await crawl.until_nothing_moves()

    assert looks == [False, False]
    assert (counters.fetched, counters.promised) == (30, 30)
    assert await leader.step()


async def test_a_leader_that_checks_constantly_never_lets_too_many_through(running: Shards) -> None:
    await running.run.set_shards(2)
    await running.run.set_limits(Limits(pages=50))
    await running.admit(*sites(80))
    for number in range(2):
        await running.open(number, limits=replace(LONG, batch=6))
    crawl, leader = Crawl(running), leader_of(running)

    async with asyncio.timeout(PATIENCE_S):
        while not await leader.step():
            crawl.step()
            await asyncio.sleep(0)

    counters = await running.read_counters()
    assert (counters.fetched, counters.leased, counters.promised) == (50, 0, 50)


async def test_a_shard_fetches_nothing_while_large_pages_wait_for_redis(shards: Shards) -> None:
    await shards.admit(*sites(6))
    shard = await shards.open(limits=LONG)
    await until(lambda: shard.dispatcher.pacer.buffered == 6)
    leases = [lease for _ in range(5) if isinstance(lease := shard.dispatcher.take(), Lease)]
    works = shard.works

    for lease in leases[:4]:
        shard.fetch(lease, page=bytes(9_000_000))
    refused = shard.dispatcher.take()
    await until(lambda: shard.works > works)

    assert (len(leases), refused) == (5, None)
    assert (await shards.read_counters()).queue_pages == 4
    assert shard.dispatcher.take() is not None
