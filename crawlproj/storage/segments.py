"""Segments: files that get their final names only after all their pages are acknowledged.

A segment is one file per format, all with the same base name, written as ``NAME.part`` and synced to disk.
Then it is recorded, in one step with the acknowledgement of its pages, and the files are renamed. After a
crash the record says whether a ``.part`` file is kept.
"""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Protocol

from crawlproj.errors import StoreUnavailable
from crawlproj.model.records import Page
from crawlproj.model.segment import FileMark
from crawlproj.model.segment_name import is_foreign, is_of_run, is_part, parser_of, segment_of
from crawlproj.observe.crashpoints import passed
from crawlproj.storage.items import ItemSink, item_sinks
from crawlproj.storage.partfile import PART, WITHDRAWN, lock_file, lock_new_file, sync_directory
from crawlproj.storage.row import PageRow, check
from crawlproj.storage.sink import SINKS, Sink

logger = logging.getLogger(__name__)

#: Less free space would not last for the next row group.
_ROOM_BYTES = 1 << 20


class Destination(Protocol):
    """Where closed segments go: the files of one are named ``pages/NAME.SUFFIX``, or ``items/...``."""

    async def stage(self, parts: Sequence[Path]) -> None:
        """Return when *parts* are durable where no reader looks. Raises OSError or StoreUnavailable."""

    async def publish(self, part: Path) -> None:
        """Show a recorded file to readers; repeating it is safe. Raises OSError or StoreUnavailable."""

    async def check(self) -> None:
        """Raise StoreUnavailable unless segments can be published now."""


class Disk:
    """The directory itself: a file is published by renaming it."""

    async def stage(self, parts: Sequence[Path]) -> None:
        # The directory entries must be on disk before the record is.
        for directory in {part.parent for part in parts}:
            sync_directory(directory)

    async def publish(self, part: Path) -> None:
        _rename(part)
        passed("file_renamed")
        sync_directory(part.parent)

    async def check(self) -> None:
        """Do nothing: `SegmentWriter` writes here itself."""


