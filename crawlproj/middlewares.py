"""Downloader middlewares for requests that go through Scrapy's engine; direct fetches need none."""

from __future__ import annotations

from contextlib import suppress
from typing import Self

from scrapy import Request
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.useragent import UserAgentMiddleware as ScrapyUserAgentMiddleware
from scrapy.exceptions import IgnoreRequest
from scrapy.http import Response

from crawlproj.config import load_config
from crawlproj.download.client import Answer
from crawlproj.download.endings import ending_of
from crawlproj.download.errors import PutOffError
from crawlproj.download.guard import NoContactError
from crawlproj.download.handler import answer_of
from crawlproj.errors import BadSetting
from crawlproj.frontier.dispatcher import OUTAGE_WAIT_S
from crawlproj.frontier.feed import Feed
from crawlproj.model.records import Outcome, Settlement
from crawlproj.shard.context import context_of
from crawlproj.shard.fetch import ProblemLog, retry_reason
from crawlproj.shard.requests import SETTLEMENT


class RetriedLater(IgnoreRequest):
    """The URL waits in the frontier to be retried; the spider does not see this attempt."""


class UserAgentMiddleware(ScrapyUserAgentMiddleware):
    """Scrapy's own, with CRAWL_CONTACT in the user agent: site owners must be able to reach us."""

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        middleware = super().from_crawler(crawler)
        # The scheduler reports bad settings before anything is sent.
        with suppress(BadSetting):
            middleware.user_agent = load_config(crawler.settings.copy_to_dict()).contact_user_agent
        return middleware


class DomainFeedback:
    """Starts a domain's rest when its request ends. Must stay next to Scrapy's DownloaderStats."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._problems: ProblemLog | None = None

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def process_response(self, request: Request, response: Response) -> Response:
        settlement = request.meta.get(SETTLEMENT)
        if isinstance(settlement, Settlement):
            if response.request is None:
                response.request = request
            self._end(request, settlement, answer_of(response))
        return response

    def process_exception(self, request: Request, exception: Exception) -> None:
        settlement = request.meta.get(SETTLEMENT)
        if not isinstance(settlement, Settlement):
            return
        if self._problems is None:
            self._problems = ProblemLog(self._feed)
        self._problems.log(request.url, exception)
        if isinstance(exception, NoContactError | PutOffError):
            wait_s = getattr(exception, "wait_s", 0.0)
            self._feed.dispatcher.put_off(settlement.lease, wait_s)
        else:
            self._end(request, settlement, Answer(error=exception))

    def _end(self, request: Request, settlement: Settlement, answer: Answer) -> None:
        self._feed.dispatcher.request_ended(settlement.lease, ending_of(answer), len(answer.body))

    @property
    def _feed(self) -> Feed:
        return context_of(self._crawler).feed


class RetryLater(DomainFeedback):
    """The same for the spider `web`, whose retries return to the frontier."""

    def _end(self, request: Request, settlement: Settlement, answer: Answer) -> None:
        dispatcher, lease, ending = self._feed.dispatcher, settlement.lease, ending_of(answer)
        if dispatcher.is_outage(lease.domain, ending, lease.url):
            dispatcher.put_off(lease, OUTAGE_WAIT_S)
            raise RetriedLater(f"{request.url} is retried later (no site is reachable)")
        if dispatcher.request_ended(lease, ending, len(answer.body)):
            settlement.outcome, settlement.reason = Outcome.RETRY, retry_reason(ending)
            raise RetriedLater(f"{request.url} is retried later ({settlement.reason})")
