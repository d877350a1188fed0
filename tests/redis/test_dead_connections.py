"""A link that is cut kills idle connections without a word: that is an outage, not an error."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from crawlproj.redisio import retry
from crawlproj.redisio.client import RedisClient
from tests.chaos.proxy import Proxy
from tests.patience import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux drops the packets of one socket")

#: The kernel gives up a silent connection after two seconds, not after the minute it would take by default.
_KEEPALIVE = {"TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 1}


class Link:
    """Clients whose connections can be cut, and one beside the link."""

    def __init__(self, folder: Path, server: str, proxied: str, proxy: Proxy) -> None:
        self._folder, self._server, self._proxied = folder, server, proxied
        self.proxy = proxy
        self._opened: list[RedisClient] = []

    async def client(self) -> RedisClient:
        options = {getattr(socket, name): value for name, value in _KEEPALIVE.items()}
        params = {"socket_keepalive_options": options}
        return await self._open(url=self._proxied, params=params, wait_s=60)

    async def beside(self) -> RedisClient:
        return await self._open(url=self._server)

    async def _open(self, **more: Any) -> RedisClient:
        self._opened.append(await RedisClient.open(data_dir=self._folder, **more))
        return self._opened[-1]

    async def close(self) -> None:
        for client in self._opened:
            await client.close()
        await self.proxy.close()


@pytest.fixture
async def link(
    redis_server_factory: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Link]:
    monkeypatch.setattr(retry, "ANSWER_S", 0.5)
    server = redis_server_factory()
    proxy = Proxy(server.socket)
    link = Link(tmp_path, server.url, f"redis://127.0.0.1:{await proxy.start()}", proxy)
    yield link
    await link.close()


Call = Callable[[RedisClient], Awaitable[Any]]
CALLS: list[Call] = [
    lambda client: client.command("PING"),
    lambda client: client.pipeline([("PING",)]),
    lambda client: client.pipeline([("PING",)], transaction=True),
    lambda client: client.run("hold_name", ["name"], ["instance", '{"figures":{}}', 60_000]),
    lambda client: client.block("BLMOVE", "from", "to", "LEFT", "RIGHT", timeout_s=0.01),
]


async def test_calls_on_connections_that_died_while_idle_are_sent_again(link: Link) -> None:
    clients = [await link.client() for _ in CALLS]
    before = [await call(client) for call, client in zip(CALLS, clients, strict=True)]
    pools = [pool for client in clients for pool in client._route.masters()]
    idle: list[Any] = [connection for pool in pools for connection in (*pool._free, *pool._free_blocking)]

    async def are_dead() -> bool:
        return all(connection._reader.exception() for connection in idle)

    link.proxy.vanish()
    await until(are_dead)
    again = [asyncio.create_task(call(client)) for call, client in zip(CALLS, clients, strict=True)]
    link.proxy.mend()

    assert await asyncio.gather(*again) == before


async def test_what_waits_on_a_connection_that_dies_survives_it(link: Link) -> None:
    client, beside = await link.client(), await link.beside()
    failed: list[bool] = []
    client.retry.on_failure = lambda: failed.append(True)
    async with client.subscribe("channel") as messages:
        assert await anext(messages) is None
        subscription: Any = messages
        message = asyncio.create_task(anext(messages))
        moved = asyncio.create_task(client.block("BLMOVE", "from", "to", "LEFT", "RIGHT", timeout_s=60))

        async def is_blocked() -> bool:
            return b"blocked_clients:1" in await beside.command("INFO", "clients")

        async def are_dead() -> bool:
            return bool(failed) and not subscription._connection.is_connected

        await until(is_blocked)
        link.proxy.vanish()
        # Long before these calls would have ended.
        await until(are_dead)
        link.proxy.mend()
        # Two: Redis may not know yet that nobody waits for the first.
        await beside.command("RPUSH", "from", "x", "x")

        assert await moved == b"x"
        # None: messages may have been missed.
        assert await message is None
        await beside.command("PUBLISH", "channel", "again")
        assert await anext(messages) == (b"channel", b"again")
