"""Turns at IP addresses (CRAWL_IP_DELAY): asked for before anything is sent, and given back always."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import twisted.internet
from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadConnectionRefusedError, DownloadTimeoutError
from scrapy.http import Response
from scrapy.settings import Settings
from twisted.internet.address import IPv4Address

from crawlproj.download.client import client_of
from crawlproj.download.errors import AddressBusyError
from crawlproj.download.handler import HttpHandler
from crawlproj.frontier.addresses import AddressGate
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from tests.conftest import RedisServer
from tests.unit.download.rawserver import Serve, Visit, until

RUN = "web"
HERE, NOBODY = "127.0.0.1", "127.0.0.9"
HELLO = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"

Fetch = Callable[..., Awaitable[Response]]


class Names:
    """a.test and b.test are here; nothing listens at the first address of c.test, nor at any of d.test's."""

    known: ClassVar = {"a.test": [HERE], "b.test": [HERE], "c.test": [NOBODY, HERE], "d.test": [NOBODY]}

    def resolveHostName(self, receiver: Any, name: str, *_: Any) -> None:  # noqa: N802
        for address in self.known[name]:
            receiver.addressResolved(IPv4Address("TCP", address, 0))
        receiver.resolutionComplete()


@pytest.fixture
async def handler_of(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., HttpHandler]]:
    monkeypatch.setattr(twisted.internet, "reactor", SimpleNamespace(nameResolver=Names()), raising=False)
    made: list[HttpHandler] = []

    def make(gate: AddressGate | None) -> HttpHandler:
        crawler = Crawler(Spider, Settings({"CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8"}))
        if gate is not None:
            client_of(crawler).address_gate = gate
        made.append(HttpHandler(crawler))
        return made[-1]

    yield make
    for handler in made:
        await handler.close()


@pytest.fixture
def fetch(client: RedisClient, handler_of: Callable[..., HttpHandler]) -> Fetch:
    """Fetches a URL; the next request to its address has to wait for a minute."""
    handler = handler_of(AddressGate(client, RUN, 60.0))

    async def fetch_once(host: str, port: int, **meta: Any) -> Response:
        return await handler.download_request(Request(f"http://{host}:{port}/", meta=meta))

    return fetch_once


async def state(client: RedisClient, ip: str = HERE) -> str:
    inside, free = await client.command("HMGET", keys.address(RUN, ip), "token", "free")
    if inside:
        return "inside"
    return "left" if free else "never there"


async def test_a_domain_whose_address_rests_is_not_even_connected_to(serve: Serve, fetch: Fetch) -> None:
    server = await serve(HELLO)
    await fetch("a.test", server.port)

    with pytest.raises(AddressBusyError, match=r"127\.0\.0\.1 is due in .* s \(CRAWL_IP_DELAY\)") as busy:
        await fetch("b.test", server.port)

    assert 59 < busy.value.wait_s <= 60.1
    assert (server.connections, len(server.requests)) == (1, 1)


async def test_a_connection_that_is_open_waits_for_its_turn_too_and_is_closed(
    serve: Serve, fetch: Fetch
) -> None:
    server = await serve(HELLO)
    await fetch("a.test", server.port)

    with pytest.raises(AddressBusyError):
        await fetch("a.test", server.port)

    assert len(server.requests) == 1
    await server.wait_until(lambda: server.gone == 1)


async def test_an_open_connection_is_used_when_it_is_its_turn(
    serve: Serve, client: RedisClient, handler_of: Callable[..., HttpHandler]
) -> None:
    server, handler = await serve(HELLO), handler_of(AddressGate(client, RUN, 0.0))

    for _ in range(3):
        await handler.download_request(Request(f"http://a.test:{server.port}/"))

    assert (server.connections, len(server.requests)) == (1, 3)


