"""Shards on a Redis that is short of room, and a whole run whose links do not fit into it at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from crawlproj.config import load_config
from crawlproj.model.extra import Extra
from crawlproj.model.records import Candidate, Lease, Page
from crawlproj.model.run import RunPaths, RunState
from crawlproj.pages.envelope import pack
from crawlproj.pages.queue import PageQueue
from crawlproj.parsing.worker import Parser
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Run
from crawlproj.runs.leader import Leader
from crawlproj.storage import read_pages
from tests.conftest import RedisServer
from tests.patience import until
from tests.redis.shards import LONG, PARTITIONS, RUN, QueueLimits, Shard, Shards, sites

pytestmark = pytest.mark.usefixtures("quick_parsers")

LIMITS = replace(LONG, queue=QueueLimits(1000, 2000, redis_share=0.9))
HUBS, LINKS = 20, 300


@pytest.fixture
async def client(
    redis_server_factory: Callable[..., RedisServer], tmp_path: Path
) -> AsyncIterator[RedisClient]:
    """A client to a server of the test's own, so that others do not meet it short of room."""
    opened = await RedisClient.open(url=redis_server_factory().url, data_dir=tmp_path, wait_s=5)
    yield opened
    await opened.close()


async def set_share(client: RedisClient, share: float) -> None:
    used = (await client.read_memory()).used
    await client.command("CONFIG SET", "maxmemory", int(used / share))


async def test_nothing_is_leased_while_redis_is_short_of_room_until_all_pages_are_stored(
    shards: Shards, client: RedisClient
) -> None:
    queue = PageQueue(client, RUN)
    await shards.admit(*sites(30))
    await client.command("RPUSH", keys.pages(RUN), b"1", b"2")
    await queue.heartbeat("p", 0)
    await queue.take("p", 1)
    await set_share(client, 0.95)

    shard = await shards.open(limits=LIMITS)
    await until(lambda: shard.feed.metrics.back_pressure["memory"] == 1)
    await asyncio.sleep(0.5)
    with_both = shard.dispatcher.pacer.buffered
    await queue.take("p", 1)
    await queue.commit("p", "p-000001", 1)
    await asyncio.sleep(0.5)
    with_one_held = shard.dispatcher.pacer.buffered
    await queue.commit("p", "p-000002", 1)

    await until(lambda: shard.dispatcher.pacer.buffered == 30)
    assert (with_both, with_one_held) == (0, 0)


async def test_a_shard_leases_again_when_there_is_room(shards: Shards, client: RedisClient) -> None:
    await shards.admit(*sites(30))
    await client.command("RPUSH", keys.pages(RUN), b"1")
    await set_share(client, 0.95)
    shard = await shards.open(limits=LIMITS)
    await until(lambda: shard.feed.metrics.back_pressure["memory"] == 1)

    await set_share(client, 0.5)

    await until(lambda: shard.dispatcher.pacer.buffered == 30)


async def test_a_shard_drains_a_frontier_that_fills_redis_itself(shards: Shards, client: RedisClient) -> None:
    await shards.admit(*sites(30))
    shard = await shards.open(limits=LIMITS)
    await until(lambda: shard.dispatcher.pacer.buffered == 30)
    await client.command("CONFIG SET", "maxmemory", 1)

    leases = await shard.take_some(30)
    for lease in leases:
        shard.fetch(lease)

    await until(lambda: not shard.dispatcher.has_work)
    # With nothing to lease, and Redis full, it still answers.
    await shard.feed.frontier.lease(
        [(hold, 1) for hold in shard.feed._holdings.holds.values()], chain=1, chain_ms=0
    )
    assert not client.retry.is_waiting
    assert (await shards.read_counters()).outstanding == 0


async def test_where_a_redirect_leads_is_admitted_and_its_page_settled_on_a_full_redis(
    shards: Shards, client: RedisClient
) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(limits=LIMITS)
    lease = await shard.take_one()
    await client.command("CONFIG SET", "maxmemory", 1)

    shard.dispatcher.add([Candidate("https://b.test/", extra=Extra(hops=1))])
    shard.fetch(lease, status=301, page=b"page")

    target = await shard.take_one()
    assert target.url == "https://b.test/"
    assert await client.command("LLEN", keys.pages(RUN)) == 1


def page_of(lease: Lease) -> bytes:
    """The home page links to hubs, a hub to LINKS pages with long URLs, and those to nothing."""
    links: list[str] = []
    if lease.url.endswith("/hubs"):
        links = [f"http://hub{number}.test/" for number in range(HUBS)]
    elif lease.url.startswith("http://hub") and lease.url.endswith(".test/"):
        hub = lease.domain.removeprefix("hub").removesuffix(".test")
        links = [f"http://leaf{n % 50}.test/{'x' * 600}-{hub}-{n}" for n in range(LINKS)]
    body = "".join(f"<a href='{link}'>x</a>" for link in links).encode()
    headers = {"content-type": "text/html"}
    return pack(Page(lease.url, RUN, lease.domain, lease.depth, 200, 0, 1, headers, body))


async def crawl(shard: Shard, run: Run) -> int:
    """Fetch everything, and lead the run, until it has ended; returns how many links were spilled at most."""
    leader = Leader(run, ProcessName.of_this(), 60_000)
    most_spilled = 0
    while not await leader.step():
        for lease in shard.take_leases():
            shard.fetch(lease, page=page_of(lease))
        most_spilled = max(most_spilled, (await run.read_counters()).spilled)
        await asyncio.sleep(0.01)
    return most_spilled


@pytest.mark.parametrize(
    ("room_bytes", "share"),
    [
        pytest.param(2_000_000, 0.85, id="room comes back"),
        # An empty Redis uses more than this share.
        pytest.param(3_000_000, 0.1, id="room never comes back"),
    ],
)
async def test_a_run_whose_links_fit_on_disk_but_not_into_redis_ends_by_itself(
    shards: Shards, client: RedisClient, tmp_path: Path, room_bytes: int, share: float
) -> None:
    run = shards.run
    await run.begin(is_first=True)
    await shards.admit("http://start.test/hubs")
    shard = await shards.open(limits=replace(LIMITS, batch=256))

    async def is_over() -> bool:
        return await run.state() == RunState.FINISHED

    settings = {"CRAWL_PARTITIONS": PARTITIONS, "CRAWL_DATA": str(tmp_path), "CRAWL_SPILL_SHARE": share}
    settings["CRAWL_SCOPE"] = "everything"
    parser = Parser(run, load_config(settings), "p", is_over)
    await client.command("CONFIG SET", "maxmemory", (await client.read_memory()).used + room_bytes)
    parsing = asyncio.create_task(parser.run())
    async with asyncio.timeout(120):
        most_spilled = await crawl(shard, run)
        await parsing

    urls = Counter(row["url"] for row in read_pages(RunPaths(tmp_path, RUN).pages, ("url",)))
    assert set(urls.values()) == {1}
    assert len(urls) == 1 + HUBS + HUBS * LINKS
    assert most_spilled > 0
    assert (await run.read_counters()).spilled == 0
    assert not any(RunPaths(tmp_path, RUN).spills.iterdir())
