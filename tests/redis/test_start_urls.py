"""Start URLs from a list of Redis: each is admitted once, whenever the process that took it is killed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from scrapy import Request

from crawlproj.errors import SetBack
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.shard.start_urls import read_start_urls
from tests.patience import PATIENCE_S
from tests.redis.setbacks import Backup

SOURCE = "mine:start_urls"
DROPPED = keys.start_urls_dropped("mine", "mine:start_urls")
TAKEN = keys.start_urls_taken("mine", "mine:start_urls", 0)
URL = "https://a.test/"


@pytest.fixture
async def run(client: RedisClient) -> Run:
    return await Run.open(client, "mine", partitions=2)


@asynccontextmanager
async def reader(run: Run, after_admission: Callable[[], None] = lambda: None) -> AsyncIterator[None]:
    """A shard that reads start URLs; it is gone at the end, as if it were killed."""
    frontier = Frontier(run.client, run.name, run.partitions)

    async def admit(request: Request, mark: int) -> None:
        await frontier.admit([Candidate(request.url, mark=mark)])
        after_admission()

    async def read() -> None:
        await read_start_urls(run, SOURCE, 0, admit)

    task = asyncio.create_task(read())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until_read(run: Run) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await run.client.command("EXISTS", SOURCE, TAKEN):  # noqa: ASYNC110  # Redis has no event
            await asyncio.sleep(0.01)


async def admitted(run: Run) -> int:
    return (await run.read_counters()).admitted


async def test_every_line_is_admitted_however_often_it_is_there(client: RedisClient, run: Run) -> None:
    await client.command("RPUSH", SOURCE, URL, URL, "no url", URL)

    async with reader(run):
        await until_read(run)

    assert await admitted(run) == 3


async def test_a_line_whose_reader_is_killed_between_admission_and_removal_is_admitted_once(
    client: RedisClient, run: Run
) -> None:
    await client.command("RPUSH", SOURCE, URL, URL)
    killed = asyncio.Event()

    def kill() -> None:
        killed.set()
        raise asyncio.CancelledError

    for _ in range(3):
        killed.clear()
        async with reader(run, kill):
            await asyncio.wait_for(killed.wait(), PATIENCE_S)
    left = await client.command("LRANGE", TAKEN, 0, -1)
    between = await admitted(run)
    async with reader(run):
        await until_read(run)

    assert (left, between) == ([URL.encode()], 1)
    assert await admitted(run) == 2


async def test_two_readers_with_one_number_admit_each_line_once(client: RedisClient, run: Run) -> None:
    """As when a shard that was taken for dead comes back."""
    await client.command("RPUSH", TAKEN, *[URL] * 20)

    async with reader(run), reader(run):
        await until_read(run)

    assert await admitted(run) == 20


async def test_a_removal_repeated_after_a_lost_answer_removes_nothing_more(
    client: RedisClient, run: Run
) -> None:
    await client.command("RPUSH", TAKEN, "a", "b", "c")
    names = [TAKEN, DROPPED, keys.run_record(run.name)]

    answers = [await client.run("drop_start_url", names, [0, number]) for number in (0, 0, 1, 0)]

    assert answers == [1, 0, 1, 0]
    assert await client.command("LRANGE", TAKEN, 0, -1) == [b"c"]


async def test_a_run_that_is_gone_is_not_made_again(client: RedisClient) -> None:
    await client.command("RPUSH", TAKEN, "a")

    assert await client.run("drop_start_url", [TAKEN, DROPPED, keys.run_record("mine")], [0, 0]) == 0

    assert await client.command("EXISTS", keys.run_record("mine"), DROPPED) == 0


async def test_a_start_url_that_redis_has_lost_is_admitted_again_and_once(
    run: Run, bystander: RedisClient
) -> None:
    run.watch()
    await bystander.command("RPUSH", SOURCE, URL, URL)
    backup = await Backup.of(bystander)

    async with reader(run):
        await until_read(run)
        await backup.restore()
        await until_read(run)

    assert await admitted(run) == 2


async def test_start_urls_wait_while_the_shard_starts_over(run: Run, bystander: RedisClient) -> None:
    run.watch()
    backup = await Backup.of(bystander)
    await run.client.command("PING")
    calls = []

    async def admit(request: Request, mark: int) -> None:
        calls.append(mark)
        if len(calls) < 3:
            raise SetBack("not yet")

    await backup.restore()
    await bystander.command("RPUSH", SOURCE, URL)
    task = asyncio.create_task(read_start_urls(run, SOURCE, 0, admit))
    await until_read(run)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    # The same each time, so that it is admitted once.
    assert (len(calls), len(set(calls))) == (3, 1)
