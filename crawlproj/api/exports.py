"""All pages of a job as one file: written once for each state of its segments, then served in any part."""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path

from crawlproj.model.run import RunPaths
from crawlproj.storage.archive import write_warc
from crawlproj.storage.export import new_file, write_csv, write_jsonl, write_parquet
from crawlproj.storage.parquet import schema_of
from crawlproj.storage.reader import committed_files, read_pages
from crawlproj.storage.row import COLUMNS

EXTENSIONS = {"parquet": ".parquet", "jsonl": ".jsonl", "csv": ".csv", "warc": ".warc.gz"}
MEDIA_TYPES = {
    "parquet": "application/vnd.apache.parquet",
    "jsonl": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "warc": "application/warc",
}

#: The media type of several parts of a file.
PARTS = "multipart/byteranges"


async def export(paths: RunPaths, form: str, exporting: asyncio.Lock) -> Path | None:
    """Return the file with all pages that are committed now; None if there are none."""
    async with exporting:
        return await asyncio.to_thread(_export, paths, form)


def _export(paths: RunPaths, form: str) -> Path | None:
    files = [path for path, _ in committed_files(paths.pages)] if paths.pages.is_dir() else []
    if not files:
        return None
    state = hashlib.sha256("\n".join(sorted(path.name for path in files)).encode()).hexdigest()[:16]
    folder = paths.directory / "exports"
    file = folder / f"{paths.run}-{state}{EXTENSIONS[form]}"
    if file.exists():
        return file
    folder.mkdir(exist_ok=True)
    with new_file(file, overwrite=True) as output:
        if form == "warc":
            write_warc(output, file.name, paths.run, paths.pages)
        elif form == "parquet":
            write_parquet(output, schema_of(COLUMNS), read_pages(paths.pages))
        elif form == "csv":
            write_csv(output, COLUMNS, read_pages(paths.pages))
        else:
            write_jsonl(output, read_pages(paths.pages))
    for old in folder.glob(f"*{EXTENSIONS[form]}"):
        if old != file:
            old.unlink(missing_ok=True)
    return file
