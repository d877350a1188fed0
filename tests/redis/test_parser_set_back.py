"""A parser whose Redis is set back: no page is lost or stored twice, and no link is forgotten."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from crawlproj.config import load_config
from crawlproj.errors import RunReplaced, SetBack
from crawlproj.model.records import Page
from crawlproj.pages.deadletters import DeadLetter
from crawlproj.pages.envelope import pack
from crawlproj.pages.queue import PageQueue
from crawlproj.parsing.worker import Parser
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.storage import read_pages
from tests.patience import PATIENCE_S, until
from tests.redis.setbacks import Backup

pytestmark = pytest.mark.usefixtures("quick_parsers")

RUN = "web"
PARTITIONS = 2
URLS = [f"http://a.test/{number}" for number in range(3)]


class Parsers:
    """Parsers of one run, each with a client of its own, until `finish`."""

    def __init__(self, redis_url: str, data: Path, client: RedisClient) -> None:
        self._redis_url = redis_url
        self._data = data
        self._queue = PageQueue(client, RUN)
        self._clients: list[RedisClient] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._is_over = False
        self.client = client
        self.pages = data / "runs" / RUN / "pages"
        self.pages.mkdir(parents=True)

    async def start(self, name: str, **settings: object) -> Parser:
        client = await RedisClient.open(url=self._redis_url, data_dir=self._data, wait_s=10)
        self._clients.append(client)
        run = await Run.open(client, RUN, partitions=PARTITIONS)
        run.watch()
        defaults = {"CRAWL_DATA": str(self._data), "CRAWL_SCOPE": "everything"}
        config = load_config(defaults | settings)
        parser = Parser(run, config, name, self._ask)
        self._tasks.append(asyncio.create_task(parser.run(), name=name))
        return parser

    async def _ask(self) -> bool:
        return self._is_over

    async def kill(self) -> None:
        """As SIGKILL would: no word to anybody."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()
        for client in self._clients:
            await client.close()
        self._clients.clear()

    async def finish(self) -> None:
        """Let them store what is queued, and end."""
        self._is_over = True
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*self._tasks)
        assert (await Run(self.client, RUN, PARTITIONS).read_counters()).unstored == 0

    def stored(self) -> list[str]:
        return sorted(row["url"] for row in read_pages(self.pages, ("url",)))

    def files(self, pattern: str) -> list[str]:
        return sorted(path.name for path in self.pages.glob(pattern))

    async def links(self) -> int:
        """How many URLs the frontier has got."""
        return (await Run(self.client, RUN, PARTITIONS).read_counters()).admitted

    async def records(self) -> int:
        return len(await self._queue.segments())


@pytest.fixture
async def parsers(redis_url: str, bystander: RedisClient, tmp_path: Path) -> AsyncIterator[Parsers]:
    await Run.open(bystander, RUN, partitions=PARTITIONS)
    made = Parsers(redis_url, tmp_path, bystander)
    yield made
    await made.kill()


async def put(client: RedisClient, urls: list[str]) -> None:
    """Queue a page for each of *urls*, with a link to a page of its own."""
    for url in urls:
        body = f'<a href="{url}/link">x</a>'.encode()
        page = Page(url, RUN, "a.test", 0, 200, 1, 1, {"content-type": "text/html"}, body)
        await client.command("RPUSH", keys.pages(RUN), pack(page))


async def test_an_open_segment_is_abandoned_and_its_pages_are_stored_once_with_their_links_admitted_again(
    parsers: Parsers, bystander: RedisClient
) -> None:
    await put(bystander, URLS)
    backup = await Backup.of(bystander)
    parser = await parsers.start("p")
    await until(lambda: parser._intakes.rows == 3)
    assert await parsers.links() == 3

    await backup.restore()
    await until(lambda: parser._intakes[None].segment.name.endswith("-000002") and parser._intakes.rows == 3)
    await parsers.finish()

    assert parsers.stored() == URLS
    assert await parsers.links() == 3
    assert parsers.files("*.part") == []


async def test_a_published_segment_that_redis_lost_is_withdrawn_and_its_pages_are_stored_again(
    parsers: Parsers, bystander: RedisClient
) -> None:
    await put(bystander, URLS)
    backup = await Backup.of(bystander)
    await parsers.start("p", CRAWL_SEGMENT_PAGES=1)
    await until(parsers.records)
    await until(lambda: parsers.stored() == URLS)
    lost = parsers.files("*.parquet")

    await backup.restore()
    await until(lambda: parsers.files("*.withdrawn"))
    await parsers.finish()

    assert parsers.files("*.withdrawn") == [f"{name}.withdrawn" for name in lost]
    assert parsers.stored() == URLS


async def test_a_segment_that_a_dead_parser_published_in_the_lost_time_is_withdrawn_by_the_next(
    parsers: Parsers, bystander: RedisClient
) -> None:
    await put(bystander, URLS)
    backup = await Backup.of(bystander)
    await parsers.start("dead", CRAWL_SEGMENT_PAGES=1)
    await until(lambda: parsers.stored() == URLS)
    await parsers.kill()

    await backup.restore()
    await parsers.start("next")
    await parsers.finish()

    assert parsers.stored() == URLS
    assert all(name.startswith("dead") for name in parsers.files("*.withdrawn"))


