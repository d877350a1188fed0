"""Segments in an object store, exactly once although nothing can be renamed there.

A closed segment is uploaded to ``open/``, where no reader looks; then it is recorded; then the store copies
it to its final key, and the key in ``open/`` is deleted. All of it may be repeated by anybody, and the record
says whether a segment is finished or deleted. docs/decisions/0014 has the whole of it.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Self

from crawlproj.model.segment_name import is_of_run, parser_of, segment_of
from crawlproj.observe.crashpoints import passed
from crawlproj.storage.objects import ObjectStore, StorePath, store_at
from crawlproj.storage.partfile import PART
from crawlproj.storage.places import remember_store
from crawlproj.storage.segments import remove

logger = logging.getLogger(__name__)

#: Where segments are uploaded, and where those go whose record Redis has lost.
_OPEN, _WITHDRAWN = "open", "withdrawn"
_FOLDERS = ("pages", "items")


class Uploads:
    """The files of one run in *store*, by their paths in the directory of the run: ``pages/NAME.parquet``."""

    def __init__(self, store: ObjectStore, run: str) -> None:
        self._store = store
        self._run = run
        self.address = store.address

    @classmethod
    def to(cls, address: str | None, run: str) -> Self | None:
        """Return the files of *run* in the store at *address*; None without one."""
        return cls(store_at(address), run) if address else None

    @property
    def directory(self) -> StorePath:
        """Where the run is in the store, for readers and merges."""
        return self._store.path(self._key())

    async def stage(self, parts: Sequence[Path]) -> None:
        remember_store(parts[0].parents[1], self.address)
        for part in parts:
            await self._store.put(self._key(_OPEN, _file_of(part)), part)
            passed("file_uploaded")

    async def publish(self, part: Path) -> None:
        if not await self.finish(_file_of(part)):
            await self._store.put(self._key(_file_of(part)), part)
        remove(part)

    async def finish(self, file: str) -> bool:
        """Give a *file* that is recorded its final key; returns False if it is nowhere in the store."""
        staged, final = self._key(_OPEN, file), self._key(file)
        try:
            await self._store.copy(staged, final)
        except FileNotFoundError:
            # Another process was faster.
            return await self._store.exists(final)
        passed("file_copied")
        await self._store.delete(staged)
        return True

    async def check(self) -> None:
        """Raise StoreUnavailable unless objects can be written and deleted now."""
        key = self._key(_OPEN, f"probe-{uuid.uuid4().hex}")
        await self._store.put(key, Path(os.devnull))
        await self._store.delete(key)

    async def unfinished(self) -> list[str]:
        """Return the files that are not at their final keys yet."""
        return await self._files(_OPEN)

    async def published(self, run_id: int) -> list[str]:
        """Return the files that readers see, without those of earlier runs of the same name."""
        return [file for file in await self._files() if is_of_run(Path(file).name, run_id)]

    async def recover(self, files: Iterable[str], living: Collection[str], recorded: Collection[str]) -> None:
        """Finish what is recorded of *files*, delete the rest if its parser is dead; see `segments.recover`.

        Nobody holds a lock here: a parser that is only silent finds its commit refused.
        """
        for file in files:
            name = Path(file).name
            if segment_of(name) in recorded:
                await self.finish(file)
                logger.warning("recovered a committed segment: %s", file)
            elif parser_of(name) not in living:
                await self._store.delete(self._key(_OPEN, file))
                logger.warning("removed an uncommitted segment, its pages will be parsed again: %s", file)
            else:
                continue
            passed("object_recovered")

    async def withdraw(self, files: Iterable[str], recorded: Collection[str]) -> None:
        """Move away the *files* that are not *recorded*; see `segments.withdraw`."""
        for file in files:
            if segment_of(Path(file).name) in recorded:
                continue
            try:
                await self._store.copy(self._key(file), self._key(_WITHDRAWN, file))
            except FileNotFoundError:
                # Another parser was faster.
                continue
            await self._store.delete(self._key(file))
            logger.warning("withdrawn, since Redis lost its record: %s", file)

    async def _files(self, *under: str) -> list[str]:
        return [
            f"{folder}/{name}"
            for folder in _FOLDERS
            for name in await self._store.names(self._key(*under, folder))
        ]

    def _key(self, *parts: str) -> str:
        return "/".join(["runs", self._run, *parts])


def _file_of(part: Path) -> str:
    return f"{part.parent.name}/{part.name.removesuffix(PART)}"
