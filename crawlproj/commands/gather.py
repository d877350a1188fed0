"""``scrapy gather``: copy the pages and items of a run from other machines."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

from crawlproj.console import RunCommand, spoken
from crawlproj.errors import BadArgument
from crawlproj.model.run import RunPaths


class Command(RunCommand):
    requires_crawl = True
    takes_arguments = True
    arguments = "[options] [HOST:DIR | DIR ...]"
    summary = "Copy a run's pages and items from other machines to this one"
    examples = """\
  scrapy gather --run news                    from the hosts that have written them, with rsync over ssh
  scrapy gather b:/srv/crawl c:/srv/crawl     from these machines and data directories
  scrapy gather /mnt/b                        from a data directory that is mounted or copied here"""

    async def work(self, args: list[str], opts: argparse.Namespace) -> int:
        from crawlproj.model.segment import Absent
        from crawlproj.pages.queue import read_segments
        from crawlproj.storage.gather import gather, wanted_files
        from crawlproj.storage.inventory import present

        paths = RunPaths(self.config().data, self.run_name(opts))
        async with self.found_run(opts) as run:
            recorded = await read_segments(run.client, run.name)
        absent = Absent.of(recorded, present([paths.directory], recorded))
        if not absent.records:
            print(f"All {absent.segments:,} segments of run {run.name} are in {paths.directory} already.")
            return 0
        for source in args or [self._source(host, data) for host, data in absent.origins]:
            wanted = wanted_files(paths, recorded)
            if not wanted:
                break
            try:
                done = gather(source, paths, wanted)
            except BadArgument as exc:
                if args:
                    raise
                self.print_error(str(exc))
                continue
            print(f"{source}: {done.files:,} files, {done.bytes / 1e6:,.1f} MB")
            for wrong in done.damaged:
                self.print_error(f"not taken from {source}: {wrong}")
            if done.trouble:
                self.print_error(f"cannot copy from {source}: {done.trouble}")
        left = Absent.of(recorded, present([paths.directory], recorded))
        if not left.records:
            print(f"All {left.segments:,} segments of run {run.name} are in {paths.directory}.")
            return 0
        print(left.sentence(), *left.lines(), sep="\n")
        print(spoken("Run the same command to continue; for other places: scrapy gather HOST:DIR"))
        return 1

    def _source(self, host: str, data: str) -> str:
        """Return where to copy from what *host* has written to *data*."""
        from crawlproj.storage.objects import is_address

        is_here = host == socket.gethostname() and Path(data).is_dir()
        return data if is_here or is_address(data) else f"{host}:{data}"
