"""Single mode: a shard that reads its pages itself, so that `scrapy crawl web` alone is a whole crawl.

The parser is the one of `scrapy parser`, in a thread of the shard's process with a loop and a connection of
its own: it meets the shard only in Redis, as ever, and nothing it does (files, links, waiting for a page to
be read) blocks the loop of the shard. See docs/single.md.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Self, cast

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred

from crawlproj import seams
from crawlproj.errors import CrawlError
from crawlproj.runs.presence import Presence
from crawlproj.spiders.web import WebSpider

if TYPE_CHECKING:
    from crawlproj.parsing.thread import ParserThread

logger = logging.getLogger(__name__)


class InlineParser:
    """Parses beside the shard from spider_opened on; after spider_closed until the queue is empty.

    A parser that fails takes the shard with it: pages nobody reads would fill the queue for ever.
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
        feed = getattr(self._crawler, "feed", None)
        # No feed: the shard could not start, and has said why.
        if feed is None or not isinstance(spider, WebSpider) or not parses_inline(spider):
            return
        # Not at module level: a shard that does not parse starts without all that parsing needs.
        from crawlproj.parsing.thread import ParserThread

        presence: Presence = self._crawler.presence  # type: ignore[attr-defined]  # put there by the scheduler
        self._parser = parser = ParserThread(
            spider.config, feed.frontier.run, presence.metrics, presence.figures.beside()
        )
        parser.done.add_done_callback(self._on_done)
        # Not at module level: importing it installs one.
        from twisted.internet import reactor

        # Where the shard left without a word: its time to drain was over, or somebody was in a hurry.
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
            logger.error("the parser broke", exc_info=error)
        logger.error("shard stops, its parser cannot go on: %s", error)
        seams.exit_with(error.exit_code if isinstance(error, CrawlError) else 1)
        self._closing = asyncio.create_task(self._close_spider(), name="close spider")

    async def _close_spider(self) -> None:
        engine = self._crawler.engine
        if engine is not None and engine.spider is not None:
            await engine.close_spider_async(reason="parser_failed")


def parses_inline(spider: WebSpider) -> bool:
    """Whether the shard of *spider* reads its pages itself, by CRAWL_PARSE."""
    return spider.is_single if spider.config.parse == "auto" else spider.config.parse == "inline"
