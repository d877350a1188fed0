"""``scrapy shards``: change the number of shards of a live run."""

from __future__ import annotations

import argparse

from crawlproj.console import RunCommand
from crawlproj.errors import BadArgument


class Command(RunCommand):
    arguments = "[options] N"
    summary = "Change the number of shards of a run, also while it runs"
    requires_crawl = True
    takes_arguments = True
    examples = """\
  scrapy shards 3                 `scrapy run` starts the third; without it: scrapy crawl web -a shard=2
  scrapy shards 1 --run news      shards 1 and up finish their downloads in flight and exit"""

    async def work(self, args: list[str], opts: argparse.Namespace) -> None:
        if len(args) != 1 or not args[0].isdigit():
            raise BadArgument(f"{' '.join(args)!r} is not a number of shards; see: scrapy shards -h")
        async with self.found_run(opts) as run:
            before = (await run.read_map()).shards
            await run.set_shards(int(args[0]))
        print(f"run {run.name}: {before} -> {args[0]} shards")
