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
        import sys
        from itertools import islice

        from crawlproj.errors import EXIT_OK, EXIT_USAGE, NoSeeds
        from crawlproj.frontier.exclusions import load_rules
        from crawlproj.frontier.frontier import Frontier
        from crawlproj.frontier.seeds import parse_seeds, seed_lines
        from crawlproj.runs import Run

        if not args:
            raise NoSeeds("Name a file of seeds, URLs, or - for standard input; see: scrapy seed -h")
        config = self.config()
        rules, _ = load_rules(config)
        given = new = refused = 0
        async with self.door() as door:
            run = await Run.open(door, self.run_name(opts), partitions=config.partitions)
            frontier = Frontier(door, run.name, run.partitions, domain_pages=config.domain_pages)
            for source in args:
                seeds = parse_seeds(seed_lines(source), rules)
                while batch := list(islice(seeds, 5000)):
                    for complaint in (seed for seed in batch if isinstance(seed, str)):
                        refused += 1
                        print(f"scrapy seed: {source}, {complaint}", file=sys.stderr)
                    candidates = [seed for seed in batch if not isinstance(seed, str)]
                    given += len(candidates)
                    new += (await frontier.admit(candidates)).new
            if not given:
                raise NoSeeds(f"No valid seed in {', '.join(args)} ({refused} refused).")
            if new:
                await run.reopen()
        print(f"{new} new seeds of {given} for run {run.name}, {refused} refused")
        return EXIT_USAGE if refused else EXIT_OK