class SegmentWriter:
    """Writes the segments of one parser, one after the other.

    *parser* must be a name no earlier process used in this directory; segments are numbered from 1, or by
    *numbers* that several writers share. *run_id* is different for an earlier run of the same name. *formats*
    are names of `SINKS`. Segments are built in *directory*, their items beside it in ``items`` under the same
    base name, and published there or in another *destination*. When a method raises StoreUnavailable, nothing
    was recorded: `discard`, wait until `check_room` passes, and start again.
    """

    def __init__(
        self,
        directory: Path,
        parser: str,
        formats: Sequence[str],
        *,
        run_id: int = 0,
        destination: Destination | None = None,
        clock: Callable[[], float] = time.monotonic,
        numbers: Iterator[int] | None = None,
    ) -> None:
        self._directory = directory
        self._destination = destination or Disk()
        self._parser = parser
        self._run = f"-r{run_id:x}" if run_id else ""
        self._kinds = [SINKS[name] for name in formats]
        self._items_directory = directory.with_name("items")
        self._item_kinds = item_sinks(formats)
        self._clock = clock
        self._numbers = numbers or count(1)
        self._number = 0
        self._since_s = 0.0
        #: The files of the open segment.
        self._parts: list[Path] = []
        self._sinks: list[Sink] = []
        self._item_sinks: list[ItemSink] = []
        #: Of the open segment's files, closed or not: nobody removes them while this parser lives.
        self._locks: list[int] = []
        self._is_open = self._is_closed = False
        #: Files of recorded segments that could not be published yet.
        self._unnamed: list[Path] = []
        #: Pages added to the open segment, with a row or only with items.
        self.rows = 0

    @property
    def name(self) -> str:
        """The base name of the open segment."""
        return f"{self._parser}{self._run}-{self._number:06d}"

    @property
    def bytes(self) -> int:
        """Bytes of the open segment on disk, all formats, without the row group still in memory."""
        return sum(sink.bytes_written for sink in self._files)

    @property
    def marks(self) -> dict[str, FileMark]:
        """The files of the open segment by their paths in the directory of the run; whole once closed."""
        pages = {f"{self._directory.name}/{self.name}{sink.suffix}": sink.mark for sink in self._sinks}
        folder = self._items_directory.name
        return pages | {f"{folder}/{self.name}{sink.suffix}": sink.mark for sink in self._item_sinks}

    @property
    def age_s(self) -> float:
        """Seconds since the first row of the open segment; 0 when there is none."""
        return self._clock() - self._since_s if self._is_open else 0.0

    def append(self, row: PageRow | None, page: Page) -> None:
        """Add a page and its items, starting a segment when none is open. None: only the items.

        Raises ValueError, with nothing added, for a row that not every format can hold.
        """
        # Checked here, where the row is known: Parquet would fail a thousand rows later.
        if row is not None:
            check(row)
        with self._disk_errors():
            if not self._is_open:
                self._begin()
            if row is not None:
                self._append_row(row, page)
            if page.items:
                self._add_items(page)
        self.rows += 1
        passed("row_appended")

    async def commit(self, record: Callable[[str, int], Awaitable[None]]) -> None:
        """Close the open segment, if any, *record* its name and rows, and publish its files.

        When *record* raises, the ``.part`` files stay, since only the record knows whether they count;
        committing again is safe if recording is. Once recorded, nothing is raised: files that cannot be
        published now are published later, here or by `recover`.
        """
        await self._publish_rest()
        if not self._is_open:
            return
        passed("commit_begun")
        if not self._is_closed:
            with self._disk_errors():
                for sink in self._files:
                    sink.close()
                    passed("file_closed")
                await self._destination.stage(self._parts)
            self._is_closed = True
        passed("files_synced")
        await record(self.name, self.rows)
        passed("segment_recorded")
        self._unnamed += self._parts
        self._forget()
        await self._publish_rest()

    def discard(self) -> None:
        """Discard the open segment: its pages will be parsed again. Never raises.

        One that is closed may be recorded, although we have no answer: its files are left to `recover`.
        """
        parts = [] if self._is_closed else self._parts
        for sink in self._files:
            sink.abandon()
        self._forget()
        for part in parts:
            try:
                part.unlink(missing_ok=True)
            except OSError as exc:
                logger.warning("cannot remove a discarded segment, the next parser will: %s", exc)

    def start_over(self, parser: str) -> None:
        """Continue under the name *parser*, without the open segment.

        Files that could not be published yet are left to `recover`: their record may be lost.
        """
        self.discard()
        self._unnamed.clear()
        self._parser = parser

    async def check_room(self) -> None:
        """Raise StoreUnavailable unless pages can be written now."""
        with self._disk_errors():
            self._directory.mkdir(parents=True, exist_ok=True)
            # An unnamed file, so a crash leaves nothing.
            with tempfile.TemporaryFile(dir=self._directory, buffering=0) as probe:
                rest = memoryview(bytes(_ROOM_BYTES))
                while rest:
                    rest = rest[probe.write(rest) :]
                os.fsync(probe.fileno())
            await self._destination.check()
            await self._publish()

    def _begin(self) -> None:
        self._number = next(self._numbers)
        self._since_s = self._clock()
        self._is_open = True

    def _append_row(self, row: PageRow, page: Page) -> None:
        if not self._sinks:
            self._directory.mkdir(parents=True, exist_ok=True)
            for kind in self._kinds:
                self._sinks.append(kind(self._new_part(self._directory, kind.suffix)))
                self._locks.append(lock_new_file(self._parts[-1]))
        for sink in self._sinks:
            sink.append(row, page)

    def _add_items(self, page: Page) -> None:
        if not self._item_sinks:
            self._items_directory.mkdir(parents=True, exist_ok=True)
            for kind in self._item_kinds:
                self._item_sinks.append(kind(self._new_part(self._items_directory, kind.suffix)))
                self._locks.append(lock_new_file(self._parts[-1]))
        for sink in self._item_sinks:
            sink.add(page)

    def _new_part(self, directory: Path, suffix: str) -> Path:
        # Noted before it is made: making it may fail half-way.
        self._parts.append(directory / f"{self.name}{suffix}{PART}")
        return self._parts[-1]

    @property
    def _files(self) -> list[Sink | ItemSink]:
        return [*self._sinks, *self._item_sinks]

    def _forget(self) -> None:
        for lock in self._locks:
            os.close(lock)
        self._parts, self._sinks, self._item_sinks, self._locks, self.rows = [], [], [], [], 0
        self._is_open = self._is_closed = False

    async def _publish_rest(self) -> None:
        try:
            await self._publish()
        except (OSError, StoreUnavailable) as exc:
            logger.error("cannot publish a committed segment, will retry: %s", exc)

    async def _publish(self) -> None:
        while self._unnamed:
            await self._destination.publish(self._unnamed[0])
            del self._unnamed[0]
            if not self._unnamed:
                passed("segment_published")

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise StoreUnavailable(
                f"Cannot write pages to {exc.filename or self._directory}: {exc.strerror or exc}. "
                "Free some space, or make the directory writable."
            ) from exc


