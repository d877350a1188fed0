"""Sets a Redis back, as a crash does that loses the last writes: older data, and every connection closed."""

from __future__ import annotations

from dataclasses import dataclass

from crawlproj.redisio.client import RedisClient

#: All at once: what others write meanwhile is in it or not.
_ALL = """
local all = {}
for _, name in ipairs(redis.call('KEYS', '*')) do
  all[#all + 1] = {name, redis.call('PTTL', name), redis.call('DUMP', name)}
end
return all
"""


@dataclass(frozen=True)
class Backup:
    """All keys of a Redis, with the ms they had left. *client* is the test's own, and stays connected."""

    client: RedisClient
    keys: dict[bytes, tuple[int, bytes]]

    @classmethod
    async def of(cls, client: RedisClient) -> Backup:
        return cls(
            client, {name: (max(0, ms), value) for name, ms, value in await client.command("EVAL", _ALL, 0)}
        )

    async def restore(self) -> None:
        """Set Redis back to this backup, in one step."""
        restored = [("RESTORE", name, left_ms, value) for name, (left_ms, value) in self.keys.items()]
        closed = [("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes") for kind in ("normal", "pubsub")]
        await self.client.pipeline([("FLUSHDB",), *restored, *closed], transaction=True)
