"""A shard's claim on its number; without it the shard owns nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crawlproj.errors import Fenced, ShardTaken
from crawlproj.observe.crashpoints import passed
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import Holder, ProcessName, drop_name, hold_name


class ShardNumber:
    """The claim of this process on its shard number. *figures* are published with every renewal."""

    def __init__(
        self,
        client: RedisClient,
        run: str,
        number: int,
        process: ProcessName,
        ttl_ms: int,
        figures: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        self.number = number
        self.process = process
        #: A partition owner known to be dead, so that we need not wait until its hold expires.
        self.heir_of = ""
        self._client = client
        self._run = run
        self._ttl_ms = ttl_ms
        self._figures = figures

    async def claim(self) -> None:
        """Take the number. Raises ShardTaken when a process that may be alive holds it."""
        holder = await self._hold(starting=True)
        if holder and holder.process.is_dead():
            self.heir_of = holder.process.instance
            await drop_name(self._client, keys.shard(self._run, self.number), holder.process.instance)
            holder = await self._hold(starting=True)
        if holder:
            raise ShardTaken(
                f"Shard {self.number} of run {self._run!r} is already running on {holder.process.host}, "
                f"process {holder.process.pid}. Stop it or choose another number; if it is gone, its claim "
                f"expires within {self._ttl_ms / 1000:g} s."
            )
        await self.announce()
        passed("shard_claimed")

    async def renew(self, *, starting: bool) -> None:
        """Renew the claim. Raises Fenced when another process has the number."""
        holder = await self._hold(starting=starting)
        if holder:
            raise Fenced(
                f"shard {self.number} of run {self._run!r} now belongs to process {holder.process.pid} on "
                f"{holder.process.host}"
            )

    async def drop(self) -> None:
        await drop_name(self._client, keys.shard(self._run, self.number), self.process.instance)
        await self.announce()
        passed("shard_dropped")

    async def announce(self) -> None:
        """Make every shard read the map again."""
        await self._client.command("PUBLISH", keys.wake_channel(self._run), "map")

    async def _hold(self, *, starting: bool) -> Holder | None:
        return await hold_name(
            self._client,
            keys.shard(self._run, self.number),
            self.process,
            self._ttl_ms,
            starting=starting,
            figures=self._figures(),
        )
