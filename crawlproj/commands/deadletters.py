"""``scrapy deadletters``: pages that no parser could read."""

from __future__ import annotations

import argparse

from crawlproj.console import RunCommand


class Command(RunCommand):
    only_looks = True
    takes_arguments = True
    examples = """\
  scrapy deadletters                      a line each: page, error, URL
  scrapy deadletters --show 12:345        everything known about one, and the beginning of its body
  scrapy deadletters --replay 12:345      have the parsers try it again
  scrapy deadletters --replay --all       the same for all of them"""

    def syntax(self) -> str:
        return "[options] [PAGE ...]"

    def short_desc(self) -> str:
        return "List, show and replay pages that no parser could read"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument("--show", action="store_true", help="show the pages named")
        parser.add_argument("--replay", action="store_true", help="put the pages named back onto the queue")
        parser.add_argument("--all", action="store_true", help="with --show or --replay: every dead letter")
        parser.add_argument("--json", action="store_true", help="one JSON object a line")

    async def work(self, args: list[str], opts: argparse.Namespace) -> int | None:
        from crawlproj.errors import BadArgument
        from crawlproj.pages.deadletters import DeadLetters
        from crawlproj.runs import Run

        if (opts.show or opts.replay) != bool(args or opts.all):
            raise BadArgument(
                "Name pages (or --all) together with --show or --replay; see: scrapy deadletters -h"
            )
        async with self.door() as door:
            run = await Run.find(door, self.run_name(opts))
            letters = DeadLetters(door, run.name)
            known = {letter.page: letter for letter in await letters.list()}
            for page in args:
                if page not in known:
                    raise BadArgument(f"There is no dead letter {page!r} in run {run.name!r}.")
            chosen = [known[page] for page in (args or known)]
            if opts.replay:
                replayed = [letter for letter in chosen if await letters.replay(letter.page)]
                if replayed:
                    await run.reopen()
                print(f"{len(replayed)} pages are on the queue of run {run.name} again")
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
        return None

    def _show(self, record: str, envelope: bytes) -> None:
        import json

        from crawlproj.errors import BadEnvelope
        from crawlproj.pages.envelope import unpack

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
