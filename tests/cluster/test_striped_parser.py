"""A parser with several stripes: a segment for each, and each page stored once wherever it dies."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from crawlproj.config import load_config
from crawlproj.model.records import Page
from crawlproj.model.run import RunPaths
from crawlproj.pages.envelope import pack
from crawlproj.pages.queue import PageQueue
from crawlproj.parsing.worker import Parser
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.cluster import Cluster
from crawlproj.redisio.stripes import read_page_counters
from crawlproj.runs import Run
from crawlproj.storage import read_pages
from crawlproj.storage.segments import unfinished
from tests.powercut import PowerCut

RUN = "web"
PARTITIONS = 16
URLS = [f"http://a.test/{number}" for number in range(24)]
#: Four of the sixteen, six pages each.
STRIPES = (0, 5, 6, 15)


@pytest.fixture
async def striped(redis_url: str, client: RedisClient, tmp_path: Path) -> AsyncIterator[list[RedisClient]]:
    """Two clients of one server that treat it as a cluster: its keys are where they would be there."""
    opened = [await RedisClient.open(url=redis_url, data_dir=tmp_path, wait_s=10) for _ in range(2)]
    for one in opened:
        one.stripes = Cluster.stripes
    yield opened
    for one in opened:
        await one.close()


def make(client: RedisClient, name: str, data: Path) -> Parser:
    async def is_over() -> bool:
        return True

    settings = {
        "CRAWL_PARTITIONS": PARTITIONS,
        "CRAWL_DATA": str(data),
        "CRAWL_SCOPE": "everything",
        "CRAWL_PARSE_BATCH": 4,
    }
    return Parser(Run(client, RUN, PARTITIONS), load_config(settings), name, is_over)


async def push(client: RedisClient) -> None:
    for number, url in enumerate(URLS):
        body = f"<a href='/from-{number}'>x</a>".encode()
        page = Page(url, RUN, "a.test", 0, 200, 0, 1, {"content-type": "text/html"}, body)
        await client.command("RPUSH", keys.pages(RUN, STRIPES[number % 4]), pack(page))


async def test_pages_of_each_stripe_are_in_a_segment_of_their_own(
    striped: list[RedisClient], tmp_path: Path
) -> None:
    await push(striped[0])

    await make(striped[0], "p-1", tmp_path).run()

    records = await PageQueue(striped[0], RUN).segments()
    assert sorted(record.pages for record in records.values()) == [6] * 4
    for stripe in STRIPES:
        assert await striped[0].command("HLEN", keys.segments(RUN, stripe)) == 1
    assert sorted(row["url"] for row in read_pages(RunPaths(tmp_path, RUN).pages)) == sorted(URLS)


@pytest.mark.parametrize("is_recorded", [False, True], ids=["before the record", "after it"])
@pytest.mark.parametrize("segment", [1, 2, 4])
async def test_a_parser_that_dies_at_any_of_its_commits_loses_no_page_and_stores_none_twice(
    striped: list[RedisClient],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    segment: int,
    is_recorded: bool,
) -> None:
    await push(striped[0])
    dying = make(striped[0], "dying-1", tmp_path)
    commit: Callable[..., Awaitable[None]] = dying._queue.commit
    calls = 0

    async def commit_and_die(*args: object) -> None:
        nonlocal calls
        calls += 1
        if calls < segment or is_recorded:
            await commit(*args)
        if calls == segment:
            raise PowerCut

    monkeypatch.setattr(dying._queue, "commit", commit_and_die)
    with pytest.raises(PowerCut):
        await dying.run()
    # What the kernel does when a process ends.
    for intake in dying._intakes.all:
        for lock in intake.segment._locks:
            os.close(lock)
        intake.segment._locks = []
    queue = PageQueue(striped[1], RUN)
    await queue.reclaim_dead(await queue.now_ms() + 60_000, 30_000)

    await make(striped[1], "next-1", tmp_path).run()

    assert sorted(row["url"] for row in read_pages(RunPaths(tmp_path, RUN).pages)) == sorted(URLS)
    assert (await read_page_counters(striped[1], RUN))["stored"] == len(URLS)
    assert unfinished(RunPaths(tmp_path, RUN).pages) == []