async def test_a_parser_whose_registration_was_lost_stores_its_pages_once_though_its_files_were_removed(
    parsers: Parsers, bystander: RedisClient
) -> None:
    await put(bystander, URLS)
    backup = await Backup.of(bystander)
    living = await parsers.start("living")
    await until(lambda: living._intakes.rows == 3)
    [part] = parsers.files("*.part")

    await backup.restore()
    # By another parser that does not know it.
    (parsers.pages / part).unlink()
    await parsers.start("other")
    await parsers.finish()

    assert Counter(parsers.stored()) == Counter(URLS)


async def test_segments_of_an_earlier_run_of_the_same_name_are_left_alone(
    parsers: Parsers, bystander: RedisClient
) -> None:
    await put(bystander, URLS[:1])
    await parsers.start("p")
    await parsers.finish()
    await parsers.kill()
    await Run(bystander, RUN, PARTITIONS).delete()
    await asyncio.sleep(0.002)  # Runs differ by the ms they were created in.
    await Run.open(bystander, RUN, partitions=PARTITIONS)

    await put(bystander, URLS[1:])
    await parsers.start("q")
    await parsers.finish()

    assert parsers.stored() == URLS
    assert parsers.files("*.withdrawn") == []


@pytest.mark.parametrize("how", ["deleted", "lost"])
async def test_what_is_stored_stays_when_the_whole_run_is_gone(
    parsers: Parsers, bystander: RedisClient, how: str
) -> None:
    await put(bystander, URLS[:1])
    parser = await parsers.start("p", CRAWL_SEGMENT_PAGES=1)
    await until(parsers.records)
    await until(lambda: parsers.stored() == URLS[:1])
    run, before = Run(bystander, RUN, PARTITIONS), parser._heartbeat_s

    if how == "deleted":
        await run.delete()
        await bystander.command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    else:
        await Backup(bystander, {}).restore()
    # It starts over, with a heartbeat.
    await until(lambda: parser._heartbeat_s > before)
    await parsers.finish()

    assert parsers.stored() == URLS[:1]


async def test_a_parser_leaves_the_pages_of_another_run_of_its_name_alone(
    parsers: Parsers, bystander: RedisClient
) -> None:
    await put(bystander, URLS[:1])
    await parsers.start("p", CRAWL_SEGMENT_PAGES=1)
    await until(parsers.records)

    await bystander.command("HSET", keys.run_record(RUN), "created_ms", 7)
    await put(bystander, URLS[1:])

    with pytest.raises(RunReplaced):
        await parsers.finish()
    assert parsers.stored() == URLS[:1]


@pytest.mark.parametrize("step", ["take", "commit", "fail"])
async def test_no_step_that_relies_on_the_pages_taken_is_sent_after_a_set_back(
    client: RedisClient, bystander: RedisClient, step: str
) -> None:
    run = await Run.open(client, RUN, partitions=PARTITIONS)
    run.watch()
    queue = PageQueue(client, RUN)
    queue.generation = client.generation
    await put(bystander, URLS)
    await queue.heartbeat("p", 1)
    [(_, page), _] = await queue.take("p", 2)
    backup = await Backup.of(bystander)
    await client.command("PING")
    await backup.restore()

    steps: dict[str, Callable[[], Awaitable[object]]] = {
        "take": lambda: queue.take("p", 1),
        "commit": lambda: queue.commit("p", "p-000001", 1),
        "fail": lambda: queue.fail("p", page, DeadLetter.of(page, "", "bad", "p"), 3),
    }

    with pytest.raises(SetBack):
        await steps[step]()

    assert await bystander.command("LLEN", keys.pages_taken(RUN, "p")) == 2


async def test_the_records_of_segments_are_the_last_of_a_run_to_be_deleted(
    client: RedisClient, bystander: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await Run.open(client, RUN, partitions=PARTITIONS)
    await client.command("HSET", keys.segments(RUN), "p-000001", 1)
    command, left = client.command, []

    async def command_and_look(*args: Any) -> Any:
        answer = await command(*args)
        left.append(set(await bystander.command("KEYS", f"crawl:{{{RUN}}}:*")))
        return answer

    monkeypatch.setattr(client, "command", command_and_look)

    await run.delete()

    with_record = [found for found in left if keys.run_record(RUN).encode() in found]
    assert all(keys.segments(RUN).encode() in found for found in with_record)
    assert {keys.segments(RUN).encode()} in left
    assert left[-1] == set()


async def test_a_parser_that_starts_leaves_alone_what_another_publishes_meanwhile(
    parsers: Parsers, bystander: RedisClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await Run.open(bystander, RUN, partitions=PARTITIONS)
    # There is something to recover, so that it looks.
    (parsers.pages / f"dead-r{run.created_ms:x}-000001.parquet.part").touch()
    read = PageQueue.segments

    async def read_then_publish(self: PageQueue) -> set[str]:
        found = await read(self)
        (parsers.pages / f"busy-r{run.created_ms:x}-000001.parquet").touch()
        return found

    monkeypatch.setattr(PageQueue, "segments", read_then_publish)

    await parsers.start("p")
    await until(lambda: not parsers.files("*.part"))

    assert parsers.files("*") == [f"busy-r{run.created_ms:x}-000001.parquet"]
