"""Scrapy's download handler for http and https, over our own client.

It keeps what Scrapy promises of its handlers (timeouts, sizes, signals, errors) and adds keys of
``request.meta``: ``download_cut``, ``download_types`` and ``download_paced``; see `HttpHandler`.
"""

from __future__ import annotations

import ipaddress
import logging
from functools import lru_cache
from typing import Any

from scrapy import Request, signals
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadCancelledError, StopDownload
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes
from twisted.python.failure import Failure

from crawlproj.download.client import (
    Answer,
    BadRequestError,
    Download,
    HttpRequest,
    client_of,
    header_lines,
    target_of,
    write_request,
)
from crawlproj.download.connection import Peer
from crawlproj.download.endings import FINAL
from crawlproj.download.guard import NoContactError
from crawlproj.download.wire import Head

logger = logging.getLogger(__name__)


class HttpHandler(BaseDownloadHandler):
    """Downloads over HTTP/1.1, with the settings, meta keys, signals and errors of Scrapy's own handlers.

    More meta keys: ``download_cut`` (bytes): the body ends there, without an error and with the flag
    "cut". ``download_types`` (media types, "text/*" for all text): a response with status 200 and
    another Content-Type has no body, and the flag "unwanted". ``download_paced``: the request is never sent
    twice, as is usual when the server closes a kept connection; it ends in StaleConnectionError then.

    Every connection goes to an address that the guard has passed. Requests with a ``proxy`` in their meta
    are passed to Scrapy's own handler: then the proxy connects, and only an address in place of a host name
    can be checked; a body that should be cut is refused.
    """

    lazy = True

    def __init__(self, crawler: Crawler) -> None:
        super().__init__(crawler)
        settings = crawler.settings
        self._max_bytes = settings.getint("DOWNLOAD_MAXSIZE")
        self._warn_bytes = settings.getint("DOWNLOAD_WARNSIZE")
        self._fails_on_loss = settings.getbool("DOWNLOAD_FAIL_ON_DATALOSS")
        self._proxied: BaseDownloadHandler | None = None
        self._client = client_of(crawler)

    async def download_request(self, request: Request) -> Response:
        try:
            return await self._download(request)
        except (*FINAL, NoContactError):
            # Scrapy's retry middleware would send it again, twice.
            request.meta["dont_retry"] = True
            raise

    async def _download(self, request: Request) -> Response:
        meta = request.meta
        if meta.get("proxy"):
            return await self._download_by_proxy(request)
        if meta.get("bindaddress"):
            raise BadRequestError(f"{request}: no bindaddress of its own; set DOWNLOAD_BIND_ADDRESS for all.")
        download = _ScrapyDownload(
            self.crawler,
            request,
            max_bytes=meta.get("download_maxsize", self._max_bytes),
            warn_bytes=meta.get("download_warnsize", self._warn_bytes),
        )
        await self._client.receive(
            http_request_of(request, fails_on_loss=self._fails_on_loss),
            download,
            timeout_s=float(meta.get("download_timeout") or 0.0),
            is_paced=bool(meta.get("download_paced")),
        )
        return download.response()

    async def close(self) -> None:
        await self._client.close()
        if self._proxied is not None:
            await self._proxied.close()

    async def _download_by_proxy(self, request: Request) -> Response:
        origin = target_of(request.url).origin
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


def http_request_of(request: Request, *, fails_on_loss: bool) -> HttpRequest:
    """Return a Scrapy request as it is sent: Host first, then its headers in their order, then its body."""
    target, meta = target_of(request.url), request.meta
    hosts = request.headers.getlist("Host")
    lines = [*(b"Host: " + host for host in hosts[-1:]), *header_lines(request.headers.items())]
    return HttpRequest(
        request.url,
        target.origin,
        write_request(target, lines, request.method, request.body),
        request.method,
        meta.get("download_cut"),
        meta.get("download_types") or (),
        meta.get("download_fail_on_dataloss", fails_on_loss),
    )


def answer_of(response: Response) -> Answer:
    """Return what a direct fetch would have got in place of *response*."""
    latency_s = response.request.meta.get("download_latency", 0.0) if response.request else 0.0
    headers = dict(response.headers.items())
    return Answer(response.status, headers, response.body, response.flags, latency_s)


class _ScrapyDownload(Download):
    """Receives a response, sends Scrapy's signals about it, and makes a `Response` of it."""

    def __init__(self, crawler: Crawler, request: Request, *, max_bytes: int, warn_bytes: int) -> None:
        super().__init__(request.meta.get("download_cut"), request.meta.get("download_types") or ())
        self._crawler = crawler
        self._request = request
        self._max_bytes = max_bytes
        self._warn_bytes = warn_bytes
        self._stop: StopDownload | None = None

    def take_head(self, head: Head, peer: Peer) -> bool:
        is_wanted = super().take_head(head, peer)
        # Now: another response may come over the connection before this one is made.
        self._address, self._certificate = _address(peer.address), peer.certificate
        request = self._request
        request.meta["download_latency"] = self.latency_s
        self._headers = Headers(head.headers)
        expected_bytes = None if request.method == "HEAD" else head.content_length
        if self._cut is None:
            self._check_size(expected_bytes or 0, "The server announced")
        self._send(signals.headers_received, headers=self._headers, body_length=expected_bytes)
        return is_wanted and self._stop is None

    def take_body(self, data: bytes) -> bool:
        wants_more = super().take_body(data)
        self._send(signals.bytes_received, data=self._body[-1])
        if self._cut is None:
            self._check_size(self._body_bytes, "There came")
        return wants_more and self._stop is None

    def response(self) -> Response:
        url, body = self._request.url, self.body
        kind: type[Response] = Response
        if self._cut is None:
            kind = responsetypes.from_args(headers=self._headers, url=url, body=body)
        response = kind(
            url,
            status=self.head.status,
            headers=self._headers,
            body=body,
            flags=self.flags,
            ip_address=self._address,
            certificate=self._certificate,
            protocol=self.head.protocol,
        )
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

    def _send(self, signal: object, **facts: Any) -> None:
        results = self._crawler.signals.send_catch_log(
            signal=signal, request=self._request, spider=self._crawler.spider, **facts
        )
        for handler, result in results:
            if isinstance(result, Failure) and isinstance(result.value, StopDownload):
                self._stop = result.value
                name = getattr(handler, "__qualname__", handler)
                logger.debug("Download stopped for %s from signal handler %s", self._request, name)


@lru_cache(maxsize=4096)
def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    return ipaddress.ip_address(text)
