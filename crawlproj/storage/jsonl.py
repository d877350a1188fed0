"""Pages as JSON lines, compressed with zstd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import zstandard

from crawlproj.model.records import Page
from crawlproj.storage.objects import Place, open_file
from crawlproj.storage.partfile import PartFile
from crawlproj.storage.row import PageRow, decode, encode, pick

_LEVEL = 3
_CHUNK_BYTES = 1 << 17


class JsonlFile(PartFile):
    """One zstd frame with a checksum; ``zstd -dc`` shows the lines."""

    suffix: ClassVar[str] = ".jsonl.zst"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compressobj()

    def write_line(self, line: bytes) -> None:
        self.write(self._compressor.compress(line + b"\n"))

    def close(self) -> None:
        self.write(self._compressor.flush())
        self.sync_and_close()


class JsonlSink(JsonlFile):
    def append(self, row: PageRow, page: Page) -> None:
        self.write_line(encode(row))

    @staticmethod
    def read(path: Place, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(lines_of(path), 1):
            try:
                row = decode(line)
            except ValueError as exc:
                raise ValueError(f"line {number} is not a page: {exc}") from exc
            yield pick(row, columns)


def lines_of(path: Place) -> Iterator[bytes]:
    """Yield the lines of a closed file. Raises ValueError when it is truncated."""
    # Not the library's stream_reader, which does not notice a truncated file.
    stream = zstandard.ZstdDecompressor().decompressobj()
    rest = b""
    with open_file(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            *lines, rest = (rest + stream.decompress(chunk)).split(b"\n")
            yield from lines
    if not stream.eof or rest:
        raise ValueError("the file is truncated")
