"""HTTP/1.1 connections and the pool of idle ones.

Connects to addresses that the guard has passed, never to names. Every path out of here closes its socket or
gives it to the pool, and the pool is bounded per host, in total and in time.
"""

from __future__ import annotations

import asyncio
import math
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

from scrapy.exceptions import (
    DownloadConnectionRefusedError,
    DownloadFailedError,
    DownloadTimeoutError,
    IgnoreRequest,
)

from crawlproj.download.wire import Head, ResponseParser
from crawlproj.frontier.addresses import Visit

#: A host with a dead address is tried at one more, not at all of them.
MAX_ADDRESSES = 2
#: What is left of a body that was cut is read to its end, to keep the connection, if it is not more than
#: this and comes at once.
DRAIN_BYTES = 65536
DRAIN_S = 0.5
_SWEEP_S = 1.0
#: Limits are kept to this.
_RING_S = 0.02


class ConnectTimeoutError(DownloadTimeoutError):
    """No connection, TLS included, within CRAWL_CONNECT_SECONDS."""


class HeaderTimeoutError(DownloadTimeoutError):
    """The head of the response was not complete within CRAWL_HEADER_SECONDS."""


class IdleTimeoutError(DownloadTimeoutError):
    """No byte of the body came for CRAWL_IDLE_SECONDS."""


class TotalTimeoutError(DownloadTimeoutError):
    """The whole took longer than DOWNLOAD_TIMEOUT."""


class TlsError(DownloadFailedError):
    """The server and we found no common TLS."""


class CertificateError(TlsError):
    """The server's certificate is not for this host, has expired, or is vouched for by nobody we trust."""


class NoAnswerError(DownloadFailedError):
    """The connection ended before a single byte of the response."""


class PutOffError(IgnoreRequest):
    """Nothing came of a request, by nobody's fault: to be made again after *wait_s*, None: a usual pause."""

    wait_s: float | None = None


class AddressBusyError(PutOffError):
    """It is not our turn at this IP address (CRAWL_IP_DELAY): nothing was sent."""

    def __init__(self, address: str, wait_s: float) -> None:
        super().__init__(f"It is our turn at {address} in {wait_s:g} s (CRAWL_IP_DELAY).")
        self.wait_s = wait_s


class StaleConnectionError(PutOffError):
    """The server closed a connection it had kept, before a byte of the response came."""


class Origin(NamedTuple):
    """Whom a connection belongs to."""

    scheme: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Limits:
    connect_s: float = 10.0
    header_s: float = 20.0
    idle_s: float = 15.0
    max_head_bytes: int = 131072
    keep_alive_s: float = 15.0
    idle_per_host: int = 2
    idle_total: int = 256


class Receiver(Protocol):
    """Takes a response as it comes. What it raises ends the exchange and reaches whoever waits for it."""

    def take_head(self, head: Head, address: str) -> bool:
        """Return whether the body is wanted."""

    def take_body(self, data: bytes) -> bool:
        """Return whether more of the body is wanted."""


class AddressSource(Protocol):
    async def resolve(self, host: str) -> list[str]: ...


class AddressCheck(Protocol):
    def check(self, address: str, port: int) -> None: ...


