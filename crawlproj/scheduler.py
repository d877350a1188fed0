"""The Scrapy scheduler: inherits from scrapy-redis's, with the frontier instead of its blocking queue.

The engine's calls touch memory only; the feed's task talks to Redis. See docs/decisions/0003.
"""

from __future__ import annotations

import logging
from typing import Any

from scrapy import Request, Spider
from scrapy.crawler import Crawler
from scrapy.utils.defer import deferred_from_coro
from scrapy_redis.scheduler import Scheduler as RedisScheduler
from twisted.internet.defer import Deferred

from crawlproj.errors import BadUrl, RequestNotSerialisable
from crawlproj.shard.process import ShardProcess

logger = logging.getLogger(__name__)


class Scheduler(RedisScheduler):  # type: ignore[misc]  # scrapy-redis has no types
    """Scrapy's calls, passed to the shard."""

    def __init__(self, crawler: Crawler) -> None:
        # Not super().__init__(), which needs a connected, blocking client.
        self.stats: Any = crawler.stats
        self._shard = ShardProcess(crawler)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Scheduler:
        return cls(crawler)

    @classmethod
    def from_settings(cls, settings: Any) -> Scheduler:
        raise NotImplementedError("made by from_crawler")

    def __len__(self) -> int:
        dispatcher = self._shard.dispatcher
        return dispatcher.pacer.buffered if dispatcher else 0

    def open(self, spider: Spider) -> Deferred[None]:
        return deferred_from_coro(self._shard.open(spider))

    def close(self, reason: str) -> Deferred[None]:
        return deferred_from_coro(self._shard.close(reason))

    def next_request(self) -> Request | None:
        return self._shard.next_request()

    def enqueue_request(self, request: Request) -> bool:
        """Admit a request in the feed's next turn; only then is it known whether it is a duplicate."""
        try:
            is_open = self._shard.admit(request)
        except (BadUrl, RequestNotSerialisable) as exc:
            logger.error("request dropped: %s", exc)
            self.stats.inc_value("scheduler/refused")
            return False
        if is_open:
            self.stats.inc_value("scheduler/enqueued/redis")
        return is_open

    def has_pending_requests(self) -> bool:
        return self._shard.has_work

    def flush(self) -> None:
        raise NotImplementedError("SCHEDULER_FLUSH_ON_START and SCHEDULER_PERSIST say when a run is deleted")
