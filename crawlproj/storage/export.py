"""One file of rows for other tools: Parquet, JSON lines, CSV or WARC, by its extension.

It is written under a temporary name and renamed when it is complete. Rows are streamed.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]

from crawlproj.errors import BadArgument
from crawlproj.storage.parquet import RowGroups
from crawlproj.storage.partfile import PartFile, sync_directory

Row = Mapping[str, Any]

#: Formats by the extension of the file.
FORMATS = {
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    ".csv": "csv",
    ".warc": "warc",
    ".warc.gz": "warc",
}
#: For messages.
EXTENSIONS = ".parquet, .jsonl, .csv, .warc.gz"


class Output(Protocol):
    """Where bytes are written: a file, or standard output."""

    def write(self, data: bytes, /) -> int: ...


def format_of(path: Path) -> str:
    """Return the format of a file by its extension. Raises BadArgument for an unknown one."""
    for extension, format_ in FORMATS.items():
        if path.name.lower().endswith(extension):
            return format_
    raise BadArgument(f"--output {str(path)!r}: the extension sets the format; use one of {EXTENSIONS}.")


def part_of(path: Path) -> Path:
    """Return the name of a file while this process writes it."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")


@contextmanager
def new_file(path: Path, *, overwrite: bool) -> Iterator[PartFile]:
    """Yield a file that gets its name when the block ends without an error, and is removed otherwise.

    Raises BadArgument when it exists, unless *overwrite*, or cannot be written.
    """
    if path.exists() and not path.is_file():
        raise BadArgument(f"{str(path)!r} is not a regular file; leave out --output to write to a pipe.")
    if path.exists() and not overwrite:
        raise BadArgument(f"{str(path)!r} exists; add --overwrite to replace it.")
    part = part_of(path)
    file = None
    try:
        file = PartFile(part)
        yield file
        file.sync_and_close()
        part.rename(path)
        sync_directory(path.parent)
    except OSError as exc:
        raise BadArgument(f"Cannot write {str(path)!r}: {exc.strerror or exc}.") from exc
    finally:
        if file is not None:
            file.abandon()
            part.unlink(missing_ok=True)


def write_jsonl(output: Output, rows: Iterable[Row]) -> None:
    encoder = msgspec.json.Encoder(enc_hook=str)
    for row in rows:
        output.write(encoder.encode(row) + b"\n")


def write_csv(output: Output, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Write *columns* with a heading. Lists and dicts are JSON, times ISO 8601, none is empty."""
    table = csv.writer(_Encoded(output))
    table.writerow(columns)
    table.writerows([text_of(row.get(column)) for column in columns] for row in rows)


def write_parquet(file: PartFile, schema: pa.Schema, rows: Iterable[Row]) -> None:
    groups = RowGroups(file, schema)
    try:
        for row in rows:
            groups.append([row[name] for name in schema.names])
        groups.close()
    except BaseException:
        file.abandon()
        groups.abandon()
        raise


def text_of(value: object) -> str:
    """Return *value* as the text of a cell."""
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


class _Encoded:
    """What the csv module writes to."""

    def __init__(self, output: Output) -> None:
        self._output = output

    def write(self, text: str) -> int:
        return self._output.write(text.encode())
