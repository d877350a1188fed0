"""The HTTP server under clients that do not read what they asked for."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from crawlproj.api import server
from crawlproj.api.server import _Protocol, listen
from tests.patience import PATIENCE_S
from tests.unit.download.rawserver import until

CHUNK = b"x" * 65536


@asynccontextmanager
async def serving(app: ASGIApp) -> AsyncIterator[tuple[uvicorn.Server, int]]:
    listener = listen("127.0.0.1", 0)
    http = uvicorn.Server(
        uvicorn.Config(app, http=_Protocol, ws="none", lifespan="off", log_config=None, access_log=False)
    )
    http.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    task = asyncio.create_task(http.serve([listener]))
    try:
        await until(lambda: http.started)
        yield http, listener.getsockname()[1]
    finally:
        http.should_exit = http.force_exit = True
        await task


def sends(chunks: int) -> ASGIApp:
    """An answer of so many chunks."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(chunks):
            await send({"type": "http.response.body", "body": CHUNK, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    return app


async def ask(port: int) -> socket.socket:
    """Return a connection with a small buffer that has sent a request."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(client, ("127.0.0.1", port))
    await loop.sock_sendall(client, b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    return client


async def test_a_client_that_reads_nothing_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_STALL_S", 0.5)
    async with serving(sends(10_000)) as (http, port), asyncio.timeout(PATIENCE_S):
        with await ask(port):
            await until(lambda: bool(http.server_state.connections))

            await until(lambda: not http.server_state.connections)


async def test_a_body_does_not_wait_until_its_head_is_acknowledged() -> None:
    async with serving(sends(10_000)) as (http, port), asyncio.timeout(PATIENCE_S):
        with await ask(port):
            await until(lambda: bool(http.server_state.connections))

            [connection] = http.server_state.connections
            connected = connection.transport.get_extra_info("socket")
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


async def test_a_client_that_reads_slowly_gets_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    # It takes longer to read everything, and even a busy machine does not take as long for a part.
    monkeypatch.setattr(server, "_STALL_S", 2.0)
    chunks, received = 25, 0
    async with serving(sends(chunks)) as (_, port), asyncio.timeout(PATIENCE_S):
        with await ask(port) as client:
            while part := await asyncio.get_running_loop().sock_recv(client, 32768):
                received += len(part)
                await asyncio.sleep(0.005)

    assert received > chunks * len(CHUNK)