class Alarm:
    """One timer for the limits of all exchanges: to set one for each costs as much as to read a response.

    It rings when the first of them may be over, and has that connection look.
    """

    def __init__(self) -> None:
        self._due_s: dict[Connection, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at_s = math.inf

    def set(self, connection: Connection, due_s: float) -> None:
        """Have *connection* look at the clock at *due_s*, and not when it was told before."""
        self._due_s[connection] = due_s
        if due_s < self._rings_at_s:
            self._set_timer(due_s)

    def cancel(self, connection: Connection) -> None:
        # The timer stays: the next exchange will need it, and to ring for nobody does no harm.
        self._due_s.pop(connection, None)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._rings_at_s = None, math.inf

    def _set_timer(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at_s = at_s
        self._timer = asyncio.get_running_loop().call_at(at_s, self._ring)

    def _ring(self) -> None:
        self._timer, self._rings_at_s = None, math.inf
        now_s = asyncio.get_running_loop().time()
        for connection in [connection for connection, due_s in self._due_s.items() if due_s <= now_s]:
            del self._due_s[connection]
            connection.look_at_clock()
        if self._due_s:
            # Not for each of many that began together.
            self._set_timer(max(min(self._due_s.values()), now_s + _RING_S))


class Connection(asyncio.Protocol):
    """One socket: idle, or with one request on its way."""

    def __init__(
        self,
        origin: Origin,
        address: str,
        limits: Limits,
        alarm: Alarm,
        on_close: Callable[[Connection], None],
    ) -> None:
        self.origin = origin
        self.address = address
        self.is_open = False
        #: How long the last response lets the connection wait for another request; 0: not at all.
        self.keep_s = 0.0
        #: While idle: when it is too old to be used again.
        self.expires_s = 0.0
        self._limits = limits
        self._alarm = alarm
        self._on_close = on_close
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._done: asyncio.Future[str | None] | None = None
        self._asked_s = 0.0

    async def ask(
        self, request: bytes, receiver: Receiver, *, is_head: bool, deadline_s: float
    ) -> str | None:
        """Send *request* and hand the response to *receiver*.

        Returns None when all of it came, or all that was wanted; else what is missing of the body.
        The connection is closed then, unless `keep_s` says that it can be used again.
        """
        self.keep_s = 0.0
        self._parser = ResponseParser(is_head=is_head, max_head_bytes=self._limits.max_head_bytes)
        self._receiver = receiver
        self._has_told_head = False
        self._wants_body = True
        self._is_draining = False
        self._deadline_s = deadline_s
        self._asked_s = self._loop.time()
        #: When the last byte came; None: none yet.
        self._heard_s: float | None = None
        self._done = self._loop.create_future()
        self._transport.write(request)
        self._alarm.set(self, min(self._asked_s + self._limits.header_s, deadline_s))
        try:
            return await self._done
        except asyncio.CancelledError:
            # Nobody is left to keep it, even if the response was just complete.
            self.keep_s = 0.0
            raise
        finally:
            self._alarm.cancel(self)
            self._done = None
            del self._receiver, self._parser
            if not self.keep_s:
                self.close()

    def close(self) -> None:
        """Close at once. Not in TLS's own way, for which the peer could let us wait."""
        if self.is_open:
            self.is_open = False
            self.keep_s = 0.0
            self._transport.abort()
            self._on_close(self)

    # --- what the transport calls ---------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    def resume_writing(self) -> None:
        # A large request has left: the server's time to answer begins.
        self._asked_s = self._loop.time()

    def data_received(self, data: bytes) -> None:
        done = self._done
        if done is None or done.done():
            # Nobody asked for this, so nobody can know what it answers.
            self.close()
            return
        self._heard_s = self._loop.time()
        try:
            self._take(data)
        except Exception as error:  # noqa: BLE001 (whoever waits gets it, also what a signal handler raised)
            if not done.done():
                done.set_exception(error)
            self.close()
            return
        parser = self._parser
        if done.done():
            # The receiver had the download cancelled.
            self.close()
        elif parser.is_complete:
            self.keep_s = self._time_to_keep()
            done.set_result(None)
        elif not self._wants_body:
            self._leave_rest(done)
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
        if not self._has_told_head:
            self._has_told_head = True
            self._wants_body = self._receiver.take_head(parser.head, self.address)
            if not parser.is_complete:
                self._set_timer(self._loop.time() + self._limits.idle_s)
        if body and self._wants_body:
            self._wants_body = self._receiver.take_body(body)

    def _time_to_keep(self) -> float:
        head = self._parser.head
        if head is None or not self._parser.may_reuse or not self.is_open:
            return 0.0
        server_s = head.keep_alive_s
        if server_s is None:
            return self._limits.keep_alive_s
        # A second less than the server: a request must not cross its close on the way.
        return min(self._limits.keep_alive_s, max(0.0, server_s - 1.0))

    def _leave_rest(self, done: asyncio.Future[str | None]) -> None:
        """Nothing more is wanted: read a short rest to its end, which keeps the connection, else close."""
        if self._is_draining:
            return
        left_bytes = self._parser.left_bytes
        if left_bytes is not None and left_bytes <= DRAIN_BYTES:
            self._is_draining = True
            self._set_timer(self._loop.time() + DRAIN_S)
        else:
            # Closed first: the pause of a domain begins when its server is rid of us, and whoever waits for
            # this may be busy for a while before the loop gets to closing anything.
            self.close()
            done.set_result(None)

    def _end(self, error: Exception | None) -> None:
        """Decide what the end of the connection makes of a response that is not complete."""
        done = self._done
        if done is not None and not done.done():
            parser = self._parser
            if error is None:
                parser.feed_end()
            if parser.is_complete or not self._wants_body:
                done.set_result(None)
            elif parser.head is not None:
                done.set_result(parser.loss or f"the connection was lost ({error})")
            elif self._heard_s is not None:
                done.set_exception(DownloadFailedError("The connection ended in the head of the response."))
            else:
                done.set_exception(NoAnswerError(f"The connection ended without an answer ({error})."))
        self.close()

    # --- the clock ------------------------------------------------------------------------------------

    def _set_timer(self, due_s: float) -> None:
        self._alarm.set(self, min(due_s, self._deadline_s))

    def look_at_clock(self) -> None:
        """End an exchange that takes too long; otherwise look again when it might.

        What has come in the meantime is found out here: to set the alarm anew at every read would cost more
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
        limits = self._limits
        if self._heard_s is not None and self._has_told_head:
            idle = IdleTimeoutError(f"No byte of the body came for CRAWL_IDLE_SECONDS={limits.idle_s:g}.")
            return self._heard_s + limits.idle_s, idle
        if self._transport.get_write_buffer_size():
            self._asked_s = now_s
        late = HeaderTimeoutError(f"No complete head came within CRAWL_HEADER_SECONDS={limits.header_s:g}.")
        return self._asked_s + limits.header_s, late


class Pool:
    """All connections of a process: makes them, lends each for one exchange, keeps a bounded few idle."""

    def __init__(
        self,
        *,
        resolver: AddressSource,
        guard: AddressCheck,
        limits: Limits,
        tls: ssl.SSLContext,
        local_address: tuple[str, int] | None = None,
    ) -> None:
        self._resolver = resolver
        self._guard = guard
        self._limits = limits
        self._tls = tls
        self._local_address = local_address
        self._open: set[Connection] = set()
        # The idle ones: all of them, least recently used first, and by whom they belong to.
        self._idle: OrderedDict[Connection, None] = OrderedDict()
        self._by_origin: dict[Origin, list[Connection]] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._alarm = Alarm()

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def open_by_scheme(self) -> Counter[str]:
        """Return how many are open to http and to https. May be called from any thread."""
        # Copied in one step: the loop goes on meanwhile.
        return Counter(connection.origin.scheme for connection in list(self._open))

    @property
    def idle_connections(self) -> int:
        return len(self._idle)

    async def exchange(
        self,
        origin: Origin,
        request: bytes,
        receiver: Receiver,
        *,
        is_head: bool,
        may_repeat: bool,
        deadline_s: float,
        is_paced: bool = False,
        visit: Visit | None = None,
    ) -> str | None:
        """Send *request* to *origin*; returns as `Connection.ask` does.

        On an idle connection if there is one. If that turns out to be closed before a single byte of the
        response came, the request is sent once more on a new one, provided that it *may_repeat*; one that
        *is_paced* raises StaleConnectionError instead: the server may have seen it, and wants its pause.
        With a *visit*, which is the caller's to end, only when it is let in at the address; raises
        AddressBusyError otherwise.
        """
        connection = self._take_idle(origin)
        if connection is not None and visit is not None:
            connection = await self._enter_with(connection, visit, deadline_s)
        if connection is not None:
            try:
                loss = await connection.ask(request, receiver, is_head=is_head, deadline_s=deadline_s)
                if connection.keep_s:
                    self._keep(connection)
                return loss
            except NoAnswerError as error:
                if not may_repeat:
                    raise
                if is_paced:
                    raise StaleConnectionError(f"{origin.host} closed a kept connection.") from error
        connection = await self._connect(origin, deadline_s, visit)
        loss = await connection.ask(request, receiver, is_head=is_head, deadline_s=deadline_s)
        if connection.keep_s:
            self._keep(connection)
        return loss

    async def close(self) -> None:
        """Close every connection. An exchange under way ends as if the server had closed."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._alarm.close()
        for connection in list(self._open):
            connection.close()
        # The loop closes aborted sockets in its next turn.
        await asyncio.sleep(0)

    async def _enter_with(self, connection: Connection, visit: Visit, deadline_s: float) -> Connection | None:
        """Return *connection* once it is our turn at its address, or None if it was closed meanwhile."""
        try:
            await _enter(visit, connection.address, deadline_s)
        except BaseException:
            # Others want the place it takes there.
            connection.close()
            raise
        return connection if connection.is_open else None

    # --- idle connections -----------------------------------------------------------------------------

    def _take_idle(self, origin: Origin) -> Connection | None:
        now_s = asyncio.get_running_loop().time()
        while siblings := self._by_origin.get(origin):
            connection = siblings[-1]
            if connection.expires_s > now_s:
                self._forget(connection)
                return connection
            connection.close()
        return None

    def _keep(self, connection: Connection) -> None:
        loop = asyncio.get_running_loop()
        connection.expires_s = loop.time() + connection.keep_s
        self._idle[connection] = None
        siblings = self._by_origin.setdefault(connection.origin, [])
        siblings.append(connection)
        if len(siblings) > self._limits.idle_per_host:
            siblings[0].close()
        if len(self._idle) > self._limits.idle_total:
            next(iter(self._idle)).close()
        if self._sweeper is None:
            self._sweeper = loop.call_later(min(_SWEEP_S, self._limits.keep_alive_s), self._sweep)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for connection in [connection for connection in self._idle if connection.expires_s <= now_s]:
            connection.close()
        self._sweeper = None
        if self._idle:
            self._sweeper = loop.call_later(min(_SWEEP_S, self._limits.keep_alive_s), self._sweep)

    def _forget(self, connection: Connection) -> None:
        """Take *connection* out of the idle ones, if it is among them."""
        if connection in self._idle:
            del self._idle[connection]
            siblings = self._by_origin[connection.origin]
            siblings.remove(connection)
            if not siblings:
                del self._by_origin[connection.origin]

    def _closed(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._forget(connection)

    # --- new connections ------------------------------------------------------------------------------

    async def _connect(self, origin: Origin, deadline_s: float, visit: Visit | None) -> Connection:
        try:
            async with asyncio.timeout_at(deadline_s):
                addresses = self._allowed(await self._resolver.resolve(origin.host), origin.port)
                *others, last = addresses[:MAX_ADDRESSES]
                for address in others:
                    try:
                        return await self._open_to(origin, address, deadline_s, visit)
                    except TlsError:
                        raise
                    except (ConnectTimeoutError, DownloadConnectionRefusedError, DownloadFailedError):
                        continue
                return await self._open_to(origin, last, deadline_s, visit)
        except TimeoutError:
            raise TotalTimeoutError(f"{origin.host} was not connected to within DOWNLOAD_TIMEOUT.") from None

    def _allowed(self, addresses: list[str], port: int) -> list[str]:
        """Return those of *addresses* that the guard lets us connect to; raises its refusal if none."""
        allowed: list[str] = []
        refusal: DownloadFailedError | None = None
        for address in addresses:
            try:
                self._guard.check(address, port)
                allowed.append(address)
            except DownloadFailedError as error:
                refusal = refusal or error
        if refusal is not None and not allowed:
            raise refusal
        return allowed

    async def _open_to(
        self, origin: Origin, address: str, deadline_s: float, visit: Visit | None
    ) -> Connection:
        if visit is not None:
            await _enter(visit, address, deadline_s)
        is_tls = origin.scheme == "https"
        where = f"{origin.host} at {address}, port {origin.port}"
        try:
            async with asyncio.timeout(self._limits.connect_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(origin, address, self._limits, self._alarm, self._closed),
                    address,
                    origin.port,
                    ssl=self._tls if is_tls else None,
                    # The name in a certificate has no dot at its end.
                    server_hostname=origin.host.rstrip(".") if is_tls else None,
                    local_addr=self._local_address,
                )
        except TimeoutError:
            raise ConnectTimeoutError(
                f"{where}: no connection within CRAWL_CONNECT_SECONDS={self._limits.connect_s:g}."
            ) from None
        except ConnectionRefusedError as error:
            raise DownloadConnectionRefusedError(f"{where}: the connection was refused.") from error
        except ssl.SSLCertVerificationError as error:
            raise CertificateError(f"{where}: {error.verify_message}.") from error
        except ssl.SSLError as error:
            raise TlsError(f"{where}: {error}.") from error
        # ValueError: a name that TLS cannot encode.
        except (OSError, ValueError) as error:
            raise DownloadFailedError(f"{where}: {error}.") from error
        self._open.add(connection)
        return connection


async def _enter(visit: Visit, address: str, deadline_s: float) -> None:
    wait_s = await visit.enter(address, max(0.001, deadline_s - asyncio.get_running_loop().time()))
    if wait_s:
        raise AddressBusyError(address, wait_s)


def make_tls_context(
    *,
    is_verified: bool,
    ciphers: str | None = None,
    least: ssl.TLSVersion | None = None,
    most: ssl.TLSVersion | None = None,
) -> ssl.SSLContext:
    """Return the one context for all connections. Old servers are welcome, unknown ones if not verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if is_verified:
        context.load_default_certs()
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # Renegotiation without RFC 5746, which we never do; a named constant from Python 3.12 on.
    context.options |= 0x4
    context.set_alpn_protocols(["http/1.1"])
    if ciphers:
        context.set_ciphers(ciphers)
    if least is not None:
        context.minimum_version = least
    if most is not None:
        context.maximum_version = most
    return context
