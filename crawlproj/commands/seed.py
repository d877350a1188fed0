"""``scrapy seed``: add seeds to a run, also while it runs."""

from __future__ import annotations

import argparse

from crawlproj.errors import BadArgument, NoSeeds
from crawlproj.ruled import RuledCommand


class Command(RuledCommand):
    group = "crawl"
    arguments = "[options] FILE|URL ..."
    summary = "Add seeds to a run, also while it runs"
    takes_arguments = True
    examples = """\
  scrapy seed seeds.txt                          one URL or domain per line; # starts a comment
  scrapy seed https://example.org/ other.org     from the command line
  cat urls | scrapy seed - --run news            from standard input, into another run
  scrapy seed seeds.txt --run new --create       before its first process is started"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--skip-invalid",
            action="store_true",
            help="leave out invalid seeds; otherwise none is added",
        )
        parser.add_argument("--create", action="store_true", help="create the run if there is none")

    async def work(self, args: list[str], opts: argparse.Namespace) -> None:
        if not args:
            raise NoSeeds("Give a seeds file, URLs, or - for standard input; see: scrapy seed -h")
        name, sources = self.run_name(opts), self.seed_sources(args)
        await self.check(name, sources, opts, fetches=False, skip_invalid=opts.skip_invalid)
        if not opts.create:
            await self._require_run(name)
        async with self.client() as client:
            run = await self.open_run(client, name)
            run.watch()
            # The first process that fetches sets the rules of a new run.
            await self.obey(run, opts, may_set=False)
            count = await self.admit_seeds(run, sources)
            if count.new:
                await run.reopen()
        skipped = f"; {count.refused} invalid ones were skipped" if count.refused else ""
        print(f"run {run.name}: {count.new} new seeds of {count.given}{skipped}")

    async def _require_run(self, name: str) -> None:
        """Raise BadArgument if there is no such run: a wrong name must not make one that nobody crawls."""
        from crawlproj.runs import Run

        known: list[str] = []
        if self.has_crawl():
            async with self.client() as client:
                if name in (known := await Run.names(client)):
                    return
        raise BadArgument(
            f"There is no run {name!r} here; there are: {', '.join(known) or 'none'}. To crawl these seeds: "
            f"scrapy run ... --run {name}. To add them before its first process starts: --create"
        )
