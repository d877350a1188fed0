"""``scrapy deadletters``: pages that could not be parsed."""

from __future__ import annotations

import argparse
import json

from crawlproj.console import RunCommand
from crawlproj.errors import BadArgument, BadEnvelope
from crawlproj.model.run import RunPaths
from crawlproj.pages.deadletters import DeadLetters
from crawlproj.pages.envelope import unpack


class Command(RunCommand):
    arguments = "[options] [PAGE ...]"
    summary = "List, show and replay pages that could not be parsed"
    requires_crawl = True
    takes_arguments = True
    examples = """\
  scrapy deadletters                             one line per page: id, error, URL
  scrapy deadletters --show 5d1c0f93a2b47e68     its details and the start of its body
  scrapy deadletters --replay 5d1c0f93a2b47e68   parse it again
  scrapy deadletters --replay --all              parse all of them again"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--show", action="store_true", help="show these pages in full")
        parser.add_argument("--replay", action="store_true", help="put these pages back on the page queue")
        parser.add_argument("--all", action="store_true", help="with --show or --replay: every dead letter")
        parser.add_argument("--json", action="store_true", help="print one JSON object per line")

    async def work(self, args: list[str], opts: argparse.Namespace) -> None:
        if (opts.show or opts.replay) != bool(args or opts.all):
            raise BadArgument("Use --show or --replay with pages, or with --all; see: scrapy deadletters -h")
        async with self.found_run(opts) as run:
            letters = DeadLetters(run.client, run.name, RunPaths(self.config().data, run.name).deadletters)
            known = {letter.page: letter for letter in await letters.list()}
            for page in args:
                if page not in known:
                    raise BadArgument(f"Run {run.name!r} has no dead letter {page!r}.")
            chosen = [known[page] for page in (args or known)]
            if opts.replay:
                async with run.adding():
                    replayed = await letters.replay(*(letter.page for letter in chosen))
                if replayed:
                    await run.reopen()
                print(f"{replayed} pages put back on the queue of run {run.name}")
            elif opts.json:
                for letter in chosen:
                    print(letter.encode())
            elif opts.show:
                for letter in chosen:
                    self._show(letter.encode(), await letters.envelope(letter.page) or b"")
            else:
                for letter in chosen:
                    print(f"{letter.page}\t{letter.error}\t{letter.url}")
                if not chosen:
                    print(f"run {run.name} has no dead letters")

    def _show(self, record: str, envelope: bytes) -> None:
        for name, value in json.loads(record).items():
            print(f"{name:<12} {value}")
        try:
            page = unpack(envelope)
        except BadEnvelope as exc:
            print(f"{'envelope':<12} {len(envelope)} bytes, {exc}\n{envelope[:200]!r}")
            return
        print(f"{'status':<12} {page.status}")
        print(f"{'headers':<12} {page.headers}")
        print(f"{'body':<12} {len(page.body)} bytes\n{page.body[:500]!r}")
