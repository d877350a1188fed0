"""The live processes of a run."""

from __future__ import annotations

import json

from crawlproj.config import Config
from crawlproj.errors import BadArgument
from crawlproj.model.run import RunState
from crawlproj.redisio import keys
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.names import ProcessName, read_holders
from crawlproj.redisio.stripes import read_hash
from crawlproj.runs.membership import read_members
from crawlproj.runs.record import Run

#: A parser silent for longer counts as gone where the options of its run are not known.
SILENT_S = 60.0


def parser_silence_s(config: Config) -> float:
    """Return how long a parser may be silent: a page keeps it from sending heartbeats."""
    return config.shard_lease_seconds + config.parse_seconds


async def is_interrupted(run: Run, state: RunState) -> bool:
    """Whether *run* should be running, but its processes were killed: none of them is left."""
    if state != RunState.RUNNING:
        return False
    return not await read_members(run) and not await live_processes(run, SILENT_S)


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


async def check_unused(run: Run, config: Config) -> None:
    """Raise BadArgument while any process works on *run*."""
    if alive := await live_processes(run, parser_silence_s(config)):
        raise BadArgument(
            f"Run {run.name!r} is in use: {', '.join(alive)}. Stop it: scrapy stop --run {run.name}"
        )


async def resume(run: Run, config: Config, state: RunState) -> bool:
    """Let a run in this *state* continue; returns whether it has shards. Else they are to be started."""
    alive = await live_processes(run, parser_silence_s(config))
    has_shards = any(name.startswith("shard") for name in alive)
    if state == RunState.PAUSED:
        # A run without shards is not RUNNING: its time would be counted.
        await run.change(RunState.RUNNING if has_shards else RunState.CREATED)
    else:
        await run.reopen()
    return has_shards
