"""``scrapy pause``: have a run fetch nothing for now."""

from __future__ import annotations

import argparse

from crawlproj.console import RunCommand


class Command(RunCommand):
    only_looks = True
    examples = """\
  scrapy pause                 downloads in flight end, then nothing is fetched; processes stay
  scrapy pause --run news      another run
  scrapy resume                goes on"""

    def syntax(self) -> str:
        return "[options]"

    def short_desc(self) -> str:
        return "Have a run fetch nothing until it is resumed"

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        from crawlproj.runs import Run, RunState

        async with self.door() as door:
            run = await Run.find(door, self.run_name(opts))
            is_new = await run.change(RunState.PAUSED)
        if is_new:
            print(f"run {run.name} is paused; to go on: scrapy resume --run {run.name}")
        else:
            print(f"run {run.name} was already paused")
        return None
