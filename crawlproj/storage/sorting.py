"""Files of rows, in any format, as one file sorted by domain; in bounded memory, whatever their size.

In two passes: the keys of all rows say which place each row has; then rows are divided among temporary files
by their places, and each of these is sorted in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Protocol

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from crawlproj.model.segment import FileMark
from crawlproj.storage.items import ItemJsonl, ItemParquet
from crawlproj.storage.jsonl import JsonlFile, JsonlSink, lines_of
from crawlproj.storage.objects import Place
from crawlproj.storage.parquet import ParquetFile, ParquetSink, read_tables
from crawlproj.storage.partfile import PartFile
from crawlproj.storage.warc import WarcSink, info_record, page_records

#: The order of rows: those of a domain in the order in which they were fetched.
_KEYS = ("domain", "fetched_at", "url")
#: Rows that are copied as they are, with their keys.
_RAW = pa.schema(
    [
        ("domain", pa.string()),
        ("fetched_at", pa.timestamp("us", tz="UTC")),
        ("url", pa.string()),
        ("raw", pa.large_binary()),
    ]
)
#: A temporary file holds the rows of so many bytes of the files, which are compressed.
_BUCKET_BYTES = 8 << 20
_BATCH_ROWS = 1000
_BATCH_BYTES = 8 << 20
_PLACE = "crawlproj.place"
_SPILL = pa.ipc.IpcWriteOptions(compression="lz4")


class Rows(Protocol):
    """How the rows of a format are read and written."""

    def tables(self, file: Place, *, only_keys: bool) -> Iterator[pa.Table]:
        """Yield all rows. Raises one of `reader.DAMAGE` when the file is damaged."""

    def writer(self, path: Path, run: str) -> Writer:
        """Return a new file at *path*."""


class Writer(Protocol):
    @property
    def mark(self) -> FileMark: ...

    def write(self, rows: pa.Table) -> None: ...

    def close(self) -> None:
        """Return when every row is on disk."""

    def abandon(self) -> None: ...


def sort_files(files: Sequence[Place], rows: Rows, target: Path, run: str) -> FileMark:
    """Write the rows of *files*, sorted by domain, to *target*; returns what was written.

    Temporary files are in the directory of *target*. Raises one of `reader.DAMAGE` for a damaged file.
    """
    places = _places(files, rows)
    wanted = 1 + sum(file.stat().st_size for file in files) // _BUCKET_BYTES
    per_bucket = -(-len(places) // wanted)
    with ExitStack() as stack:
        spills = [
            stack.enter_context(TemporaryFile(dir=target.parent))
            for _ in range(0, len(places), per_bucket or 1)
        ]
        _divide(files, rows, places, per_bucket, spills)
        writer = rows.writer(target, run)
        stack.callback(writer.abandon)
        for spill in spills:
            writer.write(_sorted(spill))
        writer.close()
        return writer.mark


def _places(files: Sequence[Place], rows: Rows) -> pa.Array:
    """Return the place of each row of *files* in the order of `_KEYS`."""
    keys = pa.concat_tables(
        [table for file in files for table in rows.tables(file, only_keys=True)], promote_options="permissive"
    )
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in _KEYS])
    # The order of the order: where each row goes.
    return pc.sort_indices(order)


def _divide(
    files: Sequence[Place], rows: Rows, places: pa.Array, per_bucket: int, spills: Sequence[IO[bytes]]
) -> None:
    """Write each row to the one of *spills* that its place belongs to, with its place."""
    writers: dict[int, pa.RecordBatchWriter] = {}
    start = 0
    for file in files:
        for table in rows.tables(file, only_keys=False):
            mine = places.slice(start, len(table))
            start += len(table)
            numbered = table.append_column(_PLACE, mine)
            bucket_of = pc.divide(mine, per_bucket)
            for bucket in pc.unique(bucket_of).to_pylist():
                part = numbered.filter(pc.equal(bucket_of, bucket))
                if bucket not in writers:
                    writers[bucket] = pa.ipc.new_stream(spills[bucket], part.schema, options=_SPILL)
                writers[bucket].write_table(part)
    for writer in writers.values():
        writer.close()


def _sorted(spill: IO[bytes]) -> pa.Table:
    spill.seek(0)
    with pa.ipc.open_stream(spill) as stream:
        table = stream.read_all()
    return table.take(pc.sort_indices(table[_PLACE])).drop_columns([_PLACE])


class _ParquetRows:
    def __init__(self, kind: type[ParquetFile]) -> None:
        self._kind = kind

    def tables(self, file: Place, *, only_keys: bool) -> Iterator[pa.Table]:
        return read_tables(file, self._kind.schema, _KEYS if only_keys else self._kind.schema.names)

    def writer(self, path: Path, run: str) -> ParquetFile:
        return self._kind(path)


class _Key(msgspec.Struct):
    domain: str
    fetched_at: datetime
    url: str


_key_decoder = msgspec.json.Decoder(_Key)


class _JsonlRows:
    def __init__(self, kind: type[JsonlFile]) -> None:
        self._kind = kind

    def tables(self, file: Place, *, only_keys: bool) -> Iterator[pa.Table]:
        return _raw_tables(((line, line) for line in lines_of(file)), only_keys=only_keys)

    def writer(self, path: Path, run: str) -> _RawWriter:
        file = self._kind(path)
        return _RawWriter(file, file.write_line)


class _WarcRows:
    def tables(self, file: Place, *, only_keys: bool) -> Iterator[pa.Table]:
        return _raw_tables(page_records(file), only_keys=only_keys)

    def writer(self, path: Path, run: str) -> _RawWriter:
        file = PartFile(path)
        file.write(info_record(path.name, run))
        return _RawWriter(file, file.write)


class _RawWriter:
    """Writes the column ``raw`` with *write*, which takes one row."""

    def __init__(self, file: PartFile, write: Callable[[bytes], object]) -> None:
        self._file, self._write = file, write

    @property
    def mark(self) -> FileMark:
        return self._file.mark

    def write(self, rows: pa.Table) -> None:
        for raw in rows["raw"]:
            self._write(raw.as_py())

    def close(self) -> None:
        # JSON lines end their frame first.
        getattr(self._file, "close", self._file.sync_and_close)()

    def abandon(self) -> None:
        self._file.abandon()


def _raw_tables(rows: Iterable[tuple[bytes, bytes]], *, only_keys: bool) -> Iterator[pa.Table]:
    """Yield tables of *rows*, each with the JSON that has its keys."""
    schema = pa.schema([field for field in _RAW if not only_keys or field.name != "raw"])
    batch: list[tuple[object, ...]] = []
    size = 0
    for raw, text in rows:
        key = _key_decoder.decode(text)
        batch.append((key.domain, key.fetched_at, key.url, raw)[: len(schema)])
        size += len(raw)
        if len(batch) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _table(batch, schema)
            batch, size = [], 0
    if batch:
        yield _table(batch, schema)


def _table(batch: Sequence[tuple[object, ...]], schema: pa.Schema) -> pa.Table:
    columns = zip(*batch, strict=True)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema
    )


#: By the folder of a file in the directory of a run, and its suffix.
ROWS: dict[tuple[str, str], Rows] = {
    ("pages", ParquetSink.suffix): _ParquetRows(ParquetSink),
    ("pages", JsonlSink.suffix): _JsonlRows(JsonlSink),
    ("pages", WarcSink.suffix): _WarcRows(),
    ("items", ItemParquet.suffix): _ParquetRows(ItemParquet),
    ("items", ItemJsonl.suffix): _JsonlRows(ItemJsonl),
}
