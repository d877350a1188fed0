"""robots.txt rules in Redis, shared by all processes of a run and bounded in bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from crawlproj.observe.crashpoints import passed
from crawlproj.politeness.robots import KnownRules, RobotRules
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.connection import Argument

#: How long expired rules are kept, to stay in force while a site is unreachable.
KEPT_EXPIRED_MS = 86_400_000
#: Records per script call; more would block other clients for too long.
_KEEP_BATCH = 100
#: Larger records are unpacked in a thread.
_LARGE_RECORD_BYTES = 8 * 1024


class RobotsStore:
    """The robots.txt rules of sites for *agent*; each partition may use its share of *max_bytes*.

    Here ``expires_at_s`` counts from now. ``now_ms`` is for tests; otherwise the server's clock is used.
    """

    def __init__(
        self,
        client: RedisClient,
        run: str,
        partitions: int,
        max_bytes: int,
        agent: str,
        *,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self._client = client
        self._run = run
        self._max_bytes = max_bytes // partitions
        self._agent = agent
        self._now_ms = now_ms

    async def read(self, origins: Mapping[int, Collection[str]]) -> dict[str, KnownRules]:
        """Return the known rules of *origins*, given by partition, in one round trip.

        Rules that expired less than a day ago have ``expires_at_s`` <= 0: they are to be fetched again, and
        stay in force if that fails. Damaged rules and those of another agent are ignored.
        """
        wanted = [(partition, list(names)) for partition, names in origins.items() if names]
        if not wanted:
            return {}
        time, *answers = await self._client.pipeline(
            [
                ("TIME",),
                *(("HMGET", keys.robots(self._run, partition), *names) for partition, names in wanted),
            ]
        )
        now_ms = self._now_ms() or int(time[0]) * 1000 + int(time[1]) // 1000
        found: dict[str, KnownRules] = {}
        for (_, names), records in zip(wanted, answers, strict=True):
            for origin, record in zip(names, records, strict=True):
                known = await self._unpack(record, now_ms) if record else None
                if known is not None:
                    found[origin] = known
        return found

    async def keep(self, news: Mapping[int, Mapping[str, KnownRules]]) -> None:
        """Store rules of origins, given by partition; those that expire first make room.

        Any process may, at any time, for any origin.
        """
        calls: list[tuple[list[str], list[Argument]]] = []
        for partition, found in news.items():
            names = [keys.robots(self._run, partition), keys.robots_ages(self._run, partition)]
            records = list(found.items())
            for start in range(0, len(records), _KEEP_BATCH):
                args: list[Argument] = [self._now_ms(), self._max_bytes, KEPT_EXPIRED_MS]
                for origin, known in records[start : start + _KEEP_BATCH]:
                    args += (int(known.expires_at_s * 1000), origin, _pack(known))
                calls.append((names, args))
        if calls:
            await self._client.run_many("keep_robots", calls)
            passed("robots_published")

    async def _unpack(self, record: bytes, now_ms: int) -> KnownRules | None:
        expires_ms, _, rest = record.partition(b" ")
        failures, _, packed = rest.partition(b" ")
        try:
            left_s = (int(expires_ms) - now_ms) / 1000
            if len(packed) > _LARGE_RECORD_BYTES:
                rules = await asyncio.to_thread(lambda: RobotRules.from_bytes(packed).prepare())
            else:
                rules = RobotRules.from_bytes(packed)
            known = KnownRules(rules, left_s, int(failures))
        except ValueError:
            return None
        return known if rules.agent == self._agent and left_s > -KEPT_EXPIRED_MS / 1000 else None


def _pack(known: KnownRules) -> bytes:
    return b"%d %s" % (known.failures, known.rules.to_bytes())
