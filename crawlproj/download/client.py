"""Our HTTP client, bounded in every way. Scrapy's download handler and direct fetches share it."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadFailedError, ResponseDataLossError, UnsupportedURLSchemeError
from scrapy.settings import BaseSettings

from crawlproj.config import load_config
from crawlproj.download.connection import Origin, Peer
from crawlproj.download.guard import AddressGuard
from crawlproj.download.pool import Pool, make_tls_context
from crawlproj.download.resolver import Resolver
from crawlproj.download.wire import Head
from crawlproj.errors import BadSetting
from crawlproj.frontier.addresses import AddressGate
from crawlproj.model.urls import domain_of
from crawlproj.observe.crashpoints import passed

logger = logging.getLogger(__name__)

_DEFAULT_PORTS = {"http": 80, "https": 443}
_TLS_VERSIONS = {
    "TLSv1.0": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
#: How long a connection that is only tried may take.
_TRY_S = 5.0
#: Methods that announce the length of their body even if there is none.
_BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
#: Written by us, or meant for a proxy.
_OWN_HEADERS = frozenset({b"Host", b"Content-Length", b"Transfer-Encoding", b"Proxy-Authorization"})


class BadRequestError(DownloadFailedError):
    """A request that cannot be sent: its URL, a header with a line break, an address to send it from."""


class HttpRequest(NamedTuple):
    """A request as it is sent, and how much of its answer is wanted.

    At most *cut* bytes of a body are read; of one whose type is not among *types* nothing ("text/*" stands
    for all text, and no types for all).
    """

    url: str
    origin: Origin
    wire: bytes
    method: str = "GET"
    cut: int | None = None
    types: Sequence[str] = ()
    fails_on_loss: bool = True


@dataclass(slots=True)
class Answer:
    """A response as far as a crawl has use for it, or the error in its place."""

    status: int = 0
    headers: Mapping[bytes, list[bytes]] = field(default_factory=dict)
    body: bytes = b""
    flags: Sequence[str] = ()
    latency_s: float = 0.0
    error: Exception | None = None

    def header(self, name: bytes) -> bytes:
        """Return the last value of a header, b'' if there is none."""
        values = self.headers.get(name)
        return values[-1] if values else b""


class Download:
    """Receives one response.

    A body that was cut has the flag "cut"; one that was not read for its type, "unwanted".
    """

    def __init__(self, cut: int | None, types: Sequence[str]) -> None:
        self.flags: list[str] = []
        self.latency_s = 0.0
        self.head: Head
        self._begun_s = time.monotonic()
        self._cut = cut
        self._types = types
        self._body: list[bytes] = []
        self._body_bytes = 0

    @property
    def body(self) -> bytes:
        return b"".join(self._body)

    def take_head(self, head: Head, peer: Peer) -> bool:
        self.latency_s = time.monotonic() - self._begun_s
        self.head = head
        if self._types and head.status == 200 and not _is_wanted(head.headers, self._types):
            self.flags.append("unwanted")
            return False
        return True

    def take_body(self, data: bytes) -> bool:
        self._body.append(data)
        self._body_bytes += len(data)
        cut = self._cut
        if cut is None or self._body_bytes <= cut:
            return True
        self._body[-1] = data[: len(data) - (self._body_bytes - cut)]
        self.flags.append("cut")
        return False


class HttpClient:
    """The connections of a crawler, and the rules every one of them obeys."""

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        config = load_config(settings.copy_to_dict())
        #: Makes requests to one address wait for each other (CRAWL_IP_DELAY); the shard's to set.
        self.address_gate: AddressGate | None = None
        self.guard = AddressGuard(config.allow_addresses, config.contact)
        self._resolver = Resolver(config)
        self._timeout_s = settings.getfloat("DOWNLOAD_TIMEOUT")
        self._has_warned_of_loss = False
        bind = settings.get("DOWNLOAD_BIND_ADDRESS")
        self.pool = Pool(
            resolver=self._resolver,
            guard=self.guard,
            config=config,
            tls=make_tls_context(
                is_verified=settings.getbool("DOWNLOAD_VERIFY_CERTIFICATES"),
                ciphers=settings.get("DOWNLOADER_CLIENT_TLS_CIPHERS"),
                least=_tls_version(settings, "DOWNLOAD_TLS_MIN_VERSION"),
                most=_tls_version(settings, "DOWNLOAD_TLS_MAX_VERSION"),
            ),
            local_address=(bind, 0) if isinstance(bind, str) else bind,
        )

    async def fetch(self, request: HttpRequest) -> Answer:
        """Send *request*, once, and return its answer. Raises Scrapy's download errors."""
        download = Download(request.cut, request.types)
        await self.receive(request, download, is_paced=True)
        head = download.head
        return Answer(head.status, head.headers, download.body, download.flags, download.latency_s)

    async def receive(
        self, request: HttpRequest, download: Download, *, timeout_s: float = 0.0, is_paced: bool = False
    ) -> None:
        """Send *request* and have *download* receive the answer.

        One that *is_paced* is never sent twice, as is usual when the server closes a kept connection; it ends
        in StaleConnectionError then. A body that is not whole gets the flag "dataloss", or raises. With an
        address gate a request whose address is busy raises AddressBusyError.
        """
        gate = self.address_gate
        visit = gate.visit(domain_of(request.url)) if gate is not None else None
        is_head = request.method == "HEAD"
        try:
            loss = await self.pool.exchange(
                request.origin,
                request.wire,
                download,
                is_head=is_head,
                may_repeat=is_head or request.method == "GET",
                deadline_s=asyncio.get_running_loop().time() + (timeout_s or self._timeout_s),
                is_paced=is_paced,
                visit=visit,
            )
        finally:
            if visit is not None:
                await visit.leave()
        passed("response_received")
        if loss is None:
            return
        if request.fails_on_loss:
            self._warn_of_loss(request.url, loss)
            raise ResponseDataLossError(f"{request.url}: {loss}.")
        download.flags.append("dataloss")

    def _warn_of_loss(self, url: str, loss: str) -> None:
        if not self._has_warned_of_loss:
            self._has_warned_of_loss = True
            logger.warning(
                "a body was incomplete; set DOWNLOAD_FAIL_ON_DATALOSS = False to accept such bodies "
                "(logged once)",
                extra={"url": url, "loss": loss},
            )

    async def reaches(self, url: str) -> bool:
        """Whether a connection to the server of *url* can be made. Nothing is requested."""
        try:
            await self.pool.try_connect(target_of(url).origin, asyncio.get_running_loop().time() + _TRY_S)
        except Exception:  # noqa: BLE001  # whatever it is, there is no connection
            return False
        return True

    async def close(self) -> None:
        await self.pool.close()
        await self._resolver.close()


