"""Single mode: a shard that parses its own pages, so that `scrapy crawl web` alone is a whole crawl.

The parser is that of `scrapy parser`, in a thread of the shard's process with its own loop and Redis
connection. It shares only Redis with the shard, and never blocks the shard's loop. See docs/single.md.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Self, cast

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred

from crawlproj.config import Config
from crawlproj.errors import CrawlError
from crawlproj.shard import seams
from crawlproj.shard.closing import close_spider
from crawlproj.shard.context import PageSpider, find_context

if TYPE_CHECKING:
    from crawlproj.parsing.thread import ParserThread

logger = logging.getLogger(__name__)


class InlineParser:
    """Parses beside the shard from spider_opened on, and after spider_closed until the queue is empty.

    A parser that fails stops the shard: the queue would only fill up.
    """

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._parser: ParserThread | None = None
        self._closing: asyncio.Task[None] | None = None
        crawler.signals.connect(self._start, signals.spider_opened)
        crawler.signals.connect(self._drain, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _start(self, spider: Spider) -> None:
        context = find_context(self._crawler)
        # None: the shard could not start, and has logged why.
        if context is None or not parses_inline(spider, context.config):
            return
        # Not at module level: a shard that does not parse need not import the parser.
        from crawlproj.parsing.thread import ParserThread

        telemetry = context.telemetry
        self._parser = parser = ParserThread(
            context.config, context.run.name, telemetry.metrics, telemetry.heartbeat.of_component()
        )
        parser.done.add_done_callback(self._on_done)
        context.drains.append(self._drain)
        # Not at module level: importing it installs one.
        from twisted.internet import reactor

        # For a shard that exits without closing: its time to drain was over, or a second signal came.
        cast(Any, reactor).addSystemEventTrigger("before", "shutdown", self._leave)

    async def _drain(self) -> None:
        if self._parser is not None:
            await self._parser.drain()

    def _leave(self) -> Deferred[None] | None:
        return None if self._parser is None else deferred_from_coro(self._parser.leave())

    def _on_done(self, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if error is None:
            return
        if not isinstance(error, CrawlError):
            logger.error("the parser failed", exc_info=error)
        logger.error("stopping the shard because its parser failed: %s", error)
        seams.exit_with(error.exit_code if isinstance(error, CrawlError) else 1)
        closing = close_spider(self._crawler, "parser_failed")
        self._closing = asyncio.create_task(closing, name="close spider")


def parses_inline(spider: Spider, config: Config) -> bool:
    """Whether the shard of *spider* stores its pages or items itself, by CRAWL_PARSE."""
    if config.parse != "auto":
        return config.parse == "inline"
    # Nobody starts parsers for a spider that needs none but for its items.
    return spider.is_single if isinstance(spider, PageSpider) else not config.supervisor
