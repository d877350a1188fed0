"""``scrapy resume``: continue a run that was paused, stopped or interrupted."""

from __future__ import annotations

import argparse

from crawlproj.console import RunCommand, spoken
from crawlproj.errors import RunFinished
from crawlproj.runs import RunState
from crawlproj.runs.processes import resume
from crawlproj.runs.rules import read_rules


class Command(RunCommand):
    summary = "Continue a run that was paused, stopped or interrupted"
    requires_crawl = True
    examples = """\
  scrapy resume                a paused run continues at once
  scrapy resume --run news     a stopped run: reopens it and prints the command that starts its processes"""

    async def work(self, args: list[str], opts: argparse.Namespace) -> None:
        async with self.found_run(opts) as run:
            before = await run.read_map()
            counters = await run.read_counters()
            if before.state == RunState.FINISHED and not counters.is_left:
                rules = await read_rules(run)
                raise RunFinished(run.name, rules.spider if rules else "web")
            has_shards = await resume(run, self.config(), before.state)
        start = spoken(f"scrapy run --run {run.name}") + (f" --data {opts.data}" if opts.data else "")
        if before.state == RunState.PAUSED and has_shards:
            print(f"run {run.name} is resumed")
        elif before.state == RunState.RUNNING and has_shards:
            print(f"run {run.name} was already running")
        elif before.reason.startswith("max_"):
            limit = before.reason.replace("_", "-")
            print(f"run {run.name} reached a limit; to resume, raise it: {start} --{limit} N")
        else:
            print(f"run {run.name} was {before.state} and has no shards; to resume: {start}")
