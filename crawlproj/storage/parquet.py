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
from crawlproj.storage.partfile import PartFile
from crawlproj.storage.row import COLUMNS, SCHEMA_VERSION, PageRow

_LEVEL = 3
_VERSION_KEY = b"crawlproj.schema"
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
    "fields": pa.map_(_TEXT, pa.list_(_TEXT)),
}
SCHEMA = pa.schema(
    [(name, _TYPES.get(name, _TEXT)) for name in COLUMNS], metadata={_VERSION_KEY: SCHEMA_VERSION}
)
_TIMESTAMPS = [name for name, kind in _TYPES.items() if kind == _TIMESTAMP]
#: Columns with few distinct values: dictionary encoding makes them small and fast to group by.
_REPEATED = ["domain", "content_type", "charset", "language", "error", "site_name", "kind", "text_source"]
#: Columns that queries filter by; statistics of long texts would be useless.
_BOUNDED = ["url", "domain", "depth", "status", "fetched_at", "content_type", "language", "published", "kind"]


class ParquetSink:
    """Rows are written in row groups; the file is readable only once it is closed."""

    suffix: ClassVar[str] = ".parquet"

    def __init__(self, path: Path) -> None:
        self._rows: list[PageRow] = []
        self._chars = 0
        self._file = PartFile(path)
        try:
            self._writer = pq.ParquetWriter(
                self._file,
                SCHEMA,
                compression="zstd",
                compression_level=_LEVEL,
                use_dictionary=_REPEATED,
                write_statistics=_BOUNDED,
                write_page_checksum=True,
            )
        except OSError:
            # The constructor writes already, so it fails on a full disk.
            self._file.abandon()
            raise

    @property
    def bytes_written(self) -> int:
        return self._file.bytes_written

    def append(self, row: PageRow, page: Page) -> None:
        self._rows.append(row)
        self._chars += _chars(row)
        if len(self._rows) >= _GROUP_ROWS or self._chars >= _GROUP_CHARS:
            self._write_group()

    def close(self) -> None:
        if self._rows:
            self._write_group()
        self._writer.close()
        self._file.sync_and_close()

    def abandon(self) -> None:
        self._file.abandon()
        # The abandoned file ignores the footer; left open, the writer would be closed by the garbage
        # collector.
        self._writer.close()

    def _write_group(self) -> None:
        columns = zip(*map(msgspec.structs.astuple, self._rows), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        self._writer.write_batch(pa.record_batch(arrays, schema=SCHEMA))
        self._rows.clear()
        self._chars = 0

    @staticmethod
    def read(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            version = (file.schema_arrow.metadata or {}).get(_VERSION_KEY, b"none").decode()
            if version != SCHEMA_VERSION:
                raise ValueError(f"schema version {version}, but this program reads version {SCHEMA_VERSION}")
            # An older file may lack a column.
            present = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(_READ_ROWS, columns=present, use_threads=False):
                for row in batch.to_pylist(maps_as_pydicts="strict"):
                    for name in _TIMESTAMPS:
                        if timestamp := row.get(name):
                            row[name] = timestamp.replace(tzinfo=UTC)
                    yield {name: row.get(name) for name in columns}


def _chars(row: PageRow) -> int:
    """Return how much text a row holds in its long columns."""
    texts = (row.title, row.description, row.text, row.full_text, *(row.link_urls or ()))
    chars = sum(len(text) for text in texts if text)
    chars += sum(len(heading["text"]) for heading in row.headings or ())
    for values in (row.fields or {}).values():
        chars += sum(map(len, values))
    return chars
