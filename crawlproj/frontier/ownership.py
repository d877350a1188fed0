"""A shard's hold on its number, without which it owns nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crawlproj.errors import Fenced, ShardTaken
from crawlproj.redisio import keys
from crawlproj.redisio.client import Door
from crawlproj.redisio.names import Holder, ProcessName, drop_name, hold_name


class ShardNumber:
    """The hold of this process on its shard number. What *figures* gives is told with every renewal."""

    def __init__(
        self,
        door: Door,
        run: str,
        number: int,
        process: ProcessName,
        ttl_ms: int,
        figures: Callable[[], Mapping[str, object]] = dict,
    ) -> None:
        self.number = number
        self.process = process
        #: An owner of partitions that we know to be dead, so that we need not wait for its hold to end.
        self.heir_of = ""
        self._door = door
        self._run = run
        self._ttl_ms = ttl_ms
        self._figures = figures

    async def claim(self) -> None:
        """Take the number. Raises ShardTaken when a process that may be alive holds it."""
        holder = await self._hold(starting=True)
        if holder and holder.process.is_dead():
            self.heir_of = holder.process.instance
            await drop_name(self._door, keys.shard(self._run, self.number), holder.process.instance)
            holder = await self._hold(starting=True)
        if holder:
            raise ShardTaken(
                f"Shard {self.number} of run {self._run!r} is alive on {holder.process.host}, process "
                f"{holder.process.pid}. Stop that one or choose another number; if it is gone, its hold ends "
                f"within {self._ttl_ms / 1000:g} s."
            )
        await self.tell_others()

    async def keep(self, *, starting: bool) -> None:
        """Renew the hold. Raises Fenced when another process has the number now."""
        holder = await self._hold(starting=starting)
        if holder:
            raise Fenced(
                f"shard {self.number} of run {self._run!r} now belongs to process {holder.process.pid} on "
                f"{holder.process.host}"
            )

    async def drop(self) -> None:
        await drop_name(self._door, keys.shard(self._run, self.number), self.process.instance)
        await self.tell_others()

    async def tell_others(self) -> None:
        """Have every shard look anew at who should own what."""
        await self._door.command("PUBLISH", keys.wake_channel(self._run), "map")

    async def _hold(self, *, starting: bool) -> Holder | None:
        return await hold_name(
            self._door,
            keys.shard(self._run, self.number),
            self.process,
            self._ttl_ms,
            starting=starting,
            figures=self._figures(),
        )
