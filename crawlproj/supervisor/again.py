"""Starting a run again that was left with nothing but parked domains."""

from __future__ import annotations

from collections.abc import Callable

from crawlproj.frontier.parking import Choice, Parking
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run


async def release_failed(client: RedisClient, name: str, say: Callable[[str], None]) -> None:
    """Release the domains parked for failures if nothing else is left of run *name*, which need not exist.

    Whoever starts it again expects them to be tried: each gets one request, and is parked again if it fails.
    """
    if (run := await Run.look_up(client, name)) is None:
        return
    counters = await run.read_counters()
    if counters.outstanding or not counters.counts["parked:failures"]:
        return
    released = await Parking(client, name, run.partitions).release_domains(Choice(reason="failures"))
    await run.reopen()
    say(f"run {name}: domains that had failed are tried again: {released:,}")
