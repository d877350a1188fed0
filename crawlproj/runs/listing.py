"""What `scrapy runs` shows."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from crawlproj.errors import BadArgument, RunMismatch
from crawlproj.redisio.client import RedisClient
from crawlproj.runs.processes import is_interrupted
from crawlproj.runs.record import Run


@dataclass(frozen=True, slots=True)
class RunLine:
    """A run in the list. Its JSON form is an interface, so names are only ever added."""

    run: str
    state: str
    reason: str = ""
    shards_alive: int = 0
    shards: int = 0
    fetched: int = 0
    waiting: int = 0
    stored: int = 0
    created_ms: int = 0
    ran_s: float = 0.0
    #: It should be running, but no process of it is left.
    interrupted: bool = False


async def list_runs(client: RedisClient) -> list[RunLine]:
    """Return all runs in this Redis, by name."""
    found = await asyncio.gather(*(_line_of(client, name) for name in await Run.names(client)))
    return [line for line in found if line]


async def _line_of(client: RedisClient, name: str) -> RunLine | None:
    try:
        run = await Run.find(client, name)
        run_map, counters = await run.read_map(), await run.read_counters()
    except BadArgument:
        # Deleted meanwhile.
        return None
    except RunMismatch:
        return RunLine(name, "of another version")
    return RunLine(
        name,
        run_map.state,
        run_map.reason,
        sum(not holder.process.is_dead() for holder in run_map.alive.values()),
        run_map.shards,
        counters.fetched,
        counters.waiting,
        counters.stored,
        run_map.created_ms,
        round(run_map.ran_s, 1),
        await is_interrupted(run, run_map.state),
    )
