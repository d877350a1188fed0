"""Merging the segments of a run that are on one disk or in its store: by one process at a time."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from crawlproj.config import Config
from crawlproj.errors import StoreUnavailable
from crawlproj.model.merge import Merge
from crawlproj.model.run import RunPaths
from crawlproj.model.segment import SegmentRecord
from crawlproj.pages.queue import read_segments, read_segments_of, record_merge
from crawlproj.redisio import keys
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.keys import Stripe
from crawlproj.redisio.names import Holder, ProcessName, drop_name, hold_name
from crawlproj.runs import Run
from crawlproj.storage.merging import Merges, Segment, groups_to_merge, resume_merges
from crawlproj.storage.uploads import Uploads

#: How long the name of who merges is held without being renewed.
_HOLD_S = 30.0
#: A merge needs room for temporary files and the new segment, and the crawl for its next ones.
_ROOM_TIMES = 4


@dataclass(slots=True)
class Compacted:
    """What was done: merged segments, the segments and pages in them, and their bytes before and after."""

    merges: int = 0
    segments: int = 0
    pages: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    #: Of what was merged longer ago, deleted now.
    bytes_dropped: int = 0
    #: Files that are not what was recorded, and why; their segments were left alone.
    damaged: tuple[str, ...] = ()
    #: Small segments that are too few to be merged yet.
    left: int = 0


class Compaction:
    """The segments of *run* that this machine has stored, or that are in its store, as *config* says."""

    def __init__(self, run: Run, config: Config, notify: Callable[[str], None] = lambda line: None) -> None:
        paths, uploads = RunPaths(config.data, run.name), Uploads.to(config.store, run.name)
        self._run, self._notify = run, notify
        self._process = ProcessName.of_this()
        self._data = uploads.address if uploads else str(config.data.absolute())
        self._host = None if uploads else self._process.host
        # Machines may share a hostname, and a store is of no machine.
        self._place = self._data if uploads else f"{self._process.machine} {self._data}"
        directory = uploads.directory if uploads else paths.directory
        self._merges = Merges(directory, paths.directory, run.created_ms)
        self._disk = paths.directory
        self._done = Compacted()

    async def run(self, target_bytes: int, keep_s: float) -> Compacted | Holder:
        """Merge what is small, and delete what was merged longer than *keep_s* ago.

        Returns who else is at it, if somebody is. Raises StoreUnavailable, also for a full disk; what
        was begun is finished or undone by the next one.
        """
        async with self._name_held() as other:
            if other is not None:
                return other
            await resume_merges(self._merges, self)
            await self._drop(keep_s)
            is_over = (await self._run.read_map()).state.is_end
            for stripe in self._run.client.stripes:
                recorded = await read_segments_of(self._run.client, self._run.name, stripe)
                segments = await asyncio.to_thread(self._merges.segments, recorded, self._host, self._data)
                groups = groups_to_merge(segments, target_bytes, is_over=is_over)
                if not is_over:
                    in_groups = sum(map(len, groups))
                    self._done.left += sum(one.is_small(target_bytes) for one in segments) - in_groups
                for group in groups:
                    await self._merge(group, stripe)
            if not keep_s:
                await self._drop(keep_s)
        return self._done

    async def segments(self) -> Mapping[str, SegmentRecord]:
        return await read_segments(self._run.client, self._run.name)

    async def merge(self, merge: Merge, *, by_force: bool = False) -> bool:
        return await record_merge(
            self._run.client,
            self._run.name,
            merge,
            by_force=by_force,
            merger=(self._place, self._process.instance),
        )

    async def _merge(self, group: list[Segment], stripe: Stripe) -> None:
        wrong = {one.name: await asyncio.to_thread(self._merges.damage_of, one) for one in group}
        if any(wrong.values()):
            self._done.damaged += tuple(filter(None, wrong.values()))
            group = [one for one in group if not wrong[one.name]]
        if len(group) < 2:
            return
        self._check_room(sum(mark.bytes for one in group for mark in one.record.files.values()))
        at_ms = await server_ms(self._run.client)
        merge = await asyncio.to_thread(self._merges.build, group, self._run.name, at_ms, stripe)
        await asyncio.to_thread(self._merges.note, merge)
        if not await self.merge(merge):
            # Redis was set back meanwhile.
            await asyncio.to_thread(self._merges.undo, merge, await self.segments())
            return
        await asyncio.to_thread(self._merges.finish, merge)
        self._note_done(group, merge)

    def _check_room(self, size: int) -> None:
        """Raise StoreUnavailable unless there is room for a merge that leaves enough to the crawl."""
        free = shutil.disk_usage(self._disk).free
        if free < (needed := _ROOM_TIMES * size):
            raise StoreUnavailable(
                f"Merging {size / 1e6:,.0f} MB needs {needed / 1e6:,.0f} MB free in {self._disk}, where "
                f"{free / 1e6:,.0f} MB are. Free some, or choose a smaller --bytes."
            )

    def _note_done(self, group: list[Segment], merge: Merge) -> None:
        done = self._done
        before = sum(mark.bytes for one in group for mark in one.record.files.values())
        after = sum(mark.bytes for mark in merge.full_record.files.values())
        done.merges += 1
        done.segments += len(group)
        done.pages += merge.record.pages
        done.bytes_before += before
        done.bytes_after += after
        self._notify(
            f"merged {len(group):,} segments with {merge.record.pages:,} pages: "
            f"{before / 1e6:,.1f} MB -> {after / 1e6:,.1f} MB in {merge.name}"
        )

    async def _drop(self, keep_s: float) -> None:
        until_ms = await server_ms(self._run.client) - int(keep_s * 1000)
        self._done.bytes_dropped += await asyncio.to_thread(self._merges.drop_replaced, until_ms)

    @asynccontextmanager
    async def _name_held(self) -> AsyncIterator[Holder | None]:
        """Hold the name of who merges here, in every stripe; yields who else holds it, None for ourselves."""
        other = await self._hold()
        if other is not None and other.process.is_dead():
            await self._drop_names(other.process.instance)
            other = await self._hold()
        if other is not None:
            await self._drop_names(self._process.instance)
            yield other
            return
        renewing = asyncio.create_task(self._renew(), name="merger")
        try:
            yield None
        finally:
            renewing.cancel()
            await asyncio.wait({renewing})
            await self._drop_names(self._process.instance)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_HOLD_S / 3)
            await self._hold()

    async def _hold(self) -> Holder | None:
        """Claim or renew the name; who loses it finds that its merges are refused."""
        holders = [
            await hold_name(self._run.client, name, self._process, int(_HOLD_S * 1000))
            for name in self._names
        ]
        return next(filter(None, holders), None)

    async def _drop_names(self, instance: str) -> None:
        for name in self._names:
            await drop_name(self._run.client, name, instance)

    @property
    def _names(self) -> list[str]:
        return [keys.merger(self._run.name, self._place, stripe) for stripe in self._run.client.stripes]
