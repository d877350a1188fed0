"""Reads committed pages."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

import pyarrow as pa  # type: ignore[import-untyped]
import zstandard

from crawlproj.errors import BadArgument, BadSegment
from crawlproj.model.merge import Merge
from crawlproj.model.segment_name import merged_ms, note_of, segment_of
from crawlproj.storage.objects import Place, StorePath, place_of
from crawlproj.storage.partfile import is_published
from crawlproj.storage.row import COLUMNS, check_columns
from crawlproj.storage.sink import SINKS, Sink


class _HasSuffix(Protocol):
    suffix: ClassVar[str]


_Sink = TypeVar("_Sink", bound=_HasSuffix)

#: Errors of reading a file that is truncated, corrupt, or not ours.
DAMAGE = (OSError, EOFError, ValueError, KeyError, zlib.error, zstandard.ZstdError, pa.ArrowException)

#: A directory or an address in an object store, or several that hold parts of one run.
Places = str | Place | Sequence[str | Place]


def read_pages(directory: Places, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield every committed page of a run, as a dict of *columns* (all), segment by segment.

    *directory* is that of the run, ``DATA/runs/RUN`` or ``s3://BUCKET/PREFIX/runs/RUN``, or its ``pages``; or
    a list of them, one from each disk or store that holds a part of it. A segment in several is read once.
    Keys and types are the same for every format; a page stored in several formats is read once. Segments
    still being written are skipped, so this is safe while a crawl runs. Raises BadSegment, with the file's
    name, for a damaged or unknown file.
    """
    chosen = COLUMNS if columns is None else tuple(columns)
    check_columns(chosen)
    for path, sink in committed_files(directory):
        with named_damage(path):
            yield from sink.read(path, chosen)


@contextmanager
def named_damage(file: Place) -> Iterator[None]:
    """Raise BadSegment, with the name of *file*, for an error of reading it."""
    try:
        yield
    except DAMAGE as exc:
        raise BadSegment(f"{file} is damaged, or was not written by this program: {exc}") from exc


def runs_with(folder: str, data: Iterable[Place]) -> list[str]:
    """Return the names of the runs that have segments in their *folder*, in data directories and stores."""
    runs = {run for place in data if (place / "runs").is_dir() for run in (place / "runs").iterdir()}
    inner = ((run.name, run / folder) for run in runs)
    return sorted(
        {
            name
            for name, files in inner
            if files.is_dir() and any(is_published(file.name) for file in files.iterdir())
        }
    )


def committed_files(directory: Places) -> list[tuple[Place, type[Sink]]]:
    """Return one file per committed segment, in the format that is fastest to read, and its sink."""
    return committed(folders(directory, "pages"), SINKS.values())


def folders(directory: Places, folder: str) -> list[Place]:
    """Return the folders named *folder* of one or several directories. Raises BadArgument."""
    several = [directory] if isinstance(directory, (str, Path, StorePath)) else directory
    found = []
    for path in map(place_of, several):
        # A store has no empty directories, and one that is a directory may have uploads only.
        is_outer = path.name != folder and (
            isinstance(path, StorePath) or (path / folder).is_dir() or (path / "open").is_dir()
        )
        inner = path / folder if is_outer else path
        if not inner.is_dir():
            raise BadArgument(f"{str(inner)!r} is not a directory; {folder} are in DATA/runs/RUN/{folder}.")
        found.append(inner)
    return found


def committed(paths: Iterable[Place], sinks: Collection[type[_Sink]]) -> list[tuple[Place, type[_Sink]]]:
    """Return one file per committed segment in *paths*, that of the first of *sinks*, and its sink.

    A segment that another has replaced is left out. Files may be moved meanwhile, to where `open_file` and
    `source_of` find them.
    """
    best: dict[str, tuple[Place, type[_Sink]]] = {}
    for path in paths:
        names = _names_in(path)
        for sink in sinks:
            found = {name for name in names if name.endswith(sink.suffix)}
            for name in found:
                best.setdefault(name.removesuffix(sink.suffix), (path / name, sink))
            names -= found
        for name in sorted(names):
            if is_published(name):
                raise BadSegment(f"{path / name} is not a segment file; move it out of this directory.")
    merged = [path for path, _ in best.values() if merged_ms(segment_of(path.name)) is not None]
    replaced = frozenset().union(*map(_replaced_by, merged))
    return [best[base] for base in sorted(best) if base not in replaced]


def _names_in(folder: Place) -> set[str]:
    """Return the files in *folder*, none of which is replaced by one that was published meanwhile."""
    names = {file.name for file in folder.iterdir() if not file.name.startswith(".")}
    while True:
        again = {file.name for file in folder.iterdir() if not file.name.startswith(".")}
        if _merged(again) == _merged(names):
            return names
        names = again


def _merged(names: Iterable[str]) -> set[str]:
    return {name for name in names if merged_ms(segment_of(name)) is not None}


@lru_cache(maxsize=4096)
def _replaced_by(file: Place) -> frozenset[str]:
    """Return which segments a merged one has replaced; none if its note was left behind."""
    note = read_note(file.parent.parent / note_of(segment_of(file.name)))
    return note.all_replaced if note else frozenset()


def read_note(file: Place) -> Merge | None:
    """Return the merge that *file* notes, None if it is gone. Raises BadSegment."""
    try:
        with file.open("rb") as opened:
            return Merge.decode(opened.read())
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as exc:
        raise BadSegment(f"{file} is damaged, or was not written by this program: {exc}") from exc