async def test_a_connection_the_server_closed_while_redis_was_asked_is_replaced(
    serve: Serve,
    handler_of: Callable[..., HttpHandler],
    redis_server_factory: Callable[..., RedisServer],
    tmp_path: Path,
) -> None:
    redis, closing = redis_server_factory(), asyncio.Event()

    async def answer_once(visit: Visit) -> None:
        await visit.request()
        await visit.send(HELLO)
        await closing.wait()

    server = await serve(answer_once)
    client = await RedisClient.open(url=redis.url, data_dir=tmp_path, wait_s=10)
    handler = handler_of(AddressGate(client, RUN, 0.0))
    request = Request(f"http://a.test:{server.port}/", meta={"download_timeout": 5})
    await handler.download_request(request)

    redis.pause()
    again = asyncio.ensure_future(handler.download_request(request))
    await until(lambda: handler._client.pool.idle_connections == 0)
    closing.set()
    await until(lambda: handler._client.pool.open_connections == 0)
    redis.unpause()
    response = await again

    assert response.body == b"hello"
    assert server.connections == 2
    await client.close()


async def test_the_address_is_left_when_the_response_has_come_and_not_before(
    serve: Serve, fetch: Fetch, client: RedisClient
) -> None:
    seen = []

    async def answer(visit: Visit) -> None:
        await visit.request()
        seen.append(await state(client))
        await visit.send(HELLO[:-1])
        seen.append(await state(client))
        await visit.send(HELLO[-1:])

    server = await serve(answer)
    await fetch("a.test", server.port)

    assert seen == ["inside", "inside"]
    assert await state(client) == "left"


async def test_the_address_is_left_when_the_connection_is_refused(
    fetch: Fetch, serve: Serve, client: RedisClient
) -> None:
    server = await serve(HELLO)

    with pytest.raises(DownloadConnectionRefusedError):
        await fetch("d.test", server.port)

    assert await state(client, NOBODY) == "left"


async def test_of_two_addresses_each_is_visited_by_itself(
    fetch: Fetch, serve: Serve, client: RedisClient
) -> None:
    server = await serve(HELLO)

    await fetch("c.test", server.port)

    assert [await state(client, NOBODY), await state(client)] == ["left", "left"]


async def test_the_address_is_left_when_the_time_is_over(
    fetch: Fetch, serve: Serve, client: RedisClient
) -> None:
    async def never(visit: Visit) -> None:
        await visit.request()
        await visit.request()

    server = await serve(never)

    with pytest.raises(DownloadTimeoutError):
        await fetch("a.test", server.port, download_timeout=2)

    assert await state(client) == "left"


async def test_the_address_is_left_when_the_download_is_cancelled(
    fetch: Fetch, serve: Serve, client: RedisClient
) -> None:
    asked = asyncio.Event()

    async def never(visit: Visit) -> None:
        await visit.request()
        asked.set()
        await visit.request()

    server = await serve(never)
    task = asyncio.ensure_future(fetch("a.test", server.port))
    await asked.wait()

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert await state(client) == "left"


async def test_the_time_a_request_may_be_on_its_way_is_its_own(
    fetch: Fetch, serve: Serve, client: RedisClient
) -> None:
    spans_ms = []

    async def answer(visit: Visit) -> None:
        await visit.request()
        began, until = await client.command("HMGET", keys.address(RUN, HERE), "began", "until")
        spans_ms.append(int(until) - int(began))
        await visit.send(HELLO)

    server = await serve(answer)
    await fetch("a.test", server.port, download_timeout=7)

    assert 6500 < spans_ms[0] <= 7000


async def test_without_a_gate_nothing_is_sent_to_redis(
    serve: Serve, client: RedisClient, handler_of: Callable[..., HttpHandler]
) -> None:
    server, handler = await serve(HELLO), handler_of(None)

    for host in ("a.test", "b.test"):
        await handler.download_request(Request(f"http://{host}:{server.port}/"))

    assert len(server.requests) == 2
    assert await client.command("DBSIZE") == 0
