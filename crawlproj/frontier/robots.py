"""The rules of sites in Redis, shared by all processes of a run and bounded in bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from crawlproj.politeness.robots import KnownRules, RobotRules
from crawlproj.redisio import keys
from crawlproj.redisio.client import Argument, Door

#: How long rules are remembered after they expired, to stay in force while a site cannot be asked.
KEPT_EXPIRED_MS = 86_400_000
#: Records in one script call; more would keep other clients waiting.
_KEEP_BATCH = 100
#: Packed rules larger than this are unpacked in a thread.
_LARGE_RECORD_BYTES = 8 * 1024


class RobotsStore:
    """What is known of the robots.txt of sites, for *agent*; a partition's share of *max_bytes* each.

    In what is kept and read here, ``expires_at_s`` counts from now. ``now_ms`` is for tests; the server's
    clock is used otherwise.
    """

    def __init__(
        self,
        door: Door,
        run: str,
        partitions: int,
        max_bytes: int,
        agent: str,
        *,
        now_ms: Callable[[], int] = lambda: 0,
    ) -> None:
        self._door = door
        self._run = run
        self._max_bytes = max_bytes // partitions
        self._agent = agent
        self._now_ms = now_ms

    async def read(self, origins: Mapping[int, Collection[str]]) -> dict[str, KnownRules]:
        """Return what is known of *origins*, given by their partition, in one round trip.

        What expired less than a day ago comes with a time that is not positive: it is to be fetched, and
        stays in force if it cannot be. Rules that are damaged, or were made for another agent, are not known.
        """
        asked = [(partition, list(names)) for partition, names in origins.items() if names]
        if not asked:
            return {}
        time, *answers = await self._door.pipeline(
            [
                ("TIME",),
                *(("HMGET", keys.robots(self._run, partition), *names) for partition, names in asked),
            ]
        )
        now_ms = self._now_ms() or int(time[0]) * 1000 + int(time[1]) // 1000
        found: dict[str, KnownRules] = {}
        for (_, names), records in zip(asked, answers, strict=True):
            for origin, record in zip(names, records, strict=True):
                known = await self._unpack(record, now_ms) if record else None
                if known is not None:
                    found[origin] = known
        return found

    async def keep(self, news: Mapping[int, Mapping[str, KnownRules]]) -> None:
        """Keep what was learnt of origins, given by their partition; what expires first makes room.

        Any process may, at any time, for any origin.
        """
        calls: list[tuple[list[str], list[Argument]]] = []
        for partition, found in news.items():
            names = [keys.robots(self._run, partition), keys.robots_ages(self._run, partition)]
            told = list(found.items())
            for start in range(0, len(told), _KEEP_BATCH):
                args: list[Argument] = [self._now_ms(), self._max_bytes, KEPT_EXPIRED_MS]
                for origin, known in told[start : start + _KEEP_BATCH]:
                    args += (int(known.expires_at_s * 1000), origin, _pack(known))
                calls.append((names, args))
        if calls:
            await self._door.run_many("keep_robots", calls)

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
