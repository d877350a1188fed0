"""Who may run a run on this machine: one supervisor, when the processes of the last one have left."""

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
from crawlproj.redisio.names import Holder
from crawlproj.runs import Run

_LOOK_EVERY_S = 0.3


@contextmanager
def only_supervisor(directory: Path, run: str) -> Iterator[None]:
    """Be the one supervisor of the run in *directory*. Raises ShardTaken when there is one.

    By a lock, which the kernel takes from a process that died.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / "supervisor.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            pid = lock.read().strip() or "unknown"
            raise ShardTaken(
                f"Run {run!r} is at work under process {pid}. Wait for its end or stop it (scrapy stop --run "
                f"{run}), or choose another --run. To add seeds to it: scrapy seed; more processes: --join."
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


async def alive_in(run: Run) -> dict[int, Holder]:
    """Return the shards of *run* that are alive, as far as can be told from here."""
    alive = (await run.read_map()).alive
    return {number: holder for number, holder in alive.items() if not holder.process.is_dead()}


async def wait_for_leftovers(run: Run, within_s: float, say: Callable[[str], None]) -> None:
    """Wait until the shards of a supervisor that was killed have left. Raises ShardTaken if they do not."""
    deadline_s = time.monotonic() + within_s
    told = False
    while alive := await alive_in(run):
        number, holder = next(iter(alive.items()))
        who = f"shard {number} is process {holder.process.pid} on {holder.process.host}"
        if time.monotonic() > deadline_s:
            raise ShardTaken(
                f"Run {run.name!r} is at work, but not from here: {who}. Stop it, or add this machine's "
                "processes with --join, or choose another --run. To add seeds: scrapy seed."
            )
        if not told:
            say(
                f"run {run.name} still has processes: {who}; waiting up to {within_s:.0f} s for them to leave"
            )
            told = True
        await asyncio.sleep(_LOOK_EVERY_S)


async def join(run: Run, shards: int) -> None:
    """Have the run grow by *shards*, which other supervisors leave to us. Raises BadArgument if it cannot."""
    total = (await run.read_map()).shards
    if not await alive_in(run):
        raise BadArgument(f"Run {run.name!r} is not at work, so there is nothing to join; leave out --join.")
    if total + shards > run.partitions:
        raise BadArgument(
            f"--shards {shards}: the run has {total} already, and at most {run.partitions} in all, one for "
            "each of its partitions."
        )
    await _grow(run, shards)


async def leave(run: Run, shards: int) -> None:
    """Take back what `join` did."""
    await _grow(run, -shards)


async def joined(run: Run) -> int:
    """Return how many of the run's shards are left to supervisors that joined."""
    return int(await run.door.command("HGET", keys.run_record(run.name), "joined") or 0)


async def forget_joined(run: Run) -> None:
    """Nobody has joined: those who had are gone."""
    await run.door.command("HDEL", keys.run_record(run.name), "joined")


async def _grow(run: Run, shards: int) -> None:
    total, ours = (await run.read_map()).shards, await joined(run)
    # Set, not increased: an answer that was lost makes the command come twice.
    await run.door.command(
        "HSET",
        keys.run_record(run.name),
        *("shards", max(1, total + shards), "joined", max(0, ours + shards)),
    )
    await run.door.command("PUBLISH", keys.wake_channel(run.name), "map")
