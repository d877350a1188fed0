"""Counts stored pages for a report, with DuckDB. Memory stays bounded at any size."""

from __future__ import annotations

import errno
import tempfile
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, islice
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from crawlproj.errors import BadArgument, BadSegment
from crawlproj.model.records import SKIP_REASONS
from crawlproj.report.tally import Delays, DomainLine, PauseLine, Pauses, Tally, TimeSlice, Totals
from crawlproj.storage.objects import Place
from crawlproj.storage.parquet import SCHEMA, ParquetSink
from crawlproj.storage.query import connect, message_of
from crawlproj.storage.reader import DAMAGE, Places, committed_files, folders

#: How many domains, types, languages and errors are listed.
NAMED = 12
#: How many domains a table has.
TABLED = 8
#: Greater depths are counted together.
DEEPEST = 30
#: Points of a line over time.
_MOST_POINTS = 120
#: A domain with fewer responses is not called slow.
_FEWEST_RESPONSES = 3
#: Rows have the time at which a shard got to a page, some hundredths of a second after its end. So a pause is
#: too short only if it is so by more than both of these.
_SHORT_BY_MS = 100
_SHORT_BY_SHARE = 0.1
_MEMORY = "512MB"
_COPIED_ROWS = 20_000
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
#: The columns read; never text.
_COLUMNS = pa.schema(
    SCHEMA.field(name)
    for name in (
        *("domain", "depth", "status", "fetched_at", "latency_ms", "content_type", "language"),
        *("body_bytes", "truncated", "content_hash", "simhash", "error"),
    )
)
_SELECT = (
    f"{', '.join(_COLUMNS.names)}, status BETWEEN 200 AND 299 AS is_good, "
    f"status = 0 AND coalesce(error, '') IN {SKIP_REASONS} AS is_skipped, "
    "status = 0 AND NOT is_skipped AS is_failure, "
    # As a number: for Python's datetimes DuckDB needs another package.
    "epoch_ms(fetched_at) AS at_ms"
)

#: Upper bounds with the label of each bin.
_Bins = tuple[tuple[float, str], ...]
_REST = float("inf")
_SIZES: _Bins = (
    *((1, "0"), (1 << 10, "<1K"), (4 << 10, "<4K"), (16 << 10, "<16K"), (64 << 10, "<64K")),
    *((256 << 10, "<256K"), (1 << 20, "<1M"), (4 << 20, "<4M"), (_REST, "≥4M")),
)
_LATENCIES_MS: _Bins = (
    *((10, "<10"), (50, "<50"), (100, "<100"), (200, "<200"), (500, "<500")),
    *((1000, "<1k"), (2000, "<2k"), (5000, "<5k"), (_REST, "≥5k")),
)
_PAUSES_MS: _Bins = (
    *((10, "<0.01"), (100, "<0.1"), (500, "<0.5"), (1000, "<1"), (2000, "<2")),
    *((5000, "<5"), (10_000, "<10"), (60_000, "<60"), (_REST, "≥60")),
)
_MULTIPLES: _Bins = (
    *((0.5, "<0.5"), (0.9, "<0.9"), (1, "<1"), (1.1, "<1.1"), (1.5, "<1.5")),
    *((2, "<2"), (5, "<5"), (10, "<10"), (_REST, "≥10")),
)
_DOMAIN_PAGES: _Bins = (
    *((2, "1"), (11, "2-10"), (101, "11-100"), (1001, "101-1k"), (10_001, "1k-10k"), (_REST, ">10k")),
)


def count_pages(directory: Places, delays: Delays) -> Tally:
    """Count the committed pages in *directory*, in any format; safe while a crawl runs.

    Raises BadArgument when there are none or no space for temporary files, BadSegment for a damaged file.
    """
    with tempfile.TemporaryDirectory(prefix="crawlproj-report-") as scratch:
        files = list(_parquet_files(directory, Path(scratch)))
        if not files:
            raise BadArgument(f"There are no pages in {_named(directory)}.")
        try:
            with connect(files, _SELECT, memory_limit=_MEMORY, temp_directory=scratch) as connection:
                return _Counter(connection, delays).count()
        except duckdb.OutOfMemoryException as exc:
            raise _no_room(Path(scratch)) from exc
        except duckdb.Error as exc:
            raise BadSegment(f"Cannot read the pages in {_named(directory)}: {message_of(exc)}") from exc


def _named(directory: Places) -> str:
    return ", ".join(repr(str(path)) for path in folders(directory, "pages"))


