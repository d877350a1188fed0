"""Stored pages for people: the newest first, filtered, a few at a time, and never longer than asked for.

A search that runs out of time returns what it has found, and a cursor from which the next one continues.
"""

from __future__ import annotations

import re
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate, islice
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from crawlproj.errors import BadArgument
from crawlproj.model.segment_name import merged_ms, segment_of
from crawlproj.storage.objects import Place, source_of, written_ns
from crawlproj.storage.parquet import ParquetSink, plain_rows
from crawlproj.storage.reader import DAMAGE, committed_files
from crawlproj.storage.row import COLUMNS
from crawlproj.storage.sink import SINKS, Sink

#: Of a line; the text itself is read only for the lines that are returned, or searched.
_COLUMNS = ("url", "domain", "status", "title", "fetched_at", "language", "body_bytes", "error")
_CURSOR = re.compile(r"(\d{1,20})\.(\d{1,12})\.([^/]{1,200})")
_PAGE = re.compile(r"([^/]{1,200})\.(\d{1,12})")
_SNIPPET_CHARS = 240
_BEFORE_HIT_CHARS = 80
_TIMESTAMP = pa.timestamp("ms", tz="UTC")


@dataclass(frozen=True, slots=True)
class PageFilter:
    """Which pages are wanted; what is empty matches all. ``text``: in the URL, title or text, in any case."""

    domain: str = ""
    status: int | None = None
    text: str = ""
    since: datetime | None = None
    until: datetime | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that say whether a page matches, but for the text."""
        given = {"domain": self.domain, "status": self.status, "fetched_at": self.since or self.until}
        return tuple(name for name, value in given.items() if value not in ("", None))

    def matches(self, row: dict[str, Any]) -> bool:
        wanted = self.text.lower()
        return (
            (not self.domain or row["domain"] == self.domain)
            and (self.status is None or row["status"] == self.status)
            and (self.since is None or row["fetched_at"] >= self.since)
            and (self.until is None or row["fetched_at"] < self.until)
            and (not wanted or any(wanted in (row[name] or "").lower() for name in ("url", "title", "text")))
        )


@dataclass(slots=True)
class Browsed:
    """Lines of pages, how many pages were looked at, and where to continue ('': that was all)."""

    lines: list[dict[str, Any]] = field(default_factory=list)
    searched: int = 0
    cursor: str = ""


@dataclass(frozen=True, slots=True)
class _Segment:
    path: Place
    sink: type[Sink]
    written_ns: int

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(self.sink.suffix)

    @property
    def order(self) -> tuple[int, str]:
        return self.written_ns, self.name

    def cursor(self, row: int) -> str:
        return f"{self.written_ns}.{row}.{self.name}"


def browse(
    directory: Place,
    wanted: PageFilter,
    limit: int,
    cursor: str = "",
    *,
    within_s: float = 0.7,
) -> Browsed:
    """Return up to *limit* pages, the newest first. Raises BadArgument for a cursor that is not ours.

    Pages stored meanwhile are not seen by a search that continues.
    """
    deadline_s = time.monotonic() + within_s
    found = Browsed()
    segments = _segments(directory)
    below: int | None = None
    if cursor:
        written_ns, row, name = _decode(cursor)
        last = (written_ns, name)
        is_gone = all(one.name != name for one in segments)
        if is_gone and any(merged_ms(one.name) and one.order >= last for one in segments):
            raise BadArgument("Segments were merged while you searched. Search again from the start.")
        # Nothing is left of a segment below its first row.
        segments = [one for one in segments if one.order < last or (row and one.order == last)]
        below = row if segments and segments[0].order == last else None
    for segment in segments:
        try:
            for start in _search(segment, wanted, limit, below, found):
                if len(found.lines) >= limit or time.monotonic() >= deadline_s:
                    found.cursor = segment.cursor(start)
                    return found
        except DAMAGE:
            # An export reports it; the other segments are shown all the same.
            pass
        below = None
    return found


def find_page(directory: Place, page: str) -> dict[str, Any] | None:
    """Return all columns of a page by its id, as `browse` has it; None if there is none."""
    match = _PAGE.fullmatch(page)
    if match is None:
        return None
    segment, row = match[1], int(match[2])
    for sink in SINKS.values():
        path = directory / f"{segment}{sink.suffix}"
        try:
            if sink is not ParquetSink:
                return next(islice(sink.read(path, COLUMNS), row, None), None)
            with pq.ParquetFile(source_of(path)) as file:
                group, start = _group_of(file, row)
                if group is None:
                    return None
                table = file.read_row_group(group, use_threads=False).slice(row - start, 1)
                return next(plain_rows(table, COLUMNS))
        except FileNotFoundError:
            # Not in this format.
            continue
    return None


def _segments(directory: Place) -> list[_Segment]:
    """Return the segments, the newest first."""
    if not directory.is_dir():
        return []
    found = []
    for path, sink in committed_files(directory):
        ms = merged_ms(segment_of(path.name))
        try:
            found.append(_Segment(path, sink, ms * 10**6 if ms else written_ns(path)))
        except FileNotFoundError:
            # Withdrawn or deleted a moment ago.
            continue
    return sorted(found, key=lambda segment: segment.order, reverse=True)


def _decode(cursor: str) -> tuple[int, int, str]:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise BadArgument(f"{cursor[:100]!r} is not a cursor; leave it out.")
    return int(match[1]), int(match[2]), match[3]


def _search(
    segment: _Segment, wanted: PageFilter, limit: int, below: int | None, found: Browsed
) -> Iterator[int]:
    """Add what is found; yields after every part the row below which to continue."""
    if segment.sink is not ParquetSink:
        yield _search_stream(segment, wanted, limit, below, found)
        return
    with pq.ParquetFile(source_of(segment.path)) as file:
        starts = _starts(file)
        for group in reversed(range(file.num_row_groups)):
            start, end = starts[group], starts[group + 1]
            if below is not None and start >= below:
                continue
            yield _search_group(
                segment, file, group, wanted, limit, range(start, min(end, below or end)), found
            )


def _search_group(
    segment: _Segment,
    file: pq.ParquetFile,
    group: int,
    wanted: PageFilter,
    limit: int,
    rows: range,
    found: Browsed,
) -> int:
    """Add what is found in *rows* of a row group, the last first; returns the row below which to continue."""
    if not _may_match(file, group, wanted):
        found.searched += len(rows)
        return rows.start
    # Columns cost more than rows: most groups are judged by those that the filter names.
    searched = ("url", "title", "text")
    judged = ("url", *wanted.columns) if wanted.columns or not wanted.text else searched
    table = _read(file, group, judged, len(rows))
    mask = _mask(table, wanted)
    if wanted.text and pc.any(mask).as_py() is not False:
        any_hit = pa.scalar(False)
        for column in (_read(file, group, searched, len(rows)) if wanted.columns else table).columns:
            hits = pc.match_substring(column, wanted.text, ignore_case=True)
            any_hit = pc.or_(any_hit, pc.fill_null(hits, False))
        mask = pc.and_(mask, any_hit)
    matching: list[int] = pc.indices_nonzero(mask).to_pylist()
    chosen = matching[::-1][: limit - len(found.lines)]
    lines: list[dict[str, Any]] = []
    if chosen:
        table = _read(file, group, (*_COLUMNS, "text"), len(rows)).take(chosen)
        lines = list(plain_rows(table, (*_COLUMNS, "text")))
    for at, line in zip(chosen, lines, strict=True):
        found.lines.append(_line(segment, rows.start + at, line, wanted.text))
    if len(found.lines) >= limit and chosen:
        last = rows.start + chosen[-1]
        found.searched += rows.stop - last
        return last
    found.searched += len(rows)
    return rows.start


def _search_stream(
    segment: _Segment, wanted: PageFilter, limit: int, below: int | None, found: Browsed
) -> int:
    """The same for a file that can only be read from its beginning."""
    last: deque[tuple[int, dict[str, Any]]] = deque(maxlen=limit - len(found.lines))
    number = -1
    for number, row in enumerate(islice(segment.sink.read(segment.path, (*_COLUMNS, "text")), below)):
        if wanted.matches(row):
            last.append((number, row))
    for at, row in reversed(last):
        found.lines.append(_line(segment, at, row, wanted.text))
    if len(last) == last.maxlen and last:
        found.searched += number + 1 - last[0][0]
        return last[0][0]
    found.searched += number + 1
    return 0


def _line(segment: _Segment, row: int, line: dict[str, Any], wanted: str) -> dict[str, Any]:
    line["bytes"] = line.pop("body_bytes") or 0
    text = line.pop("text") or ""
    return {"id": f"{segment.name}.{row}", **line, "text_chars": len(text), "snippet": _snippet(text, wanted)}


def _snippet(text: str, wanted: str) -> str:
    """Return the beginning of *text*, or what surrounds the first hit."""
    at = text.lower().find(wanted.lower()) if wanted else 0
    start = max(0, at - _BEFORE_HIT_CHARS)
    shown = " ".join(text[start : start + _SNIPPET_CHARS].split())
    return f"{'… ' if start else ''}{shown}{' …' if start + _SNIPPET_CHARS < len(text) else ''}"


def _read(file: pq.ParquetFile, group: int, names: Sequence[str], rows: int) -> pa.Table:
    """Return the first *rows* of these columns; old files may not have all."""
    known = [name for name in names if name in file.schema.names]
    return file.read_row_group(group, columns=known, use_threads=False).slice(0, rows)


def _mask(table: pa.Table, wanted: PageFilter) -> pa.ChunkedArray:
    mask = pc.is_valid(table["url"])
    if wanted.domain:
        mask = pc.and_(mask, pc.equal(table["domain"], wanted.domain))
    if wanted.status is not None:
        mask = pc.and_(mask, pc.equal(table["status"], pa.scalar(wanted.status, pa.int16())))
    if wanted.since is not None:
        since = pa.scalar(wanted.since, _TIMESTAMP)
        mask = pc.and_(mask, pc.greater_equal(table["fetched_at"], since))
    if wanted.until is not None:
        mask = pc.and_(mask, pc.less(table["fetched_at"], pa.scalar(wanted.until, _TIMESTAMP)))
    return mask


def _may_match(file: pq.ParquetFile, group: int, wanted: PageFilter) -> bool:
    """Whether the statistics of a row group leave it possible that a row matches."""
    return all(
        _has(file, group, name, least, most)
        for name, least, most in (
            ("domain", wanted.domain or None, wanted.domain or None),
            ("status", wanted.status, wanted.status),
            ("fetched_at", wanted.since, wanted.until),
        )
        if least is not None or most is not None
    )


def _has(file: pq.ParquetFile, group: int, name: str, least: Any, most: Any) -> bool:
    # They stand before all nested columns, so the position in the file is that in the schema.
    column = file.metadata.row_group(group).column(file.schema.names.index(name))
    bounds = column.statistics
    if bounds is None or not bounds.has_min_max:
        return True
    return (least is None or bounds.max >= least) and (most is None or bounds.min <= most)


def _starts(file: pq.ParquetFile) -> list[int]:
    sizes = (file.metadata.row_group(group).num_rows for group in range(file.num_row_groups))
    return [0, *accumulate(sizes)]


def _group_of(file: pq.ParquetFile, row: int) -> tuple[int | None, int]:
    starts = _starts(file)
    if not 0 <= row < starts[-1]:
        return None, 0
    group = bisect_right(starts, row) - 1
    return group, starts[group]
