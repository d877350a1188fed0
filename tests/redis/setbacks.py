"""Sets a Redis back, as a crash does that loses the last writes: older data, and every connection closed."""

from __future__ import annotations

from dataclasses import dataclass

from crawlproj.redisio.client import RedisClient


@dataclass(frozen=True)
class Backup:
    """All keys of a Redis, with the ms they had left. *client* is the test's own, and stays connected."""

    client: RedisClient
    keys: dict[bytes, tuple[int, bytes]]

    @classmethod
    async def of(cls, client: RedisClient) -> Backup:
        names = await client.command("KEYS", "*")
        commands = [command for name in names for command in (("PTTL", name), ("DUMP", name))]
        answers = await client.pipeline(commands)
        values = zip((max(0, left_ms) for left_ms in answers[::2]), answers[1::2], strict=True)
        return cls(client, dict(zip(names, values, strict=True)))

    async def restore(self) -> None:
        """Set Redis back to this backup, in one step."""
        restored = [("RESTORE", name, left_ms, value) for name, (left_ms, value) in self.keys.items()]
        closed = [("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes") for kind in ("normal", "pubsub")]
        await self.client.pipeline([("FLUSHDB",), *restored, *closed], transaction=True)
