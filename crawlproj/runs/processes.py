"""The live processes of a run."""

from __future__ import annotations

import json

from crawlproj.model.run import RunState
from crawlproj.redisio import keys
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.names import ProcessName, read_holders
from crawlproj.redisio.stripes import read_hash
from crawlproj.runs.membership import read_members
from crawlproj.runs.record import Run

#: A process silent for longer counts as gone.
_SILENT_S = 60.0


async def is_interrupted(run: Run, state: RunState) -> bool:
    """Whether *run* should be running, but its processes were killed: none of them is left."""
    if state != RunState.RUNNING:
        return False
    return not await read_members(run) and not await live_processes(run, _SILENT_S)


async def live_processes(run: Run, silent_s: float) -> list[str]:
    """Return the live shards and parsers: 'shard 0 (process 12 on host)'.

    A parser counts as dead when it was silent for longer than *silent_s*; a process of this machine that no
    longer exists counts as dead at once.
    """
    # Also numbers beyond the run's shards: they are shutting down.
    holders = await read_holders(run.client, [keys.shard(run.name, n) for n in range(run.partitions)])
    now_ms = await server_ms(run.client)
    beats = await read_hash(run.client, run.name, keys.parsers)
    found = [(f"shard {number}", holder.process) for number, holder in enumerate(holders) if holder]
    for name, beat in sorted(beats.items()):
        record = json.loads(beat)
        if record["process"] and now_ms - record["at_ms"] <= 1000 * silent_s:
            found.append((f"parser {name}", ProcessName.read(record["process"])))
    return [
        f"{name} (process {process.pid} on {process.host})"
        for name, process in found
        if not process.is_dead()
    ]
