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
#: A row group ends at the first of these; so much is held in memory.
_GROUP_ROWS = 1000
_GROUP_CHARS = 8 << 20
_READ_ROWS = 256
_TEXT = pa.string()
_MOMENT = pa.timestamp("ms", tz="UTC")
_TYPES = {
    "depth": pa.int32(),
    "status": pa.int16(),
    "fetched_at": _MOMENT,
    "latency_ms": pa.int32(),
    "headings": pa.list_(pa.struct([("level", pa.int8()), ("text", _TEXT)])),
    "published": _MOMENT,
    "modified": _MOMENT,
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
_SCHEMA = pa.schema(
    [(name, _TYPES.get(name, _TEXT)) for name in COLUMNS], metadata={_VERSION_KEY: SCHEMA_VERSION}
)
_MOMENTS = [name for name, kind in _TYPES.items() if kind == _MOMENT]
#: Few different values: a dictionary makes them small and quick to group by.
_REPEATED = ["domain", "content_type", "charset", "language", "error", "site_name", "kind", "text_source"]
#: What questions filter by; bounds of long texts would only be ballast.
_BOUNDED = ["url", "domain", "depth", "status", "fetched_at", "content_type", "language", "published", "kind"]


class ParquetSink:
    """Rows are collected and written as row groups; the file is readable only once it is closed."""

    suffix: ClassVar[str] = ".parquet"

    def __init__(self, path: Path) -> None:
        self._rows: list[PageRow] = []
        self._chars = 0
        self._file = PartFile(path)
        try:
            self._writer = pq.ParquetWriter(
                self._file,
                _SCHEMA,
                compression="zstd",
                compression_level=_LEVEL,
                use_dictionary=_REPEATED,
                write_statistics=_BOUNDED,
                write_page_checksum=True,
            )
        except OSError:
            # It begins with writing, so a full disk shows here already.
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
        # Its end goes nowhere; but a writer that is forgotten while open would be closed by the collector.
        self._writer.close()

    def _write_group(self) -> None:
        columns = zip(*map(msgspec.structs.astuple, self._rows), strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, _SCHEMA, strict=True)]
        self._writer.write_batch(pa.record_batch(arrays, schema=_SCHEMA))
        self._rows.clear()
        self._chars = 0

    @staticmethod
    def read(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            version = (file.schema_arrow.metadata or {}).get(_VERSION_KEY, b"none").decode()
            if version != SCHEMA_VERSION:
                raise ValueError(f"its schema is version {version}, this program reads {SCHEMA_VERSION}")
            # An older file may lack a column.
            there = [name for name in columns if name in file.schema_arrow.names]
            for batch in file.iter_batches(_READ_ROWS, columns=there, use_threads=False):
                for row in batch.to_pylist(maps_as_pydicts="strict"):
                    for name in _MOMENTS:
                        if moment := row.get(name):
                            row[name] = moment.replace(tzinfo=UTC)
                    yield {name: row.get(name) for name in columns}


def _chars(row: PageRow) -> int:
    """Return how much text a row holds, in the columns where it can be much."""
    texts = (row.title, row.description, row.text, row.full_text, *(row.link_urls or ()))
    chars = sum(len(text) for text in texts if text)
    chars += sum(len(heading["text"]) for heading in row.headings or ())
    for values in (row.fields or {}).values():
        chars += sum(map(len, values))
    return chars
