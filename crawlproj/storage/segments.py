"""Segments: files that appear under their own names only when every page in them is accounted for.

A segment is one file for each format, all with the same base name, written as ``NAME.part`` and flushed to
the disk. Then it is recorded (in one step with the acknowledgement of its pages, by whoever keeps that
record), and the files get their names. After a crash the record says what to do with a ``.part``.
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
from crawlproj.storage.row import PageRow, check
from crawlproj.storage.sink import SINKS, Sink

logger = logging.getLogger(__name__)

#: How the names of files end that are not committed.
PART = ".part"
#: What `SegmentWriter.commit` tells `on_step`, in this order; "closed" and "renamed" once for each format.
COMMIT_STEPS = ("begun", "closed", "synced", "recorded", "renamed", "published")

_PART_NAME = re.compile(r"(?P<base>(?P<parser>.+)-\d{6,})\.[^/]+\.part")
#: Room for less would be gone with the next row group.
_ROOM_BYTES = 1 << 20


class SegmentWriter:
    """Writes the segments of one parser, one after the other.

    *parser* must be a name no earlier process used in this directory; segments are numbered from 1 behind it.
    *formats* are names of `SINKS`. Whatever raises StoreUnavailable has recorded nothing: `discard`, wait
    until `check_room` passes, and begin anew.
    """

    def __init__(
        self,
        directory: Path,
        parser: str,
        formats: Sequence[str],
        *,
        clock: Callable[[], float] = time.monotonic,
        on_step: Callable[[str], None] = lambda step: None,
    ) -> None:
        self._directory = directory
        self._parser = parser
        self._kinds = [SINKS[name] for name in formats]
        self._clock = clock
        self._on_step = on_step
        self._number = 0
        self._since_s = 0.0
        self._sinks: list[Sink] = []
        self._is_open = self._is_closed = False
        #: Files of recorded segments that could not get their names yet.
        self._nameless: list[Path] = []
        #: Rows in the open segment.
        self.rows = 0

    @property
    def name(self) -> str:
        """The base name of the open segment, under which it is recorded."""
        return f"{self._parser}-{self._number:06d}"

    @property
    def bytes(self) -> int:
        """Bytes of the open segment on disk, all formats; up to one row group may not be among them yet."""
        return sum(sink.bytes_written for sink in self._sinks)

    @property
    def age_s(self) -> float:
        """Seconds since the first row of the open segment; 0 when there is none."""
        return self._clock() - self._since_s if self._is_open else 0.0

    def append(self, row: PageRow, page: Page) -> None:
        """Add a page, beginning a segment when none is open.

        Raises ValueError, with nothing added, for a row that no format can hold.
        """
        # Here, where it can be told which row it is: Parquet would notice a thousand rows later.
        check(row)
        with self._the_disk():
            if not self._is_open:
                self._begin()
            for sink in self._sinks:
                sink.append(row, page)
        self.rows += 1

    async def commit(self, record: Callable[[str, int], Awaitable[None]]) -> None:
        """Close the open segment, *record* its name and rows, and give its files their names.

        None open: nothing happens. When *record* raises, the ``.part`` files stay, since only the record
        knows whether they count; committing again is safe if recording is. Once it is recorded nothing is
        raised: files that cannot be renamed now get their names later, from here or from `recover`.
        """
        if not self._is_open:
            return
        self._on_step("begun")
        if not self._is_closed:
            with self._the_disk():
                for sink in self._sinks:
                    sink.close()
                    self._on_step("closed")
                # The record must not outlive the names it is about.
                _sync(self._directory)
            self._is_closed = True
        self._on_step("synced")
        await record(self.name, self.rows)
        self._on_step("recorded")
        self._nameless += self._parts()
        self._forget()
        try:
            self._name_files()
        except OSError as exc:
            logger.error("committed segment has no name yet, tried again later: %s", exc)

    def discard(self) -> None:
        """Throw the open segment away: its pages will come again, to this parser or another. Never raises."""
        parts = self._parts()
        for sink in self._sinks:
            sink.abandon()
        self._forget()
        for part in parts:
            try:
                part.unlink(missing_ok=True)
            except OSError as exc:
                logger.warning("discarded segment stays until the next parser starts: %s", exc)

    def check_room(self) -> None:
        """Raise StoreUnavailable unless pages can be written now."""
        with self._the_disk():
            self._directory.mkdir(parents=True, exist_ok=True)
            # It has no name, so a crash leaves nothing.
            with tempfile.TemporaryFile(dir=self._directory, buffering=0) as trial:
                rest = memoryview(bytes(_ROOM_BYTES))
                while rest:
                    rest = rest[trial.write(rest) :]
                os.fsync(trial.fileno())
            self._name_files()

    def _begin(self) -> None:
        self._name_files()
        self._directory.mkdir(parents=True, exist_ok=True)
        self._number += 1
        self._since_s = self._clock()
        self._is_open = True
        for kind, part in zip(self._kinds, self._parts(), strict=True):
            self._sinks.append(kind(part))

    def _parts(self) -> list[Path]:
        if not self._is_open:
            return []
        return [self._directory / f"{self.name}{kind.suffix}{PART}" for kind in self._kinds]

    def _forget(self) -> None:
        self._sinks, self.rows = [], 0
        self._is_open = self._is_closed = False

    def _name_files(self) -> None:
        while self._nameless:
            _rename(self._nameless[0])
            del self._nameless[0]
            self._on_step("renamed")
            if not self._nameless:
                _sync(self._directory)
                self._on_step("published")

    @contextmanager
    def _the_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise StoreUnavailable(
                f"Pages cannot be written to {exc.filename or self._directory}: {exc.strerror or exc}. "
                "Make room, or make the directory writable."
            ) from exc


def unfinished(directory: Path) -> list[Path]:
    """Return the files that have not got their names yet, of living and of dead parsers."""
    return sorted(directory.glob("*" + PART))


def recover(parts: Iterable[Path], living: Collection[str], recorded: Collection[str]) -> None:
    """Finish the *parts* that are recorded, discard those that are not and whose parser is dead.

    The arguments must have been read in this order: `unfinished` first, then the *living* parsers, then the
    *recorded* segments. In any other order the open segment of a parser that just came, or just committed,
    would look abandoned. Raises StoreUnavailable when the directory cannot be changed.
    """
    for part in parts:
        match = _PART_NAME.fullmatch(part.name)
        if not match:
            logger.warning("file left alone that is no segment of ours: %s", part)
            continue
        try:
            if match["base"] in recorded:
                if _rename(part):
                    _sync(part.parent)
                    logger.warning("segment finished that its parser had committed: %s", part.name)
            elif match["parser"] not in living:
                part.unlink(missing_ok=True)
                logger.warning(
                    "segment discarded that was never committed, its pages come again: %s", part.name
                )
        except OSError as exc:
            raise StoreUnavailable(
                f"{part} is left from a crash and cannot be cleared up: {exc.strerror or exc}. "
                "Make the directory writable."
            ) from exc


def _rename(part: Path) -> bool:
    """Give a file its name; False when somebody else, recovering, was faster."""
    final = part.with_name(part.name.removesuffix(PART))
    try:
        part.rename(final)
    except FileNotFoundError:
        if not final.exists():
            # Nobody here deletes what is recorded; to stop over it would bring nothing back.
            logger.error("file of a committed segment is gone: %s", final)
        return False
    return True


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
