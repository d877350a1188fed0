"""``scrapy runs``: all runs in this Redis; or the end of one of them."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from crawlproj.console import RunCommand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crawlproj.runs.listing import RunLine


class Command(RunCommand):
    only_looks = True
    examples = """\
  scrapy runs                              a line each: state, shards, pages, since when
  scrapy runs --json                       one JSON object a line
  scrapy runs --delete news                forget a run: its URLs, its queue, its counts; its pages stay
  scrapy runs --delete news --pages --yes  the same with its pages, and without being asked"""

    def syntax(self) -> str:
        return "[options]"

    def short_desc(self) -> str:
        return "List all runs, or delete one"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="one JSON object a line")
        parser.add_argument("--delete", metavar="NAME", default="", help="delete this run")
        parser.add_argument("--pages", action="store_true", help="with --delete: its pages on disk, too")
        parser.add_argument("--yes", action="store_true", help="with --delete: do not ask")

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        from crawlproj.errors import BadArgument

        if opts.delete:
            await self._delete(opts)
        elif opts.yes or opts.pages:
            raise BadArgument("--yes and --pages go with --delete NAME; see: scrapy runs -h")
        elif opts.run:
            raise BadArgument(f"All runs are listed; for one: scrapy status --run {opts.run}")
        else:
            await self._list(as_json=opts.json)
        return None

    async def _list(self, *, as_json: bool) -> None:
        import json
        from dataclasses import asdict

        from crawlproj.runs.listing import list_runs

        async with self.door() as door:
            lines = await list_runs(door)
        if as_json:
            for line in lines:
                print(json.dumps(asdict(line)))
            return
        for row in table_of(lines):
            print(row)

    async def _delete(self, opts: argparse.Namespace) -> None:
        import shutil

        from crawlproj.errors import BadArgument
        from crawlproj.runs import Run
        from crawlproj.runs.processes import live_processes

        config = self.config()
        async with self.door() as door:
            run = await Run.find(door, opts.delete)
            alive = await live_processes(run, config.shard_lease_seconds + config.parse_seconds)
            if alive:
                raise BadArgument(
                    f"Run {run.name!r} is in use: {', '.join(alive)}. First: scrapy stop --run {run.name}"
                )
            pages = config.data / "runs" / run.name / "pages"
            files = sum(path.is_file() for path in pages.glob("*"))
            what = f"run {run.name} and its {files} files of pages" if opts.pages else f"run {run.name}"
            if not opts.yes:
                _ask(run.name, what)
            await run.delete()
            # Or a new run of this name would go on from what this one has counted.
            shutil.rmtree(config.data / "runs" / run.name / "metrics", ignore_errors=True)
        if opts.pages and files:
            shutil.rmtree(pages)
        print(f"deleted {what}")
        if files and not opts.pages:
            print(f"its {files} files of pages stay in {pages}")


def table_of(lines: Sequence[RunLine]) -> list[str]:
    """Return what people read: a head, and a row for each run."""
    import time

    if not lines:
        return ["there are no runs here"]
    rows = [("run", "state", "reason", "shards", "fetched", "waiting", "stored", "created", "seconds")]
    rows += (
        (
            line.run,
            line.state,
            line.reason or "-",
            f"{line.shards_alive}/{line.shards}",
            f"{line.fetched:,}",
            f"{line.waiting:,}",
            f"{line.stored:,}",
            time.strftime("%Y-%m-%d %H:%M", time.localtime(line.created_ms / 1000)) if line.shards else "-",
            f"{line.ran_s:,.0f}",
        )
        for line in lines
    )
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    is_number = [name not in ("run", "state", "reason", "created") for name in rows[0]]
    return [
        "  ".join(
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, is_number, strict=True)
        ).rstrip()
        for row in rows
    ]


def _ask(name: str, what: str) -> None:
    """Have the person at the terminal type the name. Raises BadArgument if it is not, or nobody is there."""
    import sys

    from crawlproj.errors import BadArgument

    if not sys.stdin.isatty():
        raise BadArgument(f"Nobody can be asked whether to delete {what}; if it is right, add --yes.")
    answer = input(f"This deletes {what} for good. Type its name to go on: ")
    if answer.strip() != name:
        raise BadArgument(f"{answer.strip()!r} is not {name!r}: nothing was deleted.")
