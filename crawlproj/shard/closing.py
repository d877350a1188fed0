"""Closes the spider of a shard, never before Scrapy has opened everything."""

from __future__ import annotations

import asyncio

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import CloseSpider


class Closing:
    """Scrapy cannot close a scraper, with the item pipelines, that it has yet to open."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._is_open = False
        #: Why the spider is to be closed once it is open.
        self._reason = ""
        self._task: asyncio.Task[None] | None = None
        crawler.signals.connect(self._on_opened, signals.spider_opened)

    def begin(self, reason: str) -> None:
        """Close the spider, now or once it is open; until then, the first reason counts."""
        if self._is_open:
            self._task = asyncio.create_task(close_spider(self._crawler, reason), name="close spider")
        else:
            self._reason = self._reason or reason

    def _on_opened(self) -> None:
        self._is_open = True
        if self._reason:
            raise CloseSpider(self._reason)


async def close_spider(crawler: Crawler, reason: str) -> None:
    """Close the spider of *crawler*, unless it is closed already."""
    engine = crawler.engine
    if engine is not None and engine.spider is not None:
        await engine.close_spider_async(reason=reason)
