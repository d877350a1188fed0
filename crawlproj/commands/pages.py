"""``scrapy pages``: show stored pages, export them, query them with SQL, or compare them with their records.

Redis is asked only whether other machines hold pages of the run; without it, files are read all the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawlproj.console import RunCommand, spoken
from crawlproj.errors import BadArgument, CrawlError
from crawlproj.model.run import RunPaths
from crawlproj.supervisor.progress import aligned

if TYPE_CHECKING:
    from crawlproj.storage.objects import Place
    from crawlproj.storage.places import RunPlace

_TABLE_COLUMNS = ("status", "domain", "title", "url")
TABLE_ROWS = 20
_CELL_CHARS = 60


@dataclass(slots=True)
class Rows:
    """What is shown: dicts of *columns*.

    *schema* returns the Arrow schema of a Parquet file of them, *cells* what is written to it of a row.
    """

    columns: Sequence[str]
    rows: Iterator[dict[str, Any]]
    schema: Callable[[], Any]
    cells: Callable[[dict[str, Any]], dict[str, Any]] = dict


class StoredCommand(RunCommand):
    """A command that reads the files of a run, from one data directory or several."""

    group = "look"
    several_data = True

    def places(self, opts: argparse.Namespace) -> list[RunPlace]:
        """Return where the files of the run are looked for. Raises BadArgument for a missing directory."""
        # Not at module level: only commands that read need it.
        from crawlproj.storage.objects import place_of
        from crawlproj.storage.places import RunPlace, places_of

        name = self.run_name(opts)
        places = []
        for data in map(place_of, opts.data or [self.config().data]):
            places += places_of(RunPaths(data, name)) if isinstance(data, Path) else [RunPlace(data, name)]
            if data != place_of((opts.data or [data])[0]) and not places[-1].directory.is_dir():
                raise BadArgument(f"--data {str(data)!r}: there is no run {name!r} in it.")
        return places

    async def absent(self, opts: argparse.Namespace) -> str:
        """Return which pages other machines hold, and what to do; '' if all are here, or nobody knows.

        An embedded Redis is not asked: nobody else can reach it.
        """
        if not self.config().redis_url:
            return ""
        from crawlproj.model.segment import Absent
        from crawlproj.pages.queue import read_segments
        from crawlproj.storage.inventory import present

        name = self.run_name(opts)
        try:
            async with self.client() as client:
                recorded = await read_segments(client, name)
        except CrawlError as exc:
            return f"cannot ask Redis whether other machines hold pages of run {name}. {exc}"
        here = present([place.directory for place in self.places(opts)], recorded)
        if not (sentence := Absent.of(recorded, here).sentence()):
            return ""
        return f"{sentence} Copy them with scrapy gather --run {name}, or add --data DIR for each."


class RowsCommand(StoredCommand):
    """A command that shows or exports rows. Subclasses define `rows` and `export_warc`."""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--limit",
            type=int,
            metavar="N",
            help=f"at most N rows (default: {TABLE_ROWS} in a table, else all)",
        )
        parser.add_argument(
            "--columns", metavar="A,B", help="only these columns (default: all; a few in a table)"
        )
        parser.add_argument(
            "--format", choices=("table", "jsonl", "csv"), help="format on the terminal (default: table)"
        )
        parser.add_argument(
            "--output", metavar="FILE", help="write to FILE; the extension sets the format (see examples)"
        )
        parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        if opts.limit is not None and opts.limit < 1:
            raise BadArgument(f"--limit {opts.limit}: must be at least 1.")
        if opts.output:
            self._export(Path(opts.output), opts)
        else:
            format_ = opts.format or "table"
            limit = opts.limit or (TABLE_ROWS if format_ == "table" else None)
            _print(format_, self.rows(opts, is_table=format_ == "table"), limit)
        if absent := await self.absent(opts):
            self.print_error(absent)
        return None

    def _export(self, path: Path, opts: argparse.Namespace) -> None:
        # Not at module level: they import pyarrow.
        from crawlproj.storage.export import format_of, new_file, write_csv, write_jsonl, write_parquet

        format_ = opts.format or format_of(path)
        if format_ == "table":
            raise BadArgument("A table is for the terminal; leave out --format or --output.")
        if format_ == "warc":
            self.export_warc(path, opts)
            return
        found = self.rows(opts, is_table=False)
        rows = islice(found.rows, opts.limit)
        with new_file(path, overwrite=opts.overwrite) as file:
            if format_ == "parquet":
                write_parquet(file, found.schema(), map(found.cells, rows))
            elif format_ == "csv":
                write_csv(file, found.columns, rows)
            else:
                write_jsonl(file, rows)

    def rows(self, opts: argparse.Namespace, *, is_table: bool) -> Rows:
        """Return what the options ask for. Raises BadArgument."""
        raise NotImplementedError

    def export_warc(self, path: Path, opts: argparse.Namespace) -> None:
        """Write a WARC file. Raises BadArgument where there can be none."""
        raise NotImplementedError


class Command(RowsCommand):
    summary = "Show stored pages, export them, or query them with SQL"
    examples = """\
  scrapy pages                                          a table of the first pages of run `web`
  scrapy pages --run news --columns url,text --limit 5  other columns
  scrapy pages --output pages.parquet                   export all (or .jsonl, .csv, .warc.gz)
  scrapy pages --data /mnt/a --data /mnt/b              those of several machines, each page once
  scrapy pages --check                                  compare the files with what was recorded
  scrapy pages --query "SELECT domain, count(*) AS pages FROM pages GROUP BY 1 ORDER BY 2 DESC\""""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--query", metavar="SQL", help="a SELECT over the table `pages`")
        parser.add_argument(
            "--check", action="store_true", help="compare all files with what Redis has recorded"
        )

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        if opts.check:
            return await self._check(opts)
        if opts.query is not None and opts.columns:
            raise BadArgument("--columns cannot be used with --query; list the columns in the SELECT.")
        return await super().work(args, opts)

    async def _check(self, opts: argparse.Namespace) -> int:
        """Print how files and records differ; returns 1 if they do."""
        from crawlproj.model.segment import Absent
        from crawlproj.model.segment_name import segment_of
        from crawlproj.pages.queue import read_segments
        from crawlproj.storage.inventory import check

        directories = [place.directory for place in self.places(opts)]
        async with self.found_run(opts) as run:
            before = await read_segments(run.client, run.name)
            findings = check(directories, before)
            # Again: while files were read, parsers may have recorded more, and merges have replaced some.
            now = await read_segments(run.client, run.name)
        foreign = [file for file in findings.foreign if segment_of(file.name) not in now]
        recorded = {name: record for name, record in now.items() if name in before}
        absent = Absent.of(recorded, findings.here)
        print(f"{findings.good:,} files match what Redis recorded for {len(recorded):,} segments.")
        if findings.unmarked:
            print(f"{findings.unmarked:,} segments of an earlier release are here; nothing can be compared.")
        for file in findings.replaced:
            print(f"replaced: {file}: its pages are in a merged file, so readers skip it; delete it")
        for file, wrong in findings.damaged.items():
            print(f"damaged: {file}: {wrong}")
        for file in foreign:
            print(f"foreign: {file}: not recorded for run {run.name}; its pages are of another run")
        print(absent.sentence() or "Nothing is missing.", *absent.lines(), sep="\n")
        if absent.records:
            print(spoken(f"Copy them: scrapy gather --run {run.name}"))
        return int(bool(findings.damaged or foreign or absent.records))

    def export_warc(self, path: Path, opts: argparse.Namespace) -> None:
        from crawlproj.storage.archive import write_warc
        from crawlproj.storage.export import new_file

        if opts.query is not None or opts.columns:
            raise BadArgument("A WARC file holds whole pages; leave out --query and --columns.")
        directories = self.directories(opts)
        with new_file(path, overwrite=opts.overwrite) as file:
            bare = write_warc(file, path.name, self.run_name(opts), directories, opts.limit)
        if bare:
            self.print_error(
                f"{bare:,} pages have no response record, only their text and columns: responses are stored "
                "with PAGE_STORE=parquet,warc."
            )

    def directories(self, opts: argparse.Namespace) -> list[Place]:
        """Return the directories of the pages. Raises BadArgument when there are none."""
        from crawlproj.storage.reader import committed_files, runs_with

        places = self.places(opts)
        found = [place.pages for place in places if place.pages.is_dir()]
        if not found or not committed_files(found):
            name = self.run_name(opts)
            if any(place.items.is_dir() and any(place.items.iterdir()) for place in places):
                raise BadArgument(f"Run {name!r} has items, not pages: scrapy items --run {name}")
            runs = runs_with("pages", [place.data for place in places])
            raise BadArgument(
                f"Run {name!r} has no pages in {places[0].pages} yet; "
                f"runs with pages: {', '.join(runs) or 'none'}."
            )
        return found

    def rows(self, opts: argparse.Namespace, *, is_table: bool) -> Rows:
        from crawlproj.storage.parquet import schema_of
        from crawlproj.storage.reader import committed_files, read_pages
        from crawlproj.storage.row import COLUMNS, check_columns

        directories = self.directories(opts)
        if opts.query is not None:
            from crawlproj.storage.query import QueryResult

            result = QueryResult(directories, opts.query)
            if skipped := len(committed_files(directories)) - len(result.files):
                self.print_error(f"skipping {skipped} segments without a Parquet file")
            return Rows(result.columns, result.rows(), result.schema)
        columns: Sequence[str] = _TABLE_COLUMNS if is_table else COLUMNS
        if opts.columns:
            columns = [name.strip() for name in opts.columns.split(",")]
            check_columns(columns)
        return Rows(columns, read_pages(directories, columns), lambda: schema_of(columns))


def _print(format_: str, found: Rows, limit: int | None) -> None:
    from crawlproj.storage.export import text_of, write_csv, write_jsonl

    shown, columns = islice(found.rows, limit), found.columns
    if format_ == "csv":
        write_csv(sys.stdout.buffer, columns, shown)
    elif format_ == "jsonl":
        write_jsonl(sys.stdout.buffer, shown)
    else:
        lines = [columns, *([_cell(text_of(row.get(column))) for column in columns] for row in shown)]
        rule = ["-" * max(map(len, cells)) for cells in zip(*lines, strict=True)]
        print("\n".join(aligned([lines[0], rule, *lines[1:]], range(len(columns)))))
        if next(found.rows, None) is not None:
            print(f"... first {limit:,} rows; use --limit N for more")


def _cell(text: str) -> str:
    # Pages are untrusted: drop characters that would move the cursor or change colours.
    text = "".join(char if char.isprintable() else " " for char in text[: 4 * _CELL_CHARS])
    text = " ".join(text.split())
    return text if len(text) <= _CELL_CHARS else text[: _CELL_CHARS - 1] + "…"
