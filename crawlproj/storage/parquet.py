"""Pages as Parquet: columns, for tables and SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from crawlproj.model.records import Page
from crawlproj.model.segment import FileMark
from crawlproj.storage.objects import Place, source_of
from crawlproj.storage.partfile import PartFile
from crawlproj.storage.row import COLUMNS, PageRow

_LEVEL = 3
_VERSION_KEY = b"crawlproj.schema"
#: Of the schema below; version 1 had `fields` as a map, which not every tool reads.
_VERSION = "2"
_READABLE = ("1", _VERSION)
#: A row group ends at the first of these limits, and is held in memory until then.
_GROUP_ROWS = 1000
_GROUP_CHARS = 8 << 20
_READ_ROWS = 256
_TEXT = pa.string()
_TIMESTAMP = pa.timestamp("ms", tz="UTC")
_TYPES = {
    "depth": pa.int32(),
    "status": pa.int16(),
    "fetched_at": _TIMESTAMP,
    "latency_ms": pa.int32(),
    "headings": pa.list_(pa.struct([("level", pa.int8()), ("text", _TEXT)])),
    "published": _TIMESTAMP,
    "modified": _TIMESTAMP,
    "paywalled": pa.bool_(),
    "links": pa.int32(),
    "link_urls": pa.list_(_TEXT),
    "body_bytes": pa.int64(),
    "truncated": pa.bool_(),
    "simhash": pa.int64(),
    "shard": pa.int32(),
    "attempt": pa.int32(),
    "fields": pa.list_(pa.struct([("name", _TEXT), ("values", pa.list_(_TEXT))])),
}
#: Only types and names that pandas, polars, DuckDB, Hugging Face `datasets` and Spark read; a test loads it.
SCHEMA = pa.schema([(name, _TYPES.get(name, _TEXT)) for name in COLUMNS], metadata={_VERSION_KEY: _VERSION})
_TIMESTAMPS = [name for name, kind in _TYPES.items() if kind == _TIMESTAMP]
#: Columns with few distinct values: dictionary encoding makes them small and fast to group by.
_REPEATED = ["domain", "content_type", "charset", "language", "error", "site_name", "kind", "text_source"]
#: Columns that queries filter by; statistics of long texts would be useless.
_BOUNDED = ["url", "domain", "depth", "status", "fetched_at", "content_type", "language", "published", "kind"]


class RowGroups:
    """Writes rows of *schema* to *file*, a row group at a time; readable only once it is closed."""

    def __init__(self, file: PartFile, schema: pa.Schema = SCHEMA) -> None:
        self._schema = schema
        self._rows: list[Sequence[Any]] = []
        self._chars = 0
        names = set(schema.names)
        self._writer = pq.ParquetWriter(
            file,
            schema,
            compression="zstd",
            compression_level=_LEVEL,
            use_dictionary=[name for name in _REPEATED if name in names],
            write_statistics=[name for name in _BOUNDED if name in names],
            write_page_checksum=True,
        )

    def append(self, row: Sequence[Any]) -> None:
        self._rows.append(row)
        self._chars += _chars(row)
        if len(self._rows) >= _GROUP_ROWS or self._chars >= _GROUP_CHARS:
            self._write_group()

    def extend(self, rows: pa.Table) -> None:
        """Write *rows* in groups of their own."""
        while len(rows):
            group = rows.slice(0, _GROUP_ROWS)
            # Of text there are about as many bytes as characters.
            share = _GROUP_CHARS / max(1, group.nbytes)
            group = group.slice(0, max(1, int(len(group) * min(1, share))))
            self._writer.write_table(group, row_group_size=len(group))
            rows = rows.slice(len(group))

    def close(self) -> None:
        if self._rows:
            self._write_group()
        self._writer.close()

    def abandon(self) -> None:
        """Forget the rows; the file must ignore writes by now."""
        # Left open, the writer would be closed by the garbage collector.
        self._writer.close()

    def _write_group(self) -> None:
        columns = zip(*self._rows, strict=True)
        arrays = [_array(column, field) for column, field in zip(columns, self._schema, strict=True)]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        self._rows.clear()
        self._chars = 0


class ParquetFile:
    """A new file of rows of `schema`."""

    suffix: ClassVar[str] = ".parquet"
    schema: ClassVar[pa.Schema] = SCHEMA

    def __init__(self, path: Path) -> None:
        self._file = PartFile(path)
        try:
            self.groups = RowGroups(self._file, self.schema)
        except OSError:
            # The constructor writes already, so it fails on a full disk.
            self._file.abandon()
            raise

    @property
    def bytes_written(self) -> int:
        return self._file.bytes_written

    @property
    def mark(self) -> FileMark:
        return self._file.mark

    def write(self, rows: pa.Table) -> None:
        self.groups.extend(rows)

    def close(self) -> None:
        self.groups.close()
        self._file.sync_and_close()

    def abandon(self) -> None:
        self._file.abandon()
        self.groups.abandon()


class ParquetSink(ParquetFile):
    def append(self, row: PageRow, page: Page) -> None:
        self.groups.append(msgspec.structs.astuple(row))

    @staticmethod
    def read(path: Place, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        with pq.ParquetFile(source_of(path), page_checksum_verification=True) as file:
            _check_version(file)
            # An older file may lack a column.
            present = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(_READ_ROWS, columns=present, use_threads=False):
                yield from plain_rows(batch, columns)


def read_tables(path: Place, schema: pa.Schema, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the row groups of a file, as *columns* of *schema*: those of an older release are converted."""
    wanted = pa.schema([schema.field(name) for name in columns])
    with pq.ParquetFile(source_of(path), page_checksum_verification=True) as file:
        if schema is SCHEMA:
            _check_version(file)
        names = set(file.schema_arrow.names)
        present = [name for name in columns if name in names]
        for number in range(file.num_row_groups):
            group = file.read_row_group(number, columns=present, use_threads=False)
            yield pa.table(
                [
                    _without_map(group[field.name]).cast(field.type)
                    if field.name in names
                    else pa.nulls(len(group), field.type)
                    for field in wanted
                ],
                wanted,
            )


