"""The processes of a run that are alive, as people want them named."""

from __future__ import annotations

import json

from crawlproj.redisio import keys
from crawlproj.redisio.client import pairs
from crawlproj.redisio.names import ProcessName, read_holders
from crawlproj.runs.record import Run


async def live_processes(run: Run, silent_s: float) -> list[str]:
    """Return the shards and parsers that are there: 'shard 0 (process 12 on host)'.

    A parser counts as dead when it was silent for longer than *silent_s*; a process that is gone from this
    machine counts as dead at once.
    """
    # Also those beyond the number of shards there should be: they are on their way out.
    holders = await read_holders(run.door, [keys.shard(run.name, n) for n in range(run.partitions)])
    seconds, _ = await run.door.command("TIME")
    beats = pairs(await run.door.command("HGETALL", keys.parsers(run.name)))
    found = [(f"shard {number}", holder.process) for number, holder in enumerate(holders) if holder]
    for name, beat in sorted(beats):
        record = json.loads(beat)
        if record["process"] and int(seconds) - record["at_ms"] / 1000 <= silent_s:
            found.append((f"parser {name}", ProcessName(**record["process"])))
    return [
        f"{name} (process {process.pid} on {process.host})"
        for name, process in found
        if not process.is_dead()
    ]
