"""``python -m crawlproj.simweb``: the server without Scrapy's start-up time."""

from __future__ import annotations

import argparse
import sys

from crawlproj.errors import CrawlError
from crawlproj.simweb import cli

parser = argparse.ArgumentParser(prog="python -m crawlproj.simweb", description="Serve a simulated web.")
cli.add_options(parser)
try:
    cli.run(parser.parse_args())
except CrawlError as exc:
    print(exc, file=sys.stderr)
    sys.exit(exc.exit_code)