def _check_version(file: pq.ParquetFile) -> None:
    version = (file.schema_arrow.metadata or {}).get(_VERSION_KEY, b"none").decode()
    if version not in _READABLE:
        raise ValueError(f"schema version {version}, but this program reads {' and '.join(_READABLE)}")


def _without_map(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column of lists in place of the maps of version 1."""
    if not pa.types.is_map(column.type):
        return column
    lists = [
        pa.ListArray.from_arrays(
            chunk.offsets,
            pa.StructArray.from_arrays([chunk.keys, chunk.items], ["name", "values"]),
            mask=chunk.is_null() if chunk.null_count else None,
        )
        for chunk in (pa.concat_arrays([chunk]) for chunk in column.chunks)
    ]
    return pa.chunked_array(lists, SCHEMA.field("fields").type)


def plain_rows(rows: pa.RecordBatch | pa.Table, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a file as dicts, as every format has them."""
    for row in rows.to_pylist(maps_as_pydicts="strict"):
        for name in _TIMESTAMPS:
            if timestamp := row.get(name):
                row[name] = timestamp.replace(tzinfo=UTC)
        if isinstance(fields := row.get("fields"), list):
            row["fields"] = {field["name"]: field["values"] for field in fields}
        yield {name: row.get(name) for name in columns}


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """Return the schema of a file with only these columns."""
    return pa.schema([SCHEMA.field(name) for name in columns], metadata=SCHEMA.metadata)


def without_maps(schema: pa.Schema) -> pa.Schema:
    """Return *schema* with lists of names and values in place of maps, which not every tool reads."""
    fields = [
        field.with_type(pa.list_(pa.struct([("name", kind.key_type), ("values", kind.item_type)])))
        if pa.types.is_map(kind := field.type)
        else field
        for field in schema
    ]
    return pa.schema(fields)


def has_field_list(path: Place) -> bool:
    """Whether the file has the column `fields`, as a list and not as the map of version 1."""
    try:
        schema = pq.read_schema(source_of(path))
    except (OSError, pa.ArrowException):
        # Damaged; whoever reads it says so.
        return False
    return "fields" in schema.names and pa.types.is_list(schema.field("fields").type)


def _array(column: Sequence[Any], field: pa.Field) -> pa.Array:
    if pa.types.is_list(field.type):
        column = [list(value.items()) if isinstance(value, dict) else value for value in column]
    return pa.array(column, field.type)


def _chars(value: object) -> int:
    """Return how much text *value* holds."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, (list, tuple)):
        return sum(map(_chars, value))
    return sum(map(_chars, value.values())) if isinstance(value, dict) else 0
