"""``scrapy status``: what a run is doing."""

from __future__ import annotations

import argparse

from crawlproj.console import RunCommand


class Command(RunCommand):
    only_looks = True
    examples = """\
  scrapy status                    a table for people
  scrapy status --run news --json  one JSON object for programs"""

    def syntax(self) -> str:
        return "[options]"

    def short_desc(self) -> str:
        return "Show what a run is doing"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        import json

        from crawlproj.runs import Run, status_of

        async with self.door() as door:
            status = await status_of(await Run.find(door, self.run_name(opts)))
        if opts.json:
            print(json.dumps(status, indent=None))
            return None
        for name, value in status.items():
            if isinstance(value, dict):
                value = ", ".join(f"{key} {member}" for key, member in value.items()) or "none"
            print(f"{name:<22} {value}")
        return None
