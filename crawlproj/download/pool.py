"""The connection pool: connects, lends a connection per exchange, keeps a bounded number of idle ones.

Connects to addresses that the guard has passed, never to names. Every path out of here closes its socket or
returns it to the pool, and the pool is bounded per host, in total and in time.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Protocol

from scrapy.exceptions import DownloadConnectionRefusedError, DownloadFailedError

from crawlproj.config import Config
from crawlproj.download.connection import Connection, DeadlineTimer, Origin, Receiver
from crawlproj.download.errors import (
    AddressBusyError,
    CertificateError,
    ConnectionFailedError,
    ConnectTimeoutError,
    LapsedError,
    NoAnswerError,
    StaleConnectionError,
    TlsError,
    TotalTimeoutError,
)
from crawlproj.frontier.addresses import Visit

#: A host with a dead address is tried at one more, not at all of them.
MAX_ADDRESSES = 2
_SWEEP_S = 1.0


class AddressSource(Protocol):
    async def resolve(self, host: str) -> list[str]: ...


class AddressCheck(Protocol):
    def check(self, address: str, port: int) -> None: ...


class Pool:
    """All connections of a process."""

    def __init__(
        self,
        *,
        resolver: AddressSource,
        guard: AddressCheck,
        config: Config,
        tls: ssl.SSLContext,
        local_address: tuple[str, int] | None = None,
    ) -> None:
        self._resolver = resolver
        self._guard = guard
        self._config = config
        self._tls = tls
        self._local_address = local_address
        self._open: set[Connection] = set()
        # Idle connections: all of them, least recently used first, and by origin.
        self._idle: OrderedDict[Connection, None] = OrderedDict()
        self._by_origin: dict[Origin, list[Connection]] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._timer = DeadlineTimer()
        #: Asked before a request is sent; it may have waited for its connection.
        self.may_send: Callable[[], bool] = lambda: True

    @property
    def open_connections(self) -> int:
        return len(self._open)

    def open_by_scheme(self) -> Counter[str]:
        """Count open connections by scheme. May be called from any thread."""
        # Copied in one step: the loop runs meanwhile.
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
        """Send *request* to *origin*; returns what `Connection.exchange` does.

        Uses an idle connection if there is one. If the server closes that before the first byte of the
        response, the request is sent once more on a new one, provided that it *may_repeat*; one that
        *is_paced* raises StaleConnectionError instead: the server may have seen it and is due its delay.
        With a *visit*, which the caller ends, the address is asked only when it is due; raises
        AddressBusyError otherwise.
        """
        connection = self._take_idle(origin)
        if connection is not None and visit is not None:
            connection = await self._enter_with(connection, visit, deadline_s)
        is_new = connection is None
        if connection is None:
            connection = await self._connect(origin, deadline_s, visit)
        try:
            if not self.may_send():
                connection.close()
                raise LapsedError(f"{origin.host} may have another owner by now.")
            loss = await connection.exchange(request, receiver, is_head=is_head, deadline_s=deadline_s)
        except NoAnswerError as error:
            if is_new or not may_repeat:
                raise
            if is_paced:
                raise StaleConnectionError(f"{origin.host} closed a kept-alive connection.") from error
            connection = await self._connect(origin, deadline_s, visit)
            loss = await connection.exchange(request, receiver, is_head=is_head, deadline_s=deadline_s)
        if connection.keep_s:
            self._keep(connection)
        return loss

    async def try_connect(self, origin: Origin, deadline_s: float) -> None:
        """Connect and close. Raises as a request would."""
        (await self._connect(origin, deadline_s, None)).close()

    def abort_exchanges(self, error: Exception) -> None:
        """End what is in flight with *error*; nothing of it is delivered any more."""
        for connection in list(self._open):
            connection.abort(error)

    async def close(self) -> None:
        """Close every connection. An exchange in progress ends as if the server had closed it."""
        if self._sweeper is not None:
            self._sweeper.cancel()
            self._sweeper = None
        self._timer.close()
        for connection in list(self._open):
            connection.close()
        # The loop closes aborted sockets in its next iteration.
        await asyncio.sleep(0)

    async def _enter_with(self, connection: Connection, visit: Visit, deadline_s: float) -> Connection | None:
        """Return *connection* if its address is due, or None if it was closed meanwhile."""
        try:
            await _enter(visit, connection.address, deadline_s)
        except BaseException:
            # Others may be waiting for its place at that address.
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
        if len(siblings) > self._config.idle_per_host:
            siblings[0].close()
        if len(self._idle) > self._config.idle_connections:
            next(iter(self._idle)).close()
        if self._sweeper is None:
            self._sweeper = loop.call_later(min(_SWEEP_S, self._config.keep_alive_seconds), self._sweep)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for connection in [connection for connection in self._idle if connection.expires_s <= now_s]:
            connection.close()
        self._sweeper = None
        if self._idle:
            self._sweeper = loop.call_later(min(_SWEEP_S, self._config.keep_alive_seconds), self._sweep)

    def _forget(self, connection: Connection) -> None:
        """Remove *connection* from the idle ones, if it is among them."""
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
            raise TotalTimeoutError(f"{origin.host}: no connection within DOWNLOAD_TIMEOUT.") from None

    def _allowed(self, addresses: list[str], port: int) -> list[str]:
        """Return those of *addresses* that the guard allows; raises its refusal if there are none."""
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
            async with asyncio.timeout(self._config.connect_seconds):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(origin, address, self._config, self._timer, self._closed),
                    address,
                    origin.port,
                    ssl=self._tls if is_tls else None,
                    # The name in a certificate has no trailing dot.
                    server_hostname=origin.host.rstrip(".") if is_tls else None,
                    local_addr=self._local_address,
                )
        except TimeoutError:
            raise ConnectTimeoutError(
                f"{where}: no connection within CRAWL_CONNECT_SECONDS={self._config.connect_seconds:g}."
            ) from None
        except ConnectionRefusedError as error:
            raise DownloadConnectionRefusedError(f"{where}: the connection was refused.") from error
        except ssl.SSLCertVerificationError as error:
            raise CertificateError(f"{where}: {error.verify_message}.") from error
        except ssl.SSLError as error:
            raise TlsError(f"{where}: {error}.") from error
        # ValueError: a name that TLS cannot encode.
        except (OSError, ValueError) as error:
            raise ConnectionFailedError(f"{where}: {error}.") from error
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
    """Return the context for all connections. Old servers are accepted; unknown ones unless *is_verified*."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if is_verified:
        context.load_default_certs()
    else:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    # Legacy servers without RFC 5746; OP_LEGACY_SERVER_CONNECT has a name from Python 3.12 on.
    context.options |= 0x4
    context.set_alpn_protocols(["http/1.1"])
    if ciphers:
        context.set_ciphers(ciphers)
    if least is not None:
        context.minimum_version = least
    if most is not None:
        context.maximum_version = most
    return context