def unfinished(directory: Path) -> list[Path]:
    """Return the files not renamed yet, of live and dead parsers."""
    return sorted(directory.glob("*" + PART))


def recover(
    parts: Iterable[Path], living: Collection[str], recorded: Collection[str], *, is_stored: bool = False
) -> None:
    """Rename the *parts* that are recorded; remove the others if their parser is dead, and not only silent.

    *is_stored*: they were copied to a store before they were recorded, so these are removed, too.
    The arguments must have been read in this order: `unfinished` first, then the *living* parsers, then the
    *recorded* segments. In any other order the open segment of a parser that just started or committed would
    look abandoned. Raises StoreUnavailable when the directory is not writable.
    """
    for part in parts:
        segment = segment_of(part.name)
        if not segment or not is_part(part.name):
            logger.warning("ignoring a file that is not a segment: %s", part)
            continue
        try:
            if segment in recorded:
                if is_stored:
                    part.unlink(missing_ok=True)
                elif _rename(part):
                    sync_directory(part.parent)
                    logger.warning("recovered a committed segment: %s", part.name)
            elif parser_of(part.name) not in living and (lock := lock_file(part)) is not None:
                try:
                    part.unlink(missing_ok=True)
                finally:
                    os.close(lock)
                logger.warning(
                    "removed an uncommitted segment, its pages will be parsed again: %s", part.name
                )
            else:
                continue
            passed("file_recovered")
        except OSError as exc:
            raise StoreUnavailable(
                f"Cannot clean up {part}, left by a crash: {exc.strerror or exc}. "
                "Make the directory writable."
            ) from exc


def published(directory: Path, run_id: int) -> list[Path]:
    """Return the committed files of a run, without those of earlier runs of the same name."""
    found = directory.glob("*-r*")
    return [path for path in found if is_of_run(path.name, run_id) and not path.name.endswith(PART)]


def foreign(directory: Path, run_id: int) -> list[Path]:
    """Return the committed files of other runs of the same name. Files of earlier releases name no run."""
    return [path for path in directory.glob("*-r*") if is_foreign(path.name, run_id)]


def remove(part: Path) -> None:
    """Remove a file whose content is in a store."""
    part.unlink(missing_ok=True)


def segments_in(directory: Path) -> set[str]:
    """Return the names of the segments that have a file in *directory*, renamed or not."""
    return {name for path in directory.glob("*") if (name := segment_of(path.name))}


def withdraw(files: Iterable[Path], recorded: Collection[str]) -> None:
    """Rename the *files* that are not *recorded*: Redis was set back, and their pages are stored again.

    The arguments must have been read in this order: a file is recorded before it is published. Raises
    StoreUnavailable when the directory is not writable.
    """
    for file in files:
        segment = segment_of(file.name)
        if not segment or segment in recorded:
            continue
        try:
            file.rename(file.with_name(file.name + WITHDRAWN))
            logger.warning("withdrawn, since Redis lost its record: %s", file.name)
        except FileNotFoundError:
            # Another parser was faster.
            continue
        except OSError as exc:
            raise StoreUnavailable(
                f"Cannot withdraw {file}, whose pages are stored again: {exc.strerror or exc}. "
                "Make the directory writable."
            ) from exc


def _rename(part: Path) -> bool:
    """Rename a file to its final name; False when another process already did."""
    final = part.with_name(part.name.removesuffix(PART))
    try:
        part.rename(final)
    except FileNotFoundError:
        if not final.exists():
            # Not removed by us; stopping would not bring it back.
            logger.error("a file of a committed segment is missing: %s", final)
        return False
    return True
