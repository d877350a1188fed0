"""``scrapy resume``: have a run go on that was paused or has ended."""

from __future__ import annotations

import argparse

from crawlproj.console import RunCommand


class Command(RunCommand):
    only_looks = True
    examples = """\
  scrapy resume                a paused run goes on at once
  scrapy resume --run news     one that has ended goes on when processes are started for it"""

    def syntax(self) -> str:
        return "[options]"

    def short_desc(self) -> str:
        return "Have a run go on that was paused or has ended"

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        from crawlproj.runs import Run, RunState
        from crawlproj.runs.processes import live_processes

        config = self.config()
        async with self.door() as door:
            run = await Run.find(door, self.run_name(opts))
            before = await run.read_map()
            alive = await live_processes(run, config.shard_lease_seconds + config.parse_seconds)
            has_shards = any(name.startswith("shard") for name in alive)
            if before.state == RunState.PAUSED:
                # Time counts while it runs, and without shards it does not.
                await run.change(RunState.RUNNING if has_shards else RunState.CREATED)
            else:
                await run.reopen()
        start = f"scrapy run --run {run.name}" + (f" --data {opts.data}" if opts.data else "")
        if before.state == RunState.PAUSED and has_shards:
            print(f"run {run.name} goes on")
        elif before.state == RunState.RUNNING and has_shards:
            print(f"run {run.name} was already running")
        elif before.reason.startswith("max_"):
            limit = before.reason.replace("_", "-")
            print(f"run {run.name} goes on when it is started with a higher limit: {start} --{limit} N")
        else:
            print(f"run {run.name} was {before.state} and has no shards; to go on: {start}")
        return None
