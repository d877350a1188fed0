"""The HTTP server around the application: uvicorn, with limits on slow and idle clients."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
from collections.abc import Callable

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from crawlproj.api.access import is_loopback
from crawlproj.api.problems import problem
from crawlproj.errors import BadArgument

#: How long a client may take to send the head of a request, or to send another one.
_HEAD_S = 15
#: A client that has read nothing of an answer for so long is disconnected, by the kernel.
_STALL_S = 30.0
#: Connections at once; event streams are among them.
_MOST_CONNECTIONS = 2000
#: Event streams are closed this long after the server was asked to stop.
_STOP_S = 2
_MOST_HEAD_BYTES = 32_768
_POLL_S = 0.02


class _Protocol(H11Protocol):
    """uvicorn's protocol, which would wait for the head of a first request for ever."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        connected: socket.socket = transport.get_extra_info("socket")
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(_STALL_S * 1000))
        # A body is written after its head; it would wait until the client has acknowledged that, for 40 ms.
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.timeout_keep_alive_task = self.loop.call_later(_HEAD_S, self._close_slow)

    def data_received(self, data: bytes) -> None:
        # Each part of a head would start the time anew.
        timer = self.timeout_keep_alive_task
        self.timeout_keep_alive_task = None
        super().data_received(data)
        if self.cycle is None or self.cycle.response_complete:
            self.timeout_keep_alive_task = self.timeout_keep_alive_task or timer
        elif timer is not None:
            timer.cancel()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP with a problem, too."""
        answer = problem(
            400, "This is not a valid request: its head is malformed or very long, or has no Host."
        )
        headers = [*answer.raw_headers, (b"connection", b"close")]
        events = (
            h11.Response(status_code=400, headers=headers),
            h11.Data(bytes(answer.body)),
            h11.EndOfMessage(),
        )
        self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()

    def _close_slow(self) -> None:
        if not self.transport.is_closing() and (self.cycle is None or self.cycle.response_complete):
            self.transport.close()


def check_host(host: str, *, has_tokens: bool) -> None:
    """Raise BadArgument for an address that may not be served without tokens."""
    if not is_loopback(host) and not has_tokens:
        raise BadArgument(
            f"--host {host}: other machines could reach it, so it needs tokens. Write lines such as "
            "`write TOKEN` to a file and give it: -s CRAWL_API_TOKENS_FILE=FILE"
        )


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Raises BadArgument when that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(512)
    except OSError as exc:
        listener.close()
        raise BadArgument(
            f"Cannot serve at {host}:{port}: {exc.strerror or exc}. Choose another --port or --host."
        ) from exc
    return listener


def serve(app: FastAPI, listener: socket.socket, ready: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM. Calls *ready* once requests are answered."""
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_HEAD_S,
            timeout_graceful_shutdown=_STOP_S,
            limit_concurrency=_MOST_CONNECTIONS,
            h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
        )
    )

    async def run() -> None:
        serving = asyncio.create_task(server.serve([listener]), name="server")
        while not server.started and not serving.done():
            await asyncio.wait([serving], timeout=_POLL_S)
        if server.started:
            # What is there now stays: collections need not look through it, for tens of ms each.
            gc.freeze()
            ready()
        await serving

    # uvicorn stops in order and raises the signal again, which by default ends the process with an error.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        pass
