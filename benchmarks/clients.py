"""The download handlers that are compared, in one process on one reactor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from scrapy import Spider
from scrapy.core.downloader.handlers.base import BaseDownloadHandler
from scrapy.crawler import Crawler
from scrapy.settings import Settings
from scrapy.utils.reactor import install_reactor

#: As many connections as requests at once, so that all handlers keep theirs.
AT_ONCE = 8
OURS = "ours"
STOCK = "Scrapy http11"
AIOHTTP = "Scrapy aiohttp"


def make_handlers() -> dict[str, BaseDownloadHandler]:
    """Return the handlers by name; to be called while the reactor runs."""
    from scrapy.core.downloader.handlers._aiohttp import AiohttpDownloadHandler
    from scrapy.core.downloader.handlers.http11 import HTTP11DownloadHandler

    from crawlproj.download.handler import HttpHandler

    settings = {
        "CONCURRENT_REQUESTS_PER_DOMAIN": AT_ONCE,
        "CRAWL_IDLE_PER_HOST": AT_ONCE,
        "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
    }
    crawler = Crawler(Spider, Settings(settings))
    crawler.spider = Spider("bench")
    kinds: dict[str, type[BaseDownloadHandler]] = {
        OURS: HttpHandler,
        STOCK: HTTP11DownloadHandler,
        AIOHTTP: AiohttpDownloadHandler,
    }
    return {name: kind(crawler) for name, kind in kinds.items()}


def run_in_reactor(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run *work* to its end on Scrapy's asyncio reactor, and raise what it raises."""
    install_reactor("twisted.internet.asyncioreactor.AsyncioSelectorReactor")
    from twisted.internet import reactor as installed

    # Twisted declares interfaces that mypy cannot follow.
    reactor: Any = installed
    tasks: list[asyncio.Future[None]] = []

    def start() -> None:
        task = asyncio.ensure_future(work())
        task.add_done_callback(lambda _: reactor.stop())
        tasks.append(task)

    reactor.callWhenRunning(start)
    reactor.run(installSignalHandlers=False)
    tasks[0].result()
