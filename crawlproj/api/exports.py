"""All pages or items of a job as one file: written once for each state of its segments, sent as it grows."""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from crawlproj.api.problems import Refused, bad_field
from crawlproj.model.run import RunPaths
from crawlproj.storage.archive import write_warc
from crawlproj.storage.columns import ItemColumns
from crawlproj.storage.export import new_file, part_of, write_csv, write_jsonl, write_parquet
from crawlproj.storage.items import ITEM_SINKS, read_items
from crawlproj.storage.parquet import schema_of
from crawlproj.storage.partfile import PartFile
from crawlproj.storage.places import RunPlace, places_of
from crawlproj.storage.reader import committed, committed_files, read_pages
from crawlproj.storage.row import COLUMNS

logger = logging.getLogger(__name__)

EXTENSIONS = {"parquet": ".parquet", "jsonl": ".jsonl", "csv": ".csv", "warc": ".warc.gz"}
MEDIA_TYPES = {
    "parquet": "application/vnd.apache.parquet",
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "warc": "application/warc",
}

#: The media type of several parts of a file.
PARTS = "multipart/byteranges"
#: What takes longer to write is sent meanwhile, in pieces of so many bytes.
_SOON_S = 1.0
_PIECE = 1 << 20
_LOOK_S = 0.2
#: How many characters of a file's name stand for the segments in it.
_STATE = 16


class Exports:
    """The exports of one server. One is written at a time: it reads all pages."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._writing: set[asyncio.Task[Path]] = set()

    async def file(self, paths: RunPaths, form: str, *, items: bool = False) -> Path:
        """Return the file with all committed pages, or all *items*, once it is written.

        Raises Refused if there are none.
        """
        return await self._write(await _plan(paths, form, items=items))

    async def begin(
        self, paths: RunPaths, form: str, *, items: bool = False
    ) -> tuple[Path, AsyncIterator[bytes] | None]:
        """Return the file, and its bytes as they are written if that takes a while.

        It is written to its end even if nobody reads on, so that the download can be resumed. Raises
        Refused as `file`.
        """
        plan = await _plan(paths, form, items=items)
        if self._lock.locked() or plan.file.exists():
            return await self._write(plan), None
        writing = asyncio.create_task(self._write(plan), name=f"export-{plan.file.name}")
        self._writing.add(writing)
        writing.add_done_callback(self._ended)
        await asyncio.wait({writing}, timeout=_SOON_S)
        try:
            part = part_of(plan.file).open("rb", buffering=0)
        except FileNotFoundError:
            # It is whole, or was never begun.
            return await asyncio.shield(writing), None
        return plan.file, _grown(part, writing)

    async def _write(self, plan: _Plan) -> Path:
        async with self._lock:
            return await asyncio.to_thread(plan.write)

    def _ended(self, writing: asyncio.Task[Path]) -> None:
        self._writing.discard(writing)
        if not writing.cancelled() and (exc := writing.exception()):
            # Perhaps nobody reads it any more.
            logger.warning("an export failed: %s", exc)


async def _grown(part: FileIO, writing: asyncio.Task[Path]) -> AsyncIterator[bytes]:
    """Yield what is written to *part* until it is whole; raises what ends *writing* before."""
    with part:
        while True:
            is_whole = writing.done()
            if data := await asyncio.to_thread(part.read, _PIECE):
                yield data
            elif is_whole:
                writing.result()
                return
            else:
                await asyncio.wait({writing}, timeout=_LOOK_S)


@dataclass(frozen=True, slots=True)
class _Plan:
    """An export: its file, the name of that but for the state of the segments, and where its rows are."""

    file: Path
    stem: str
    form: str
    what: str
    where: RunPlace

    def write(self) -> Path:
        if self.file.exists():
            return self.file
        folder = self.file.parent
        folder.mkdir(exist_ok=True)
        with new_file(self.file, overwrite=True) as output:
            _WRITERS[self.what](output, self.form, self.file.name, self.where)
        for old in folder.glob(f"{self.stem}-{'?' * _STATE}{EXTENSIONS[self.form]}"):
            if old != self.file:
                old.unlink(missing_ok=True)
        return self.file


async def _plan(paths: RunPaths, form: str, *, items: bool) -> _Plan:
    if items and form == "warc":
        raise bad_field("format", form, "WARC is for pages.", "Use parquet, jsonl or csv for items.")
    what = "items" if items else "pages"
    where = places_of(paths)[0]
    if not (names := await asyncio.to_thread(_segments, where, what)):
        raise Refused(404, f"Job {paths.run!r} has no stored {what} yet.")
    state = hashlib.sha256("\n".join(names).encode()).hexdigest()[:_STATE]
    stem = f"{paths.run}-items" if items else paths.run
    file = paths.directory / "exports" / f"{stem}-{state}{EXTENSIONS[form]}"
    return _Plan(file, stem, form, what, where)


def _segments(where: RunPlace, what: str) -> list[str]:
    place = where.items if what == "items" else where.pages
    if not place.is_dir():
        return []
    files = committed([place], ITEM_SINKS.values()) if what == "items" else committed_files(place)
    return sorted(path.name for path, _ in files)


def _write_pages(output: PartFile, form: str, name: str, paths: RunPlace) -> None:
    if form == "warc":
        write_warc(output, name, paths.run, paths.pages)
    elif form == "parquet":
        write_parquet(output, schema_of(COLUMNS), read_pages(paths.pages))
    elif form == "csv":
        write_csv(output, COLUMNS, read_pages(paths.pages))
    else:
        write_jsonl(output, read_pages(paths.pages))


def _write_items(output: PartFile, form: str, name: str, paths: RunPlace) -> None:
    if form == "jsonl":
        write_jsonl(output, read_items(paths.items))
        return
    # The keys are known only once all items were read; they are read again for their values.
    columns = ItemColumns(read_items(paths.items))
    if form == "parquet":
        write_parquet(output, columns.schema(), map(columns.cells, read_items(paths.items)))
    else:
        write_csv(output, columns.keys, read_items(paths.items))


_WRITERS: dict[str, Callable[[PartFile, str, str, RunPlace], None]] = {
    "pages": _write_pages,
    "items": _write_items,
}
