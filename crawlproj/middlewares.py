"""Downloader middlewares: who is asking, and how each request ended, told to the feed the moment it did."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Self

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.useragent import UserAgentMiddleware
from scrapy.exceptions import IgnoreRequest, NotConfigured
from scrapy.http import Headers, Response
from scrapy.utils.python import global_object_name, without_none_values

from crawlproj import seams
from crawlproj.config import load_config
from crawlproj.download.connection import PutOffError
from crawlproj.download.endings import ended_of, retry_after_s
from crawlproj.download.guard import NoContactError
from crawlproj.errors import BadSetting
from crawlproj.frontier.feed import AWAY_S, Feed
from crawlproj.model.records import Lease, Outcome
from crawlproj.politeness.pacing import Ended

logger = logging.getLogger(__name__)

#: What no server should be able to make us raise.
_OUR_MISTAKES = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    TypeError,
    ValueError,
)


class TriedLater(IgnoreRequest):
    """The URL waits in the frontier for another try; the spider is not bothered with this one."""


class Introduction(UserAgentMiddleware):
    """Scrapy's own, with CRAWL_CONTACT in the user agent: people must be able to reach whoever crawls.

    It sets DEFAULT_REQUEST_HEADERS as well, so that Scrapy's middleware for them can be off.
    """

    _defaults: Mapping[str, str]
    _usual: list[tuple[bytes, list[bytes]]]

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        middleware = super().from_crawler(crawler)
        # The scheduler refuses wrong settings, in one clear line and before anything is sent.
        with suppress(BadSetting):
            middleware.user_agent = load_config(crawler.settings.copy_to_dict()).introduction
        middleware._defaults = without_none_values(crawler.settings["DEFAULT_REQUEST_HEADERS"])
        middleware._set_usual()
        return middleware

    def spider_opened(self, spider: Spider) -> None:
        # It may have a `user_agent` of its own.
        super().spider_opened(spider)
        self._set_usual()

    def _set_usual(self) -> None:
        self._usual = list(dict.items(Headers({**self._defaults, "User-Agent": self.user_agent})))

    def process_request(self, request: Request, spider: Spider | None = None) -> None:
        # As a plain dict: Headers' own methods would bring into form again what is in form.
        headers = request.headers
        for name, values in self._usual:
            dict.setdefault(headers, name, values.copy())


class TrafficStats:
    """The stats of Scrapy's DownloaderStats, by the same names, without building what is measured."""

    def __init__(self, crawler: Crawler) -> None:
        assert crawler.stats is not None
        self._inc = seams.counter_of(crawler.stats)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if not crawler.settings.getbool("DOWNLOADER_STATS"):
            raise NotConfigured
        return cls(crawler)

    def process_request(self, request: Request) -> None:
        url, method = request.url, request.method
        # "GET /path HTTP/1.1", "Host: name" and the empty line have 22 characters around those of the URL.
        head_bytes = len(method) + len(url) - url.find("://") - 3 + 22 + _size(request.headers)
        inc = self._inc
        inc("downloader/request_count")
        inc(f"downloader/request_method_count/{method}")
        inc("downloader/request_bytes", head_bytes + len(request.body))

    def process_response(self, request: Request, response: Response) -> Response:
        inc = self._inc
        inc("downloader/response_count")
        inc(f"downloader/response_status_count/{response.status}")
        # "HTTP/1.1 200 OK" and the empty line; other words of a status are a few bytes longer.
        inc("downloader/response_bytes", len(response.body) + _size(response.headers) + 19)
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        self._inc("downloader/exception_count")
        self._inc(f"downloader/exception_type_count/{global_object_name(type(exception))}")


def _size(headers: Headers) -> int:
    size = 0
    for name, values in dict.items(headers):
        for value in values:
            size += len(name) + len(value) + 4
    return size


class DomainFeedback:
    """Starts a domain's rest when its request ends. Must stay next to the downloader (the highest number)."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._mistakes_told: set[type[Exception]] = set()

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Response:
        ended = Ended(
            status=response.status,
            latency_s=request.meta.get("download_latency", 0.0),
            retry_after_s=self._retry_after_s(response),
        )
        self._tell(request, ended, len(response.body))
        return response

    def _retry_after_s(self, response: Response) -> float | None:
        values = dict.get(response.headers, b"Retry-After")
        return retry_after_s(values[-1], time.time()) if values else None

    def process_exception(self, request: Request, exception: Exception) -> None:
        self._own_up(request, exception)
        if isinstance(exception, NoContactError):
            # Nothing else would end better: every public site would be refused.
            self._feed.stop(BadSetting(str(exception)))
        if not isinstance(exception, NoContactError | PutOffError):
            self._tell(request, ended_of(exception), 0)
            return
        lease = request.meta.get("crawl_lease")
        if isinstance(lease, Lease):
            self._feed.put_off(lease, getattr(exception, "wait_s", 0.0))

    def _own_up(self, request: Request, exception: Exception) -> None:
        """Log a mistake of ours, once of each kind: its site is blamed, and nobody else would hear of it."""
        if isinstance(exception, _OUR_MISTAKES) and type(exception) not in self._mistakes_told:
            self._mistakes_told.add(type(exception))
            logger.error(
                "a download broke by a mistake of ours; its URL is tried again (said once of each kind)",
                exc_info=exception,
                extra={"url": request.url},
            )

    def _tell(self, request: Request, ended: Ended, fetched_bytes: int) -> bool:
        lease = request.meta.get("crawl_lease")
        return isinstance(lease, Lease) and self._feed.ended(lease, ended, fetched_bytes)

    @property
    def _feed(self) -> Feed:
        feed: Feed = self._crawler.feed  # type: ignore[attr-defined]  # put there by the scheduler
        return feed


class RetryLater(DomainFeedback):
    """The same for the spider `web`, whose retries go back to the frontier instead of being made here."""

    def _tell(self, request: Request, ended: Ended, fetched_bytes: int) -> bool:
        lease = request.meta.get("crawl_lease")
        if isinstance(lease, Lease) and self._feed.is_excused(lease.domain, ended):
            self._feed.put_off(lease, AWAY_S)
            raise TriedLater(f"{request.url} is tried again later (no site can be reached)")
        again = super()._tell(request, ended, fetched_bytes)
        if again:
            reason = f"http_{ended.status}" if ended.status else ended.error
            self._feed.judge(request.meta["crawl_lease"], Outcome.RETRY, f"retry_{reason}")
            raise TriedLater(f"{request.url} is tried again later ({reason})")
        return again
