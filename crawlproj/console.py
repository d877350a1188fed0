"""What the commands that talk to a run have in common: options, Redis, and errors as one line."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ClassVar

from scrapy.commands import ScrapyCommand, ScrapyHelpFormatter
from scrapy.exceptions import UsageError

from crawlproj.config import Config, load_config
from crawlproj.errors import BadArgument, CrawlError
from crawlproj.redisio.client import Door
from crawlproj.redisio.keys import check_run_name

#: The run of the spider `web` when none is named.
DEFAULT_RUN = "web"
#: Shells expect 128 + SIGPIPE of what could not write on.
_EXIT_PIPE = 141


class _Help(argparse.RawDescriptionHelpFormatter, ScrapyHelpFormatter):
    """Scrapy's layout, with the examples as they were written: a line each."""


class RunCommand(ScrapyCommand):
    """A command about a run. Subclasses say what they do in `work`, and in ``examples`` how it is typed."""

    requires_project = True
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, object]] = {"LOG_ENABLED": False}
    examples = ""
    takes_arguments = False
    #: Whether it looks at what is there, and makes nothing.
    only_looks = False

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--run", default="", metavar="NAME", help=f"the run (default: {DEFAULT_RUN})")
        parser.add_argument("--data", default="", metavar="DIR", help="the data directory (CRAWL_DATA)")
        parser.formatter_class = _Help
        parser.epilog = "examples:\n" + self.examples

    def process_options(self, args: list[str], opts: argparse.Namespace) -> None:
        super().process_options(args, opts)
        if opts.data and self.settings is not None:
            self.settings.set("CRAWL_DATA", opts.data, priority="cmdline")

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        name = type(self).__module__.rpartition(".")[2]
        unknown = [arg for arg in args if (arg.startswith("-") and arg != "-") or not self.takes_arguments]
        if unknown:
            raise UsageError(f"unknown argument {unknown[0]!r}; see: scrapy {name} -h", print_help=False)
        self.exitcode = self.guarded(lambda: self.run_it(args, opts))

    def guarded(self, work: Callable[[], int]) -> int:
        """Do *work*; returns its exit code, or that of the error that ended it, said in one line."""
        try:
            code = work()
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read our output, such as `head`, has seen enough. What is left goes nowhere.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return _EXIT_PIPE
        except CrawlError as exc:
            self.complain(str(exc))
            return exc.exit_code
        except KeyboardInterrupt:
            return 130
        return code

    def complain(self, text: str) -> None:
        """Say what is wrong, and who says so."""
        print(f"scrapy {type(self).__module__.rpartition('.')[2]}: {text}", file=sys.stderr)

    def run_it(self, args: list[str], opts: argparse.Namespace) -> int:
        return asyncio.run(self.work(args, opts)) or 0

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        """Do it; returns the exit code, None for success."""
        raise NotImplementedError

    def config(self) -> Config:
        assert self.settings is not None
        return load_config(self.settings.copy_to_dict())

    def run_name(self, opts: argparse.Namespace) -> str:
        return check_run_name(opts.run or self.config().run or DEFAULT_RUN)

    @asynccontextmanager
    async def door(self) -> AsyncIterator[Door]:
        config = self.config()
        if self.only_looks and config.redis_url is None and not (config.data / "redis").is_dir():
            raise BadArgument(f"There is no crawl in {str(config.data)!r}; name its directory with --data.")
        door = await Door.open(
            url=config.redis_url,
            data_dir=config.data,
            params=config.redis_params,
            wait_s=config.redis_wait_seconds,
        )
        try:
            yield door
        finally:
            await door.close()
