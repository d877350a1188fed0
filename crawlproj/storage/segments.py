"""Segments: files that appear under their own name only when every page in them is accounted for.

A segment is written as ``NAME.part``, flushed to the disk, recorded (in one step with the acknowledgement
of its pages, by whoever keeps that record), and renamed. After a crash the record says what to do with
a ``.part``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path
from typing import BinaryIO

logger = logging.getLogger(__name__)

_PART = ".part"


class SegmentWriter:
    """Writes the segments of one parser, one after the other.

    *parser* must be a name no earlier process used in this directory; segments are numbered from 1 behind it.
    """

    def __init__(self, directory: Path, parser: str, suffix: str) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._parser = parser
        self._suffix = suffix
        self._number = 0
        self._file: BinaryIO | None = None
        #: Rows in the open segment.
        self.rows = 0

    @property
    def name(self) -> str:
        """The name the open segment will have."""
        return f"{self._parser}-{self._number:06d}{self._suffix}"

    def append(self, line: bytes) -> None:
        """Add a row, beginning a segment when none is open."""
        if self._file is None:
            self._number += 1
            self._file = self._part.open("xb")
        self._file.write(line)
        self.rows += 1

    async def commit(self, record: Callable[[str, int], Awaitable[None]]) -> None:
        """Close the open segment, *record* its name and rows, and give it its name.

        None open: nothing happens. When *record* raises, the ``.part`` stays: only the record knows
        whether it counts.
        """
        if self._file is None:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        await record(self.name, self.rows)
        _publish(self._part)
        self._file, self.rows = None, 0

    def discard(self) -> None:
        """Throw the open segment away: its pages will come again, to this parser or another."""
        if self._file is not None:
            self._file.close()
            self._part.unlink(missing_ok=True)
            self._file, self.rows = None, 0

    @property
    def _part(self) -> Path:
        return self._directory / (self.name + _PART)


def unfinished(directory: Path) -> list[Path]:
    """Return the segments that have not got their name yet, of living and of dead parsers."""
    return sorted(directory.glob("*" + _PART))


def recover(parts: Iterable[Path], living: Collection[str], recorded: Collection[str]) -> None:
    """Finish the *parts* that are recorded, discard those that are not and whose parser is dead.

    The arguments must have been read in this order: `unfinished` first, then the *living* parsers, then the
    *recorded* segments. In any other order the open segment of a parser that just came, or just committed,
    would look abandoned.
    """
    for part in parts:
        segment = part.name.removesuffix(_PART)
        if segment in recorded:
            if _publish(part):
                logger.warning("segment finished that a dead parser had committed: %s", segment)
        elif segment.rpartition("-")[0] not in living:
            part.unlink(missing_ok=True)
            logger.warning("segment discarded that was never committed, its pages come again: %s", segment)


def _publish(part: Path) -> bool:
    """Give a segment its name; False when somebody else, recovering, was faster."""
    final = part.with_name(part.name.removesuffix(_PART))
    try:
        part.rename(final)
    except FileNotFoundError:
        if not final.exists():
            raise
        return False
    directory = os.open(part.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
    return True
