"""A server of raw bytes on 127.0.0.1, and waiting for what it sees."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from tests.patience import PATIENCE_S

Answer = Callable[["Visit"], Awaitable[None]]


@dataclass
class Visit:
    """One connection as the server sees it."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    requests: list[bytes]

    async def request(self) -> bytes:
        """Wait for the next request; returns it with its body, empty if the client closed."""
        try:
            head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""
        _, found, rest = head.partition(b"Content-Length: ")
        body = await self.reader.readexactly(int(rest.split(b"\r\n")[0])) if found else b""
        self.requests.append(head + body)
        return head + body

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        """Go away without a word."""
        self.writer.transport.abort()


@dataclass
class RawServer:
    """Answers on a port of 127.0.0.1 with whatever bytes a test wants."""

    port: int = 0
    connections: int = 0
    gone: int = 0
    requests: list[bytes] = field(default_factory=list)
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def wait_until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S), self.changed:
            await self.changed.wait_for(holds)


#: ``await serve(answer, tls)``: the fixture of conftest.py.
Serve = Callable[..., Awaitable[RawServer]]


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop turn until *holds*."""
    async with asyncio.timeout(PATIENCE_S):
        while not holds():  # noqa: ASYNC110 (there is no event to wait for)
            await asyncio.sleep(0)
