"""Small segments merged into large ones, sorted by domain, with each page in one of them at any time.

A merged segment is built where no reader looks; a note says what it replaces; it is recorded, in one step
that drops the records of those; then it is published, and they are moved to where only readers that have
begun before look. docs/decisions/0016 has the whole of it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from crawlproj.errors import BadSegment, StoreUnavailable
from crawlproj.model.merge import Merge
from crawlproj.model.segment import FileMark, SegmentRecord
from crawlproj.model.segment_name import is_of_run, merged_ms, merged_name, segment_of
from crawlproj.observe.crashpoints import passed
from crawlproj.storage.inventory import FOLDERS, difference
from crawlproj.storage.objects import Place, StorePath
from crawlproj.storage.partfile import PART, WITHDRAWN, PartFile, sync_directory
from crawlproj.storage.reader import DAMAGE, read_note
from crawlproj.storage.sorting import ROWS, sort_files

logger = logging.getLogger(__name__)

#: Where merged segments are built, and where those go that they replace; in the directory of the run.
_BUILDING, _REPLACED = "merged/building", "merged"
#: What is in segments; notes are beside them.
_DATA = ("pages", "items")
#: Segments that do not fill a large one are merged if there are so many of them, or the run is over.
_ENOUGH = 16


class MergeRecords(Protocol):
    """The records of segments in Redis."""

    async def segments(self) -> Mapping[str, SegmentRecord]: ...

    async def merge(self, merge: Merge, *, by_force: bool = False) -> bool:
        """Record the merged segment and drop the records of those it replaces, in one step; may be repeated.

        Returns False if neither all of them are recorded nor the merged one is, unless *by_force*.
        """


@dataclass(frozen=True, slots=True)
class Segment:
    """A recorded segment that is here."""

    name: str
    record: SegmentRecord
    #: Of its largest file.
    bytes: int
    #: When its last page was written (ms).
    written_ms: int

    def is_small(self, target_bytes: int) -> bool:
        return self.bytes * 2 <= target_bytes

    @property
    def formats(self) -> frozenset[str]:
        """The suffixes of its pages. Items have files only where there are any."""
        paths = (path for path in self.record.files if path.startswith("pages/"))
        return frozenset(path.partition(self.name)[2] for path in paths)


def groups_to_merge(segments: Sequence[Segment], target_bytes: int, *, is_over: bool) -> list[list[Segment]]:
    """Return which of *segments*, in the order of their time, become one of about *target_bytes* each.

    A group has no gaps, so that the merged ones have an order, too.
    """
    groups: list[list[Segment]] = []
    group: list[Segment] = []
    size = 0

    def close() -> None:
        nonlocal size
        is_full = size >= target_bytes
        if len(group) >= (2 if is_full or is_over else _ENOUGH):
            groups.append(group.copy())
        group.clear()
        size = 0

    for segment in segments:
        is_small = segment.is_small(target_bytes)
        if not is_small or (group and segment.formats != group[0].formats):
            close()
        if is_small:
            group.append(segment)
            size += segment.bytes
            if size >= target_bytes:
                close()
    close()
    return groups


class Merges:
    """The merges of the run created at *run_id* (ms), in its *directory* on a disk or in a store.

    *local* is its directory on this disk. With a store, call the methods from a thread: they wait.
    """

    def __init__(self, directory: Place, local: Path, run_id: int) -> None:
        self._directory = directory
        self._local = local
        self._run_id = run_id

    # -- what there is --

    def segments(self, recorded: Mapping[str, SegmentRecord], host: str | None, data: str) -> list[Segment]:
        """Return those of *recorded* that *host* (None: any) wrote to *data*, in the order of their time."""
        here = self.here()
        segments = []
        for name, record in recorded.items():
            # Others merge what they have themselves; of an earlier release nothing is known.
            is_ours = record.host == (host or record.host) and record.data == data
            if is_ours and record.files and here.keys() >= record.files.keys():
                files = [path for path in record.files if path.startswith(_DATA)]
                # Rounded up: a merged segment is never older than what it replaces.
                written_ms = merged_ms(name) or -(
                    -max(here[path].stat().st_mtime_ns for path in files) // 10**6
                )
                size = max(record.files[path].bytes for path in files)
                segments.append(Segment(name, record, size, written_ms))
        return sorted(segments, key=lambda one: (one.written_ms, one.name))

    def here(self) -> dict[str, Place]:
        """Return the files that readers see, and notes, by their paths in the directory of the run."""
        return {f"{folder}/{file.name}": file for folder in FOLDERS for file in self._files(folder)}

    def damage_of(self, segment: Segment) -> str:
        """Return which file of *segment* is not what was recorded, and why; '' if all are."""
        for path, mark in segment.record.files.items():
            if wrong := difference(self._directory / path, mark):
                return f"{self._directory / path}: {wrong}"
        return ""

    def notes(self) -> list[Merge]:
        """Return all merges that were begun, but for those whose segment was merged again."""
        notes = list(self._notes())
        again = frozenset().union(*(note.all_replaced for note in notes))
        return [note for note in notes if note.name not in again]

    # -- the steps of a merge --

    def build(self, group: Sequence[Segment], run: str, at_ms: int, stripe: int | None) -> Merge:
        """Write a segment with all rows of *group*, where no reader looks.

        Raises StoreUnavailable, or BadSegment for a file that cannot be read.
        """
        name = merged_name(secrets.token_hex(4), self._run_id, group[-1].written_ms)
        replaced = {segment.name: segment.record for segment in group}
        sources: dict[str, list[Place]] = {}
        for segment in group:
            for path in _data_of(segment.record):
                sources.setdefault(path.replace(segment.name, name), []).append(self._directory / path)
        marks = {path: self._build(path, files, name, run) for path, files in sources.items()}
        passed("merge_built")
        pages = sum(record.pages for record in replaced.values())
        record = SegmentRecord(pages, group[0].record.host, group[0].record.data, marks)
        before = (note.all_replaced for note in self.notes() if note.name in replaced)
        return Merge(name, record, replaced, at_ms, stripe, frozenset().union(*before))

    def note(self, merge: Merge) -> None:
        """Write down what *merge* replaces. From now on whoever finds the note finishes or undoes it."""
        local = self._local / _BUILDING / f"{merge.name}.json"
        with self._disk_errors():
            local.parent.mkdir(parents=True, exist_ok=True)
            file = PartFile(local)
            try:
                file.write(merge.encode())
                file.sync_and_close()
            finally:
                file.abandon()
            self._put(local, merge.file)
        passed("merge_noted")

    def finish(self, merge: Merge) -> None:
        """Publish a merged segment that is recorded, and move away what it replaces. May be repeated."""
        for path in merge.record.files:
            if not self._move(f"{_BUILDING}/{path}", path):
                # Not removed by us; readers still have what it would replace.
                logger.error("a file of a merged segment is missing: %s", self._directory / path)
                return
        self._sync(*_DATA)
        passed("merge_published")
        for folder in _DATA:
            for file in self._files(folder):
                if segment_of(file.name) in merge.all_replaced:
                    self._move(f"{folder}/{file.name}", f"{_REPLACED}/{folder}/{file.name}")
        passed("replaced_moved")

    def undo(self, merge: Merge, recorded: Collection[str]) -> bool:
        """Put back what *merge* replaced, and withdraw the merged segment. May be repeated.

        Returns False, with nothing done, if a file of what is *recorded* is gone.
        """
        paths = {path: name for name, record in merge.replaced.items() for path in _data_of(record)}
        gone = [path for path in paths if not self._exists(path) and not self._exists(f"{_REPLACED}/{path}")]
        if any(paths[path] in recorded for path in gone):
            return False
        for path in paths:
            self._move(f"{_REPLACED}/{path}", path)
        self._sync(*_DATA)
        for path in merge.record.files:
            self._withdraw(path)
            _remove(self._directory / _BUILDING / path)
        _remove(self._directory / merge.file)
        logger.warning("undid a merge, since Redis has lost its record: %s", merge.name)
        return True

    # -- what is not needed any more --

    def drop_replaced(self, until_ms: int) -> int:
        """Delete what was replaced until then, by the clock of Redis; returns how many bytes that were."""
        notes = list(self._notes())
        old: frozenset[str] = frozenset().union(
            *(note.all_replaced for note in notes if note.at_ms <= until_ms)
        )
        dropped = 0
        for folder in ("merges", *(f"{_REPLACED}/{folder}" for folder in _DATA)):
            for file in self._files(folder):
                if segment_of(file.name) in old:
                    dropped += file.stat().st_size
                    _remove(file)
        passed("replaced_dropped")
        return dropped

    def drop_unfinished(self) -> None:
        """Delete what was built for merges without a note. Nobody else may be merging these segments."""
        noted = {note.name for note in self._notes()}
        for place in {self._directory, self._local}:
            for folder in (_BUILDING, *(f"{_BUILDING}/{folder}" for folder in _DATA)):
                for file in self._files(folder, place):
                    if segment_of(file.name) not in noted:
                        _remove(file)

    # -- files --

    def _build(self, path: str, files: Sequence[Place], name: str, run: str) -> FileMark:
        folder, _, file = path.partition("/")
        local = self._local / _BUILDING / path
        try:
            with self._disk_errors():
                local.parent.mkdir(parents=True, exist_ok=True)
                mark = sort_files(files, ROWS[folder, file.removeprefix(name)], local, run)
                self._put(local, f"{_BUILDING}/{path}")
        except StoreUnavailable:
            local.unlink(missing_ok=True)
            raise
        except DAMAGE as exc:
            local.unlink(missing_ok=True)
            raise BadSegment(f"Cannot merge {files[0]} and those after it: {exc}") from exc
        return mark

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise StoreUnavailable(
                f"Cannot merge segments in {self._directory}: {exc.strerror or exc}. Nothing is lost. Free "
                "some space, or make the directory writable, and merge again."
            ) from exc

    def _put(self, local: Path, path: str) -> None:
        """Move a new file to *path*; returns when it is there for good."""
        target = self._directory / path
        if isinstance(target, StorePath):
            target.upload(local)
            local.unlink()
            return
        if local != target:
            target.parent.mkdir(parents=True, exist_ok=True)
            local.rename(target)
        sync_directory(target.parent)

    def _move(self, path: str, target: str) -> bool:
        """Returns False if the file is in neither place."""
        source, goal = self._directory / path, self._directory / target
        with self._disk_errors():
            if isinstance(goal, Path):
                goal.parent.mkdir(parents=True, exist_ok=True)
            try:
                source.rename(goal)  # type: ignore[arg-type]  # both are of one kind
            except FileNotFoundError:
                return goal.exists()
        return True

    def _withdraw(self, path: str) -> None:
        is_stored = isinstance(self._directory, StorePath)
        self._move(path, f"withdrawn/{path}" if is_stored else f"{path}{WITHDRAWN}")

    def _sync(self, *folders: str) -> None:
        for folder in folders:
            directory = self._directory / folder
            if isinstance(directory, Path) and directory.is_dir():
                sync_directory(directory)

    def _exists(self, path: str) -> bool:
        return (self._directory / path).exists()

    def _files(self, folder: str, place: Place | None = None) -> Iterator[Place]:
        """Yield the files of this run in a folder that may be missing, but for those written or withdrawn."""
        try:
            found: list[Place] = list(((place or self._directory) / folder).iterdir())
        except FileNotFoundError:
            return
        for file in found:
            if is_of_run(file.name, self._run_id) and not file.name.endswith((PART, WITHDRAWN)):
                yield file

    def _notes(self) -> Iterator[Merge]:
        """Yield all notes, also those of segments that were merged again."""
        for file in self._files("merges"):
            if (note := read_note(file)) is not None:
                yield note


async def recover_merges(merges: Merges, records: MergeRecords) -> None:
    """Finish what is recorded; what Redis has lost the record of is recorded again, or undone.

    What is not published is left to whoever merges. Raises StoreUnavailable.
    """
    is_settled = not await asyncio.to_thread(merges.notes)
    while not is_settled:
        is_settled = True
        # In this order: a segment is noted before it is recorded, and recorded before it is published.
        recorded = await records.segments()
        notes = await asyncio.to_thread(merges.notes)
        here = await asyncio.to_thread(merges.here)
        names = {segment_of(Path(path).name) for path in here}
        for note in notes:
            is_published = here.keys() >= note.record.files.keys()
            if note.name not in recorded:
                if not is_published:
                    continue
                if not await _recorded_again(note, merges, records, recorded):
                    is_settled = False
                    continue
            if not is_published or names & note.all_replaced:
                await asyncio.to_thread(merges.finish, note)


async def resume_merges(merges: Merges, records: MergeRecords) -> None:
    """Finish or undo the merges that a process of before has begun; for the one that merges."""
    await asyncio.to_thread(merges.drop_unfinished)
    recorded = await records.segments()
    for note in await asyncio.to_thread(merges.notes):
        if note.name not in recorded:
            await _recorded_again(note, merges, records, recorded)
    await recover_merges(merges, records)


async def _recorded_again(
    note: Merge, merges: Merges, records: MergeRecords, recorded: Collection[str]
) -> bool:
    """Record a merge, or undo it if Redis does not know what it replaces. Returns whether it is recorded."""
    if await records.merge(note):
        return True
    if await asyncio.to_thread(merges.undo, note, recorded):
        return False
    logger.error(
        "Redis was set back to before pages were stored that have been merged since, and the files they "
        "were in are deleted. They may be stored twice: %s",
        note.name,
    )
    return await records.merge(note, by_force=True)


def _data_of(record: SegmentRecord) -> Iterator[str]:
    """Yield the paths of pages and items, without a note."""
    return (path for path in record.files if path.startswith(_DATA))


def _remove(file: Place) -> None:
    try:
        file.unlink()
    except FileNotFoundError:
        # Somebody was faster.
        pass