def _tls_version(settings: BaseSettings, name: str) -> ssl.TLSVersion | None:
    value = settings.get(name)
    if value and value not in _TLS_VERSIONS:
        raise BadSetting(f"{name}={value!r} is not a version of TLS. Choose from {', '.join(_TLS_VERSIONS)}.")
    return _TLS_VERSIONS.get(value)


_clients: WeakKeyDictionary[Crawler, HttpClient] = WeakKeyDictionary()


def client_of(crawler: Crawler) -> HttpClient:
    """Return the one client of *crawler*: both schemes and direct fetches share its connections."""
    client = _clients.get(crawler)
    if client is None:
        client = _clients[crawler] = HttpClient(crawler)
    return client


def connections_of(crawler: Crawler) -> dict[str, int]:
    """Return how many connections *crawler* has open, by scheme. May be called from any thread."""
    client = _clients.get(crawler)
    return dict(client.pool.open_by_scheme()) if client else {}


class Target(NamedTuple):
    """Where a request goes: the origin to connect to, and the Host and path to request there."""

    origin: Origin
    host: bytes
    path: bytes


def target_of(url: str) -> Target:
    scheme, _, rest = url.partition("#")[0].partition("://")
    authority, slash, path = rest.partition("/")
    if "?" in authority:
        authority, _, query = rest.partition("?")
        slash, path = "/?", query
    origin, host = _origin_of(scheme, authority)
    # Scrapy has percent-encoded it, unless meta says verbatim_url: then the bytes are the user's.
    return Target(origin, host, f"{slash or '/'}{path}".encode())


@lru_cache(maxsize=4096)
def _origin_of(scheme: str, authority: str) -> tuple[Origin, bytes]:
    """Return what to connect to, and the value of Host."""
    scheme = scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        raise UnsupportedURLSchemeError(f"{scheme!r} is neither http nor https.")
    try:
        parts = urlsplit(f"//{authority}")
        host, port = parts.hostname, parts.port or _DEFAULT_PORTS[scheme]
    except ValueError as error:
        raise BadRequestError(f"{authority!r} in a URL is not a host: {error}.") from error
    if not host:
        raise BadRequestError(f"A URL has no host: {scheme}://{authority}.")
    named = f"[{host}]" if ":" in host else host
    if port != _DEFAULT_PORTS[scheme]:
        named = f"{named}:{port}"
    return Origin(scheme, host, port), named.encode("idna" if not named.isascii() else "ascii")


def header_lines(headers: Iterable[tuple[bytes, Iterable[bytes]]]) -> list[bytes]:
    """Return *headers* as they are sent, without those that we write, or that are meant for a proxy."""
    return [
        b"%s: %s" % (name, value) for name, values in headers if name not in _OWN_HEADERS for value in values
    ]


def write_request(target: Target, lines: Sequence[bytes], method: str = "GET", body: bytes = b"") -> bytes:
    """Return a request as it is sent: Host (unless *lines* begin with one), *lines*, the body."""
    host = () if lines and lines[0].startswith(b"Host: ") else (b"Host: " + target.host,)
    head_lines = [b"%s %s HTTP/1.1" % (method.encode(), target.path), *host, *lines]
    if body or method in _BODY_METHODS:
        head_lines.append(b"Content-Length: %d" % len(body))
    head = b"\r\n".join(head_lines)
    # A line break inside would let a header add headers, or another request.
    if not head.count(b"\r") == head.count(b"\n") == len(head_lines) - 1 or b" " in target.path:
        raise BadRequestError(
            f"{method} {target.path!r}: the URL or a header contains a line break or a space; encode it."
        )
    return head + b"\r\n\r\n" + body


def _is_wanted(headers: Mapping[bytes, list[bytes]], types: Sequence[str]) -> bool:
    values = headers.get(b"Content-Type")
    if not values or not values[-1]:
        return True
    media_type = values[-1].partition(b";")[0].strip().lower().decode("latin-1")
    return media_type in types or f"{media_type.partition('/')[0]}/*" in types or "*/*" in types
