"""Claiming a run: one supervisor per run on a machine, once the last one's processes have exited."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crawlproj.errors import BadArgument, ShardTaken
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import Holder
from crawlproj.runs import Run, RunState

_POLL_S = 0.3


@contextmanager
def claim_run(directory: Path, run: str) -> Iterator[None]:
    """Hold the run in *directory* for this supervisor. Raises ShardTaken when another one holds it.

    A file lock, which the kernel releases when the process dies.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "supervisor.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            pid = lock.read().strip() or "unknown"
            raise ShardTaken(
                f"Run {run!r} is already running in process {pid}. Wait until it ends, stop it (scrapy stop "
                f"--run {run}), or choose another --run. To add seeds: scrapy seed. To add processes: --join."
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


async def live_shards(run: Run) -> dict[int, Holder]:
    """Return the shards of *run* that are not known to be dead."""
    alive = (await run.read_map()).alive
    return {number: holder for number, holder in alive.items() if not holder.process.is_dead()}


async def is_alone(run: Run, lease_s: float) -> bool:
    """Whether no shard works on *run*.

    If partitions still have an owner, its number may have expired because a clock was set: a shard that is
    alive renews it within *lease_s*.
    """
    deadline_s = time.monotonic() + lease_s
    while not await live_shards(run):
        owners = await run.client.pipeline(
            [("HGET", keys.meta(run.name, partition), "owner") for partition in range(run.partitions)]
        )
        if not any(owners) or time.monotonic() > deadline_s:
            return True
        await asyncio.sleep(_POLL_S)
    return False


async def wait_for_leftovers(run: Run, within_s: float, notify: Callable[[str], None]) -> None:
    """Wait until the shards of a killed supervisor have exited. Raises ShardTaken on timeout."""
    deadline_s = time.monotonic() + within_s
    announced = False
    while alive := await live_shards(run):
        number, holder = next(iter(alive.items()))
        who = f"shard {number} is process {holder.process.pid} on {holder.process.host}"
        if time.monotonic() > deadline_s:
            raise ShardTaken(
                f"Run {run.name!r} is already running elsewhere: {who}. Stop it, add this machine's "
                "processes with --join, or choose another --run. To add seeds: scrapy seed."
            )
        if not announced:
            notify(
                f"run {run.name} still has processes: {who}; waiting up to {within_s:.0f} s for them to exit"
            )
            announced = True
        await asyncio.sleep(_POLL_S)


async def join(run: Run, shards: int) -> None:
    """Add *shards* that only this supervisor starts. Raises BadArgument if the run cannot grow."""
    total = (await run.read_map()).shards
    if not await live_shards(run):
        raise BadArgument(f"Run {run.name!r} is not running, so there is nothing to join; leave out --join.")
    if total + shards > run.partitions:
        raise BadArgument(
            f"--shards {shards}: the run already has {total}, and may have at most {run.partitions}, one per "
            "partition."
        )
    await _grow(run, shards)


async def leave(run: Run, shards: int) -> None:
    """Undo `join`."""
    await _grow(run, -shards)


async def reset_joined(run: Run) -> None:
    """Return the shards of supervisors that joined to the run's own."""
    await run.client.command("HDEL", keys.run_record(run.name), "joined")


async def _grow(run: Run, shards: int) -> None:
    total = (await run.read_map()).shards
    joined = int(await run.client.command("HGET", keys.run_record(run.name), "joined") or 0)
    # Set, not increased: the client sends a command again when its answer is lost.
    await run.update(shards=max(1, total + shards), joined=max(0, joined + shards))


async def fresh_run_name(client: RedisClient, stem: str) -> str:
    """Return *stem*, with a number appended if needed, so that the run is new or unfinished."""
    number = 1
    while True:
        name = stem if number == 1 else f"{stem}-{number}"
        if await Run(client, name, 1).state() != RunState.FINISHED:
            return name
        number += 1
