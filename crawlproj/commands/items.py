"""``scrapy items``: show or export what a spider has scraped. Reads files only, no Redis."""

from __future__ import annotations

import argparse
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from crawlproj.commands.pages import TABLE_ROWS, Rows, RowsCommand
from crawlproj.errors import BadArgument

if TYPE_CHECKING:
    from crawlproj.storage.objects import Place


class Command(RowsCommand):
    summary = "Show or export the items that a spider has scraped"
    examples = """\
  scrapy items --run docs                            a table of the first items
  scrapy items --run docs --count                    how many there are
  scrapy items --run docs --output items.parquet     export all (or .jsonl, .csv)
  scrapy items --run docs --columns title,price --format csv"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--count", action="store_true", help="print only how many items there are")

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        if not opts.count:
            return await super().work(args, opts)
        from crawlproj.storage.items import read_items

        print(sum(1 for _ in read_items(self.directories(opts))))
        if absent := await self.absent(opts):
            self.print_error(absent)
        return None

    def export_warc(self, path: Path, opts: argparse.Namespace) -> None:
        raise BadArgument(
            f"--output {str(path)!r}: WARC is for pages; use .parquet, .jsonl or .csv for items."
        )

    def directories(self, opts: argparse.Namespace) -> list[Place]:
        from crawlproj.storage.reader import runs_with

        places = self.places(opts)
        if found := [place.items for place in places if place.items.is_dir()]:
            return found
        runs = runs_with("items", [place.data for place in places])
        raise BadArgument(
            f"Run {self.run_name(opts)!r} has no items in {places[0].items} yet; "
            f"runs with items: {', '.join(runs) or 'none'}."
        )

    def rows(self, opts: argparse.Namespace, *, is_table: bool) -> Rows:
        from crawlproj.storage.columns import ItemColumns
        from crawlproj.storage.items import read_items

        directories = self.directories(opts)
        # The keys are known only once all items were read; they are read again for their values.
        most = opts.limit or (TABLE_ROWS if is_table else None)
        columns = ItemColumns(islice(read_items(directories), most))
        items = read_items(directories)
        chosen = columns.keys
        if opts.columns:
            chosen = [name.strip() for name in opts.columns.split(",")]
            if unknown := [name for name in chosen if name not in columns.keys]:
                raise BadArgument(f"No item has {unknown[0]!r}; there are: {', '.join(columns.keys)}.")
            kept = ({key: item.get(key) for key in chosen} for item in read_items(directories))
            columns = ItemColumns(islice(kept, most))
            items = ({key: item.get(key) for key in chosen} for item in items)
        return Rows(chosen, items, columns.schema, columns.cells)
