"""Reads committed pages."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
import zstandard

from crawlproj.errors import BadArgument, BadSegment
from crawlproj.model.run import runs_directory
from crawlproj.storage.partfile import PART, WITHDRAWN
from crawlproj.storage.row import COLUMNS, check_columns
from crawlproj.storage.sink import SINKS, Sink


class _HasSuffix(Protocol):
    suffix: ClassVar[str]


_Sink = TypeVar("_Sink", bound=_HasSuffix)

#: Errors of reading a file that is truncated, corrupt, or not ours.
DAMAGE = (OSError, EOFError, ValueError, KeyError, zlib.error, zstandard.ZstdError, pa.ArrowException)


def read_pages(directory: str | Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield every committed page of a run, as a dict of *columns* (all), segment by segment.

    *directory* is that of the run, ``DATA/runs/RUN``, or its ``pages``.
    Keys and types are the same for every format; a page stored in several formats is read once. Segments
    still being written are skipped, so this is safe while a crawl runs. Raises BadSegment, with the file's
    name, for a damaged or unknown file.
    """
    chosen = COLUMNS if columns is None else tuple(columns)
    check_columns(chosen)
    for path, sink in committed_files(directory):
        try:
            yield from sink.read(path, chosen)
        except DAMAGE as exc:
            raise BadSegment(f"{path} is damaged, or was not written by this program: {exc}") from exc


def runs_with_pages(data: Path) -> list[str]:
    """Return the names of the runs that have page files in the data directory."""
    pages = runs_directory(data).glob("*/pages")
    return sorted(path.parent.name for path in pages if any(path.iterdir()))


def committed_files(directory: str | Path) -> list[tuple[Path, type[Sink]]]:
    """Return one file per committed segment, in the format that is fastest to read, and its sink."""
    path = Path(directory)
    if (path / "pages").is_dir():
        path /= "pages"
    if not path.is_dir():
        raise BadArgument(f"{str(path)!r} is not a directory; pages are in DATA/runs/RUN/pages.")
    return committed(path, SINKS.values())


def committed(path: Path, sinks: Iterable[type[_Sink]]) -> list[tuple[Path, type[_Sink]]]:
    """Return one file per committed segment in *path*, that of the first of *sinks*, and its sink."""
    names = {file.name for file in path.iterdir() if not file.name.startswith(".")}
    best: dict[str, tuple[Path, type[_Sink]]] = {}
    for sink in sinks:
        found = {name for name in names if name.endswith(sink.suffix)}
        for name in found:
            best.setdefault(name.removesuffix(sink.suffix), (path / name, sink))
        names -= found
    for name in sorted(names):
        if not name.endswith((PART, WITHDRAWN)):
            raise BadSegment(f"{path / name} is not a segment file; move it out of this directory.")
    return [best[base] for base in sorted(best)]
