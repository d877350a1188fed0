"""One HTTP/1.1 connection: sends a request, delivers the response as it comes, enforces the time limits."""

from __future__ import annotations

import asyncio
import math
import socket
import ssl
import struct
from collections.abc import Callable
from typing import NamedTuple, Protocol, cast

from scrapy.exceptions import DownloadTimeoutError

from crawlproj.config import Config
from crawlproj.download.errors import (
    ConnectionLostError,
    HeaderTimeoutError,
    IdleTimeoutError,
    NoAnswerError,
    TotalTimeoutError,
)
from crawlproj.download.wire import Head, ResponseParser
from crawlproj.observe.crashpoints import passed

#: To keep the connection, the rest of a body that was cut is read if it is this short and arrives this soon.
DRAIN_BYTES = 65536
DRAIN_S = 0.5
#: How precisely time limits are enforced.
_TICK_S = 0.02
#: Values of SO_LINGER: a close discards what was not sent yet, or delivers it first (the default).
_DISCARD = struct.pack("ii", 1, 0)
_DELIVER = struct.pack("ii", 0, 0)


class Origin(NamedTuple):
    """The server a connection leads to."""

    scheme: str
    host: str
    port: int


class Peer(Protocol):
    """The server that a response comes from."""

    address: str

    @property
    def certificate(self) -> bytes | None:
        """Its certificate in DER; None without TLS."""


class Receiver(Protocol):
    """Takes a response as it arrives. What it raises ends the exchange and reaches its caller."""

    def take_head(self, head: Head, peer: Peer) -> bool:
        """Return whether the body is wanted."""

    def take_body(self, data: bytes) -> bool:
        """Return whether more of the body is wanted."""


