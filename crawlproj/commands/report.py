"""``scrapy report``: an HTML report of a run, from its stored pages and, if reachable, Redis."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from crawlproj.console import RunCommand
from crawlproj.errors import BadArgument, CrawlError
from crawlproj.model.run import RunPaths
from crawlproj.runs import Run, status_of


class Command(RunCommand):
    group = "look"
    summary = "Write an HTML report of a run, with figures and charts"
    requires_crawl = True
    examples = """\
  scrapy report                          write DATA/runs/web/report.html
  scrapy report --run news -o news.html  another run, another file
  scrapy report --data copied            from copied pages, without Redis"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "-o", "--output", metavar="FILE", help="output file (default: report.html in the run's directory)"
        )

    async def work(self, args: list[str], opts: argparse.Namespace) -> None:
        from crawlproj.report.counting import count_pages
        from crawlproj.report.page import render
        from crawlproj.report.tally import Delays

        config, name = self.config(), self.run_name(opts)
        paths = self._paths(name)
        tally = count_pages(paths.pages, Delays.of(config))
        page = render(name, tally, made_at=datetime.now(UTC), status=await self._status(name))
        path = Path(opts.output) if opts.output else paths.report
        try:
            path.write_text(page, encoding="utf-8")
        except OSError as exc:
            raise BadArgument(
                f"Cannot write {str(path)!r}: {exc.strerror or exc}. Choose another file with -o FILE."
            ) from exc
        totals = tally.totals
        cut = f", {totals.cut:,} of them truncated" if totals.cut else ""
        print(f"{path}: {totals.pages:,} pages of run {name}{cut}")

    def _paths(self, name: str) -> RunPaths:
        """Return where the run's files are. Raises BadArgument when it has no pages."""
        from crawlproj.storage.reader import committed_files, runs_with_pages

        paths = RunPaths(self.config().data, name)
        if paths.pages.is_dir() and committed_files(paths.pages):
            return paths
        runs = paths.directory.parent
        hint = f"runs with pages: {', '.join(runs_with_pages(paths.data)) or 'none'}."
        if paths.directory.is_dir():
            raise BadArgument(f"Run {name!r} has no pages in {str(runs)!r} yet; {hint}")
        raise BadArgument(
            f"There is no run {name!r} in {str(runs)!r}; {hint} For another directory: --data DIR."
        )

    async def _status(self, name: str) -> dict[str, Any] | None:
        """Return the run's status from Redis; None, with one line on stderr, if it cannot be read."""
        if not self.has_crawl():
            return None
        try:
            async with self.client() as client:
                return await status_of(await Run.find(client, name))
        except CrawlError as exc:
            self.print_error(f"no figures from Redis. {exc}")
            return None
