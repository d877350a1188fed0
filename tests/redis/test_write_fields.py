"""A Redis at its `maxmemory`: what looks writes nothing, what empties it works, the rest says what to do.

With it the step write_fields, which heartbeats and changes of a run's record take.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from scrapy.settings import Settings

from crawlproj.errors import RedisFull
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate, Outcome, Settlement
from crawlproj.pages.deadletters import DeadLetter
from crawlproj.pages.queue import PageQueue
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName, hold_name
from crawlproj.runs import Run, RunState
from crawlproj.runs.membership import Membership
from tests.conftest import RedisServer

PAGES = (b"1", b"2", b"3", b"4")
#: The commands that only look, with their arguments.
LOOKS = (("status",), ("status", "--json"), ("runs",), ("parked",), ("deadletters",))
Scrapy = Callable[..., Awaitable[list[str]]]


@pytest.fixture
def server(redis_server_factory: Callable[..., RedisServer]) -> RedisServer:
    return redis_server_factory()


@pytest.fixture
async def client(server: RedisServer, tmp_path: Path) -> AsyncIterator[RedisClient]:
    """A client to a server of the test's own, so that others do not meet it full."""
    opened = await RedisClient.open(url=server.url, data_dir=tmp_path, wait_s=0.2)
    yield opened
    await opened.close()


@pytest.fixture
async def run(client: RedisClient) -> Run:
    """A run with a URL and four pages waiting."""
    run = await Run.open(client, "web", partitions=1, shards=1)
    await Frontier(client, "web", 1).admit([Candidate("http://a.test/")])
    await client.command("RPUSH", keys.pages("web"), *PAGES)
    return run


@pytest.fixture
def scrapy(server: RedisServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Scrapy:
    async def do(name: str, *arguments: str, url: str = "") -> list[str]:
        command = importlib.import_module(f"crawlproj.commands.{name}").Command()
        command.settings = Settings(
            {"REDIS_URL": url or server.url, "CRAWL_DATA": str(tmp_path), "CRAWL_REDIS_WAIT_SECONDS": "0.2"}
        )
        parser = argparse.ArgumentParser(conflict_handler="resolve")
        command.add_options(parser)
        capsys.readouterr()
        await command.work([], parser.parse_args(list(arguments)))
        return capsys.readouterr().out.splitlines()

    return do


async def fill(client: RedisClient) -> None:
    await client.command("CONFIG SET", "maxmemory", 1)


@pytest.mark.parametrize("look", LOOKS, ids=" ".join)
async def test_a_command_that_looks_needs_no_right_to_write(
    client: RedisClient, server: RedisServer, run: Run, scrapy: Scrapy, look: tuple[str, ...]
) -> None:
    rights = ("+@read", "+@connection", "+info", "+time")
    await client.command("ACL SETUSER", "looker", "on", ">x", "~*", "&*", *rights)

    assert await scrapy(*look, url=server.url.replace("unix://", "unix://looker:x@"))


@pytest.mark.parametrize("look", LOOKS, ids=" ".join)
async def test_a_full_redis_can_be_looked_at(
    client: RedisClient, run: Run, scrapy: Scrapy, look: tuple[str, ...]
) -> None:
    await fill(client)

    assert await scrapy(*look)


async def test_the_status_says_that_redis_is_full_and_what_to_do(
    client: RedisClient, run: Run, scrapy: Scrapy
) -> None:
    before = await scrapy("status")
    await fill(client)

    full = await scrapy("status")

    assert not any("is full" in line for line in before)
    [line] = [line for line in full if "is full" in line]
    assert "MB of 0.0 MB (maxmemory). Raise maxmemory, or delete a run" in line


@pytest.mark.parametrize(("name", "state"), [("pause", RunState.PAUSED), ("stop", RunState.STOPPED)])
async def test_a_run_on_a_full_redis_can_be_paused_and_stopped(
    client: RedisClient, run: Run, scrapy: Scrapy, name: str, state: RunState
) -> None:
    await fill(client)

    await scrapy(name)

    assert await run.state() == state


async def test_a_run_on_a_full_redis_can_be_deleted(client: RedisClient, run: Run, scrapy: Scrapy) -> None:
    await fill(client)

    await scrapy("runs", "--delete", "web", "--yes")

    assert await Run.names(client) == []
    assert await client.command("DBSIZE") == 0


async def test_pages_are_taken_waited_for_committed_and_returned_on_a_full_redis(
    client: RedisClient, run: Run
) -> None:
    await fill(client)
    queue = PageQueue(client, "web")
    await Run.open(client, "web", partitions=1)
    await queue.heartbeat("p", 0)

    taken = await queue.take("p", 3)
    await queue.commit("p", "p-000001", 1, {"stored": 1})
    await queue.fail("p", b"2", DeadLetter("2", "", "bad", "p", 0), 2)
    returned = await queue.leave("p")

    assert [page for _, page in taken] == [b"1", b"2", b"3"]
    assert returned == 1
    await queue.heartbeat("q", 0)
    assert [page for _, page in await queue.take("q", 9, wait_s=1)] == [b"3", b"4", b"failed 1 2"]
    assert await queue.take("q", 9, wait_s=0.01) == []


async def test_a_shard_keeps_what_it_owns_and_settles_on_a_full_redis(client: RedisClient, run: Run) -> None:
    frontier = Frontier(client, "web", 1)
    hold = await frontier.acquire(0, "a", ttl_ms=10_000, delay_ms=0, delays_ms={})
    assert hold is not None
    [lease], _ = await frontier.lease([(hold, 1)], chain=1, chain_ms=0)
    await fill(client)

    assert await hold_name(client, keys.shard("web", 0), ProcessName.of_this(), 10_000) is None
    await frontier.renew([hold], 10_000)
    await frontier.settle([Settlement(lease, Outcome.DONE, page=b"5")])
    await frontier.release([hold])
    again = await frontier.acquire(0, "b", ttl_ms=10_000, delay_ms=0, delays_ms={})

    assert await client.command("LINDEX", keys.pages("web"), -1) == b"5"
    assert again is not None


async def test_the_leader_ends_a_run_on_a_full_redis(client: RedisClient, run: Run) -> None:
    await fill(client)

    await run.begin(is_first=True)
    await run.ask_to_commit()
    await run.set_shards(1)
    given = await Membership(run, ProcessName.of_this(), 1, data="", silent_s=30).keep([], [])

    assert await run.commits_asked() > 0
    assert await run.end(RunState.FINISHED)
    assert given.numbers == (0,)


async def test_what_cannot_be_stored_fails_with_what_to_do(client: RedisClient, run: Run) -> None:
    await fill(client)

    with pytest.raises(RedisFull, match=r"is full: it uses .* MB of 0.0 MB \(maxmemory\). Raise maxmemory"):
        await Frontier(client, "web", 1).admit([Candidate("http://b.test/")])


async def test_what_cannot_be_stored_is_stored_when_there_is_room(client: RedisClient, run: Run) -> None:
    await fill(client)
    client.retry._wait_s = 30
    admitting = asyncio.create_task(Frontier(client, "web", 1).admit([Candidate("http://b.test/")]))
    while not client.retry.is_waiting:  # noqa: ASYNC110
        await asyncio.sleep(0.01)

    await client.command("CONFIG SET", "maxmemory", 0)

    assert (await admitting).new == 1
