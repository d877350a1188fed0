"""``scrapy simweb``: serve a simulated web."""

from __future__ import annotations

import argparse
from typing import ClassVar

from scrapy.commands import ScrapyCommand
from scrapy.exceptions import UsageError


class Command(ScrapyCommand):
    requires_project = False
    requires_crawler_process = False
    default_settings: ClassVar[dict[str, object]] = {"LOG_ENABLED": False}

    def syntax(self) -> str:
        return "[options]"

    def short_desc(self) -> str:
        return "Serve a deterministic simulated web, with its own access log"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        # Imported late: every `scrapy` call imports all command modules.
        from crawlproj.simweb import cli

        super().add_options(parser)
        cli.add_options(parser)

    def run(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawlproj.errors import BadArgument
        from crawlproj.simweb import cli

        if args:
            raise UsageError(f"unknown argument {args[0]!r}; see: scrapy simweb -h", print_help=False)
        try:
            cli.run(opts)
        except BadArgument as exc:
            raise UsageError(str(exc), print_help=False) from exc
