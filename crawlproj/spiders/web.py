"""The spider `web`: a lease becomes a request, a response a page. It parses nothing and knows no Redis."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Iterator
from difflib import get_close_matches
from functools import cached_property
from typing import Any

from scrapy import Request, Spider
from scrapy.exceptions import CloseSpider, IgnoreRequest
from scrapy.http import Response
from scrapy.settings import BaseSettings
from twisted.python.failure import Failure

from crawlproj import seams
from crawlproj.config import Config, load_config
from crawlproj.download.cookies import cookie_header
from crawlproj.download.endings import error_name
from crawlproj.errors import BadArgument, BadUrl, NoSeeds
from crawlproj.frontier.exclusions import load_rules
from crawlproj.frontier.feed import Feed
from crawlproj.frontier.seeds import admit_seeds
from crawlproj.model.records import COOKIE_RETRY, Candidate, FetchedPage, Lease, Outcome, Page
from crawlproj.model.route import Route
from crawlproj.model.urls import canonicalise, fingerprint, origin_of
from crawlproj.requests import decode_request

logger = logging.getLogger(__name__)

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
#: Response headers a parser has use for, as Scrapy writes them and as people do.
_HEADERS = {
    name.title().encode(): name
    for name in (
        "Content-Type",
        "Content-Encoding",
        "Content-Language",
        "Last-Modified",
        "ETag",
        "Link",
        "Refresh",
        "X-Robots-Tag",
    )
}
#: Its values have commas inside, so a line break keeps them apart.
_ROBOTS_TAG = b"X-Robots-Tag"
#: Why a redirect leads nowhere: such a URL could not be had, and its row says so.
_DEAD_ENDS = frozenset({"redirects", "bad_redirect", "redirect_loop"})
#: Flags of a body that is not whole.
_CUT = frozenset({"cut", "dataloss", "partial"})
#: Settings that name components of Scrapy's.
_TABLES = ("DOWNLOADER_MIDDLEWARES", "SPIDER_MIDDLEWARES", "EXTENSIONS")
#: Components that a setting of their own switches off.
_SWITCHES = {
    "scrapy.extensions.telnet.TelnetConsole": "TELNETCONSOLE_ENABLED",
    "scrapy.extensions.remote_control.RemoteControl": "REMOTE_CONTROL_ENABLED",
}


class WebSpider(Spider):
    """Crawls the web from seeds: ``scrapy crawl web -a seeds=FILE``, which parses, too (`crawlproj.single`).

    As one of several: ``scrapy crawl web -a shard=0 -a shards=2 -a run=NAME -a seeds=FILE``.
    """

    name = "web"

    #: What a broad crawl does not need; each is a cost per page. Redirects and retries go through the
    #: frontier, so that they wait for their domain's turn; compressed bodies are passed on as they came.
    custom_settings = {  # noqa: RUF012  # Scrapy declares it so
        "DOWNLOADER_MIDDLEWARES": {
            "scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": None,
            # What these three do, our handler and our middlewares do at a tenth of the cost.
            "scrapy.downloadermiddlewares.downloadtimeout.DownloadTimeoutMiddleware": None,
            "scrapy.downloadermiddlewares.defaultheaders.DefaultHeadersMiddleware": None,
            "scrapy.downloadermiddlewares.stats.DownloaderStats": None,
            "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
            "scrapy.downloadermiddlewares.httpauth.HttpAuthMiddleware": None,
            "scrapy.downloadermiddlewares.retry.RetryMiddleware": None,
            "scrapy.downloadermiddlewares.redirect.MetaRefreshMiddleware": None,
            "scrapy.downloadermiddlewares.httpcompression.HttpCompressionMiddleware": None,
            "scrapy.downloadermiddlewares.redirect.RedirectMiddleware": None,
            "scrapy.downloadermiddlewares.cookies.CookiesMiddleware": None,
            "scrapy.downloadermiddlewares.httpcache.HttpCacheMiddleware": None,
            "crawlproj.middlewares.DomainFeedback": None,
            "crawlproj.middlewares.TrafficStats": 850,
            "crawlproj.middlewares.RetryLater": 950,
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
        # Whoever can write to Redis must not make a shard read files of its machine.
        "DOWNLOAD_HANDLERS": {"data": None, "file": None, "ftp": None, "s3": None},
    }

    def __init__(
        self, shard: str = "", shards: str = "", run: str = "", seeds: str = "", **others: Any
    ) -> None:
        super().__init__()
        #: Whether this one process is the whole crawl: nobody said which of several it is.
        self.is_single = not shard and not shards
        self.shard, self.run, self.seeds = shard or "0", run, seeds
        self.shards = "1" if self.is_single else shards
        self._others = others

    @classmethod
    def update_settings(cls, settings: BaseSettings) -> None:
        """Apply `custom_settings`; Scrapy itself would replace the project's tables, guard and all."""
        for name, value in cls.custom_settings.items():
            if isinstance(value, dict):
                value = {**settings[name], **value}
            settings.set(name, value, priority="spider")
        for table in _TABLES:
            _leave_out(settings, table)

    def check_arguments(self) -> None:
        """Refuse arguments nobody knows, and rules that are none.

        Called by the scheduler, where errors become one clear line.
        """
        self._rules, self._exclusions = load_rules(self.config)
        known = ["shard", "shards", "run", "seeds"]
        # scrapyd adds the number of its job and, when one was asked for, the version of the egg.
        for name in self._others.keys() - {"_job", "_version"}:
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
        def complain(complaint: str) -> None:
            logger.error("seed refused: %s", complaint)

        count = await admit_seeds(self.feed.frontier, [self.seeds], self._rules, complain)
        if not count.given:
            raise NoSeeds(f"The seeds file {self.seeds!r} has no valid seed ({count.refused} lines refused).")
        logger.info("seeds admitted: %d new of %d, %d lines refused", count.new, count.given, count.refused)

    def refusal_of(self, url: str) -> str | None:
        """Return why *url* may not be fetched any more, if so; also called by the scheduler."""
        if self._exclusions is not None:
            self._exclusions.reload_if_changed(time.monotonic())
        return self._rules.refusal(url, 0, None)

    def request_of(self, lease: Lease) -> Request:
        """Return the request for a lease; called by the scheduler. A start URL may bring method and body."""
        if lease.extra:
            request = decode_request(lease.url, lease.extra, self)
            # Nothing of ours is there, and whoever can write to Redis must not choose a proxy past the guard.
            request.meta.clear()
            request.callback, request.errback, request.dont_filter = self.parse, self.fail, True
        else:
            # Canonical URLs are as safe as Scrapy would make them, at a third of the cost of a request.
            verbatim = {"verbatim_url": True}
            request = Request(lease.url, self.parse, meta=verbatim, errback=self.fail, dont_filter=True)
        config, meta, route = self.config, request.meta, Route.decode(lease.extra)
        if route.cookie:
            request.headers["Cookie"] = route.cookie.encode("latin-1", "replace")
        if route.sitemap_level:
            meta["download_cut"] = config.sitemap_bytes
        else:
            meta["download_cut"] = config.max_body
            if config.content_types:
                meta["download_types"] = config.content_types
        if lease.attempt + 1 >= config.max_attempts:
            # The last time, part of a page is better than nothing.
            meta["download_fail_on_dataloss"] = False
        return request

    def parse(self, response: Response, **kwargs: Any) -> Iterator[FetchedPage]:
        meta, status, flags = response.meta, response.status, response.flags
        lease: Lease = meta["crawl_lease"]
        route = Route.decode(lease.extra)
        page = self._page(lease, status, route)
        if status in _REDIRECTS:
            reason = self._follow(response, lease, route)
            if reason == COOKIE_RETRY:
                self.feed.judge(lease, Outcome.RETRY, reason)
                return
            if reason:
                self.feed.judge(lease, Outcome.DONE, reason)
            if reason in _DEAD_ENDS:
                page.error = reason
        page.latency_ms = int(meta.get("download_latency", 0) * 1000)
        # As a plain dict: Headers' own methods bring into form again what is in form, at five times the cost.
        page.headers = {
            _HEADERS[name]: (b"\n" if name == _ROBOTS_TAG else b", ").join(values).decode("latin-1")
            for name, values in dict.items(response.headers)
            if name in _HEADERS
        }
        page.body = response.body
        page.truncated = not _CUT.isdisjoint(flags)
        if "unwanted" in flags:
            self.feed.judge(lease, Outcome.DONE, "content_type")
        elif status >= 400:
            self.feed.judge(lease, Outcome.DONE, f"http_{status}")
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
        page = self._page(lease, 0, Route.decode(lease.extra))
        page.error = reason
        return page

    def _page(self, lease: Lease, status: int, route: Route) -> Page:
        feed = self.feed
        return Page(
            url=lease.url,
            run=feed.frontier.run,
            domain=lease.domain,
            depth=lease.depth,
            status=status,
            fetched_at_ms=int(time.time() * 1000),
            latency_ms=0,
            shard=feed.number.number,
            attempt=lease.attempt,
            partition=lease.partition,
            lease=lease.number,
            redirected_from=route.redirected_from,
            sitemap_level=route.sitemap_level,
            hops=route.hops,
        )

    def _follow(self, response: Response, lease: Lease, route: Route) -> str:
        """Have the target of a redirect admitted: it waits for its own domain's turn.

        Returns why it is not, if so; COOKIE_RETRY if *lease* itself is to be tried again, with a cookie.
        """
        location = response.headers.get("Location", b"")
        if not location or route.hops >= self.config.max_redirects:
            return "redirects"
        try:
            target = self._rules.urls.clean(canonicalise(location.decode("latin-1"), lease.url))
        except BadUrl:
            return "bad_redirect"
        # Cookies go as far as the redirects of one origin do, and no further.
        cookie = ""
        if origin_of(target) == origin_of(lease.url):
            set_cookies = response.headers.getlist("Set-Cookie")
            cookie = cookie_header(set_cookies, lease.url, time.time(), route.cookie)
        onward = route.onward(lease.url, cookie)
        if target == lease.url:
            if cookie == route.cookie or route.redirected_from == lease.url:
                return "redirect_loop"
            lease.extra = onward.encode()
            return COOKIE_RETRY
        if reason := self._rules.refusal(target, lease.depth, lease.url):
            return f"redirect_{reason}"
        candidate = Candidate(target, lease.depth, extra=onward.encode())
        if cookie and target == route.redirected_from:
            # There and back for a cookie: it was seen, but not yet asked with one. A mark of its own makes
            # this happen once.
            candidate.mark, candidate.priority = fingerprint(f"{target} with a cookie"), 1
        self.feed.add([candidate])
        return ""


def _leave_out(settings: BaseSettings, table: str) -> None:
    """Take what is off out of Scrapy's own *table*.

    Scrapy imports also what a table has as None, and with it aiohttp, requests and more: a quarter of a
    second of every start.
    """
    own, built_in = settings[table], settings[f"{table}_BASE"]
    off = {name for name in built_in if name in own and own[name] is None}
    off |= {name for name, switch in _SWITCHES.items() if not settings.getbool(switch)}
    for name, components in ((table, own), (f"{table}_BASE", built_in)):
        kept = {path: order for path, order in components.items() if path not in off}
        settings.set(name, kept, priority="spider")
