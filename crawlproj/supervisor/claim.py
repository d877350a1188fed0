"""Claiming a run: one supervisor per run on a machine, once the last one's processes have exited."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path

from crawlproj.config import Config
from crawlproj.errors import BadArgument, ShardTaken
from crawlproj.model.run import RunPaths
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import Holder, ProcessName
from crawlproj.runs import Run, RunState
from crawlproj.runs.membership import (
    Member,
    Membership,
    heard_s,
    patience_s,
    read_instances,
    read_members,
    read_numbers,
)

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
            # A supervisor that starts at this moment has not written its id yet.
            pid = lock.read().strip()
            holder = f"process {pid}" if pid else "another process"
            raise ShardTaken(
                f"Run {run!r} is already running in {holder}. Wait until it ends, stop it (scrapy stop "
                f"--run {run}), or choose another --run. To add seeds: scrapy seed. To add processes: --join."
            ) from None
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


@asynccontextmanager
async def membership_of(
    client: RedisClient,
    run: str,
    config: Config,
    shards: int,
    *,
    must_join: bool,
    notify: Callable[[str], None],
) -> AsyncIterator[tuple[Membership, bool]]:
    """Claim the run on this machine; yields our place in it, and whether others work on it, so that we join.

    With *must_join* nothing is claimed. Raises BadArgument if there are no others then.
    """
    directory = RunPaths(config.data, run).directory
    with nullcontext() if must_join else claim_run(directory, run):
        handle, joins = Run(client, run, 1), False
        data, silent_s = str(config.data.absolute()), patience_s(config.shard_lease_seconds)
        membership = Membership(handle, ProcessName.of_this(), shards, data=data, silent_s=silent_s)
        if must_join or await handle.state():
            # Checks its version, too.
            found = await Run.find(client, run)
            joins = await find_company(found, membership, config, notify, waits=not must_join)
        if must_join and not joins:
            raise BadArgument(f"Run {run!r} is not running, so there is nothing to join; leave out --join.")
        yield membership, joins


async def live_shards(run: Run) -> dict[int, Holder]:
    """Return the shards of *run* that are not known to be dead."""
    alive = (await run.read_map()).alive
    return {number: holder for number, holder in alive.items() if not holder.process.is_dead()}


async def _is_alone(run: Run, lease_s: float) -> bool:
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


async def others_continue(run: Run, membership: Membership, lease_s: float) -> bool:
    """Whether others work on *run* once we have left it."""
    # A member that had no shard runs ours now.
    if await read_members(run, silent_s=heard_s(lease_s)):
        return True
    if membership.had_company and not await _is_alone(run, lease_s):
        return True
    return bool(await live_shards(run))


async def find_company(
    run: Run, membership: Membership, config: Config, notify: Callable[[str], None], *, waits: bool
) -> bool:
    """Return whether others work on *run*, once what is left of an earlier supervisor of ours is gone.

    Without *waits*, shards that it left behind are others, too. Raises ShardTaken if they do not leave.
    """
    others = await _without_earlier(run, membership, config, notify)
    deadline_s = time.monotonic() + config.shard_lease_seconds + config.drain_seconds
    announced = False
    while (alive := await live_shards(run)) and not others:
        # One that no member was given was started by hand.
        if not waits or not alive.keys() <= (await read_numbers(run)).keys():
            return True
        number, holder = next(iter(alive.items()))
        who = f"shard {number} is process {holder.process.pid} on {holder.process.host}"
        if time.monotonic() > deadline_s:
            raise ShardTaken(
                f"Run {run.name!r} still has processes whose supervisor is gone: {who}. End it, or add this "
                "machine's processes with --join."
            )
        if not announced:
            within_s = deadline_s - time.monotonic()
            notify(
                f"run {run.name} still has processes: {who}; waiting up to {within_s:.0f} s until they have "
                "exited, or their hold has expired"
            )
            announced = True
        await asyncio.sleep(_POLL_S)
        others = await _others(run, membership, config)
    return bool(others)


async def _without_earlier(
    run: Run, membership: Membership, config: Config, notify: Callable[[str], None]
) -> dict[str, Member]:
    """Return the other members; one that was in our place and is not heard of any more counts as dead.

    A machine that was restarted cannot know whether the last process that had its name and directory is dead,
    or at work on another machine, made from the same image.
    """
    before = await _others(run, membership, config)
    doubtful = {
        name: member
        for name, member in before.items()
        if (member.process.host, member.data) == (membership.process.host, membership.data)
        and not member.process.is_here
    }
    deadline_s = time.monotonic() + heard_s(config.shard_lease_seconds)
    if doubtful:
        one = next(iter(doubtful.values())).process
        notify(
            f"run {run.name}: process {one.pid} on {one.host} was its supervisor a moment ago; waiting up to "
            f"{deadline_s - time.monotonic():.0f} s to see whether it is still alive"
        )
    while doubtful and time.monotonic() < deadline_s:
        await asyncio.sleep(_POLL_S)
        now = await _others(run, membership, config)
        doubtful = {
            name: member
            for name, member in doubtful.items()
            if name in now and now[name].at_ms == member.at_ms
        }
    membership.dead |= doubtful.keys()
    return await _others(run, membership, config)


async def _others(run: Run, membership: Membership, config: Config) -> dict[str, Member]:
    members = await read_members(run, silent_s=patience_s(config.shard_lease_seconds))
    membership.dead |= await read_instances(run) - members.keys()
    return {name: member for name, member in members.items() if name not in membership.dead}


async def fresh_run_name(client: RedisClient, stem: str) -> str:
    """Return *stem*, with a number appended if needed, so that the run is new or unfinished."""
    number = 1
    while True:
        name = stem if number == 1 else f"{stem}-{number}"
        if await Run(client, name, 1).state() != RunState.FINISHED:
            return name
        number += 1
