"""``scrapy pages``: show stored pages, export them, or query them with SQL. Reads files only, no Redis."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from crawlproj.console import RunCommand
from crawlproj.errors import BadArgument
from crawlproj.model.run import RunPaths
from crawlproj.supervisor.progress import aligned

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


class Command(RunCommand):
    group = "look"
    summary = "Show stored pages, export them, or query them with SQL"
    examples = """\
  scrapy pages                                          a table of the first pages of run `web`
  scrapy pages --run news --columns url,text --limit 5  other columns
  scrapy pages --output pages.parquet                   export all (or .jsonl, .csv, .warc.gz)
  scrapy pages --query "SELECT domain, count(*) AS pages FROM pages GROUP BY 1 ORDER BY 2 DESC\""""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        self.add_row_options(parser)
        parser.add_argument("--query", metavar="SQL", help="a SELECT over the table `pages`")

    def add_row_options(self, parser: argparse.ArgumentParser) -> None:
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

    async def work(self, args: list[str], opts: argparse.Namespace) -> None:
        if opts.limit is not None and opts.limit < 1:
            raise BadArgument(f"--limit {opts.limit}: must be at least 1.")
        if opts.query is not None and opts.columns:
            raise BadArgument("--columns cannot be used with --query; list the columns in the SELECT.")
        if opts.output:
            self._export(Path(opts.output), opts)
        else:
            format_ = opts.format or "table"
            limit = opts.limit or (TABLE_ROWS if format_ == "table" else None)
            _print(format_, self.rows(opts, is_table=format_ == "table"), limit)

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

    def export_warc(self, path: Path, opts: argparse.Namespace) -> None:
        from crawlproj.storage.archive import write_warc
        from crawlproj.storage.export import new_file

        if opts.query is not None or opts.columns:
            raise BadArgument("A WARC file holds whole pages; leave out --query and --columns.")
        directory = self._directory(opts)
        with new_file(path, overwrite=opts.overwrite) as file:
            bare = write_warc(file, path.name, self.run_name(opts), directory, opts.limit)
        if bare:
            self.print_error(
                f"{bare:,} pages have no response record, only their text and columns: responses are stored "
                "with PAGE_STORE=parquet,warc."
            )

    def _directory(self, opts: argparse.Namespace) -> Path:
        """Return the directory of the pages. Raises BadArgument when there are none."""
        from crawlproj.storage.reader import committed_files, runs_with_pages

        data = self.config().data
        directory = RunPaths(data, self.run_name(opts)).pages
        if not directory.is_dir() or not committed_files(directory):
            name = self.run_name(opts)
            if any(RunPaths(data, name).items.glob("*")):
                raise BadArgument(f"Run {name!r} has items, not pages: scrapy items --run {name}")
            raise BadArgument(
                f"Run {name!r} has no pages in {directory} yet; "
                f"runs with pages: {', '.join(runs_with_pages(data)) or 'none'}."
            )
        return directory

    def rows(self, opts: argparse.Namespace, *, is_table: bool) -> Rows:
        """Return what the options ask for. Raises BadArgument."""
        from crawlproj.storage.parquet import schema_of
        from crawlproj.storage.reader import committed_files, read_pages
        from crawlproj.storage.row import COLUMNS, check_columns

        directory = self._directory(opts)
        if opts.query is not None:
            from crawlproj.storage.query import QueryResult

            result = QueryResult(directory, opts.query)
            if skipped := len(committed_files(directory)) - len(result.files):
                self.print_error(f"skipping {skipped} segments without a Parquet file")
            return Rows(result.columns, result.rows(), result.schema)
        columns: Sequence[str] = _TABLE_COLUMNS if is_table else COLUMNS
        if opts.columns:
            columns = [name.strip() for name in opts.columns.split(",")]
            check_columns(columns)
        return Rows(columns, read_pages(directory, columns), lambda: schema_of(columns))


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
