"""``scrapy report``: a run as one HTML page. Needs the stored pages; Redis adds what it knows."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from crawlproj.console import RunCommand


class Command(RunCommand):
    only_looks = True
    examples = """\
  scrapy report                          DATA/runs/web/report.html
  scrapy report --run news -o news.html  another run, another file
  scrapy report --data copied            of pages that were copied here, without their Redis"""

    def syntax(self) -> str:
        return "[options]"

    def short_desc(self) -> str:
        return "Write a page with numbers and charts of a run"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "-o", "--output", metavar="FILE", help="write there (default: report.html beside the pages)"
        )

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        from datetime import UTC, datetime

        from crawlproj.errors import BadArgument
        from crawlproj.report.counting import count_pages
        from crawlproj.report.page import render
        from crawlproj.report.tally import Delays

        config, name = self.config(), self.run_name(opts)
        directory = self._run_directory(name)
        tally = count_pages(directory / "pages", Delays.of(config))
        page = render(name, tally, made_at=datetime.now(UTC), status=await self._status(name))
        path = Path(opts.output) if opts.output else directory / "report.html"
        try:
            path.write_text(page, encoding="utf-8")
        except OSError as exc:
            raise BadArgument(
                f"Cannot write {str(path)!r}: {exc.strerror or exc}. Choose with -o FILE."
            ) from exc
        totals = tally.totals
        cut = f", {totals.cut:,} of them cut" if totals.cut else ""
        print(f"{path}: {totals.pages:,} pages of run {name}{cut}")
        return None

    def _run_directory(self, name: str) -> Path:
        """Return where the run has its pages. Raises BadArgument when it has none."""
        from crawlproj.errors import BadArgument
        from crawlproj.storage.reader import committed_files

        runs = self.config().data / "runs"
        if (runs / name / "pages").is_dir() and committed_files(runs / name / "pages"):
            return runs / name
        others = sorted(path.parent.name for path in runs.glob("*/pages") if any(path.iterdir()))
        there = f"runs with pages: {', '.join(others) or 'none'}."
        if (runs / name).is_dir():
            raise BadArgument(f"Run {name!r} has no pages in {str(runs)!r} yet; {there}")
        raise BadArgument(
            f"There is no run {name!r} in {str(runs)!r}; {there} Another directory: --data DIR."
        )

    async def _status(self, name: str) -> dict[str, Any] | None:
        """Return what Redis knows of the run; None, and why in one line, where nothing can be asked."""
        import sys

        from crawlproj.errors import CrawlError
        from crawlproj.runs import Run, status_of

        config = self.config()
        if config.redis_url is None and not (config.data / "redis").is_dir():
            return None
        try:
            async with self.door() as door:
                return await status_of(await Run.find(door, name))
        except CrawlError as exc:
            print(f"scrapy report: without what Redis knows. {exc}", file=sys.stderr)
            return None
