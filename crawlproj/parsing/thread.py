"""A parser in a thread of another process, with a loop and a connection of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from crawlproj.config import Config
from crawlproj.frontier.frontier import Frontier
from crawlproj.observe.metrics import Metrics
from crawlproj.observe.process import ProcessFigures
from crawlproj.pages.queue import PageQueue
from crawlproj.parsing.extractor import Extractor, ExtractorFailed
from crawlproj.parsing.worker import Parser, new_parser_name
from crawlproj.redisio.client import Door
from crawlproj.runs import Run

logger = logging.getLogger(__name__)

#: How long a parser that was told to stop may take over the pages at hand and its last segment.
_COMMIT_S = 5.0
#: How long it may take to go once it has nothing to wait for but Redis.
_GO_S = 1.0


class ParserThread:
    """A parser at work in a thread. ``done`` is a future of the loop that made it."""

    def __init__(
        self,
        config: Config,
        run: str,
        metrics: Metrics | None = None,
        figures: ProcessFigures | None = None,
    ) -> None:
        self._config = config
        self._run = run
        self._metrics = metrics
        self._figures = figures
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
            self._extractor.kill()
            # One that was reading a page ends by that, and disconnects; a cancel would cut that short.
            await asyncio.wait([self.done], timeout=_GO_S)
            if self._cancel is not None and not self.done.done():
                self._cancel()

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
                metrics=self._metrics,
                figures=self._figures,
            )
            if self._is_leaving:
                self._parser.stop()
            await self._parser.run()
        finally:
            await door.close()

    async def _is_over(self) -> bool:
        """Nobody else brings pages: when the shard has left, an empty queue stays empty."""
        return self._shard_left.is_set()
