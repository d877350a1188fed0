"""``scrapy pages``: show stored pages, export them, or query them with SQL. Reads files only, no Redis."""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import msgspec

from crawlproj.console import RunCommand
from crawlproj.errors import BadArgument
from crawlproj.model.run import RunPaths
from crawlproj.supervisor.progress import aligned

Row = dict[str, Any]

_TABLE_COLUMNS = ("status", "domain", "title", "url")
_TABLE_ROWS = 20
_CELL_CHARS = 60
_FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl", ".txt": "table"}


class Command(RunCommand):
    summary = "Show stored pages, export them, or query them with SQL"
    examples = """\
  scrapy pages                                          a table of the first pages of run `web`
  scrapy pages --run news --columns url,text --limit 5  other columns
  scrapy pages --output pages.jsonl                     export all as JSON lines (or .csv)
  scrapy pages --query "SELECT domain, count(*) AS pages FROM pages GROUP BY 1 ORDER BY 2 DESC\""""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--limit",
            type=int,
            metavar="N",
            help=f"at most N rows (default: {_TABLE_ROWS} in a table, else all)",
        )
        parser.add_argument(
            "--columns", metavar="A,B", help="only these columns (default: all; a few in a table)"
        )
        parser.add_argument(
            "--format", choices=("table", "jsonl", "csv"), help="output format (default: table)"
        )
        parser.add_argument("--output", metavar="FILE", help="write to FILE; the extension sets the format")
        parser.add_argument("--query", metavar="SQL", help="a SELECT over the table `pages`")

    async def work(self, args: list[str], opts: argparse.Namespace) -> None:
        if opts.limit is not None and opts.limit < 1:
            raise BadArgument(f"--limit {opts.limit}: must be at least 1.")
        if opts.query is not None and opts.columns:
            raise BadArgument("--columns cannot be used with --query; list the columns in the SELECT.")
        format_ = opts.format or _format_of(opts.output)
        columns, rows = self._rows(opts, format_)
        limit = opts.limit or (_TABLE_ROWS if format_ == "table" else None)
        if opts.output:
            _export(Path(opts.output), format_, columns, rows, limit)
        else:
            _write(sys.stdout, format_, columns, rows, limit)

    def _rows(self, opts: argparse.Namespace, format_: str) -> tuple[Sequence[str], Iterator[Row]]:
        from crawlproj.storage.reader import committed_files, read_pages, runs_with_pages
        from crawlproj.storage.row import COLUMNS, check_columns

        data = self.config().data
        directory = RunPaths(data, self.run_name(opts)).pages
        segments = committed_files(directory) if directory.is_dir() else []
        if not segments:
            raise BadArgument(
                f"Run {self.run_name(opts)!r} has no pages in {directory} yet; "
                f"runs with pages: {', '.join(runs_with_pages(data)) or 'none'}."
            )
        if opts.query is not None:
            from crawlproj.storage.query import QueryResult

            result = QueryResult(directory, opts.query)
            if skipped := len(segments) - len(result.files):
                self.print_error(f"skipping {skipped} segments without a Parquet file")
            return result.columns, result.rows()
        columns: Sequence[str] = _TABLE_COLUMNS if format_ == "table" else COLUMNS
        if opts.columns:
            columns = [name.strip() for name in opts.columns.split(",")]
            check_columns(columns)
        return columns, read_pages(directory, columns)


def _format_of(output: str | None) -> str:
    if not output:
        return "table"
    format_ = _FORMATS.get(Path(output).suffix)
    if format_ is None:
        raise BadArgument(f"--output {output!r}: use the extension .jsonl or .csv, or add --format.")
    return format_


def _export(path: Path, format_: str, columns: Sequence[str], rows: Iterator[Row], limit: int | None) -> None:
    try:
        # newline="": the csv module writes its own line endings.
        with path.open("w", encoding="utf-8", newline="") as file:
            _write(file, format_, columns, rows, limit)
    except OSError as exc:
        raise BadArgument(f"Cannot write {str(path)!r}: {exc.strerror or exc}.") from exc


def _write(
    file: TextIO, format_: str, columns: Sequence[str], rows: Iterator[Row], limit: int | None
) -> None:
    shown = islice(rows, limit)
    if format_ == "table":
        lines = [columns, *([_cell(row[column]) for column in columns] for row in shown)]
        rule = ["-" * max(map(len, cells)) for cells in zip(*lines, strict=True)]
        file.writelines(f"{line}\n" for line in aligned([lines[0], rule, *lines[1:]], range(len(columns))))
        if next(rows, None) is not None:
            file.write(f"... first {limit:,} rows; use --limit N for more\n")
    elif format_ == "csv":
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows([_text(row[column]) for column in columns] for row in shown)
    else:
        encoder = msgspec.json.Encoder(enc_hook=str)
        for row in shown:
            file.write(encoder.encode(row).decode() + "\n")


def _cell(value: object) -> str:
    # Pages are untrusted: drop characters that would move the cursor or change colours.
    text = "".join(char if char.isprintable() else " " for char in _text(value)[: 4 * _CELL_CHARS])
    text = " ".join(text.split())
    return text if len(text) <= _CELL_CHARS else text[: _CELL_CHARS - 1] + "…"


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
