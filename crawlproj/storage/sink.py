"""The formats a page can be stored in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol

from crawlproj.model.records import Page
from crawlproj.model.segment import FileMark
from crawlproj.storage.jsonl import JsonlSink
from crawlproj.storage.objects import Place
from crawlproj.storage.parquet import ParquetSink
from crawlproj.storage.row import PageRow
from crawlproj.storage.warc import WarcSink


class Sink(Protocol):
    """One file of one format, from its first row to its last."""

    suffix: ClassVar[str]

    def __init__(self, path: Path) -> None: ...

    @property
    def bytes_written(self) -> int:
        """Return the bytes in the file, without what is still in memory."""

    @property
    def mark(self) -> FileMark:
        """Return what was written; the whole file once it is closed."""

    def append(self, row: PageRow, page: Page) -> None:
        """Add a page. Raises OSError when the disk is full; the file is then unusable."""

    def close(self) -> None:
        """Return when every row is on disk. Raises OSError when the disk is full."""

    def abandon(self) -> None:
        """Close the file as it is, even after an error. Never raises."""

    @staticmethod
    def read(path: Place, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the rows of a closed file. Raises one of `reader.DAMAGE` when it is damaged."""


#: By their names in PAGE_STORE; the reader prefers the first one present.
SINKS: dict[str, type[Sink]] = {"parquet": ParquetSink, "jsonl": JsonlSink, "warc": WarcSink}
