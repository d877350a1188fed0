"""The clock that all machines of a run share: that of Redis. Their own clocks may differ by hours."""

from __future__ import annotations

import time

from crawlproj.model.clock import boot_clock
from crawlproj.redisio.client import RedisClient


async def server_ms(client: RedisClient) -> int:
    """Return the time by the clock of Redis (ms)."""
    seconds, micros = await client.command("TIME")
    return int(seconds) * 1000 + int(micros) // 1000


class ServerClock:
    """The clock of Redis as this process last heard of it; its own until then."""

    def __init__(self) -> None:
        self._ahead_ms = time.time() * 1000 - boot_clock() * 1000

    def note(self, now_ms: int) -> None:
        """Set it: *now_ms* is what Redis has just said."""
        self._ahead_ms = now_ms - boot_clock() * 1000

    def ms(self) -> int:
        return int(boot_clock() * 1000 + self._ahead_ms)
