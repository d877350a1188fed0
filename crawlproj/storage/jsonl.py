"""Pages as lines of JSON, compressed with zstd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import zstandard

from crawlproj.model.records import Page
from crawlproj.storage.partfile import PartFile
from crawlproj.storage.row import PageRow, decode, encode, pick

_LEVEL = 3
_CHUNK_BYTES = 1 << 17


class JsonlSink:
    """One zstd frame with a checksum; ``zstd -dc`` shows the lines."""

    suffix: ClassVar[str] = ".jsonl.zst"

    def __init__(self, path: Path) -> None:
        self._file = PartFile(path)
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compressobj()

    @property
    def bytes_written(self) -> int:
        return self._file.bytes_written

    def append(self, row: PageRow, page: Page) -> None:
        if data := self._compressor.compress(encode(row) + b"\n"):
            self._file.write(data)

    def close(self) -> None:
        self._file.write(self._compressor.flush())
        self._file.sync_and_close()

    def abandon(self) -> None:
        self._file.abandon()

    @staticmethod
    def read(path: Path, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(_lines(path), 1):
            try:
                row = decode(line)
            except ValueError as exc:
                raise ValueError(f"line {number} is not a page: {exc}") from exc
            yield pick(row, columns)


def _lines(path: Path) -> Iterator[bytes]:
    # Not the library's stream_reader: that takes a file cut in half for a whole one.
    stream = zstandard.ZstdDecompressor().decompressobj()
    rest = b""
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            *lines, rest = (rest + stream.decompress(chunk)).split(b"\n")
            yield from lines
    if not stream.eof or rest:
        raise ValueError("it is cut off")
