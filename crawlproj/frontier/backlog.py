"""What makes a shard lease less: pages that no parser has stored yet, and a Redis that is short of room."""

from __future__ import annotations

import logging

from crawlproj.frontier.pressure import QueueLimits, QueuePressure
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.stripes import read_hash, read_page_queue
from crawlproj.redisio.watch import RoomWatch

logger = logging.getLogger(__name__)

_MESSAGES = {
    "hard": "page queue full, leasing nothing until parsers catch up",
    "memory": "Redis is short of room, leasing nothing until all pages are stored",
}


class Backlog:
    """Reads the page queue of *run* and the memory of Redis; `pressure` says what they mean."""

    def __init__(self, client: RedisClient, run: str, limits: QueueLimits) -> None:
        self._client = client
        self._run = run
        self._pressure = QueuePressure(limits)
        self._room = RoomWatch(client, limits.redis_share)

    @property
    def share(self) -> float:
        """The part of its room that a shard may fill."""
        return self._pressure.share

    async def read(self, now_s: float) -> str:
        """Read both if that is due; returns which limit has been passed, as `QueuePressure.update` does."""
        if not self._pressure.is_stale(now_s):
            return ""
        pages, queued_bytes = await read_page_queue(self._client, self._run)
        unstored = pages + await self._held() if await self._room.is_short() else None
        level = self._pressure.update(pages, queued_bytes, now_s, unstored_when_short=unstored)
        if level in _MESSAGES:
            logger.info(_MESSAGES[level], extra={"pages": pages, "bytes": queued_bytes})
        return level

    async def _held(self) -> int:
        """Return how many pages parsers have taken and not stored yet."""
        parsers = await read_hash(self._client, self._run, keys.parsers)
        lengths = [
            ("LLEN", keys.pages_taken(self._run, name, stripe))
            for name in parsers
            for stripe in self._client.stripes
        ]
        return sum(await self._client.pipeline(lengths))
