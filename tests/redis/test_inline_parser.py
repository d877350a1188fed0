"""A parser in a thread of its shard: it drains what it can, leaves the rest, and loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from crawlproj.config import load_config
from crawlproj.errors import BadSetting
from crawlproj.model.records import Page
from crawlproj.observe.metrics import Metrics
from crawlproj.observe.process import Heartbeat
from crawlproj.pages.envelope import pack
from crawlproj.pages.queue import PageQueue
from crawlproj.parsing.thread import ParserThread
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.storage import read_pages
from tests.patience import PATIENCE_S, until

RUN = "web"
#: Tries all ways to split a long row of letters, which takes for ever.
HANGS_ON = {"hang": "xpath://body[re:test(string(.), '(a+)+$')]"}
HANGING = "<body>" + "a" * 60 + "!"


@pytest.fixture
async def parser_of(redis_url: str, tmp_path: Path) -> AsyncIterator[Callable[..., ParserThread]]:
    """Starts a parser with settings: ``parser_of(CRAWL_DRAIN_SECONDS=0)``; it is gone when the test ends."""
    started: list[ParserThread] = []

    def start(**settings: object) -> ParserThread:
        config = load_config({"REDIS_URL": redis_url, "CRAWL_DATA": str(tmp_path)} | settings)
        started.append(ParserThread(config, RUN, Metrics(), Heartbeat()))
        return started[-1]

    yield start
    for parser in started:
        await parser.leave()


async def put(client: RedisClient, *bodies: str) -> set[str]:
    """Put a page for each of *bodies* onto the queue; returns their URLs."""
    await Run.open(client, RUN, partitions=64)
    pages = [
        Page(
            f"http://a.test/{n}",
            RUN,
            "a.test",
            0,
            200,
            1,
            1,
            {"content-type": "text/html"},
            body.encode(),
        )
        for n, body in enumerate(bodies)
    ]
    await client.command("RPUSH", keys.pages(RUN), *(pack(page) for page in pages))
    return {page.url for page in pages}


def stored_in(data: Path) -> list[str]:
    return sorted(row["url"] for row in read_pages(data / "runs" / RUN / "pages", ("url",)))


async def test_it_drains_the_whole_queue_once_its_shard_has_left(
    client: RedisClient, parser_of: Callable[..., ParserThread], tmp_path: Path
) -> None:
    urls = await put(client, *["<p>words"] * 300)
    parser = parser_of(CRAWL_DRAIN_SECONDS=PATIENCE_S)
    await until(PageQueue(client, RUN).parsers)

    await parser.drain()

    await parser.done
    assert stored_in(tmp_path) == sorted(urls)
    assert (await Run(client, RUN, 64).read_counters()).unstored == 0
    assert await PageQueue(client, RUN).parsers() == set()


async def test_what_it_has_no_time_for_stays_in_the_queue(
    client: RedisClient, parser_of: Callable[..., ParserThread], tmp_path: Path
) -> None:
    urls = await put(client, *["<p>words"] * 3000)
    parser = parser_of(CRAWL_DRAIN_SECONDS=0)

    async def has_begun() -> bool:
        return await PageQueue(client, RUN).length() < len(urls)

    await until(has_begun)

    await parser.drain()

    await parser.done
    left = await PageQueue(client, RUN).length()
    assert left > 0
    assert len(stored_in(tmp_path)) + left == len(urls)
    assert await PageQueue(client, RUN).parsers() == set()


async def test_it_continues_while_its_shard_is_alive_though_the_queue_is_empty(
    client: RedisClient, parser_of: Callable[..., ParserThread], tmp_path: Path
) -> None:
    first = await put(client, "<p>words")
    parser = parser_of(CRAWL_SEGMENT_SECONDS=0.1)
    await until(PageQueue(client, RUN).segments)

    more = await put(client, "<p>words", "<p>more")
    await parser.drain()

    await parser.done
    assert stored_in(tmp_path) == sorted([*first, *more])


async def test_one_that_hangs_over_a_page_is_left_with_force_and_its_pages_come_again(
    client: RedisClient, parser_of: Callable[..., ParserThread], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crawlproj.parsing.thread._COMMIT_S", 0.2)
    await put(client, HANGING, HANGING)
    settings = {"CRAWL_FIELDS": HANGS_ON, "CRAWL_PARSE_SECONDS": 600, "CRAWL_DRAIN_SECONDS": 0}
    parser = parser_of(**settings)

    async def is_taken() -> bool:
        return not await PageQueue(client, RUN).length()

    await until(is_taken)

    # Its page would take longer.
    async with asyncio.timeout(PATIENCE_S):
        await parser.drain()
        await parser.done

    assert (await Run(client, RUN, 64).read_counters()).unstored == 2
    queued = await client.command("LRANGE", keys.pages(RUN), 0, -1)
    assert [raw for raw in queued if raw.startswith(b"failed")] == []


async def test_a_wrong_setting_ends_it_with_the_reason(
    client: RedisClient, parser_of: Callable[..., ParserThread]
) -> None:
    await Run.open(client, RUN, partitions=64)
    parser = parser_of(CRAWL_FIELDS={"x": "css:["})

    with pytest.raises(BadSetting, match="CRAWL_FIELDS"):
        await parser.done
