"""``scrapy stop``: end a run; what is left of it waits."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from crawlproj.console import RunCommand

if TYPE_CHECKING:
    from crawlproj.runs import Run

#: How long its processes may take beyond the time downloads have to end: parsers store what was fetched.
_STORE_S = 30.0
_LOOK_EVERY_S = 0.3


class Command(RunCommand):
    only_looks = True
    examples = """\
  scrapy stop                  waits until its shards and parsers have left
  scrapy stop --no-wait        says so to them and returns
  scrapy run                   goes on where it was stopped"""

    def syntax(self) -> str:
        return "[options]"

    def short_desc(self) -> str:
        return "Stop a run: shards give back their URLs, parsers store what was fetched"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--no-wait", action="store_true", help="do not wait until its processes have left"
        )

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        from crawlproj.runs import Run, RunState

        async with self.door() as door:
            run = await Run.find(door, self.run_name(opts))
            state = await run.state()
            if RunState(state).is_end:
                print(f"run {run.name} was already {state}")
            else:
                await run.change(RunState.STOPPED, "asked")
                print(f"run {run.name} is stopped; to go on: scrapy run --run {run.name}", flush=True)
            if not opts.no_wait:
                await self._wait(run)
        return None

    async def _wait(self, run: Run) -> None:
        """Wait until all processes of *run* have left. Raises CrawlError when some do not."""
        import asyncio
        import sys
        import time

        from crawlproj.errors import CrawlError
        from crawlproj.runs.processes import live_processes

        config = self.config()
        silent_s = config.shard_lease_seconds + config.parse_seconds
        within_s = config.drain_seconds + _STORE_S
        deadline_s = time.monotonic() + within_s
        told: list[str] = []
        while alive := await live_processes(run, silent_s):
            if time.monotonic() > deadline_s:
                raise CrawlError(
                    f"After {within_s:g} s these are still there: {', '.join(alive)}. Wait for them with "
                    f"scrapy stop --run {run.name}, or end them: nothing is lost."
                )
            if alive != told:
                print(f"waiting for {', '.join(alive)}", file=sys.stderr)
                told = alive
            await asyncio.sleep(_LOOK_EVERY_S)
        print(f"run {run.name} has no processes")
