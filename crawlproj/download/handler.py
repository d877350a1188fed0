"""Scrapy's download handler for http and https over our own client.

It keeps what Scrapy promises of its handlers (timeouts, sizes, signals, errors) and adds keys of
``request.meta``: ``download_cut``, ``download_types`` and ``download_paced``; see `HttpHandler`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from scrapy import Request, signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.crawler import Crawler
from scrapy.exceptions import (
    DownloadCancelledError,
    DownloadFailedError,
    ResponseDataLossError,
    StopDownload,
    UnsupportedURLSchemeError,
)
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes
from twisted.python.failure import Failure

from crawlproj import seams
from crawlproj.config import load_config
from crawlproj.download.connection import Limits, Origin, Pool, make_tls_context
from crawlproj.download.guard import AddressGuard
from crawlproj.download.resolver import Resolver
from crawlproj.download.wire import Head
from crawlproj.frontier.addresses import AddressGate
from crawlproj.model.urls import domain_of

logger = logging.getLogger(__name__)

_DEFAULT_PORTS = {"http": 80, "https": 443}
_TLS_VERSIONS = {
    "TLSv1.0": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
#: Methods that say how long their body is even if there is none.
_BODY_METHODS = frozenset({"POST", "PUT", "PATCH"})
#: Sent by us, or meant for a proxy.
_OWN_HEADERS = frozenset({b"Host", b"Content-Length", b"Transfer-Encoding", b"Proxy-Authorization"})


class BadRequestError(DownloadFailedError):
    """A request that cannot be sent: its URL, a header with a line break, an address to send it from."""


class _Client:
    """What the handlers of both schemes of a crawler share."""

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        config = load_config(settings.copy_to_dict())
        self.guard = AddressGuard(config.allow_addresses, config.contact)
        self.resolver = Resolver.from_config(config)
        bind = settings.get("DOWNLOAD_BIND_ADDRESS")
        self.pool = Pool(
            resolver=self.resolver,
            guard=self.guard,
            limits=Limits(
                connect_s=config.connect_seconds,
                header_s=config.header_seconds,
                idle_s=config.idle_seconds,
                max_head_bytes=config.max_headers,
                keep_alive_s=config.keep_alive_seconds,
                idle_per_host=config.idle_per_host,
                idle_total=config.idle_connections,
            ),
            tls=make_tls_context(
                is_verified=settings.getbool("DOWNLOAD_VERIFY_CERTIFICATES"),
                ciphers=settings.get("DOWNLOADER_CLIENT_TLS_CIPHERS"),
                least=_TLS_VERSIONS.get(settings.get("DOWNLOAD_TLS_MIN_VERSION")),
                most=_TLS_VERSIONS.get(settings.get("DOWNLOAD_TLS_MAX_VERSION")),
            ),
            local_address=(bind, 0) if isinstance(bind, str) else bind,
        )

    async def close(self) -> None:
        await self.pool.close()
        await self.resolver.close()


_clients: WeakKeyDictionary[Crawler, _Client] = WeakKeyDictionary()


def connections_of(crawler: Crawler) -> dict[str, int]:
    """Return how many connections *crawler* has open, by scheme. May be called from any thread."""
    client = _clients.get(crawler)
    return dict(client.pool.open_by_scheme()) if client else {}


class HttpHandler(BaseDownloadHandler):
    """Downloads over HTTP/1.1, with the settings, meta keys, signals and errors of Scrapy's own handlers.

    More meta keys: ``download_cut`` (bytes): the body ends there, without an error and with the flag
    "cut". ``download_types`` (media types, "text/*" for all of a kind): a response with status 200 and
    another Content-Type has no body, and the flag "unwanted". ``download_paced``: the request is never sent
    twice, as is usual when the server closes a kept connection; it ends in StaleConnectionError then.

    Every connection goes to an address that the guard has passed. Requests with a ``proxy`` in their meta
    are handed to Scrapy's own handler: then it is the proxy that connects, and only an address in place of
    a host name can be checked; a body that should be cut is refused.

    With an ``address_gate`` on the crawler (CRAWL_IP_DELAY) a request that it is not yet the turn of raises
    AddressBusyError; a proxy's are not counted.
    """

    lazy = True

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        settings = crawler.settings
        self._total_s = settings.getfloat("DOWNLOAD_TIMEOUT")
        self._max_bytes = settings.getint("DOWNLOAD_MAXSIZE")
        self._warn_bytes = settings.getint("DOWNLOAD_WARNSIZE")
        self._fails_on_loss = settings.getbool("DOWNLOAD_FAIL_ON_DATALOSS")
        self._has_warned_of_loss = False
        self._proxied: BaseDownloadHandler | None = None
        self._listeners = seams.listeners(crawler)
        if crawler not in _clients:
            _clients[crawler] = _Client(crawler)
        self._client = _clients[crawler]

    async def download_request(self, request: Request) -> Response:
        meta = request.meta
        if meta.get("proxy"):
            return await self._download_by_proxy(request)
        if meta.get("bindaddress"):
            raise BadRequestError(f"{request}: no bindaddress of its own; set DOWNLOAD_BIND_ADDRESS for all.")
        begun_s = time.monotonic()
        target = _target_of(request.url)
        total_s = float(meta.get("download_timeout") or self._total_s)
        download = _Download(
            self.crawler,
            self._listeners,
            request,
            begun_s=begun_s,
            max_bytes=meta.get("download_maxsize", self._max_bytes),
            warn_bytes=meta.get("download_warnsize", self._warn_bytes),
        )
        is_head = request.method == "HEAD"
        gate: AddressGate | None = getattr(self.crawler, "address_gate", None)
        visit = gate.visit(domain_of(request.url)) if gate is not None else None
        try:
            loss = await self._client.pool.exchange(
                target.origin,
                write_request(request, target),
                download,
                is_head=is_head,
                may_repeat=is_head or request.method == "GET",
                deadline_s=asyncio.get_running_loop().time() + total_s,
                is_paced=bool(meta.get("download_paced")),
                visit=visit,
            )
        finally:
            if visit is not None:
                await visit.leave()
        if loss is not None:
            self._lose(request, download, loss)
        return download.response()

    async def close(self) -> None:
        await self._client.close()
        if self._proxied is not None:
            await self._proxied.close()

    async def _download_by_proxy(self, request: Request) -> Response:
        origin = _target_of(request.url).origin
        try:
            ipaddress.ip_address(origin.host)
        except ValueError:
            pass
        else:
            self._client.guard.check(origin.host, origin.port)
        if "download_cut" in request.meta:
            # Scrapy's handler cannot cut: what is longer is refused instead, or memory would have no bound.
            request.meta.setdefault("download_maxsize", request.meta["download_cut"])
        if self._proxied is None:
            # Not at module level: it takes a quarter of a second to import, and few have a proxy.
            from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler

            self._proxied = HTTP11DownloadHandler(self.crawler)
        return await self._proxied.download_request(request)

    def _lose(self, request: Request, download: _Download, loss: str) -> None:
        """Deal with a body that is not whole: flag it, or raise, as the settings say."""
        if not request.meta.get("download_fail_on_dataloss", self._fails_on_loss):
            download.flags.append("dataloss")
            return
        if not self._has_warned_of_loss:
            self._has_warned_of_loss = True
            logger.warning(
                "a body was not whole; DOWNLOAD_FAIL_ON_DATALOSS = False takes such bodies as they are "
                "(said once)",
                extra={"url": request.url, "loss": loss},
            )
        raise ResponseDataLossError(f"{request.url}: {loss}.")


class _Download:
    """Takes one response as it comes and makes Scrapy's `Response` of it."""

    def __init__(
        self,
        crawler: Crawler,
        listeners: Callable[[object], list[Any] | None],
        request: Request,
        *,
        begun_s: float,
        max_bytes: int,
        warn_bytes: int,
    ) -> None:
        self.flags: list[str] = []
        self._request = request
        self._crawler = crawler
        self._listeners = listeners
        self._begun_s = begun_s
        self._cut: int | None = request.meta.get("download_cut")
        self._max_bytes = max_bytes
        self._warn_bytes = warn_bytes
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._stop: StopDownload | None = None
        self._tells_bytes = listeners(signals.bytes_received) is not seams.NOBODY
        self._head: Head
        self._headers: Headers
        self._address: str

    def take_head(self, head: Head, address: str) -> bool:
        request = self._request
        meta = request.meta
        meta["download_latency"] = time.monotonic() - self._begun_s
        self._head, self._address = head, address
        self._headers = headers = Headers()
        # Past Headers' own methods, which would bring into form again what the parser brought into form.
        dict.update(headers, head.headers)
        expected_bytes = None if request.method == "HEAD" else head.content_length
        if self._cut is None:
            self._check_size(expected_bytes or 0, "The server announced")
        if self._listeners(signals.headers_received) is not seams.NOBODY:
            self._stop = self._send(signals.headers_received, headers=headers, body_length=expected_bytes)
        types = meta.get("download_types")
        if types is not None and head.status == 200 and not _is_wanted(headers, types):
            self.flags.append("unwanted")
            return False
        return self._stop is None

    def take_body(self, data: bytes) -> bool:
        self._body.append(data)
        self._body_bytes += len(data)
        cut = self._cut
        if cut is not None and self._body_bytes > cut:
            self._body[-1] = data[: len(data) - (self._body_bytes - cut)]
            self.flags.append("cut")
        if self._tells_bytes:
            self._stop = self._send(signals.bytes_received, data=self._body[-1])
        if cut is None:
            self._check_size(self._body_bytes, "There came")
            return self._stop is None
        return self._stop is None and self._body_bytes <= cut

    def response(self) -> Response:
        url, body = self._request.url, b"".join(self._body)
        kind: type[Response] = Response
        if self._cut is None:
            kind = responsetypes.from_args(headers=self._headers, url=url, body=body)
        response = kind(
            url,
            status=self._head.status,
            body=body,
            flags=self.flags,
            ip_address=_address(self._address),
            protocol=self._head.protocol,
        )
        response.headers = self._headers
        if self._stop is not None:
            response.flags.append("download_stopped")
            if self._stop.fail:
                self._stop.response = response
                raise self._stop
        return response

    def _check_size(self, size: int, what_happened: str) -> None:
        if self._max_bytes and size > self._max_bytes:
            limit = f"DOWNLOAD_MAXSIZE={self._max_bytes}"
            problem = f"{what_happened} {size} bytes, more than {limit}: {self._request}."
            logger.warning(problem)
            raise DownloadCancelledError(problem)
        if self._warn_bytes and size > self._warn_bytes:
            self._warn_bytes = 0
            logger.warning(
                "a response is larger than DOWNLOAD_WARNSIZE", extra={"url": self._request.url, "bytes": size}
            )

    def _send(self, signal: object, **facts: Any) -> StopDownload | None:
        results = self._crawler.signals.send_catch_log(
            signal=signal, request=self._request, spider=self._crawler.spider, **facts
        )
        for _, result in results:
            if isinstance(result, Failure) and isinstance(result.value, StopDownload):
                return result.value
        return None


