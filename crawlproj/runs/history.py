"""What a run had done at moments of its life, for the chart of its speed; its leader writes it.

Points are equally far apart, in time the run was running: each time there would be more than the most, every
second one is dropped, and the next ones come half as often.
"""

from __future__ import annotations

from typing import NamedTuple

from crawlproj.redisio import keys
from crawlproj.redisio.client import pairs
from crawlproj.redisio.clock import server_ms
from crawlproj.runs.counters import RunCounters
from crawlproj.runs.record import Run

#: The most points of a run, whatever its length, and how far apart they are at first.
MOST_POINTS = 300
LEAST_S = 5


class Point(NamedTuple):
    """What was done until this moment, by the clock of Redis."""

    at_ms: int
    fetched: int
    parsed: int


class History:
    """The history of *run*, for its leader."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._noted_s = -1

    async def note(self, ran_s: float, counters: RunCounters) -> None:
        """Add a point if the last one is old enough. Call it as often as you like."""
        step_s = LEAST_S
        while ran_s >= MOST_POINTS * step_s:
            step_s *= 2
        slot_s = int(ran_s) // step_s * step_s
        if slot_s == self._noted_s:
            return
        self._noted_s = slot_s
        client, key = self._run.client, keys.history(self._run.name)
        point = f"{await server_ms(client)} {counters.fetched} {counters.parsed}"
        await client.run("write_fields", [key], [slot_s, point])
        if await client.command("HLEN", key) > MOST_POINTS:
            fields = await client.command("HKEYS", key)
            surplus = [field for field in fields if int(field) % step_s or int(field) > slot_s]
            await client.command("HDEL", key, *surplus)


async def read_history(run: Run) -> list[Point]:
    """Return the points, oldest first."""
    points = pairs(await run.client.command("HGETALL", keys.history(run.name)))
    return sorted(Point(*map(int, point.split())) for _, point in points)
