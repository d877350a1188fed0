"""``scrapy seed``: add seeds to a run, also while it runs."""

from __future__ import annotations

import argparse

from crawlproj.console import RunCommand


class Command(RunCommand):
    takes_arguments = True
    examples = """\
  scrapy seed seeds.txt                          every line a URL or a domain; # begins a comment
  scrapy seed https://example.org/ other.org     straight from the command line
  cat urls | scrapy seed - --run news            from standard input, into another run"""

    def syntax(self) -> str:
        return "[options] FILE|URL ..."

    def short_desc(self) -> str:
        return "Add seeds to a run, also while it runs"

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        from crawlproj.errors import EXIT_OK, EXIT_USAGE, NoSeeds
        from crawlproj.frontier.exclusions import load_rules
        from crawlproj.frontier.frontier import Frontier
        from crawlproj.frontier.seeds import admit_seeds
        from crawlproj.runs import Run

        if not args:
            raise NoSeeds("Name a file of seeds, URLs, or - for standard input; see: scrapy seed -h")
        config = self.config()
        rules, _ = load_rules(config)
        async with self.door() as door:
            run = await Run.open(door, self.run_name(opts), partitions=config.partitions)
            frontier = Frontier(door, run.name, run.partitions, domain_pages=config.domain_pages)
            count = await admit_seeds(frontier, args, rules, self.complain)
            if not count.given:
                raise NoSeeds(f"No valid seed in {', '.join(args)} ({count.refused} refused).")
            if count.new:
                await run.reopen()
        print(f"{count.new} new seeds of {count.given} for run {run.name}, {count.refused} refused")
        return EXIT_USAGE if count.refused else EXIT_OK