class Target(NamedTuple):
    """Where a request goes: whom it connects to, and the Host it names there."""

    origin: Origin
    host: bytes
    path: bytes


def _target_of(url: str) -> Target:
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
    """Return whom to connect to, and the value of Host."""
    scheme = scheme.lower()
    if scheme not in _DEFAULT_PORTS:
        raise UnsupportedURLSchemeError(f"{scheme!r} is neither http nor https.")
    try:
        parts = urlsplit(f"//{authority}")
        host, port = parts.hostname, parts.port or _DEFAULT_PORTS[scheme]
    except ValueError as error:
        raise BadRequestError(f"{authority!r} in a URL is no host: {error}.") from error
    if not host:
        raise BadRequestError(f"A URL has no host: {scheme}://{authority}.")
    named = f"[{host}]" if ":" in host else host
    if port != _DEFAULT_PORTS[scheme]:
        named = f"{named}:{port}"
    return Origin(scheme, host, port), named.encode("idna" if not named.isascii() else "ascii")


@lru_cache(maxsize=4096)
def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(text)


def write_request(request: Request, target: Target) -> bytes:
    """Return *request* as it is sent: Host first, then its headers in their order, then its body."""
    headers, body, method = request.headers, request.body, request.method
    # As a plain dict: Headers' own methods bring into form again what is in form, at twice the cost.
    hosts = dict.get(headers, b"Host")
    host = hosts[-1] if hosts else target.host
    lines = [b"%s %s HTTP/1.1" % (method.encode(), target.path), b"Host: " + host]
    for name, values in dict.items(headers):
        if name not in _OWN_HEADERS:
            lines += [b"%s: %s" % (name, value) for value in values]
    if body or method in _BODY_METHODS:
        lines.append(b"Content-Length: %d" % len(body))
    head = b"\r\n".join(lines)
    # A line break inside would let a header make more headers, or another request.
    if not head.count(b"\r") == head.count(b"\n") == len(lines) - 1 or target.path.count(b" "):
        raise BadRequestError(f"{request}: its URL or a header holds a line break or a space; encode it.")
    return head + b"\r\n\r\n" + body


def _is_wanted(headers: Headers, types: Sequence[str]) -> bool:
    values: list[bytes] | None = dict.get(headers, b"Content-Type")
    if not values or not values[-1]:
        return True
    media_type = values[-1].partition(b";")[0].strip().lower().decode("latin-1")
    return media_type in types or f"{media_type.partition('/')[0]}/*" in types or "*/*" in types
