"""``scrapy pages``: look at what was stored, export it, or ask it in SQL. Needs the files and no Redis."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from crawlproj.console import RunCommand

Row = dict[str, Any]

#: What a person who looks wants to see first.
_TABLE_COLUMNS = ("status", "domain", "title", "url")
_TABLE_ROWS = 20
_CELL_CHARS = 60
_FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".json": "jsonl", ".txt": "table"}


class Command(RunCommand):
    examples = """\
  scrapy pages                                          a table of the first pages of the run `web`
  scrapy pages --run news --columns url,text --limit 5  other columns
  scrapy pages --output pages.jsonl                     all of them, as lines of JSON (or .csv)
  scrapy pages --query "SELECT domain, count(*) AS pages FROM pages GROUP BY 1 ORDER BY 2 DESC\""""

    def syntax(self) -> str:
        return "[options]"

    def short_desc(self) -> str:
        return "Look at stored pages, export them, or ask them in SQL"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--limit",
            type=int,
            metavar="N",
            help=f"so many rows (default: {_TABLE_ROWS} in a table, else all)",
        )
        parser.add_argument("--columns", metavar="A,B", help="these columns (default: all, a few in a table)")
        parser.add_argument("--format", choices=("table", "jsonl", "csv"), help="(default: table)")
        parser.add_argument("--output", metavar="FILE", help="write there; its ending tells the format")
        parser.add_argument("--query", metavar="SQL", help="a SELECT over the table `pages`")

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        import sys

        from crawlproj.errors import BadArgument

        if opts.limit is not None and opts.limit < 1:
            raise BadArgument(f"--limit {opts.limit}: at least 1 is needed.")
        if opts.query is not None and opts.columns:
            raise BadArgument("--columns does not go with --query; name the columns in its SELECT.")
        format_ = opts.format or _format_of(opts.output)
        columns, rows = self._rows(opts, format_)
        limit = opts.limit or (_TABLE_ROWS if format_ == "table" else None)
        if opts.output:
            _export(Path(opts.output), format_, columns, rows, limit)
        else:
            _write(sys.stdout, format_, columns, rows, limit)
        return None

    def _rows(self, opts: argparse.Namespace, format_: str) -> tuple[Sequence[str], Iterator[Row]]:
        import sys

        from crawlproj.errors import BadArgument
        from crawlproj.storage.reader import committed_files, read_pages
        from crawlproj.storage.row import COLUMNS, check_columns

        runs = self.config().data / "runs"
        directory = runs / self.run_name(opts) / "pages"
        segments = committed_files(directory) if directory.is_dir() else []
        if not segments:
            others = sorted(path.parent.name for path in runs.glob("*/pages") if any(path.iterdir()))
            raise BadArgument(
                f"Run {self.run_name(opts)!r} has no pages in {directory} yet; "
                f"runs with pages: {', '.join(others) or 'none'}."
            )
        if opts.query is not None:
            from crawlproj.storage.query import Answer

            answer = Answer(directory, opts.query)
            if len(answer.files) < len(segments):
                without = len(segments) - len(answer.files)
                print(
                    f"scrapy pages: {without} segments have no Parquet file and are left out", file=sys.stderr
                )
            return answer.columns, answer.rows()
        columns: Sequence[str] = _TABLE_COLUMNS if format_ == "table" else COLUMNS
        if opts.columns:
            columns = [name.strip() for name in opts.columns.split(",")]
            check_columns(columns)
        return columns, read_pages(directory, columns)


def _format_of(output: str | None) -> str:
    from crawlproj.errors import BadArgument

    if not output:
        return "table"
    format_ = _FORMATS.get(Path(output).suffix)
    if format_ is None:
        raise BadArgument(f"--output {output!r}: say --format jsonl or csv, or end it in .jsonl or .csv.")
    return format_


def _export(path: Path, format_: str, columns: Sequence[str], rows: Iterator[Row], limit: int | None) -> None:
    from crawlproj.errors import BadArgument

    try:
        # newline="": the csv module ends its lines itself.
        with path.open("w", encoding="utf-8", newline="") as file:
            _write(file, format_, columns, rows, limit)
    except OSError as exc:
        raise BadArgument(f"Cannot write {str(path)!r}: {exc.strerror or exc}.") from exc


def _write(
    file: TextIO, format_: str, columns: Sequence[str], rows: Iterator[Row], limit: int | None
) -> None:
    import csv
    from itertools import islice

    import msgspec

    shown = islice(rows, limit)
    if format_ == "table":
        _write_table(file, columns, list(shown))
        if next(rows, None) is not None:
            file.write(f"... the first {limit:,}; --limit N for more\n")
    elif format_ == "csv":
        table = csv.writer(file)
        table.writerow(columns)
        table.writerows([_text(row[column]) for column in columns] for row in shown)
    else:
        encoder = msgspec.json.Encoder(enc_hook=str)
        for row in shown:
            file.write(encoder.encode(row).decode() + "\n")


def _write_table(file: TextIO, columns: Sequence[str], rows: Iterable[Row]) -> None:
    lines = [list(columns)] + [[_cell(row[column]) for column in columns] for row in rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in widths])
    for cells in lines:
        padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        file.write("  ".join(padded).rstrip() + "\n")


def _cell(value: object) -> str:
    # Pages are written by strangers: what would move the cursor or change colours is not shown.
    text = "".join(char if char.isprintable() else " " for char in _text(value)[: 4 * _CELL_CHARS])
    text = " ".join(text.split())
    return text if len(text) <= _CELL_CHARS else text[: _CELL_CHARS - 1] + "…"


def _text(value: object) -> str:
    import json

    if value is None:
        return ""
    if isinstance(value, (dict, list)):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
