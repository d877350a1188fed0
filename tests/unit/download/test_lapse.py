"""What is in flight when a shard may have been replaced is aborted, and nothing more is sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from crawlproj.config import Config
from crawlproj.download.connection import Origin
from crawlproj.download.errors import LapsedError
from crawlproj.download.guard import AddressGuard
from crawlproj.download.pool import Pool, make_tls_context
from tests.patience import PATIENCE_S
from tests.unit.download.test_open_by_scheme import Addresses, Unread

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"


class Silent:
    """A server that reads requests and never answers."""

    def __init__(self) -> None:
        self.requests = asyncio.Queue[bytes]()
        self.resets = asyncio.Queue[type[BaseException] | None]()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.requests.put(await reader.readuntil(b"\r\n\r\n"))
            await reader.read()
            await self.resets.put(None)
        except (ConnectionError, asyncio.IncompleteReadError) as exc:
            await self.resets.put(type(exc))
        finally:
            writer.close()


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    pool = Pool(
        resolver=Addresses(),
        guard=AddressGuard(("127.0.0.0/8",), None),
        config=Config(),
        tls=make_tls_context(is_verified=False),
    )
    yield pool
    await pool.close()


async def exchange(pool: Pool, port: int) -> str | None:
    deadline_s = asyncio.get_running_loop().time() + 30
    origin = Origin("http", "127.0.0.1", port)
    return await pool.exchange(
        origin, REQUEST, Unread(), is_head=False, may_repeat=True, deadline_s=deadline_s, is_paced=True
    )


async def test_a_request_in_flight_is_aborted_and_its_server_is_rid_of_it(pool: Pool) -> None:
    silent = Silent()
    async with (
        await asyncio.start_server(silent.serve, "127.0.0.1", 0) as server,
        asyncio.timeout(PATIENCE_S),
    ):
        fetch = asyncio.create_task(exchange(pool, server.sockets[0].getsockname()[1]))
        await silent.requests.get()

        pool.abort_exchanges(LapsedError("over"))

        with pytest.raises(LapsedError, match="over"):
            await fetch
        # Reset, not closed: nothing of it is delivered later.
        assert await silent.resets.get() is ConnectionResetError


async def test_a_request_that_waited_for_its_connection_is_not_sent(pool: Pool) -> None:
    silent = Silent()
    pool.may_send = lambda: False
    async with (
        await asyncio.start_server(silent.serve, "127.0.0.1", 0) as server,
        asyncio.timeout(PATIENCE_S),
    ):
        with pytest.raises(LapsedError):
            await exchange(pool, server.sockets[0].getsockname()[1])

        await silent.resets.get()
        assert silent.requests.empty()
