"""``scrapy compact``: merge the small segments of a run into large files, sorted by domain."""

from __future__ import annotations

import argparse
import os

from crawlproj.console import RunCommand
from crawlproj.errors import EXIT_UNEXPECTED, BadArgument

#: The size of merged files, unless CRAWL_COMPACT_BYTES or --bytes says otherwise.
_TARGET_BYTES = 256_000_000
_LEAST_BYTES = 1_000_000
_NICE = 10


class Command(RunCommand):
    requires_crawl = True
    summary = "Merge the small segments of a run into large files, sorted by domain"
    examples = """\
  scrapy compact --run news                 files of about 256 MB, also while the crawl runs
  scrapy compact --run news --bytes 1e9     larger ones
  scrapy compact --run news --keep 0        delete the originals at once, not an hour later"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--bytes",
            type=float,
            metavar="N",
            help=f"target size of a merged file (default: CRAWL_COMPACT_BYTES, or {_TARGET_BYTES:,})",
        )
        parser.add_argument(
            "--keep",
            type=float,
            default=3600.0,
            metavar="SECONDS",
            help="how long to keep the originals, for readers that have them open (default: %(default)g)",
        )

    async def work(self, args: list[str], opts: argparse.Namespace) -> int:
        from crawlproj.redisio.names import Holder
        from crawlproj.runs.rules import foresee
        from crawlproj.supervisor.compaction import Compaction

        if opts.bytes is not None and not opts.bytes >= _LEAST_BYTES:
            raise BadArgument(f"--bytes {opts.bytes:g}: must be at least {_LEAST_BYTES:,}, such as 256e6.")
        if not opts.keep >= 0:
            raise BadArgument(f"--keep {opts.keep:g}: must be 0 or more seconds, such as 3600.")
        if self.config().supervisor:
            # Beside a crawl it takes what that leaves.
            os.nice(_NICE)
        async with self.found_run(opts) as run:
            config = await foresee(run.client, run.name, self.config(), ())
            target_bytes = int(opts.bytes or config.compact_bytes or _TARGET_BYTES)
            done = await Compaction(run, config, print).run(target_bytes, opts.keep)
        if isinstance(done, Holder):
            print(f"Process {done.process.pid} on {done.process.host} is merging run {run.name} already.")
            return 0
        for wrong in done.damaged:
            self.print_error(f"not merged: {wrong}. See: scrapy pages --check --run {run.name}")
        if done.bytes_dropped:
            print(f"Deleted {done.bytes_dropped / 1e6:,.1f} MB of originals.")
        if done.merges:
            sizes = f"{done.bytes_before / 1e6:,.1f} MB -> {done.bytes_after / 1e6:,.1f} MB"
            print(f"{done.segments:,} segments with {done.pages:,} pages are {done.merges:,} now, {sizes}.")
        else:
            print(f"Run {run.name} has nothing to merge.")
        if done.merges and opts.keep:
            print(
                f"The originals are kept for {opts.keep:g} s, for readers that have them open; the first "
                "`scrapy compact` after that deletes them."
            )
        if done.left:
            print(f"{done.left:,} small segments are too few to be merged before the run is over.")
        return EXIT_UNEXPECTED if done.damaged else 0
