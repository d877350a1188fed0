"""Downloader middlewares: tell the feed how each request ended, the moment it did."""

from __future__ import annotations

import time
from email.utils import parsedate_to_datetime
from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.exceptions import DownloadCancelledError, IgnoreRequest
from scrapy.http import Response

from crawlproj.frontier.feed import Feed
from crawlproj.model.records import Lease, Outcome
from crawlproj.politeness.pacing import Ended

#: We did not want the answer, or no more of it (DOWNLOAD_MAXSIZE): the site is well, and asking again would
#: end the same way.
_NOT_THE_SITES_FAULT = (IgnoreRequest, DownloadCancelledError)


class TriedLater(IgnoreRequest):
    """The URL waits in the frontier for another try; the spider is not bothered with this one."""


class DomainFeedback:
    """Starts a domain's rest when its request ends. Must stay next to the downloader (the highest number)."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Response:
        self._tell(
            request,
            Ended(
                status=response.status,
                latency_s=request.meta.get("download_latency", 0.0),
                retry_after_s=retry_after_s(response.headers.get("Retry-After"), time.time()),
            ),
        )
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        error = "" if isinstance(exception, _NOT_THE_SITES_FAULT) else type(exception).__name__
        self._tell(request, Ended(error=error))

    def _tell(self, request: Request, ended: Ended) -> bool:
        lease = request.meta.get("crawl_lease")
        return isinstance(lease, Lease) and self._feed.ended(lease, ended)

    @property
    def _feed(self) -> Feed:
        feed: Feed = self._crawler.feed  # type: ignore[attr-defined]  # put there by the scheduler
        return feed


class RetryLater(DomainFeedback):
    """The same for the spider `web`, whose retries go back to the frontier instead of being made here."""

    def _tell(self, request: Request, ended: Ended) -> bool:
        again = super()._tell(request, ended)
        if again:
            reason = f"http_{ended.status}" if ended.status else ended.error.removesuffix("Error").lower()
            self._feed.judge(request.meta["crawl_lease"], Outcome.RETRY, f"retry_{reason}")
            raise TriedLater(f"{request.url} is tried again later ({reason})")
        return again


def retry_after_s(header: bytes | None, now_s: float) -> float | None:
    """Return the seconds a Retry-After header asks for, given as a number or as a date."""
    if not header:
        return None
    header = header.strip()
    # Of the bytes: among characters there are digits, such as '²', that are no number.
    if header.isdigit():
        return float(header)
    text = header.decode("latin-1")
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now_s)
    except (ValueError, TypeError, OverflowError):
        return None
