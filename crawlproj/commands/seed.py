"""``scrapy seed``: add seeds to a run, also while it runs."""

from __future__ import annotations

import argparse

from crawlproj.console import RunCommand
from crawlproj.errors import EXIT_OK, EXIT_USAGE, NoSeeds
from crawlproj.runs import Run


class Command(RunCommand):
    arguments = "[options] FILE|URL ..."
    summary = "Add seeds to a run, also while it runs"
    takes_arguments = True
    examples = """\
  scrapy seed seeds.txt                          one URL or domain per line; # starts a comment
  scrapy seed https://example.org/ other.org     from the command line
  cat urls | scrapy seed - --run news            from standard input, into another run"""

    async def work(self, args: list[str], opts: argparse.Namespace) -> int:
        if not args:
            raise NoSeeds("Give a seeds file, URLs, or - for standard input; see: scrapy seed -h")
        async with self.client() as client:
            run = await Run.open(client, self.run_name(opts), partitions=self.config().partitions)
            run.watch()
            count = await self.admit_seeds(run, args)
            if not count.given:
                raise NoSeeds(f"No valid seeds in {', '.join(args)} ({count.refused} invalid).")
            if count.new:
                await run.reopen()
        print(f"run {run.name}: {count.new} new seeds of {count.given}, {count.refused} invalid")
        return EXIT_USAGE if count.refused else EXIT_OK
