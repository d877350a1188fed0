from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator

import pytest

from tests.unit.download.rawserver import Answer, RawServer, Serve, Visit


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Start servers: ``await serve(answer)``, where *answer* is bytes for each request, or a coroutine."""
    running: list[asyncio.Server] = []
    tasks: set[asyncio.Task[None]] = set()

    async def start(
        answer: bytes | Answer, tls: ssl.SSLContext | None = None, *, window_bytes: int = 0
    ) -> RawServer:
        server = RawServer()

        async def visited(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            server.connections += 1
            visit = Visit(reader, writer, server.requests)
            try:
                if isinstance(answer, bytes):
                    while await visit.request():
                        await visit.send(answer)
                else:
                    await answer(visit)
            except (ConnectionError, asyncio.CancelledError):
                pass
            finally:
                writer.close()
                server.gone += 1
                async with server.changed:
                    server.changed.notify_all()

        running.append(await asyncio.start_server(visited, "127.0.0.1", 0, ssl=tls))
        if window_bytes:
            running[-1].sockets[0].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window_bytes)
        server.port = running[-1].sockets[0].getsockname()[1]
        return server

    yield start
    for server in running:
        server.close()
    for task in list(tasks):
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
