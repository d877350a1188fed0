"""Chooses, when the spider opens, how its leases are fetched: directly, or by Scrapy's engine."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial

from pydispatch import dispatcher as signal_dispatcher  # type: ignore[import-untyped]
from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.httpproxy import HttpProxyMiddleware
from scrapy.utils.misc import load_object
from scrapy.utils.python import global_object_name

from crawlproj.download.client import client_of
from crawlproj.frontier.robots_turns import RobotsTurns
from crawlproj.shard import seams
from crawlproj.shard.context import PageSpider, ShardContext
from crawlproj.shard.direct import CountedExchange, DirectFetches, RequestWriter
from crawlproj.shard.fetch import Fetcher
from crawlproj.shard.items import ScrapedItems
from crawlproj.shard.kept import KeptRequests
from crawlproj.shard.robotstxt import RobotsTxt
from crawlproj.shard.stock import StockFetches, exchange_by_engine, write_robots

logger = logging.getLogger(__name__)

#: Components whose work a direct fetch does itself.
COVERED = frozenset(
    {
        "crawlproj.download.handler.HttpHandler",
        "crawlproj.middlewares.RetryLater",
        "crawlproj.middlewares.UserAgentMiddleware",
        "crawlproj.pipelines.PageQueuePipeline",
        "crawlproj.spiders.web.WebSpider",
        "scrapy.core.downloader.Downloader",
        "scrapy.downloadermiddlewares.defaultheaders.DefaultHeadersMiddleware",
        "scrapy.downloadermiddlewares.downloadtimeout.DownloadTimeoutMiddleware",
        "scrapy.downloadermiddlewares.stats.DownloaderStats",
        "scrapy.extensions.corestats.CoreStats",
        "scrapy.logformatter.LogFormatter",
    }
)
#: Signals that a fetch through Scrapy's engine would send.
_SIGNALS = (
    signals.request_reached_downloader,
    signals.headers_received,
    signals.bytes_received,
    signals.response_downloaded,
    signals.request_left_downloader,
    signals.response_received,
    signals.spider_error,
    signals.item_scraped,
    signals.item_dropped,
    signals.item_error,
)


def choose_way(
    crawler: Crawler,
    spider: Spider,
    context: ShardContext,
    kept: KeptRequests,
    count: Callable[..., None],
    on_closing: Callable[[], None],
) -> DirectFetches | StockFetches:
    """Return the direct way if it bypasses no component, else Scrapy's own."""
    config, dispatcher, settings = context.config, context.feed.dispatcher, crawler.settings
    robots = RobotsTxt(RobotsTurns(dispatcher), config.robots_agent, follows_sitemaps=config.sitemaps)
    fetcher_with = partial(Fetcher, context.feed, robots, context.results)
    most = config.concurrent_requests
    engine = crawler.engine
    assert engine is not None
    if isinstance(spider, PageSpider):
        obstacle = reason_against(crawler) if config.direct else "CRAWL_DIRECT=False"
        if not obstacle:
            client = client_of(crawler)
            exchange = client.fetch
            if settings.getbool("DOWNLOADER_STATS"):
                exchange = CountedExchange(client, count, logs=settings["LOG_LEVEL"] == "DEBUG")
            write = RequestWriter(spider, config, settings)
            context.on_change.append(write.change)
            fetcher = fetcher_with(write=write, exchange=exchange, count=count)
            # No partial: the dispatcher of signals calls functions only.
            crawler.signals.connect(
                lambda: _warn_of_late_listeners(crawler), signals.engine_started, weak=False
            )
            may_start = partial(seams.may_start_requests, engine)
            return DirectFetches(dispatcher, fetcher.fetch_safely, client, count, most, may_start)
        logger.info("pages are fetched by Scrapy's engine, which is slower, because of %s", obstacle)
    # Scrapy counts what goes through its engine.
    fetcher = fetcher_with(
        write=write_robots, exchange=partial(exchange_by_engine, engine), count=lambda name: None
    )
    fetch = fetcher.fetch_safely
    items = ScrapedItems(crawler, context.results)
    return StockFetches(engine, spider, dispatcher, kept, fetch, count, items, most, on_closing=on_closing)


def reason_against(crawler: Crawler) -> str:
    """Return a component that a direct fetch would bypass, '' if there is none."""
    for component in _components(crawler):
        is_named = hasattr(component, "__qualname__")
        name = global_object_name(component if is_named else type(component))
        has_no_proxy = isinstance(component, HttpProxyMiddleware) and not component.proxies
        if name not in COVERED and not has_no_proxy:
            return name
    return ""


def _components(crawler: Crawler) -> Iterator[object]:
    """Yield everything that has a part in a fetch through Scrapy's engine."""
    engine = crawler.engine
    assert engine is not None
    yield from (crawler.spider, engine.downloader, engine.logformatter)
    handlers = crawler.settings.getwithbase("DOWNLOAD_HANDLERS")
    yield from (load_object(handlers[scheme]) for scheme in ("http", "https") if handlers.get(scheme))
    yield from engine.downloader.middleware.middlewares
    yield from engine.scraper.spidermw.middlewares
    yield from engine.scraper.itemproc.middlewares
    for signal in _SIGNALS:
        receivers = signal_dispatcher.getAllReceivers(crawler.signals.sender, signal)
        for receiver in signal_dispatcher.liveReceivers(receivers):
            yield getattr(receiver, "__self__", receiver)


def _warn_of_late_listeners(crawler: Crawler) -> None:
    if late := reason_against(crawler):
        logger.warning(
            "%s was connected after the scheduler opened and is not called for pages; connect it in "
            "from_crawler, or set CRAWL_DIRECT=False",
            late,
        )
