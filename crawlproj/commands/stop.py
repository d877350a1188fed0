"""``scrapy stop``: stop a run; it can be resumed."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time

from crawlproj.console import RunCommand, spoken
from crawlproj.errors import CrawlError
from crawlproj.runs import Run, RunState
from crawlproj.runs.processes import live_processes, parser_silence_s

#: How long parsers may take to store what was fetched, on top of CRAWL_DRAIN_SECONDS.
_STORE_S = 30.0
_POLL_S = 0.3


class Command(RunCommand):
    summary = "Stop a run: shards return their URLs, parsers store what was fetched"
    requires_crawl = True
    examples = """\
  scrapy stop                  wait until its shards and parsers have exited
  scrapy stop --no-wait        return at once
  scrapy run                   resume it"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--no-wait", action="store_true", help="do not wait for its processes to exit")

    async def work(self, args: list[str], opts: argparse.Namespace) -> None:
        async with self.found_run(opts) as run:
            if await run.is_over():
                print(f"run {run.name} was already {await run.state() or 'deleted'}")
            else:
                await run.change(RunState.STOPPED, "asked")
                print(
                    spoken(f"run {run.name} is stopped; to resume: scrapy run --run {run.name}"), flush=True
                )
            if not opts.no_wait:
                await self._wait(run)

    async def _wait(self, run: Run) -> None:
        """Wait until all processes of *run* have exited. Raises CrawlError on timeout."""
        config = self.config()
        within_s = config.drain_seconds + _STORE_S
        deadline_s = time.monotonic() + within_s
        printed: list[str] = []
        while alive := await live_processes(run, parser_silence_s(config)):
            if time.monotonic() > deadline_s:
                raise CrawlError(
                    f"Still running after {within_s:g} s: {', '.join(alive)}. Wait longer with "
                    f"scrapy stop --run {run.name}, or kill them: nothing is lost."
                )
            if alive != printed:
                print(f"waiting for {', '.join(alive)}", file=sys.stderr)
                printed = alive
            await asyncio.sleep(_POLL_S)
        print(f"run {run.name} has no processes left")
