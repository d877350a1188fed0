"""A parser in a thread of another process, with a loop and a connection of its own."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from crawlproj.config import Config
from crawlproj.observe.metrics import Metrics
from crawlproj.observe.process import Heartbeat
from crawlproj.parsing.extractor import Extractor, ExtractorFailed
from crawlproj.parsing.names import new_parser_name
from crawlproj.parsing.worker import Parser
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run

logger = logging.getLogger(__name__)

#: How long a parser asked to stop may take for its current pages and its last segment.
_COMMIT_S = 5.0
#: How long it may take to end once it waits only for Redis.
_END_S = 1.0


class ParserThread:
    """A parser in a thread. ``done`` is a future of the loop that made it."""

    def __init__(self, config: Config, run: str, metrics: Metrics, heartbeat: Heartbeat) -> None:
        self._config = config
        self._run = run
        self._metrics = metrics
        self._heartbeat = heartbeat
        self._extractor = Extractor(config)
        self._shard_left = threading.Event()
        self._is_leaving = False
        self._parser: Parser | None = None
        self._cancel: Callable[[], object] | None = None
        executor = ThreadPoolExecutor(1, thread_name_prefix="parser")
        self.done = asyncio.get_running_loop().run_in_executor(executor, self._work)
        executor.shutdown(wait=False)

    async def drain(self) -> None:
        """Let it parse what is queued; what it cannot within CRAWL_DRAIN_SECONDS stays in the queue."""
        self._shard_left.set()
        await asyncio.wait([self.done], timeout=self._config.drain_seconds)
        await self.leave()

    async def leave(self) -> None:
        """Let it commit its current pages and stop; kill it if it is too slow."""
        self._is_leaving = True
        if self._parser is not None:
            self._parser.stop()
        await asyncio.wait([self.done], timeout=_COMMIT_S)
        if not self.done.done():
            logger.warning("parser did not stop in time; its pages return to the queue later")
            self._extractor.kill()
            # If it was parsing a page it ends now and disconnects; a cancel would interrupt that.
            await asyncio.wait([self.done], timeout=_END_S)
            if self._cancel is not None and not self.done.done():
                self._cancel()

    def _work(self) -> None:
        try:
            asyncio.run(self._parse())
        except (asyncio.CancelledError, ExtractorFailed):
            # Killed by `leave`, which has logged it.
            if not self._is_leaving:
                raise
        finally:
            self._extractor.close()

    async def _parse(self) -> None:
        config, task = self._config, asyncio.current_task()
        assert task is not None
        self._cancel = partial(task.get_loop().call_soon_threadsafe, task.cancel)
        client = await RedisClient.connect(config)
        try:
            run = await Run.open(client, self._run, partitions=config.partitions, strict=False, creates=False)
            run.watch()
            self._parser = Parser(
                run,
                config,
                new_parser_name(),
                self._is_over,
                extractor=self._extractor,
                metrics=self._metrics,
                heartbeat=self._heartbeat,
            )
            if self._is_leaving:
                self._parser.stop()
            await self._parser.run()
        finally:
            await client.close()

    async def _is_over(self) -> bool:
        """Once the shard has left, an empty queue stays empty."""
        return self._shard_left.is_set()
