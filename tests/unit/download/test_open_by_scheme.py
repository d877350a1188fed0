"""How many connections a pool has open, by what they speak."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from crawlproj.config import Config
from crawlproj.download.connection import Origin, Peer
from crawlproj.download.guard import AddressGuard
from crawlproj.download.pool import Pool, make_tls_context
from crawlproj.download.wire import Head


class Addresses:
    async def resolve(self, host: str) -> list[str]:
        return [host]


class Unread:
    def take_head(self, head: Head, peer: Peer) -> bool:
        return True

    def take_body(self, data: bytes) -> bool:
        return True


async def test_a_kept_connection_counts_until_the_pool_is_closed() -> None:
    pool = Pool(
        resolver=Addresses(),
        guard=AddressGuard(("127.0.0.0/8",), None),
        config=Config(),
        tls=make_tls_context(is_verified=False),
    )
    has_closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
        with suppress(ConnectionError):
            await reader.read()
            writer.close()
            await writer.wait_closed()
        has_closed.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        origin = Origin("http", "127.0.0.1", server.sockets[0].getsockname()[1])
        deadline_s = asyncio.get_running_loop().time() + 10
        request = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"

        await pool.exchange(origin, request, Unread(), is_head=False, may_repeat=True, deadline_s=deadline_s)
        kept = pool.open_by_scheme()
        await pool.close()
        await has_closed.wait()

    assert (kept, pool.open_by_scheme()) == ({"http": 1}, {})
