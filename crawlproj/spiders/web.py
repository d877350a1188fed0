"""The spider `web`: turns a lease into a request and a response into a page. It does not parse."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from scrapy import Request, Spider
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import Response
from scrapy.settings import BaseSettings
from twisted.python.failure import Failure

from crawlproj.config import Config, load_config
from crawlproj.download.client import Answer
from crawlproj.download.handler import answer_of
from crawlproj.errors import BadArgument, NoSeeds, SetBack
from crawlproj.frontier.seeds import SeedSource, admit_seeds, judge_seeds
from crawlproj.model.records import Candidate, FetchedPage, Lease, Settlement
from crawlproj.shard import seams
from crawlproj.shard.context import ShardContext, context_of
from crawlproj.shard.requests import SETTLEMENT, body_limits, decode_request

logger = logging.getLogger(__name__)

#: Settings with components of Scrapy.
_TABLES = ("DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "EXTENSIONS")
#: Components with a setting that switches them off.
_SWITCHES = {
    "scrapy.extensions.telnet.TelnetConsole": "TELNETCONSOLE_ENABLED",
    "scrapy.extensions.remote_control.RemoteControl": "REMOTE_CONTROL_ENABLED",
}


class WebSpider(Spider):
    """Crawls the web from seeds: ``scrapy crawl web -a seeds=FILE``, which also parses (`shard/single.py`).

    As one of several: ``scrapy crawl web -a shard=0 -a shards=2 -a run=NAME -a seeds=FILE``.
    """

    name = "web"

    #: What a broad crawl does not need; each is a cost per page. Redirects and retries go through the
    #: frontier, so that they wait for their domain's turn; compressed bodies are passed on as they came.
    custom_settings = {  # noqa: RUF012  # Scrapy declares it so
        "DOWNLOADER_MIDDLEWARES": {
            "scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": None,
            "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
            "scrapy.downloadermiddlewares.httpauth.HttpAuthMiddleware": None,
            "scrapy.downloadermiddlewares.retry.RetryMiddleware": None,
            "scrapy.downloadermiddlewares.redirect.MetaRefreshMiddleware": None,
            "scrapy.downloadermiddlewares.httpcompression.HttpCompressionMiddleware": None,
            "scrapy.downloadermiddlewares.redirect.RedirectMiddleware": None,
            "scrapy.downloadermiddlewares.cookies.CookiesMiddleware": None,
            "scrapy.downloadermiddlewares.httpcache.HttpCacheMiddleware": None,
            "crawlproj.middlewares.DomainFeedback": None,
            "crawlproj.middlewares.RetryLater": 840,
        },
        "SPIDER_MIDDLEWARES": {
            "scrapy.spidermiddlewares.start.StartSpiderMiddleware": None,
            "scrapy.spidermiddlewares.httperror.HttpErrorMiddleware": None,
            "scrapy.spidermiddlewares.referer.RefererMiddleware": None,
            "scrapy.spidermiddlewares.urllength.UrlLengthMiddleware": None,
            "scrapy.spidermiddlewares.depth.DepthMiddleware": None,
            "scrapy.spidermiddlewares.metacopy.MetaCopyDetectionMiddleware": None,
        },
        "DEFAULT_REQUEST_HEADERS": {
            "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "Accept-Language": "en,*;q=0.5",
            "Accept-Encoding": "gzip, br, zstd",
        },
        "CONCURRENT_ITEMS": 1,
        # Write access to Redis must not allow reading files of the machine.
        "DOWNLOAD_HANDLERS": {"data": None, "file": None, "ftp": None, "s3": None},
    }

    def __init__(
        self, shard: str = "", shards: str = "", run: str = "", seeds: str = "", **others: Any
    ) -> None:
        super().__init__()
        #: Whether this one process is the whole crawl: no shard number was given.
        self.is_single = not shard and not shards
        self.shard, self.run, self.seeds = shard or "0", run, seeds
        self._seed_source = SeedSource(seeds)
        self.shards = "1" if self.is_single else shards
        self._others = others

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Apply `custom_settings`; Scrapy itself would replace the project's tables, with the guard."""
        for name, value in cls.custom_settings.items():
            if isinstance(value, dict):
                value = {**settings[name], **value}
            settings.set(name, value, priority="spider")
        for table in _TABLES:
            _leave_out(settings, table)

    def check_arguments(self) -> None:
        """Refuse unknown arguments, and seeds none of which is valid, before the run is created.

        Called by the shard, where errors become one clear line.
        """
        known = ["shard", "shards", "run", "seeds"]
        # scrapyd adds the id of its job and, if given, the version of the egg.
        for name in self._others.keys() - {"_job", "_version"}:
            close = get_close_matches(name, known, n=1)
            hint = f"Did you mean -a {close[0]}?" if close else f"Known: {', '.join(known)}."
            raise BadArgument(f"Unknown argument -a {name}. {hint}")
        if self.seeds:
            refused = 0
            for seed in judge_seeds(self._seed_source):
                if isinstance(seed, Candidate):
                    return
                refused += 1
            raise self._no_seeds(refused)

    @cached_property
    def config(self) -> Config:
        return load_config(self.crawler.settings.copy_to_dict())

    @property
    def _context(self) -> ShardContext:
        return context_of(self.crawler)

    async def start(self) -> AsyncIterator[Any]:
        """Admit the seeds; they come back from the frontier as leases."""
        try:
            await self.admit_seeds()
        except SetBack:
            # The shard starts over, and then calls it.
            pass
        except NoSeeds as exc:
            logger.error("shard %s stops: %s", self.shard, exc)
            seams.exit_with(exc.exit_code)
            raise CloseSpider("no_seeds") from exc
        # Nothing to yield, but Scrapy needs an iterator.
        no_requests: tuple[Request, ...] = ()
        for request in no_requests:
            yield request

    async def admit_seeds(self) -> None:
        """Admit the seeds that were given; called by the shard again if Redis may have lost them."""
        if not self.seeds:
            return

        def report(error: str) -> None:
            logger.error("seed refused: %s", error)

        context = self._context
        count = await admit_seeds(context.feed.frontier, [self._seed_source], context.rules, report)
        if not count.given:
            raise self._no_seeds(count.refused)
        logger.info("seeds admitted: %d new of %d, %d lines refused", count.new, count.given, count.refused)

    def _no_seeds(self, refused: int) -> NoSeeds:
        return NoSeeds(f"The seeds file {self.seeds!r} has no valid seed ({refused} lines refused).")

    def request_of(self, lease: Lease) -> Request:
        """Return the request for a lease; called by the shard. A start URL may bring method and body."""
        extra = lease.extra
        # Canonical URLs are sent as they are. No other meta: write access to Redis must not allow choosing a
        # proxy that bypasses the guard.
        parts = {**extra.request, "meta": {"verbatim_url": True}}
        request = decode_request(lease.url, parts, self)
        request.callback, request.errback, request.dont_filter = self.parse, self.fail, True
        if extra.cookie:
            request.headers["Cookie"] = extra.cookie.encode("latin-1", "replace")
        limits = body_limits(lease, self.config)
        request.meta["download_cut"] = limits.cut
        request.meta["download_types"] = limits.types
        if limits.is_last_attempt:
            request.meta["download_fail_on_dataloss"] = False
        return request

    def parse(self, response: Response, **kwargs: Any) -> Iterator[FetchedPage]:
        yield from self._pages(response.meta[SETTLEMENT], answer_of(response))

    def fail(self, failure: Failure) -> Iterator[FetchedPage]:
        """A URL that failed for good gets a row, too."""
        request: Request = failure.request  # type: ignore[attr-defined]  # set by Scrapy
        if isinstance(failure.value, Exception) and not isinstance(failure.value, IgnoreRequest):
            yield from self._pages(request.meta[SETTLEMENT], Answer(error=failure.value))

    def _pages(self, settlement: Settlement, answer: Answer) -> Iterator[FetchedPage]:
        """Write the result of an answer into *settlement*; yields its page, if there is one."""
        context = self._context
        result = context.results.of(settlement.lease, answer)
        settlement.outcome, settlement.reason = result.outcome, result.reason
        if result.target is not None:
            context.feed.dispatcher.add([result.target])
        if result.page is not None:
            yield FetchedPage(result.page, settlement)


def _leave_out(settings: BaseSettings, table: str) -> None:
    """Remove switched-off components from Scrapy's *table*.

    Scrapy imports even those set to None, and with them aiohttp, requests and more: a quarter of a second of
    every start.
    """
    own, built_in = settings[table], settings[f"{table}_BASE"]
    off = {name for name in built_in if name in own and own[name] is None}
    off |= {name for name, switch in _SWITCHES.items() if not settings.getbool(switch)}
    for name, components in ((table, own), (f"{table}_BASE", built_in)):
        kept = {path: order for path, order in components.items() if path not in off}
        settings.set(name, kept, priority="spider")
