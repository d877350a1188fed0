"""Watches the memory of Redis: whether it is short of room, without asking at every call."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.room import Room

#: How often the memory of Redis is read.
LOOK_S = 1.0


class RoomWatch:
    """Whether Redis is short of room: it uses *share* of its `maxmemory` or more. Never without a limit."""

    def __init__(
        self, client: RedisClient, share: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._clock = clock
        self._room = Room(share)
        self._read_s = -math.inf

    @property
    def was_short(self) -> bool:
        """The last answer of `is_short`."""
        return self._room.is_short

    async def is_short(self) -> bool:
        if self._clock() - self._read_s < LOOK_S:
            return self._room.is_short
        return await self.look()

    async def look(self) -> bool:
        """The same, as of now."""
        self._read_s = self._clock()
        return self._room.update(await self._client.read_memory())

    def note_full(self) -> None:
        """Redis has refused a write: it is short of room until it is read again."""
        self._room.is_short = True
        self._read_s = self._clock()
