"""``scrapy parser``: one parser process."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError

if TYPE_CHECKING:
    from crawlproj.config import Config
    from crawlproj.runs import Run

#: How long a run that is found finished may take to be resumed by a shard that starts with us.
_RESUME_S = 10.0


class Command(ScrapyCommand):
    requires_project = True
    requires_crawler_process = False

    def syntax(self) -> str:
        return "[options]"

    def short_desc(self) -> str:
        return "Read fetched pages: admit their links and store their text"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--run", metavar="NAME", help="the run whose pages to read (default: CRAWL_RUN, or web)"
        )
        parser.add_argument(
            "--name", metavar="ID", default="", help="begins the names of its files (default: the host)"
        )

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        # Here: every command module is imported at every `scrapy` call.
        import asyncio

        from scrapy.utils.log import configure_logging

        from crawlproj.config import load_config
        from crawlproj.errors import CrawlError

        if args:
            raise UsageError(
                f"parser takes no argument {args[0]!r}; see `scrapy parser -h`.", print_help=False
            )
        assert self.settings is not None
        configure_logging(self.settings)
        try:
            config = load_config(self.settings.copy_to_dict())
            asyncio.run(parse(config, opts.run or config.run or "web", opts.name))
        except CrawlError as exc:
            print(exc, file=sys.stderr)
            self.exitcode = exc.exit_code


async def parse(config: Config, run_name: str, name: str) -> None:
    """Be a parser of the run until it is over or a signal comes."""
    from crawlproj.frontier.frontier import Frontier
    from crawlproj.pages.queue import PageQueue
    from crawlproj.parsing.worker import Parser, new_parser_name, run_until_signal
    from crawlproj.redisio.client import Door
    from crawlproj.runs import Run

    door = await Door.open(
        url=config.redis_url,
        data_dir=config.data,
        params=config.redis_params,
        wait_s=config.redis_wait_seconds,
    )
    try:
        # Created when there is none: parsers may start before the first shard.
        run = await Run.open(door, run_name, partitions=config.partitions)
        parser = Parser(
            name=new_parser_name(name),
            queue=PageQueue(door, run.name),
            frontier=Frontier(door, run.name, run.partitions, domain_pages=config.domain_pages),
            directory=config.data / "runs" / run.name / "pages",
            config=config,
            is_over=_is_over(run),
        )
        await run_until_signal(parser, config.drain_seconds)
    finally:
        await door.close()


def _is_over(run: Run) -> Callable[[], Awaitable[bool]]:
    """Return what tells a parser that *run* has ended, not that it had ended before and is about to go on."""
    import time

    resumed_until_s = time.monotonic() + _RESUME_S

    async def is_over() -> bool:
        nonlocal resumed_until_s
        if await run.state() != "finished":
            resumed_until_s = 0.0
            return False
        return time.monotonic() > resumed_until_s

    return is_over
