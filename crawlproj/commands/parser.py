"""``scrapy parser``: one parser, its work in a child process under guard."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar

from crawlproj.console import RunCommand

if TYPE_CHECKING:
    from crawlproj.parsing.guard import Death, Notes
    from crawlproj.runs import Run

#: How long a run that is found finished may take to be resumed by a shard that starts with us.
_RESUME_S = 10.0


class Command(RunCommand):
    default_settings: ClassVar[dict[str, object]] = {"LOG_ENABLED": True}
    examples = """\
  scrapy parser                    read the pages of the run `web` until it is over
  scrapy parser --run news         those of another run; start as many as the machine has cores for"""

    def syntax(self) -> str:
        return "[options]"

    def short_desc(self) -> str:
        return "Read fetched pages: admit their links and store their text"

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--name", metavar="ID", default="", help="begins the names of its files (default: the host)"
        )

    def run_it(self, args: list[str], opts: argparse.Namespace) -> int:
        from crawlproj.extensions.logs import set_up_logging
        from crawlproj.observe import logs
        from crawlproj.parsing.guard import run_guarded
        from crawlproj.parsing.worker import new_parser_name

        assert self.settings is not None
        set_up_logging(self.settings)
        # In the guard already: what is wrong with the settings should not be said by every child.
        config = self.config()
        logs.name_process(self.run_name(opts), "parser", "")
        stem = new_parser_name(opts.name)

        def work(number: int, notes: Notes) -> int:
            return self.guarded(lambda: asyncio.run(self._parse(opts, f"{stem}-{number}", notes)))

        def blame(death: Death) -> None:
            self.guarded(lambda: asyncio.run(self._blame(opts, f"{stem}-{death.number}", death)))

        return run_guarded(work, blame, supervisor=config.supervisor)

    async def _parse(self, opts: argparse.Namespace, name: str, notes: Notes) -> int:
        """Be a parser until the run is over or a signal comes."""
        from crawlproj.frontier.frontier import Frontier
        from crawlproj.pages.queue import PageQueue
        from crawlproj.parsing.guard import TimeLimit
        from crawlproj.parsing.memory import limit_memory, settle_memory
        from crawlproj.parsing.worker import Parser, run_until_signal
        from crawlproj.runs import Run
        from crawlproj.runs.presence import Presence

        config = self.config()
        settle_memory()
        limit_memory(config.parser_memory)
        async with self.door() as door:
            # Created when there is none: parsers may start before the first shard.
            run = await Run.open(door, self.run_name(opts), partitions=config.partitions)
            presence = Presence()
            presence.show(config, run, "parser")
            parser = Parser(
                name=name,
                queue=PageQueue(door, run.name),
                frontier=Frontier(door, run.name, run.partitions, domain_pages=config.domain_pages),
                directory=config.data / "runs" / run.name / "pages",
                config=config,
                is_over=await _end_of(run),
                commits_asked=run.commits_asked,
                time_limit=TimeLimit(notes, config.parse_seconds),
                metrics=presence.metrics,
                figures=presence.figures,
            )
            presence.metrics.heartbeat_age_seconds = lambda: parser.heartbeat_age_s
            try:
                await run_until_signal(parser, config.drain_seconds)
            finally:
                presence.close()
        return 0

    async def _blame(self, opts: argparse.Namespace, name: str, death: Death) -> int:
        """Count the death of a parser against the page it was reading, and give back its other pages."""
        from crawlproj.errors import BadEnvelope
        from crawlproj.pages.envelope import unpack
        from crawlproj.pages.queue import PageQueue
        from crawlproj.parsing.worker import dead_letter

        config = self.config()
        async with self.door() as door:
            queue = PageQueue(door, self.run_name(opts))
            raw = None if death.position is None else await queue.page_at(name, death.position)
            if raw is not None:
                try:
                    page = unpack(raw)
                except BadEnvelope:
                    page = None
                letter = dead_letter(raw, page, death.reason, name)
                await queue.fail(name, raw, letter, config.page_attempts)
            await queue.take_back_dead(
                await queue.now_ms(), int((config.shard_lease_seconds + config.parse_seconds) * 1000)
            )
        return 0


async def _end_of(run: Run) -> Callable[[], Awaitable[bool]]:
    """Return what tells that *run* has ended, and not that it had ended before and is about to go on."""
    resumed_by_s = time.monotonic() + _RESUME_S if await run.has_ended() else 0.0

    async def is_over() -> bool:
        nonlocal resumed_by_s
        if not await run.has_ended():
            resumed_by_s = 0.0
            return False
        return time.monotonic() > resumed_by_s

    return is_over
