"""What spiders scrape, in segments beside the pages: ``DATA/runs/RUN/items``.

An item is stored as JSON, with the page it is from. Items and pages of one segment have the same base name,
so one record says whether they count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, Protocol

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from crawlproj.model.records import Page
from crawlproj.model.segment import FileMark
from crawlproj.storage.jsonl import JsonlFile, lines_of
from crawlproj.storage.objects import Place, source_of
from crawlproj.storage.parquet import ParquetFile
from crawlproj.storage.reader import Places, committed, folders, named_damage

_READ_ROWS = 256


class ItemSink(Protocol):
    """One file of items; see `Sink`."""

    suffix: ClassVar[str]

    def __init__(self, path: Path) -> None: ...

    @property
    def bytes_written(self) -> int: ...

    @property
    def mark(self) -> FileMark: ...

    def add(self, page: Page) -> None:
        """Add the items of *page*."""

    def close(self) -> None: ...

    def abandon(self) -> None: ...

    @staticmethod
    def read(path: Place) -> Iterator[str | bytes]:
        """Yield the items of a closed file, as JSON."""


class ItemParquet(ParquetFile):
    schema: ClassVar[pa.Schema] = pa.schema(
        [
            ("url", pa.string()),
            ("domain", pa.string()),
            ("fetched_at", pa.timestamp("ms", tz="UTC")),
            ("shard", pa.int32()),
            ("item", pa.string()),
        ],
        metadata={"crawlproj.items": "1"},
    )

    def add(self, page: Page) -> None:
        fetched_at = _time_of(page)
        for item in page.items:
            self.groups.append((page.url, page.domain, fetched_at, page.shard, item))

    @staticmethod
    def read(path: Place) -> Iterator[str]:
        with pq.ParquetFile(source_of(path), page_checksum_verification=True) as file:
            for batch in file.iter_batches(_READ_ROWS, columns=["item"], use_threads=False):
                yield from batch.column(0).to_pylist()


class ItemJsonl(JsonlFile):
    def add(self, page: Page) -> None:
        facts = {
            "url": page.url,
            "domain": page.domain,
            "fetched_at": _time_of(page),
            "shard": page.shard,
        }
        for item in page.items:
            self.write_line(msgspec.json.encode(facts | {"item": msgspec.Raw(item)}))

    @staticmethod
    def read(path: Place) -> Iterator[bytes]:
        for line in lines_of(path):
            yield bytes(_line_decoder.decode(line).item)


class _Line(msgspec.Struct):
    item: msgspec.Raw


_line_decoder = msgspec.json.Decoder(_Line)

#: By their names in PAGE_STORE; the reader prefers the first one present.
ITEM_SINKS: dict[str, type[ItemSink]] = {"parquet": ItemParquet, "jsonl": ItemJsonl}


def item_sinks(formats: Sequence[str]) -> list[type[ItemSink]]:
    """Return the sinks for the formats of PAGE_STORE; JSON lines for WARC alone, which holds no items."""
    return [sink for name, sink in ITEM_SINKS.items() if name in formats] or [ItemJsonl]


def read_items(directory: Places) -> Iterator[dict[str, Any]]:
    """Yield every item that the spider of a run has scraped, as a dict, segment by segment.

    *directory* is that of the run, ``DATA/runs/RUN``, or its ``items``; or a list of them, as for
    `read_pages`. Segments still being written are skipped. Raises BadSegment, with the file's name, for a
    damaged or unknown file.
    """
    for file, sink in committed(folders(directory, "items"), ITEM_SINKS.values()):
        with named_damage(file):
            yield from map(msgspec.json.decode, sink.read(file))


def _time_of(page: Page) -> datetime:
    return datetime.fromtimestamp(page.fetched_at_ms / 1000, UTC)
