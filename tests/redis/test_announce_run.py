"""announce_run and lease_urls: two runs on one Redis keep the delay of a domain together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest

from crawlproj.frontier.frontier import Frontier, Hold
from crawlproj.frontier.neighbours import Neighbours
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate, Lease, Outcome, Settlement
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from tests.clock import Clock
from tests.patience import PATIENCE_S

SILENT_S = 10.0
#: Longer than a test takes.
LONG_MS = 600_000
URLS = ("https://a.test/1", "https://a.test/2")


@dataclass
class RunBeside:
    """A run with one shard, which owns the partition of a.test."""

    frontier: Frontier
    hold: Hold

    @property
    def neighbours(self) -> Neighbours:
        assert self.frontier.neighbours is not None
        return self.frontier.neighbours

    async def lease(self) -> list[Lease]:
        """As a shard does: it asks again when it was told that other runs fetch now."""
        for _ in range(2):
            leases, _ = await self.frontier.lease([(self.hold, 10)], chain=4, chain_ms=60_000, ahead_ms=100)
            if leases:
                break
        return leases

    async def lease_soon(self) -> list[Lease]:
        async with asyncio.timeout(PATIENCE_S):
            while not (leases := await self.lease()):  # noqa: ASYNC110  # nothing wakes us
                await asyncio.sleep(0.01)
        return leases

    async def settle(self, *leases: Lease, wait_ms: int = 0) -> None:
        await self.frontier.settle(Settlement(lease, Outcome.DONE, wait_ms=wait_ms) for lease in leases)


MakeRun = Callable[..., Awaitable[RunBeside]]


@pytest.fixture
def clock() -> Clock:
    """The clock by which runs are judged silent."""
    return Clock()


@pytest.fixture
def make_run(client: RedisClient, clock: Clock) -> MakeRun:
    async def make(name: str, partitions: int = 8, *, urls: tuple[str, ...] = URLS) -> RunBeside:
        frontier = Frontier(client, name, partitions)
        frontier.neighbours = Neighbours(client, name, partitions, SILENT_S, clock=clock)
        await frontier.neighbours.announce()
        await frontier.admit(Candidate(url) for url in urls)
        partition = partition_of("a.test", partitions)
        hold = await frontier.acquire(partition, name, ttl_ms=LONG_MS, delay_ms=0, delays_ms={})
        assert isinstance(hold, Hold)
        return RunBeside(frontier, hold)

    return make


async def test_a_domain_that_another_run_has_out_is_not_leased_until_it_is_settled(make_run: MakeRun) -> None:
    first, second = await make_run("first"), await make_run("second")
    [lease] = await first.lease_soon()

    assert await second.lease() == []
    await first.settle(lease)
    assert [lease.domain for lease in await second.lease_soon()] == ["a.test"]


async def test_a_domain_rests_for_both_runs_after_the_request_of_one(make_run: MakeRun) -> None:
    first, second = await make_run("first"), await make_run("second")

    await first.settle(*await first.lease_soon(), wait_ms=LONG_MS)

    assert await second.lease() == []
    assert await second.frontier.client.command(
        "ZSCORE", keys.ready("second", second.hold.partition), "a.test"
    )


async def test_a_run_that_comes_later_is_seen_by_those_at_work(make_run: MakeRun) -> None:
    first = await make_run("first")
    await first.settle(*await first.lease_soon())
    second = await make_run("second")

    await second.lease_soon()

    assert await first.lease() == []


@pytest.mark.parametrize(("ours", "theirs"), [(8, 8), (8, 16), (16, 8), (6, 4), (1, 5)])
async def test_runs_of_any_numbers_of_partitions_find_each_other(
    make_run: MakeRun, ours: int, theirs: int
) -> None:
    first, second = await make_run("first", ours), await make_run("second", theirs)

    await first.lease_soon()

    assert await second.lease() == []


async def test_only_what_both_runs_know_is_leased_one_at_a_time(make_run: MakeRun) -> None:
    first = await make_run("first", urls=tuple(f"https://a.test/{n}" for n in range(9)))
    await first.settle(*await first.lease_soon())
    second = await make_run("second", urls=("https://b.test/",))

    alone = await first.lease_soon()
    await first.settle(*alone)
    await second.frontier.admit([Candidate("https://a.test/x")])
    together = await first.lease_soon()

    assert (len(alone), len(together)) == (4, 1)


async def test_a_run_that_is_silent_for_too_long_is_forgotten(make_run: MakeRun, clock: Clock) -> None:
    dead, second = await make_run("dead"), await make_run("second")
    await dead.lease_soon()
    await second.neighbours.announce()

    clock.now_s = 1.25 * SILENT_S - 0.1
    await second.neighbours.announce()
    assert await second.lease() == []
    clock.now_s = 1.25 * SILENT_S
    await second.neighbours.announce()

    assert len(await second.lease_soon()) == 1


async def test_a_domain_of_a_run_that_has_stopped_rests_no_longer_than_its_delay(make_run: MakeRun) -> None:
    stopped = await make_run("stopped")
    await stopped.settle(*await stopped.lease_soon(), wait_ms=500)
    await stopped.frontier.release([stopped.hold])
    second = await make_run("second")

    assert await second.lease() == []
    assert len(await second.lease_soon()) == 1


async def test_of_deleted_runs_nothing_is_left(make_run: MakeRun, client: RedisClient) -> None:
    first, second = await make_run("first"), await make_run("second")
    await first.lease_soon()

    await Run(client, "first", 8).delete()
    await second.neighbours.announce()
    leased = await second.lease_soon()
    await Run(client, "second", 8).delete()

    assert len(leased) == 1
    assert not await client.command("EXISTS", keys.fetching())


async def test_a_domain_that_another_run_has_parked_is_tried_all_the_same(make_run: MakeRun) -> None:
    first, second = await make_run("first"), await make_run("second")
    await first.settle(*await first.lease_soon(), wait_ms=LONG_MS)
    await first.frontier.park(first.hold, [("a.test", "failures", LONG_MS)])

    assert len(await second.lease_soon()) == 1
