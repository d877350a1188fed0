"""``scrapy report``: an HTML report of a run, from its stored pages and, if reachable, Redis."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawlproj.commands.pages import StoredCommand
from crawlproj.errors import BadArgument, CrawlError
from crawlproj.model.run import RunPaths
from crawlproj.runs import Run, status_of

if TYPE_CHECKING:
    from crawlproj.storage.objects import Place


class Command(StoredCommand):
    summary = "Write an HTML report of a run, with figures and charts"
    requires_crawl = True
    examples = """\
  scrapy report                          write DATA/runs/web/report.html
  scrapy report --run news -o news.html  another run, another file
  scrapy report --data copied            from copied pages, without Redis
  scrapy report --data /a --data /b      from the disks of several machines"""

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
        directories = self._directories(opts)
        tally = count_pages(directories, Delays.of(config))
        status = await self._status(name)
        # Without Redis nobody knows, and that was said.
        absent = await self.absent(opts) if status else ""
        page = render(name, tally, made_at=datetime.now(UTC), status=status, note=absent)
        path = Path(opts.output) if opts.output else RunPaths(config.data, name).report
        try:
            path.write_text(page, encoding="utf-8")
        except OSError as exc:
            raise BadArgument(
                f"Cannot write {str(path)!r}: {exc.strerror or exc}. Choose another file with -o FILE."
            ) from exc
        totals = tally.totals
        cut = f", {totals.cut:,} of them truncated" if totals.cut else ""
        print(f"{path}: {totals.pages:,} pages of run {name}{cut}")
        if absent:
            self.print_error(absent)

    def _directories(self, opts: argparse.Namespace) -> list[Place]:
        """Return the directories of the run's pages. Raises BadArgument when it has no pages."""
        from crawlproj.storage.reader import committed_files, runs_with

        name, places = self.run_name(opts), self.places(opts)
        found = [place.pages for place in places if place.pages.is_dir()]
        if found and committed_files(found):
            return found
        paths = places[0]
        runs = paths.directory.parent
        hint = f"runs with pages: {', '.join(runs_with('pages', [paths.data])) or 'none'}."
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
            self.print_error(f"no figures from Redis, nor whether other machines hold pages. {exc}")
            return None
