"""promise_pages, return_promises, reclaim_promises: a run with a page limit lets exactly so many through."""

from __future__ import annotations

import asyncio
import random

from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run, RunCounters

COUNTERS = keys.promises("web")


async def run_of(client: RedisClient) -> Run:
    return await Run.open(client, "web", partitions=1)


async def promised(client: RedisClient) -> int:
    return int(await client.command("HGET", COUNTERS, "promised") or 0)


async def figures_of(run: Run, fetched: int) -> RunCounters:
    """What the leader reads when so many pages are fetched and none is lent."""
    counters = await run.read_counters()
    counters.counts["done"] = counters.counts["number"] = fetched
    return counters


async def test_pages_are_promised_until_there_are_no_more(client: RedisClient) -> None:
    run = await run_of(client)

    assert [await run.promise_pages(4, 10) for _ in range(4)] == [4, 4, 2, 0]


async def test_nothing_is_promised_when_the_limit_was_lowered_below_what_is_fetched(
    client: RedisClient,
) -> None:
    run = await run_of(client)
    await run.promise_pages(10, 10)

    assert await run.promise_pages(5, 3) == 0
    assert await promised(client) == 10


async def test_a_higher_limit_lets_the_difference_through(client: RedisClient) -> None:
    run = await run_of(client)
    await run.promise_pages(10, 10)

    assert await run.promise_pages(100, 25) == 15


async def test_returned_pages_are_promised_again(client: RedisClient) -> None:
    run = await run_of(client)
    await run.promise_pages(10, 10)

    await run.return_promises(3)
    await run.return_promises(1)

    assert await run.promise_pages(10, 10) == 4


async def test_a_return_repeated_after_a_lost_answer_counts_once(client: RedisClient) -> None:
    run = await run_of(client)
    await run.promise_pages(10, 10)

    answers = [await client.run("return_promises", [COUNTERS], ["me", 4]) for _ in range(2)]

    assert answers == [4, 0]
    assert await promised(client) == 6


async def test_what_two_processes_gave_back_is_counted_for_each(client: RedisClient) -> None:
    one, other = await run_of(client), await run_of(client)
    await one.promise_pages(10, 10)

    await asyncio.gather(*(run.return_promises(1) for run in (one, other) for _ in range(4)))

    assert await promised(client) == 2


async def test_asking_twice_because_the_answer_was_lost_lets_no_more_through(client: RedisClient) -> None:
    run = await run_of(client)
    through = 0

    while granted := await run.promise_pages(4, 10):
        # Every call is carried out twice; the shard sees the answer of the second.
        through += await run.promise_pages(4, 10) if granted else 0

    assert through <= 10


async def test_concurrent_promises_and_returns_never_exceed_the_limit(client: RedisClient) -> None:
    """Each fetches some of what it was promised and gives back the rest, until all is fetched."""
    most, fetched, chance = 200, 0, random.Random(5)

    async def shard() -> None:
        nonlocal fetched
        run = await run_of(client)
        while fetched < most:
            granted = await run.promise_pages(chance.randint(1, 20), most)
            kept = chance.randint(0, granted)
            fetched += kept
            assert fetched <= most
            if granted > kept:
                await run.return_promises(granted - kept)

    await asyncio.gather(*(shard() for _ in range(8)))

    assert fetched == most
    assert await promised(client) == most


async def test_promises_of_the_dead_are_given_to_others(client: RedisClient) -> None:
    run = await run_of(client)
    await run.promise_pages(10, 10)

    assert await run.reclaim_promises(await figures_of(run, fetched=7))

    assert await run.promise_pages(10, 10) == 3


async def test_nothing_is_reclaimed_when_pages_were_promised_meanwhile(client: RedisClient) -> None:
    run = await run_of(client)
    await run.promise_pages(10, 10)
    counters = await figures_of(run, fetched=7)
    await run.return_promises(1)
    await run.promise_pages(1, 10)

    assert not await run.reclaim_promises(counters)

    assert await promised(client) == 10


async def test_nothing_is_reclaimed_when_pages_were_returned_meanwhile(client: RedisClient) -> None:
    run = await run_of(client)
    await run.promise_pages(10, 10)
    counters = await figures_of(run, fetched=7)
    await run.return_promises(2)

    assert not await run.reclaim_promises(counters)

    assert await promised(client) == 8


async def test_a_run_without_promises_has_none_to_reclaim(client: RedisClient) -> None:
    run = await run_of(client)

    assert await run.reclaim_promises(await figures_of(run, fetched=0))

    assert await promised(client) == 0