class DeadlineTimer:
    """One timer for the time limits of all exchanges: one for each would cost as much as reading a response.

    It fires at the earliest deadline and has that connection check.
    """

    def __init__(self) -> None:
        self._due_s: dict[Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._fires_at_s = math.inf

    def set(self, connection: Connection, due_s: float) -> None:
        """Have *connection* check its limits at *due_s*, in place of any earlier appointment."""
        self._due_s[connection] = due_s
        if due_s < self._fires_at_s:
            self._set_timer(due_s)

    def cancel(self, connection: Connection) -> None:
        # The timer stays: the next exchange will need it, and firing between exchanges does no harm.
        self._due_s.pop(connection, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._fires_at_s = None, math.inf

    def _set_timer(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._fires_at_s = at_s
        self._timer = asyncio.get_running_loop().call_at(at_s, self._fire)

    def _fire(self) -> None:
        self._timer, self._fires_at_s = None, math.inf
        now_s = asyncio.get_running_loop().time()
        for connection in [connection for connection, due_s in self._due_s.items() if due_s <= now_s]:
            del self._due_s[connection]
            connection.check_limits()
        if self._due_s:
            # Not once for each of many that started together.
            self._set_timer(max(min(self._due_s.values()), now_s + _TICK_S))


class Connection(asyncio.Protocol):
    """One socket: idle, or with one request in flight."""

    def __init__(
        self,
        origin: Origin,
        address: str,
        config: Config,
        timer: DeadlineTimer,
        on_close: Callable[[Connection], None],
    ) -> None:
        self.origin = origin
        self.address = address
        self.is_open = False
        #: How long it may be kept for another request after the last response; 0: not at all.
        self.keep_s = 0.0
        #: While idle: when it is too old to be reused.
        self.expires_s = 0.0
        self._config = config
        self._timer = timer
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._done: asyncio.Future[str | None] | None = None
        self._sent_s = 0.0
        #: Whether the server has seen every request: it has begun to answer the last one.
        self._is_answered = False

    @property
    def certificate(self) -> bytes | None:
        tls: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        return tls.getpeercert(binary_form=True) if tls is not None else None

    async def exchange(
        self, request: bytes, receiver: Receiver, *, is_head: bool, deadline_s: float
    ) -> str | None:
        """Send *request* and pass the response to *receiver*.

        Returns None when all of it arrived, or all that was wanted; otherwise what is missing of the body.
        The connection is closed afterwards, unless `keep_s` says that it can be reused.
        """
        self.keep_s = 0.0
        self._parser = ResponseParser(is_head=is_head, max_head_bytes=self._config.max_headers)
        self._receiver = receiver
        self._has_delivered_head = False
        self._wants_body = True
        self._is_draining = False
        self._deadline_s = deadline_s
        self._sent_s = self._loop.time()
        #: When the last byte arrived; None: none yet.
        self._received_s: float | None = None
        self._is_answered = False
        self._done = self._loop.create_future()
        self._transport.write(request)
        passed("request_sent")
        self._timer.set(self, min(self._sent_s + self._config.header_seconds, deadline_s))
        try:
            return await self._done
        except asyncio.CancelledError:
            # No caller is left to return it to the pool, even if the response was just complete.
            self.keep_s = 0.0
            raise
        finally:
            self._timer.cancel(self)
            self._done = None
            del self._receiver, self._parser
            if not self.keep_s:
                self.close()

    def close(self) -> None:
        """Close at once, without TLS's closing handshake, for which the peer could make us wait."""
        if self.is_open:
            self.is_open = False
            self.keep_s = 0.0
            if self._is_answered:
                self._set_linger(_DELIVER)
            self._transport.abort()
            self._on_close(self)

    def abort(self, error: Exception) -> None:
        """End the exchange in progress, if there is one, with *error*."""
        done = self._done
        if done is not None and not done.done():
            self.close()
            done.set_exception(error)

    # --- what the transport calls ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True
        # From the start, not when a request is aborted: it holds for a killed process, too. The kernel would
        # deliver the request of a closed socket when a cut link is back, too soon after that of others.
        self._set_linger(_DISCARD)

    def _set_linger(self, how: bytes) -> None:
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, how)

    def resume_writing(self) -> None:
        # A large request was sent: the time limit for the headers starts now.
        self._sent_s = self._loop.time()

    def data_received(self, data: bytes) -> None:
        done = self._done
        if done is None or done.done():
            # Unsolicited data: it belongs to no request.
            self.close()
            return
        self._received_s = self._loop.time()
        self._is_answered = True
        try:
            self._take(data)
        except Exception as error:  # noqa: BLE001 (the caller gets it, also what a signal handler raised)
            if not done.done():
                done.set_exception(error)
            self.close()
            return
        parser = self._parser
        if done.done():
            # The receiver cancelled the download.
            self.close()
        elif parser.is_complete:
            self.keep_s = self._keep_alive_s()
            done.set_result(None)
        elif not self._wants_body:
            self._drain_or_close(done)
        elif parser.loss is not None:
            self.close()
            done.set_result(parser.loss)

    def eof_received(self) -> None:
        self._end(None)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error)

    # --- the response ---------------------------------------------------------------------------------

    def _take(self, data: bytes) -> None:
        parser = self._parser
        body = parser.feed(data)
        if parser.head is None:
            return
        if not self._has_delivered_head:
            self._has_delivered_head = True
            self._wants_body = self._receiver.take_head(parser.head, self)
            if not parser.is_complete:
                self._set_timer(self._loop.time() + self._config.idle_seconds)
        if body and self._wants_body:
            self._wants_body = self._receiver.take_body(body)

    def _keep_alive_s(self) -> float:
        head = self._parser.head
        if head is None or not self._parser.may_reuse or not self.is_open:
            return 0.0
        server_s = head.keep_alive_s
        if server_s is None:
            return self._config.keep_alive_seconds
        # A second less than the server: a request must not cross paths with its close.
        return min(self._config.keep_alive_seconds, max(0.0, server_s - 1.0))

    def _drain_or_close(self, done: asyncio.Future[str | None]) -> None:
        """Nothing more is wanted: read a short rest, to keep the connection, or close it."""
        if self._is_draining:
            return
        left_bytes = self._parser.left_bytes
        if left_bytes is not None and left_bytes <= DRAIN_BYTES:
            self._is_draining = True
            self._set_timer(self._loop.time() + DRAIN_S)
        else:
            # Closed first: the delay of a domain begins when its server is rid of us, and the caller may keep
            # the loop busy for a while before it gets to close anything.
            self.close()
            done.set_result(None)

    def _end(self, error: Exception | None) -> None:
        """The connection was closed: decide what that means for a response in progress."""
        done = self._done
        if done is not None and not done.done():
            parser = self._parser
            if error is None:
                parser.feed_end()
            if parser.is_complete or not self._wants_body:
                done.set_result(None)
            elif parser.head is not None:
                done.set_result(parser.loss or f"the connection was lost ({error})")
            elif self._received_s is not None:
                done.set_exception(ConnectionLostError("The connection was closed in the response headers."))
            else:
                done.set_exception(NoAnswerError(f"The connection was closed without a response ({error})."))
        self.close()

    # --- time limits ----------------------------------------------------------------------------------

    def _set_timer(self, due_s: float) -> None:
        self._timer.set(self, min(due_s, self._deadline_s))

    def check_limits(self) -> None:
        """End an exchange that takes too long; otherwise check again when it might.

        What arrived since is taken into account here: setting the timer again at every read would cost more
        than the read.
        """
        done, now_s = self._done, self._loop.time()
        if done is None or done.done():
            return
        if self._is_draining:
            self.close()
            done.set_result(None)
            return
        if now_s >= self._deadline_s:
            late: DownloadTimeoutError = TotalTimeoutError("The download took longer than DOWNLOAD_TIMEOUT.")
        else:
            due_s, late = self._next_limit(now_s)
            if now_s < due_s:
                self._set_timer(due_s)
                return
        self.close()
        done.set_exception(late)

    def _next_limit(self, now_s: float) -> tuple[float, DownloadTimeoutError]:
        config = self._config
        if self._received_s is not None and self._has_delivered_head:
            idle = IdleTimeoutError(f"The body stalled for CRAWL_IDLE_SECONDS={config.idle_seconds:g}.")
            return self._received_s + config.idle_seconds, idle
        if self._transport.get_write_buffer_size():
            self._sent_s = now_s
        late = HeaderTimeoutError(
            f"No complete headers within CRAWL_HEADER_SECONDS={config.header_seconds:g}."
        )
        return self._sent_s + config.header_seconds, late
