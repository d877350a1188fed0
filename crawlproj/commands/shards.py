"""``scrapy shards``: change the number of shards of a live run."""

from __future__ import annotations

import argparse

from crawlproj.console import RunCommand


class Command(RunCommand):
    only_looks = True
    takes_arguments = True
    examples = """\
  scrapy shards 3                 scrapy run starts the third; without it: scrapy crawl web -a shard=2
  scrapy shards 1 --run news      shards 1 and up finish what they have in flight and leave"""

    def syntax(self) -> str:
        return "[options] N"

    def short_desc(self) -> str:
        return "Change the number of shards of a run, also while it runs"

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        from crawlproj.errors import BadArgument
        from crawlproj.runs import Run
        from crawlproj.supervisor.entry import forget_joined

        if len(args) != 1 or not args[0].isdigit():
            raise BadArgument(f"{' '.join(args)!r} is not a number of shards; see: scrapy shards -h")
        async with self.door() as door:
            run = await Run.find(door, self.run_name(opts))
            before = (await run.read_map()).shards
            await run.set_shards(int(args[0]))
            # Whoever joined keeps what it holds; what it left behind is for the run's own supervisor.
            await forget_joined(run)
        print(f"run {run.name} has {args[0]} shards now, {before} before")
        return None
