"""The numbers of a report, counted from stored pages by DuckDB. Memory stays bounded at any size."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from crawlproj.errors import BadArgument, BadSegment
from crawlproj.model.records import SKIP_REASONS
from crawlproj.report.tally import Delays, DomainLine, Moment, PauseLine, Pauses, Tally, Totals
from crawlproj.storage.parquet import ParquetSink
from crawlproj.storage.reader import DAMAGE, committed_files

#: How many domains, types, languages and errors are named.
NAMED = 12
#: How many domains a table has.
TABLED = 8
#: Depths beyond are counted together.
DEEPEST = 30
#: Points of a line over time.
_MOST_POINTS = 120
#: A domain with fewer answers is not called slow.
_FEWEST_ANSWERS = 3
#: Rows have the time at which a shard came to a page, some hundredths of a second after its end. A pause
#: counts as too short when it is so by more than both of these.
_SHORT_BY_MS = 100
_SHORT_BY_SHARE = 0.1
_MEMORY = "512MB"
_COPIED_ROWS = 20_000
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
#: What is counted; text is never read.
_COLUMNS = pa.schema(
    [
        ("domain", pa.string()),
        ("depth", pa.int32()),
        ("status", pa.int16()),
        ("fetched_at", pa.timestamp("ms", tz="UTC")),
        ("latency_ms", pa.int32()),
        ("content_type", pa.string()),
        ("language", pa.string()),
        ("body_bytes", pa.int64()),
        ("truncated", pa.bool_()),
        ("content_hash", pa.string()),
        ("simhash", pa.int64()),
        ("error", pa.string()),
    ]
)
_CLOSED: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}

#: Upper ends, each with the name of what is below it; the last name is that of the rest.
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


def count_pages(directory: Path, delays: Delays) -> Tally:
    """Count the committed pages in *directory*, in any format; safe while a crawl runs.

    Raises BadArgument when there are none yet or no room for what is put on disk meanwhile, BadSegment for
    a file that is damaged.
    """
    with tempfile.TemporaryDirectory(prefix="crawlproj-report-") as scratch:
        files = list(_parquet_files(directory, Path(scratch)))
        if not files:
            raise BadArgument(f"There are no pages in {str(directory)!r} yet.")
        connection = duckdb.connect(":memory:", config=_CLOSED)
        try:
            _prepare(connection, files, Path(scratch))
            return _Counter(connection, delays).count()
        except duckdb.OutOfMemoryException as exc:
            raise _no_room(Path(scratch)) from exc
        except duckdb.Error as exc:
            # Below an empty line DuckDB repeats the query.
            what = " ".join(str(exc).partition("\n\n")[0].split())
            raise BadSegment(f"The pages in {str(directory)!r} cannot be read: {what}") from exc
        finally:
            connection.close()


def _parquet_files(directory: Path, scratch: Path) -> Iterator[Path]:
    """Yield a Parquet file for every segment; of other formats, a copy of the columns that are counted."""
    for path, sink in committed_files(directory):
        if sink is ParquetSink:
            yield path
            continue
        copy = scratch / f"{path.name}.parquet"
        try:
            _copy(sink.read(path, _COLUMNS.names), copy)
        except DAMAGE as exc:
            if isinstance(exc, OSError) and exc.errno in _NO_ROOM:
                raise _no_room(scratch) from exc
            raise BadSegment(f"{path} is damaged, or was not written by this program: {exc}") from exc
        yield copy


def _no_room(scratch: Path) -> BadArgument:
    return BadArgument(
        f"There is no room in {str(scratch.parent)!r} to count the pages. Name a directory with more: TMPDIR."
    )


def _copy(rows: Iterator[dict[str, Any]], path: Path) -> None:
    with pq.ParquetWriter(path, _COLUMNS) as writer:
        batch: list[dict[str, Any]] = []
        for row in rows:
            batch.append(row)
            if len(batch) == _COPIED_ROWS:
                writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=_COLUMNS))
                batch.clear()
        writer.write_batch(pa.RecordBatch.from_pylist(batch, schema=_COLUMNS))


def _prepare(connection: duckdb.DuckDBPyConnection, files: Sequence[Path], scratch: Path) -> None:
    connection.execute(f"SET memory_limit = '{_MEMORY}'")
    connection.execute(f"SET temp_directory = {_quoted(scratch)}")
    connection.execute("SET TimeZone = 'UTC'")
    names = ", ".join(map(_quoted, files))
    columns = ", ".join(_COLUMNS.names)
    connection.execute(
        f"CREATE VIEW pages AS SELECT {columns}, status BETWEEN 200 AND 299 AS is_good, "
        f"status = 0 AND coalesce(error, '') IN {SKIP_REASONS} AS is_skipped, "
        "status = 0 AND NOT is_skipped AS is_failure, "
        # As a number: to make times of Python's, DuckDB would want one more package.
        "epoch_ms(fetched_at) AS at_ms "
        f"FROM read_parquet([{names}], union_by_name = true)"
    )


class _Counter:
    """Asks the questions of a report, one after the other."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, delays: Delays) -> None:
        self._connection = connection
        self._delays = delays

    def count(self) -> Tally:
        totals = self._totals()
        return Tally(
            totals=totals,
            moments=self._moments(totals.begun_ms, totals.ended_ms),
            statuses=dict(
                self._ask("SELECT status, count(*) FROM pages WHERE status > 0 GROUP BY 1 ORDER BY 2 DESC, 1")
            ),
            errors=self._commonest("error", "error IS NOT NULL AND NOT is_skipped"),
            refusals=self._commonest("error", "is_skipped"),
            content_types=self._commonest("coalesce(content_type, 'unknown')", "is_good"),
            languages=self._commonest("coalesce(language, 'unknown')", "is_good"),
            top_domains=dict(
                self._ask(f"SELECT domain, count(*) FROM pages GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT {NAMED}")
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

    def _ask(self, sql: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, list(values)).fetchall()

    def _totals(self) -> Totals:
        [row] = self._ask(
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
        """Return how often each of the commonest values is there, and the rest as "others"."""
        rows = self._ask(
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
        rows = self._ask(f"SELECT CASE {cases} ELSE {len(bins) - 1} END, count(*) FROM {where} GROUP BY 1")
        counts = dict(rows)
        return {name: counts.get(number, 0) for number, (_, name) in enumerate(bins)}

    def _moments(self, begun_ms: int, ended_ms: int) -> list[Moment]:
        """Return slices of the same length, those without pages included; none if all was one moment."""
        if begun_ms == ended_ms:
            return []
        seconds = (ended_ms - begun_ms) / 1000
        slices = max(1, min(_MOST_POINTS, round(seconds)))
        width_s = seconds / slices
        rows = self._ask(
            """
            SELECT least(floor((at_ms - ?) / ?), ?)::INT AS slice,
                count(*), count(*) FILTER (is_failure), sum(body_bytes)
            FROM pages WHERE NOT is_skipped GROUP BY 1
            """,
            (begun_ms, width_s * 1000, slices - 1),
        )
        counts = {number: tuple(map(int, figures)) for number, *figures in rows}
        return [
            Moment((number + 0.5) * width_s, *(n / width_s for n in counts.get(number, (0, 0, 0))))
            for number in range(slices)
        ]

    def _depths(self) -> dict[str, int]:
        rows = self._ask(f"SELECT least(depth, {DEEPEST}) AS d, count(*) FROM pages GROUP BY 1")
        counts = dict(rows)
        return {
            f"≥{depth}" if depth == DEEPEST else str(depth): counts.get(depth, 0)
            for depth in range(max(counts) + 1)
        }

    def _latency_ms(self) -> tuple[int, int, int]:
        """Return three quantiles, exactly: of whole milliseconds there are never many different ones."""
        rows = self._ask("SELECT latency_ms, count(*) FROM pages WHERE status > 0 GROUP BY 1 ORDER BY 1")
        answers = sum(count for _, count in rows)
        return (
            _quantile(rows, answers * 0.5),
            _quantile(rows, answers * 0.9),
            _quantile(rows, answers * 0.99),
        )

    def _pauses(self) -> Pauses:
        """Look at pairs of answers that follow each other; of failures the beginning is not known."""
        self._connection.execute("CREATE TEMP TABLE delays (domain VARCHAR, delay_ms DOUBLE)")
        for domain, delay_s in self._delays.by_domain.items():
            self._ask(
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
        shortest = self._ask(
            f"""
            SELECT domain, count(*), min(pause_ms) / 1000, any_value(delay_ms) / 1000 FROM pauses
            WHERE delay_ms > 0 GROUP BY 1 ORDER BY min(pause_ms) / any_value(delay_ms), 1 LIMIT {TABLED}
            """
        )
        [(too_short,)] = self._ask(
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
        rows = self._ask(
            f"""
            SELECT domain, count(*), avg(latency_ms), max(latency_ms) FROM pages WHERE status > 0
            GROUP BY 1 HAVING count(*) >= {_FEWEST_ANSWERS} ORDER BY 3 DESC, 1 LIMIT {TABLED}
            """
        )
        return [
            DomainLine(domain, pages, mean_latency_ms=mean, longest_latency_ms=longest)
            for domain, pages, mean, longest in rows
        ]

    def _failing(self) -> list[DomainLine]:
        rows = self._ask(
            f"""
            WITH worst AS (
                SELECT domain, count(*) AS n, count(*) FILTER (is_failure) AS failures,
                    count(*) FILTER (status >= 400) AS http_errors
                FROM pages GROUP BY 1 HAVING failures + http_errors > 0
                ORDER BY failures + http_errors DESC, domain LIMIT {TABLED}
            ), troubles AS (
                SELECT domain, mode(if(status = 0, coalesce(error, 'no answer'), status::VARCHAR)) AS trouble
                FROM pages SEMI JOIN worst USING (domain) WHERE is_failure OR status >= 400 GROUP BY 1
            )
            SELECT domain, n, failures, http_errors, trouble FROM worst JOIN troubles USING (domain)
            ORDER BY failures + http_errors DESC, domain
            """
        )
        return [DomainLine(*row) for row in rows]


def _quantile(rows: Iterable[tuple[Any, ...]], least: float) -> int:
    """Return the first value up to which there are *least*; *rows* are values and counts, in order."""
    seen = 0
    for value, count in rows:
        seen += count
        if seen >= least:
            return int(value)
    return 0


def _quoted(path: Path) -> str:
    return "'{}'".format(str(path.resolve()).replace("'", "''"))
