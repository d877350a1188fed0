"""``scrapy pause``: stop fetching until the run is resumed."""

from __future__ import annotations

import argparse

from crawlproj.console import RunCommand, spoken
from crawlproj.runs import RunState


class Command(RunCommand):
    summary = "Pause a run until it is resumed"
    requires_crawl = True
    examples = """\
  scrapy pause                 finish downloads in flight, then fetch nothing; processes keep running
  scrapy pause --run news      another run
  scrapy resume                continue"""

    async def work(self, args: list[str], opts: argparse.Namespace) -> None:
        async with self.found_run(opts) as run:
            is_new = await run.change(RunState.PAUSED)
        if is_new:
            print(spoken(f"run {run.name} is paused; to resume: scrapy resume --run {run.name}"))
        else:
            print(f"run {run.name} was already paused")