def _parquet_files(directory: Places, scratch: Path) -> Iterator[Place]:
    """Yield a Parquet file for every segment; for other formats a copy of the columns needed."""
    for path, sink in committed_files(directory):
        if sink is ParquetSink:
            yield path
            continue
        copy = scratch / f"{path.name}.parquet"
        rows = sink.read(path, _COLUMNS.names)
        try:
            with pq.ParquetWriter(copy, _COLUMNS) as writer:
                while batch := list(islice(rows, _COPIED_ROWS)):
                    writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=_COLUMNS))
        except DAMAGE as exc:
            if isinstance(exc, OSError) and exc.errno in _NO_ROOM:
                raise _no_room(scratch) from exc
            raise BadSegment(f"{path} is damaged, or was not written by this program: {exc}") from exc
        yield copy


def _no_room(scratch: Path) -> BadArgument:
    return BadArgument(
        f"No space left in {str(scratch.parent)!r} to count the pages. Set TMPDIR to a directory with more."
    )


class _Counter:
    """Runs the queries of a report."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, delays: Delays) -> None:
        self._connection = connection
        self._delays = delays

    def count(self) -> Tally:
        totals = self._totals()
        return Tally(
            totals=totals,
            slices=self._slices(totals.begun_ms, totals.ended_ms),
            statuses=dict(
                self._query(
                    "SELECT status, count(*) FROM pages WHERE status > 0 GROUP BY 1 ORDER BY 2 DESC, 1"
                )
            ),
            errors=self._commonest("error", "error IS NOT NULL AND NOT is_skipped"),
            refusals=self._commonest("error", "is_skipped"),
            content_types=self._commonest("coalesce(content_type, 'unknown')", "is_good"),
            languages=self._commonest("coalesce(language, 'unknown')", "is_good"),
            top_domains=dict(
                self._query(f"SELECT domain, count(*) FROM pages GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {NAMED}")
            ),
            domains_by_pages=self._binned(
                _DOMAIN_PAGES, "n", "(SELECT count(*) AS n FROM pages GROUP BY domain)"
            ),
            depths=self._depths(),
            sizes=self._binned(_SIZES, "body_bytes", "pages WHERE is_good"),
            latencies=self._binned(_LATENCIES_MS, "latency_ms", "pages WHERE status > 0"),
            latency_ms=self._latency_ms(),
            pauses=self._pauses(),
            slowest=self._slowest(),
            failing=self._failing(),
        )

    def _query(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, list(values)).fetchall()

    def _totals(self) -> Totals:
        [row] = self._query(
            """
            SELECT count(*), count(DISTINCT domain), min(at_ms), max(at_ms), sum(body_bytes)::BIGINT,
                count(*) FILTER (is_good), count(*) FILTER (is_failure), count(*) FILTER (is_skipped),
                count(*) FILTER (status >= 400),
                count(content_hash) FILTER (is_good) - count(DISTINCT content_hash) FILTER (is_good),
                count(simhash) FILTER (is_good) - count(DISTINCT simhash) FILTER (is_good),
                count(*) FILTER (truncated)
            FROM pages
            """
        )
        return Totals(*row)

    def _commonest(self, what: str, where: str) -> dict[str, int]:
        """Return the counts of the most frequent values, the rest as "others"."""
        rows = self._query(
            f"""
            WITH counted AS (SELECT {what} AS name, count(*) AS n FROM pages WHERE {where} GROUP BY 1),
                ranked AS (SELECT *, row_number() OVER (ORDER BY n DESC, name) AS place FROM counted)
            SELECT CASE WHEN place <= {NAMED} THEN name ELSE 'others' END AS shown, sum(n)
            FROM ranked GROUP BY 1 ORDER BY min(place)
            """
        )
        return {name: int(count) for name, count in rows}

    def _binned(self, bins: _Bins, what: str, where: str) -> dict[str, int]:
        cases = " ".join(f"WHEN {what} < {end} THEN {number}" for number, (end, _) in enumerate(bins[:-1]))
        rows = self._query(f"SELECT CASE {cases} ELSE {len(bins) - 1} END, count(*) FROM {where} GROUP BY 1")
        counts = dict(rows)
        return {name: counts.get(number, 0) for number, (_, name) in enumerate(bins)}

    def _slices(self, begun_ms: int, ended_ms: int) -> list[TimeSlice]:
        """Return slices of equal length, including empty ones; none if all pages have the same time."""
        if begun_ms == ended_ms:
            return []
        seconds = (ended_ms - begun_ms) / 1000
        slices = max(1, min(_MOST_POINTS, round(seconds)))
        width_s = seconds / slices
        rows = self._query(
            """
            SELECT least(floor((at_ms - ?) / ?), ?)::INT AS slice,
                count(*), count(*) FILTER (is_failure), sum(body_bytes)
            FROM pages WHERE NOT is_skipped GROUP BY 1
            """,
            (begun_ms, width_s * 1000, slices - 1),
        )
        counts = {number: tuple(map(int, figures)) for number, *figures in rows}
        return [
            TimeSlice((number + 0.5) * width_s, *(n / width_s for n in counts.get(number, (0, 0, 0))))
            for number in range(slices)
        ]

    def _depths(self) -> dict[str, int]:
        rows = self._query(f"SELECT least(depth, {DEEPEST}) AS d, count(*) FROM pages GROUP BY 1")
        counts = dict(rows)
        return {
            f"≥{depth}" if depth == DEEPEST else str(depth): counts.get(depth, 0)
            for depth in range(max(counts) + 1)
        }

    def _latency_ms(self) -> tuple[int, int, int]:
        """Return three exact percentiles: there are never many distinct whole milliseconds."""
        rows = self._query("SELECT latency_ms, count(*) FROM pages WHERE status > 0 GROUP BY 1 ORDER BY 1")
        seen = list(accumulate(count for _, count in rows)) or [0]
        places = (bisect_left(seen, seen[-1] * share) for share in (0.5, 0.9, 0.99))
        median, most, nearly_all = (int(rows[place][0]) if rows else 0 for place in places)
        return median, most, nearly_all

    def _pauses(self) -> Pauses:
        """Return the pauses between consecutive responses; failures have no known start."""
        self._connection.execute("CREATE TEMP TABLE delays (domain VARCHAR, delay_ms DOUBLE)")
        for domain, delay_s in self._delays.by_domain.items():
            self._query(
                "INSERT INTO delays VALUES (?, ?)", (domain, None if delay_s is None else delay_s * 1000)
            )
        self._connection.execute(
            f"""
            CREATE TEMP TABLE pauses AS
            WITH answers AS (
                SELECT domain, at_ms AS end_ms, at_ms - latency_ms AS begin_ms
                FROM pages WHERE status > 0
            ), paired AS (
                SELECT domain, begin_ms - lag(end_ms) OVER (PARTITION BY domain ORDER BY end_ms) AS pause_ms
                FROM answers
            )
            SELECT domain, pause_ms,
                CASE WHEN delays.domain IS NULL THEN {self._delays.usual_s * 1000} ELSE delay_ms END
                    AS delay_ms
            FROM paired LEFT JOIN delays USING (domain) WHERE pause_ms IS NOT NULL
            """
        )
        shortest = self._query(
            f"""
            SELECT domain, count(*), min(pause_ms) / 1000, any_value(delay_ms) / 1000 FROM pauses
            WHERE delay_ms > 0 GROUP BY 1 ORDER BY min(pause_ms) / any_value(delay_ms), 1 LIMIT {TABLED}
            """
        )
        [(too_short,)] = self._query(
            "SELECT count(*) FROM pauses WHERE delay_ms - pause_ms > greatest(?, delay_ms * ?)",
            (_SHORT_BY_MS, _SHORT_BY_SHARE),
        )
        return Pauses(
            self._binned(_PAUSES_MS, "pause_ms", "pauses WHERE delay_ms IS NOT NULL"),
            self._binned(_MULTIPLES, "pause_ms / delay_ms", "pauses WHERE delay_ms > 0"),
            [PauseLine(*row) for row in shortest],
            too_short,
        )

    def _slowest(self) -> list[DomainLine]:
        rows = self._query(
            f"""
            SELECT domain, count(*), avg(latency_ms), max(latency_ms) FROM pages WHERE status > 0
            GROUP BY 1 HAVING count(*) >= {_FEWEST_RESPONSES} ORDER BY 3 DESC, 1 LIMIT {TABLED}
            """
        )
        return [
            DomainLine(domain, pages, mean_latency_ms=mean, longest_latency_ms=longest)
            for domain, pages, mean, longest in rows
        ]

    def _failing(self) -> list[DomainLine]:
        rows = self._query(
            f"""
            WITH worst AS (
                SELECT domain, count(*) AS n, count(*) FILTER (is_failure) AS failures,
                    count(*) FILTER (status >= 400) AS http_errors
                FROM pages GROUP BY 1 HAVING failures + http_errors > 0
                ORDER BY failures + http_errors DESC, domain LIMIT {TABLED}
            ), troubles AS (
                SELECT domain, mode(if(status = 0, ifnull(error, 'no response'), status::VARCHAR)) AS trouble
                FROM pages SEMI JOIN worst USING (domain) WHERE is_failure OR status >= 400 GROUP BY 1
            )
            SELECT domain, n, failures, http_errors, trouble FROM worst JOIN troubles USING (domain)
            ORDER BY failures + http_errors DESC, domain
            """
        )
        return [DomainLine(*row) for row in rows]
