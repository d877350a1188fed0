"""``scrapy simweb``: serve a simulated web."""

from __future__ import annotations

import argparse

from crawlproj.console import ConsoleCommand, spoken
from crawlproj.errors import EXIT_OK


class Command(ConsoleCommand):
    summary = "Serve a deterministic simulated web, with its own access log"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        # Imported late: every `scrapy` call imports all command modules.
        from crawlproj.simweb import cli

        super().add_options(parser)
        cli.add_options(parser)
        parser.epilog = spoken(cli.EXAMPLES)

    def run_it(self, args: list[str], opts: argparse.Namespace) -> int:
        from crawlproj.simweb import cli

        cli.run(opts)
        return EXIT_OK
