"""The spider `web`: a lease becomes a request, a response a page. It parses nothing and knows no Redis."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator, Iterator
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from typing import Any

from scrapy import Request, Spider
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import Response
from twisted.python.failure import Failure

from crawlproj import seams
from crawlproj.config import Config, load_config
from crawlproj.errors import BadArgument, BadUrl, NoSeeds
from crawlproj.frontier.feed import Feed
from crawlproj.frontier.seeds import parse_seeds, seed_lines
from crawlproj.model.records import Candidate, FetchedPage, Lease, Outcome, Page
from crawlproj.model.urls import canonicalise
from crawlproj.requests import decode_request

logger = logging.getLogger(__name__)

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: Response headers a parser has use for.
_HEADERS = (
    "Content-Type",
    "Content-Encoding",
    "Content-Language",
    "Last-Modified",
    "ETag",
    "Link",
    "X-Robots-Tag",
)
_SEEDS_AT_ONCE = 5000


class WebSpider(Spider):
    """Crawls the web from seeds: ``scrapy crawl web -a shard=0 -a shards=2 -a run=NAME -a seeds=FILE``."""

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
            "crawlproj.middlewares.RetryLater": 950,
        },
        "SPIDER_MIDDLEWARES": {
            "scrapy.spidermiddlewares.start.StartSpiderMiddleware": None,
            "scrapy.spidermiddlewares.httperror.HttpErrorMiddleware": None,
            "scrapy.spidermiddlewares.referer.RefererMiddleware": None,
            "scrapy.spidermiddlewares.urllength.UrlLengthMiddleware": None,
            "scrapy.spidermiddlewares.depth.DepthMiddleware": None,
        },
        "DEFAULT_REQUEST_HEADERS": {
            "Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
            "Accept-Language": "en,*;q=0.5",
            "Accept-Encoding": "gzip, br, zstd",
        },
        "CONCURRENT_ITEMS": 1,
        "DOWNLOAD_MAXSIZE": 10_000_000,
        # Whoever can write to Redis must not make a shard read files of its machine.
        "DOWNLOAD_HANDLERS": {"data": None, "file": None, "ftp": None, "s3": None},
    }

    def __init__(
        self, shard: str = "0", shards: str = "", run: str = "", seeds: str = "", **others: Any
    ) -> None:
        super().__init__()
        self.shard, self.shards, self.run, self.seeds = shard, shards, run, seeds
        self._others = others

    def check_arguments(self) -> None:
        """Refuse arguments nobody knows. Called by the scheduler, where errors become one clear line."""
        known = ["shard", "shards", "run", "seeds"]
        # scrapyd adds the number of its job.
        for name in self._others.keys() - {"_job"}:
            close = get_close_matches(name, known, n=1)
            hint = f"Did you mean -a {close[0]}?" if close else f"There are {', '.join(known)}."
            raise BadArgument(f"Unknown argument -a {name}. {hint}")

    @cached_property
    def config(self) -> Config:
        return load_config(self.crawler.settings.copy_to_dict())

    @property
    def feed(self) -> Feed:
        feed: Feed = self.crawler.feed  # type: ignore[attr-defined]  # put there by the scheduler
        return feed

    async def start(self) -> AsyncIterator[Any]:
        """Admit the seeds; the frontier gives them back as leases when their turn comes."""
        if self.seeds:
            try:
                await self._admit_seeds()
            except NoSeeds as exc:
                logger.error("shard %s stops: %s", self.shard, exc)
                seams.exit_with(exc.exit_code)
                raise CloseSpider("no_seeds") from exc
        # Nothing to yield; but Scrapy wants an iterator.
        no_requests: tuple[Request, ...] = ()
        for request in no_requests:
            yield request

    async def _admit_seeds(self) -> None:
        lines = parse_seeds(seed_lines(self.seeds))
        given = new = refused = 0
        while batch := list(islice(lines, _SEEDS_AT_ONCE)):
            for complaint in (seed for seed in batch if isinstance(seed, str)):
                refused += 1
                logger.error("seed refused: %s, %s", self.seeds, complaint)
            candidates = [seed for seed in batch if not isinstance(seed, str)]
            given += len(candidates)
            new += await self.feed.admit_now(candidates)
        if not given:
            raise NoSeeds(f"The seeds file {self.seeds!r} has no valid seed ({refused} lines refused).")
        logger.info("seeds admitted: %d new of %d, %d lines refused", new, given, refused)

    def request_of(self, lease: Lease) -> Request:
        """Return the request for a lease; called by the scheduler. A start URL may bring method and body."""
        request = decode_request(lease.url, lease.extra, self) if lease.extra else Request(lease.url)
        request.callback, request.errback, request.dont_filter = self.parse, self.fail, True
        return request

    def parse(self, response: Response, **kwargs: Any) -> Iterator[FetchedPage]:
        assert response.request is not None
        lease: Lease = response.request.meta["crawl_lease"]
        hops, redirected_from = _path(lease)
        if response.status in _REDIRECTS:
            self._follow(response, lease, hops)
        headers = {
            name: b", ".join(values).decode("latin-1")
            for name in _HEADERS
            if (values := response.headers.getlist(name))
        }
        limit = self.config.max_body
        page = self._page(lease, response.status, redirected_from)
        page.latency_ms = int(response.meta.get("download_latency", 0) * 1000)
        page.headers = headers
        page.body = response.body[:limit]
        page.truncated = len(response.body) > limit or "partial" in response.flags
        if response.status >= 400:
            self.feed.judge(lease, Outcome.DONE, f"http_{response.status}")
        yield FetchedPage(page, lease)

    def fail(self, failure: Failure) -> Iterator[FetchedPage]:
        """A URL that failed for good gets a row, too."""
        request: Request = failure.request  # type: ignore[attr-defined]  # set by Scrapy
        lease: Lease = request.meta["crawl_lease"]
        if isinstance(failure.value, IgnoreRequest):
            return
        reason = error_name(failure.value)
        self.feed.judge(lease, Outcome.FAILED, reason)
        yield FetchedPage(self.failure_of(lease, reason), lease)

    def failure_of(self, lease: Lease, reason: str) -> Page:
        """Return the page for a URL that failed for good; also called by the scheduler."""
        page = self._page(lease, 0, _path(lease)[1])
        page.error = reason
        return page

    def _page(self, lease: Lease, status: int, redirected_from: str) -> Page:
        return Page(
            url=lease.url,
            run=self.feed.frontier.run,
            domain=lease.domain,
            depth=lease.depth,
            status=status,
            fetched_at_ms=int(time.time() * 1000),
            latency_ms=0,
            shard=self.feed.number.number,
            attempt=lease.attempt,
            partition=lease.partition,
            lease=lease.number,
            redirected_from=redirected_from,
        )

    def _follow(self, response: Response, lease: Lease, hops: int) -> None:
        """Have the target of a redirect admitted: it waits for its own domain's turn."""
        location = response.headers.get("Location", b"")
        if not location or hops >= self.config.max_redirects:
            self.feed.judge(lease, Outcome.DONE, "redirects")
            return
        try:
            target = canonicalise(location.decode("latin-1"), lease.url)
        except BadUrl:
            self.feed.judge(lease, Outcome.DONE, "bad_redirect")
            return
        extra = json.dumps({"hops": hops + 1, "from": lease.url}, separators=(",", ":"))
        self.feed.add([Candidate(target, lease.depth, extra=extra)])


def _path(lease: Lease) -> tuple[int, str]:
    """Return how many redirects led to a lease, and from where."""
    if not lease.extra:
        return 0, ""
    extra = json.loads(lease.extra)
    return int(extra.get("hops", 0)), str(extra.get("from", ""))


def error_name(error: BaseException | None) -> str:
    """Return a short stable name for what kept us from an answer."""
    return type(error).__name__.removesuffix("Error").lower() if error else "unknown"
