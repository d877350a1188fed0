"""The live processes of a run."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from crawlproj.model.run import RunState
from crawlproj.redisio import keys
from crawlproj.redisio.client import pairs
from crawlproj.redisio.names import ProcessName, read_holders
from crawlproj.runs.record import Run

#: A supervisor silent for longer counts as gone.
_SUPERVISOR_S = 60.0


async def show_supervisor(run: Run, process: ProcessName, figures: Mapping[str, object]) -> None:
    """Publish the heartbeat of a supervisor; repeat it to stay visible."""
    key, at_ms = keys.supervisors(run.name), int(time.time() * 1000)
    beat = json.dumps({"process": asdict(process), "at_ms": at_ms, **figures})
    await run.client.run("write_fields", [key], [int(1000 * _SUPERVISOR_S), process.instance, beat])


async def forget_supervisor(run: Run, process: ProcessName) -> None:
    await run.client.command("HDEL", keys.supervisors(run.name), process.instance)


async def read_supervisors(run: Run, now_ms: int) -> dict[str, dict[str, Any]]:
    """Return the heartbeats of the live supervisors by instance, the oldest first."""
    beats = pairs(await run.client.command("HGETALL", keys.supervisors(run.name)))
    alive = {
        instance: beat
        for instance, beat in ((instance, json.loads(beat)) for instance, beat in beats)
        if now_ms - beat["at_ms"] <= 1000 * _SUPERVISOR_S and not ProcessName.read(beat["process"]).is_dead()
    }
    return dict(sorted(alive.items(), key=lambda item: item[1].get("started_ms", 0)))


async def is_interrupted(run: Run, state: RunState) -> bool:
    """Whether *run* should be running, but its processes were killed: none of them is left."""
    if state != RunState.RUNNING:
        return False
    now_ms = int(time.time() * 1000)
    return not await read_supervisors(run, now_ms) and not await live_processes(run, _SUPERVISOR_S)


async def live_processes(run: Run, silent_s: float) -> list[str]:
    """Return the live shards and parsers: 'shard 0 (process 12 on host)'.

    A parser counts as dead when it was silent for longer than *silent_s*; a process of this machine that no
    longer exists counts as dead at once.
    """
    # Also numbers beyond the run's shards: they are shutting down.
    holders = await read_holders(run.client, [keys.shard(run.name, n) for n in range(run.partitions)])
    seconds, _ = await run.client.command("TIME")
    beats = pairs(await run.client.command("HGETALL", keys.parsers(run.name)))
    found = [(f"shard {number}", holder.process) for number, holder in enumerate(holders) if holder]
    for name, beat in sorted(beats):
        record = json.loads(beat)
        if record["process"] and int(seconds) - record["at_ms"] / 1000 <= silent_s:
            found.append((f"parser {name}", ProcessName.read(record["process"])))
    return [
        f"{name} (process {process.pid} on {process.host})"
        for name, process in found
        if not process.is_dead()
    ]
