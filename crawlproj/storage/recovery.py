"""What parsers left when they died, on this disk and in the store of a run: finished or removed."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from crawlproj.storage.merging import MergeRecords, Merges, recover_merges
from crawlproj.storage.segments import published, recover, unfinished, withdraw
from crawlproj.storage.uploads import Uploads


class Known(MergeRecords, Protocol):
    """What Redis knows of a run."""

    async def parsers(self) -> Collection[str]: ...

    async def is_of(self, run_id: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class Recovery:
    """The places where the segments of the run created at *run_id* (ms) are."""

    directories: Sequence[Path]
    uploads: Uploads | None
    run_id: int

    @property
    def merges(self) -> Merges:
        local = self.directories[0].parent
        return Merges(self.uploads.directory if self.uploads else local, local, self.run_id)

    async def run(self, known: Known) -> None:
        """Finish recorded segments, remove those of dead parsers, and withdraw files without a record.

        Raises StoreUnavailable when one cannot be finished or removed.
        """
        uploads = self.uploads
        # A run that was deleted, or lost with all of Redis, has no records, but its pages are kept.
        is_known = await known.is_of(self.run_id)
        if is_known:
            await recover_merges(self.merges, known)
        # In this order: files, the living, the recorded; see `recover` and `withdraw`.
        parts = [part for directory in self.directories for part in unfinished(directory)]
        files = [file for directory in self.directories for file in published(directory, self.run_id)]
        staged = await uploads.unfinished() if uploads else []
        stored = await uploads.published(self.run_id) if uploads else []
        if not (parts or files or staged or stored):
            return
        living, recorded = await known.parsers(), await known.segments()
        if uploads:
            await uploads.recover(staged, living, recorded)
        recover(parts, living, recorded, is_stored=uploads is not None)
        if is_known and await known.is_of(self.run_id):
            # Notes last: what is replaced is noted before its record is dropped.
            replaced = (note.all_replaced for note in await asyncio.to_thread(self.merges.notes))
            kept = frozenset(recorded).union(*replaced)
            withdraw(files, kept)
            if uploads:
                await uploads.withdraw(stored, kept)
