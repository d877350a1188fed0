"""A shard's claim on its number; without it the shard owns nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from crawlproj.errors import Replaced, ShardTaken
from crawlproj.observe.crashpoints import passed
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import Holder, ProcessName, drop_name, hold_name

#: How often to try within twice the time after which a claim expires.
_TRIES = 40


@dataclass(slots=True, eq=False)
class ShardNumber:
    """The claim of this process on its shard number. *figures* are published with every renewal."""

    client: RedisClient
    run: str
    number: int
    process: ProcessName
    ttl_ms: int
    figures: Callable[[], Mapping[str, object]] = dict
    #: Partition owners known to be dead, so that we need not wait until their holds expire.
    heir_of: set[str] = field(default_factory=set)
    #: Whether no site can be reached from here, and whether others elsewhere may fetch instead.
    cut_off: bool = False
    others_fetch: bool = False

    async def claim(self) -> None:
        """Take the number. Raises ShardTaken when a process that may be alive holds it."""
        holder = await self._hold(starting=True)
        if holder and holder.process.is_dead():
            self.heir_of.add(holder.process.instance)
            await drop_name(self.client, keys.shard(self.run, self.number), holder.process.instance)
            holder = await self._hold(starting=True)
        if holder:
            raise ShardTaken(
                f"Shard {self.number} of run {self.run!r} is already running on {holder.process.host}, "
                f"process {holder.process.pid}. Stop it or choose another number; if it is gone, its claim "
                f"expires within {self.ttl_ms / 1000:g} s."
            )
        await self.announce()
        passed("shard_claimed")

    async def claim_again(self) -> None:
        """Take the number after Redis was set back: it may be a dead process's there until its claim expires.

        Raises Replaced if that does not happen.
        """
        for _ in range(_TRIES):
            try:
                await self.claim()
                return
            except ShardTaken as exc:
                taken = exc
            await asyncio.sleep(2 * self.ttl_ms / 1000 / _TRIES)
        raise Replaced(str(taken)) from taken

    async def renew(self, *, starting: bool, generation: int | None = None) -> None:
        """Renew the claim. Raises Replaced when another process has the number.

        Raises SetBack if *generation* is given and over: a dead process may seem to have it then.
        """
        holder = await self._hold(starting=starting, generation=generation)
        if holder:
            raise Replaced(
                f"shard {self.number} of run {self.run!r} now belongs to process {holder.process.pid} on "
                f"{holder.process.host}"
            )

    async def drop(self) -> None:
        await drop_name(self.client, keys.shard(self.run, self.number), self.process.instance)
        await self.announce()
        passed("shard_dropped")

    async def announce(self) -> None:
        """Make every shard read the map again."""
        await self.client.command("PUBLISH", keys.wake_channel(self.run), "map")

    async def _hold(self, *, starting: bool, generation: int | None = None) -> Holder | None:
        return await hold_name(
            self.client,
            keys.shard(self.run, self.number),
            self.process,
            self.ttl_ms,
            starting=starting,
            cut_off=self.cut_off,
            figures=self.figures(),
            generation=generation,
        )
