"""promise_pages, return_promises, mend_promises: a run with a limit of pages lets exactly so many through."""

from __future__ import annotations

import asyncio
import random

from crawlproj.redisio import keys
from crawlproj.redisio.client import Door
from crawlproj.runs import Figures, Run

COUNTERS = keys.page_counters("web")


async def run_of(door: Door) -> Run:
    return await Run.open(door, "web", partitions=1)


async def promised(door: Door) -> int:
    return int(await door.command("HGET", COUNTERS, "promised") or 0)


async def figures_of(run: Run, fetched: int) -> Figures:
    """What the leader reads when so many pages are fetched and none is lent."""
    figures = await run.figures()
    figures.counts["done"] = figures.counts["number"] = fetched
    return figures


async def test_pages_are_promised_until_there_are_no_more(door: Door) -> None:
    run = await run_of(door)

    assert [await run.promise_pages(4, 10) for _ in range(4)] == [4, 4, 2, 0]


async def test_nothing_is_promised_when_the_limit_was_lowered_below_what_is_fetched(door: Door) -> None:
    run = await run_of(door)
    await run.promise_pages(10, 10)

    assert await run.promise_pages(5, 3) == 0
    assert await promised(door) == 10


async def test_a_higher_limit_lets_the_difference_through(door: Door) -> None:
    run = await run_of(door)
    await run.promise_pages(10, 10)

    assert await run.promise_pages(100, 25) == 15


async def test_what_was_given_back_is_promised_again(door: Door) -> None:
    run = await run_of(door)
    await run.promise_pages(10, 10)

    await run.take_back_promises(3)
    await run.take_back_promises(1)

    assert await run.promise_pages(10, 10) == 4


async def test_giving_back_twice_because_the_answer_was_lost_gives_back_once(door: Door) -> None:
    run = await run_of(door)
    await run.promise_pages(10, 10)

    answers = [await door.run("return_promises", [COUNTERS], ["me", 4]) for _ in range(2)]

    assert answers == [4, 0]
    assert await promised(door) == 6


async def test_what_two_processes_gave_back_is_counted_for_each(door: Door) -> None:
    one, other = await run_of(door), await run_of(door)
    await one.promise_pages(10, 10)

    await asyncio.gather(*(run.take_back_promises(1) for run in (one, other) for _ in range(4)))

    assert await promised(door) == 2


async def test_asking_twice_because_the_answer_was_lost_lets_no_more_through(door: Door) -> None:
    run = await run_of(door)
    through = 0

    while granted := await run.promise_pages(4, 10):
        # Every call is carried out twice; the shard sees the answer of the second.
        through += await run.promise_pages(4, 10) if granted else 0

    assert through <= 10


async def test_many_who_ask_and_give_back_at_once_never_have_more_than_the_limit(door: Door) -> None:
    """Each fetches some of what it was promised and gives back the rest, until all is fetched."""
    most, fetched, chance = 200, 0, random.Random(5)

    async def shard() -> None:
        nonlocal fetched
        run = await run_of(door)
        while fetched < most:
            granted = await run.promise_pages(chance.randint(1, 20), most)
            kept = chance.randint(0, granted)
            fetched += kept
            assert fetched <= most
            if granted > kept:
                await run.take_back_promises(granted - kept)

    await asyncio.gather(*(shard() for _ in range(8)))

    assert fetched == most
    assert await promised(door) == most


async def test_promises_of_the_dead_are_given_to_others(door: Door) -> None:
    run = await run_of(door)
    await run.promise_pages(10, 10)

    assert await run.mend_promises(await figures_of(run, fetched=7))

    assert await run.promise_pages(10, 10) == 3


async def test_nothing_is_mended_when_somebody_was_promised_pages_meanwhile(door: Door) -> None:
    run = await run_of(door)
    await run.promise_pages(10, 10)
    figures = await figures_of(run, fetched=7)
    await run.take_back_promises(1)
    await run.promise_pages(1, 10)

    assert not await run.mend_promises(figures)

    assert await promised(door) == 10


async def test_nothing_is_mended_when_somebody_gave_back_meanwhile(door: Door) -> None:
    run = await run_of(door)
    await run.promise_pages(10, 10)
    figures = await figures_of(run, fetched=7)
    await run.take_back_promises(2)

    assert not await run.mend_promises(figures)

    assert await promised(door) == 8


async def test_a_run_without_promises_has_nothing_to_mend(door: Door) -> None:
    run = await run_of(door)

    assert await run.mend_promises(await figures_of(run, fetched=0))

    assert await promised(door) == 0
