"""Segments: files that get their final names only after all their pages are acknowledged.

A segment is one file per format, all with the same base name, written as ``NAME.part`` and synced to disk.
Then it is recorded, in one step with the acknowledgement of its pages, and the files are renamed. After a
crash the record says whether a ``.part`` file is kept.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from crawlproj.errors import StoreUnavailable
from crawlproj.model.records import Page
from crawlproj.observe.crashpoints import passed
from crawlproj.storage.items import ItemSink, item_sinks
from crawlproj.storage.partfile import PART, WITHDRAWN, lock_file, lock_new_file, sync_directory
from crawlproj.storage.row import PageRow, check
from crawlproj.storage.sink import SINKS, Sink

logger = logging.getLogger(__name__)

#: Parser, run and number; files of earlier releases name no run. Withdrawn ones do not match.
_NAME = re.compile(
    r"(?P<base>(?P<parser>.+?)(?:-r(?P<run>[0-9a-f]+))?-\d{6,})\.[^/]+?(?P<part>\.part)?(?<!\.withdrawn)"
)
#: Less free space would not last for the next row group.
_ROOM_BYTES = 1 << 20


class SegmentWriter:
    """Writes the segments of one parser, one after the other.

    *parser* must be a name no earlier process used in this directory; segments are numbered from 1. *run_id*
    is different for an earlier run of the same name. *formats* are names of `SINKS`. Items go to
    *items_directory*, under the same base name. When a method raises
    StoreUnavailable, nothing was recorded: `discard`, wait until `check_room` passes, and start again.
    """

    def __init__(
        self,
        directory: Path,
        parser: str,
        formats: Sequence[str],
        *,
        items_directory: Path | None = None,
        run_id: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory = directory
        self._parser = parser
        self._run = f"-r{run_id:x}" if run_id else ""
        self._kinds = [SINKS[name] for name in formats]
        self._items_directory = items_directory or directory.with_name("items")
        self._item_kinds = item_sinks(formats)
        self._clock = clock
        self._number = 0
        self._since_s = 0.0
        #: The files of the open segment.
        self._parts: list[Path] = []
        self._sinks: list[Sink] = []
        self._item_sinks: list[ItemSink] = []
        #: Of the open segment's files, closed or not: nobody removes them while this parser lives.
        self._locks: list[int] = []
        self._is_open = self._is_closed = False
        #: Files of recorded segments that could not be renamed yet.
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
        """Close the open segment, if any, *record* its name and rows, and rename its files.

        When *record* raises, the ``.part`` files stay, since only the record knows whether they count;
        committing again is safe if recording is. Once recorded, nothing is raised: files that cannot be
        renamed now are renamed later, here or by `recover`.
        """
        if not self._is_open:
            return
        passed("commit_begun")
        if not self._is_closed:
            with self._disk_errors():
                for sink in self._files:
                    sink.close()
                    passed("file_closed")
                # The directory entries must be on disk before the record is.
                for directory in {part.parent for part in self._parts}:
                    sync_directory(directory)
            self._is_closed = True
        passed("files_synced")
        await record(self.name, self.rows)
        passed("segment_recorded")
        self._unnamed += self._parts
        self._forget()
        try:
            self._name_files()
        except OSError as exc:
            logger.error("cannot rename a committed segment, will retry: %s", exc)

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

        Files that could not be renamed yet are left to `recover`: their record may be lost.
        """
        self.discard()
        self._unnamed.clear()
        self._parser = parser

    def check_room(self) -> None:
        """Raise StoreUnavailable unless pages can be written now."""
        with self._disk_errors():
            self._directory.mkdir(parents=True, exist_ok=True)
            # An unnamed file, so a crash leaves nothing.
            with tempfile.TemporaryFile(dir=self._directory, buffering=0) as probe:
                rest = memoryview(bytes(_ROOM_BYTES))
                while rest:
                    rest = rest[probe.write(rest) :]
                os.fsync(probe.fileno())
            self._name_files()

    def _begin(self) -> None:
        self._name_files()
        self._number += 1
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

    def _name_files(self) -> None:
        while self._unnamed:
            part = self._unnamed[0]
            _rename(part)
            del self._unnamed[0]
            passed("file_renamed")
            if not self._unnamed or self._unnamed[0].parent != part.parent:
                sync_directory(part.parent)
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


def recover(parts: Iterable[Path], living: Collection[str], recorded: Collection[str]) -> None:
    """Rename the *parts* that are recorded; remove the others if their parser is dead, and not only silent.

    The arguments must have been read in this order: `unfinished` first, then the *living* parsers, then the
    *recorded* segments. In any other order the open segment of a parser that just started or committed would
    look abandoned. Raises StoreUnavailable when the directory is not writable.
    """
    for part in parts:
        match = _NAME.fullmatch(part.name)
        if not match or not match["part"]:
            logger.warning("ignoring a file that is not a segment: %s", part)
            continue
        try:
            if match["base"] in recorded:
                if _rename(part):
                    sync_directory(part.parent)
                    logger.warning("recovered a committed segment: %s", part.name)
            elif match["parser"] not in living and (lock := lock_file(part)) is not None:
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
    found = ((path, _NAME.fullmatch(path.name)) for path in directory.glob("*-r*"))
    run = f"{run_id:x}"
    return [path for path, match in found if match and match["run"] == run and not match["part"]]


def foreign(directory: Path, run_id: int) -> list[Path]:
    """Return the committed files of other runs of the same name. Files of earlier releases name no run."""
    found = ((path, _NAME.fullmatch(path.name)) for path in directory.glob("*-r*"))
    ours = (None, f"{run_id:x}")
    return [path for path, match in found if match and match["run"] not in ours and not match["part"]]


def segments_in(directory: Path) -> set[str]:
    """Return the names of the segments that have a file in *directory*, renamed or not."""
    return {match["base"] for path in directory.glob("*") if (match := _NAME.fullmatch(path.name))}


def withdraw(files: Iterable[Path], recorded: Collection[str]) -> None:
    """Rename the *files* that are not *recorded*: Redis was set back, and their pages are stored again.

    The arguments must have been read in this order: a file is recorded before it is published. Raises
    StoreUnavailable when the directory is not writable.
    """
    for file in files:
        match = _NAME.fullmatch(file.name)
        if not match or match["base"] in recorded:
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
