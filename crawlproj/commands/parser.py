"""``scrapy parser``: one parser process."""

from __future__ import annotations

import argparse
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar

from crawlproj.console import RunCommand

if TYPE_CHECKING:
    from crawlproj.runs import Run

#: How long a run that is found finished may take to be resumed by a shard that starts with us.
_RESUME_S = 10.0


class Command(RunCommand):
    default_settings: ClassVar[dict[str, object]] = {"LOG_ENABLED": True}
    examples = """\
  scrapy parser                    read the pages of the run `web` until it is over
  scrapy parser --run news         those of another run; start as many as the machine has cores for"""

    def syntax(self) -> str:
        return "[options]"

    def short_desc(self) -> str:
        return "Read fetched pages: admit their links and store their text"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--name", metavar="ID", default="", help="begins the names of its files (default: the host)"
        )

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        from scrapy.utils.log import configure_logging

        from crawlproj.frontier.frontier import Frontier
        from crawlproj.pages.queue import PageQueue
        from crawlproj.parsing.worker import Parser, new_parser_name, run_until_signal
        from crawlproj.runs import Run

        configure_logging(self.settings)
        config = self.config()
        async with self.door() as door:
            # Created when there is none: parsers may start before the first shard.
            run = await Run.open(door, self.run_name(opts), partitions=config.partitions)
            parser = Parser(
                name=new_parser_name(opts.name),
                queue=PageQueue(door, run.name),
                frontier=Frontier(door, run.name, run.partitions, domain_pages=config.domain_pages),
                directory=config.data / "runs" / run.name / "pages",
                config=config,
                is_over=await _end_of(run),
            )
            await run_until_signal(parser, config.drain_seconds)
        return None


async def _end_of(run: Run) -> Callable[[], Awaitable[bool]]:
    """Return what tells that *run* has ended, and not that it had ended before and is about to go on."""
    resumed_by_s = time.monotonic() + _RESUME_S if await run.state() == "finished" else 0.0

    async def is_over() -> bool:
        nonlocal resumed_by_s
        if await run.state() != "finished":
            resumed_by_s = 0.0
            return False
        return time.monotonic() > resumed_by_s

    return is_over
