"""Single mode: a shard that reads its pages itself, so that `scrapy crawl web` alone is a whole crawl.

The parser is the one of `scrapy parser`, in a thread of the shard's process with a loop and a connection of
its own: it meets the shard only in Redis, as ever, and nothing it does (files, links, waiting for a page to
be read) blocks the loop of the shard. See docs/single.md.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self, cast

from scrapy import Spider, signals
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro
from twisted.internet.defer import Deferred

from crawlproj import seams
from crawlproj.config import Config
from crawlproj.errors import CrawlError
from crawlproj.frontier.frontier import Frontier
from crawlproj.pages.queue import PageQueue
from crawlproj.parsing.extractor import Extractor, ExtractorFailed
from crawlproj.parsing.worker import Parser, new_parser_name
from crawlproj.redisio.client import Door
from crawlproj.runs import Run
from crawlproj.spiders.web import WebSpider

logger = logging.getLogger(__name__)

#: How long a parser that was told to stop may take over the pages at hand and its last segment.
_COMMIT_S = 5.0


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
        self._parser = parser = ParserThread(spider.config, feed.frontier.run)
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


class ParserThread:
    """A parser at work in a thread. ``done`` is a future of the loop that made it."""

    def __init__(self, config: Config, run: str) -> None:
        self._config = config
        self._run = run
        self._extractor = Extractor(config)
        self._shard_left = threading.Event()
        self._is_leaving = False
        self._parser: Parser | None = None
        self._cancel: Callable[[], object] | None = None
        executor = ThreadPoolExecutor(1, thread_name_prefix="parser")
        self.done = asyncio.get_running_loop().run_in_executor(executor, self._work)
        executor.shutdown(wait=False)

    async def drain(self) -> None:
        """Let it read what is in the queue; what it cannot within CRAWL_DRAIN_SECONDS stays there."""
        self._shard_left.set()
        await asyncio.wait([self.done], timeout=self._config.drain_seconds)
        await self.leave()

    async def leave(self) -> None:
        """Have it commit the pages at hand and go, with force if it must be."""
        self._is_leaving = True
        if self._parser is not None:
            self._parser.stop()
        await asyncio.wait([self.done], timeout=_COMMIT_S)
        if not self.done.done():
            logger.warning("parser did not come to an end; its pages are taken back later")
            if self._cancel is not None:
                self._cancel()
            self._extractor.kill()

    def _work(self) -> None:
        try:
            asyncio.run(self._parse())
        except (asyncio.CancelledError, ExtractorFailed):
            # With force, by `leave`, which has said so.
            if not self._is_leaving:
                raise
        finally:
            self._extractor.close()

    async def _parse(self) -> None:
        config, task = self._config, asyncio.current_task()
        assert task is not None
        self._cancel = partial(task.get_loop().call_soon_threadsafe, task.cancel)
        door = await Door.open(
            url=config.redis_url,
            data_dir=config.data,
            params=config.redis_params,
            wait_s=config.redis_wait_seconds,
        )
        try:
            run = await Run.open(door, self._run, partitions=config.partitions)
            self._parser = Parser(
                name=new_parser_name(),
                queue=PageQueue(door, run.name),
                frontier=Frontier(door, run.name, run.partitions, domain_pages=config.domain_pages),
                directory=config.data / "runs" / run.name / "pages",
                config=config,
                is_over=self._is_over,
                commits_asked=run.commits_asked,
                extractor=self._extractor,
            )
            if self._is_leaving:
                self._parser.stop()
            await self._parser.run()
        finally:
            await door.close()

    async def _is_over(self) -> bool:
        """Nobody else brings pages: when the shard has left, an empty queue stays empty."""
        return self._shard_left.is_set()
