"""Every use of Scrapy's private parts, in one place and checked at the start.

Scrapy has no public way to wake its engine, or to learn that it is done with a request or shutting down. When
a Scrapy release changes what we rely on, `attach` says so.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import scrapy
from scrapy import Request
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import Crawler
from scrapy.downloadermiddlewares.useragent import UserAgentMiddleware
from scrapy.spidermiddlewares.depth import DepthMiddleware
from scrapy.statscollectors import MemoryStatsCollector, StatsCollector

from crawlproj.config import Config
from crawlproj.errors import CrawlError


class _InProgress(set[Request]):
    """The engine's set of requests in flight; calls back when one has left for good."""

    def __init__(self, on_leave: Callable[[Request], None]) -> None:
        super().__init__()
        self._on_leave = on_leave

    def remove(self, request: Request) -> None:
        super().remove(request)
        self._on_leave(request)


def attach(
    engine: ExecutionEngine, *, on_leave: Callable[[Request], None], on_closing: Callable[[], None]
) -> None:
    """Call *on_leave* for each request after its last callback and item.

    *on_closing* is called when a close begins, before the requests in flight are waited for.
    """
    slot: Any = engine._slot
    try:
        if slot.inprogress or not callable(slot.close) or not callable(slot.nextcall.schedule):
            raise AttributeError("the engine is already running")
    except AttributeError as exc:
        raise CrawlError(
            f"Scrapy {scrapy.__version__} does not work as crawlproj expects ({exc}); "
            "use the version in requirements.txt."
        ) from exc
    slot.inprogress = _InProgress(on_leave)
    close = slot.close

    def announce_and_close() -> Any:
        on_closing()
        return close()

    slot.close = announce_and_close


def use_bundled_suffix_list() -> None:
    """Make Scrapy's cookie middleware use its bundled public-suffix list.

    By default the list is fetched from the web, blocking the loop and bypassing the address guard. Nothing to
    do for a spider without that middleware.
    """
    cookies: Any = sys.modules.get("scrapy.downloadermiddlewares.cookies")
    if cookies is not None:
        # Not at module level: it takes long to import, and opens a socket.
        from tldextract import TLDExtract

        cookies._split_domain = TLDExtract(
            cache_dir=None, suffix_list_urls=(), include_psl_private_domains=True
        )


def counter_of(stats: StatsCollector) -> Callable[..., None]:
    """Return a function that increments a stat: ``count(key, by=1)``.

    Scrapy's `inc_value` inspects every name in three ways, at eight times the cost of counting.
    """
    if type(stats) is not MemoryStatsCollector:
        return stats.inc_value
    get_values = partial(object.__getattribute__, stats, "_stats")

    def count(key: str, by: int = 1) -> None:
        values = get_values()
        if key in values:
            values[key] += by
        else:
            values[key] = by

    return count


def wake(engine: ExecutionEngine) -> None:
    """Make the engine ask the scheduler for requests soon."""
    if engine._slot is not None:
        engine._slot.nextcall.schedule()


def may_start_requests(engine: ExecutionEngine) -> bool:
    """Whether the engine would start requests now: it is neither paused, nor closing, nor not yet started."""
    return engine.running and not engine.paused and not engine.needs_backout()


def start_is_exhausted(engine: ExecutionEngine) -> bool:
    """Whether all start requests of the spider have reached the scheduler."""
    return engine._start is None


def keep_feeds(crawler: Crawler) -> None:
    """Leave the files of feeds (-O, -o) that got no item as they are; Scrapy would empty or create them."""
    feeds: Any = sys.modules.get("scrapy.extensions.feedexport")
    for extension in crawler.extensions.middlewares if feeds and crawler.extensions else ():
        if isinstance(extension, feeds.FeedExporter):
            for slot in extension.slots:
                slot.store_empty = False


def start_failed(engine: ExecutionEngine) -> bool:
    """Whether the spider's `start` raised, so that start requests may be missing."""
    return getattr(engine, "_start_error", False)


def stop_reactor() -> None:
    """Stop now, whatever is still in flight, as Scrapy does at a second Ctrl-C."""
    # Not at module level: importing it installs one.
    from twisted.internet import reactor

    cast(Any, reactor).stop()


def exit_with(code: int) -> None:
    """Make the process exit with *code*: `scrapy crawl` itself only uses 0 and 1."""
    atexit.register(_leave, code)


def _leave(code: int) -> None:
    # Registered last, so it runs first, and does what the other exit handlers would.
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def obey(crawler: Crawler, settings: Mapping[str, object], config: Config) -> None:
    """Make Scrapy's own components follow the rules of the run, which were not known when they were built."""
    crawler.settings.frozen = False
    for name, value in settings.items():
        crawler.settings.set(name, value, priority="cmdline")
    crawler.settings.freeze()
    engine = crawler.engine
    assert engine is not None
    for component in (*engine.downloader.middleware.middlewares, *engine.scraper.spidermw.middlewares):
        if isinstance(component, DepthMiddleware):
            component.maxdepth = config.depth_limit
        elif isinstance(component, UserAgentMiddleware):
            component.user_agent = getattr(crawler.spider, "user_agent", config.contact_user_agent)
