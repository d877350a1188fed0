"""``scrapy parser``: one parser process, in a child that is restarted when a page kills it."""

from __future__ import annotations

import argparse
import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, ClassVar

from crawlproj.errors import BadEnvelope
from crawlproj.observe import logs
from crawlproj.ruled import RuledCommand
from crawlproj.runs import Run, RunState
from crawlproj.runs.processes import parser_silence_s

if TYPE_CHECKING:
    from crawlproj.parsing.guard import Death, Notes

logger = logging.getLogger(__name__)

#: How long to wait for a shard to resume a run that is finished when the parser starts.
_RESUME_S = 10.0
#: How often a parser that was started first looks for the rules of its run.
_RULES_S = 0.3


class Command(RuledCommand):
    group = "crawl"
    needs_scrapy = True
    summary = "Parse fetched pages: admit their links and store their text"
    default_settings: ClassVar[dict[str, object]] = {"LOG_ENABLED": True}
    examples = """\
  scrapy parser                    parse the pages of run `web` until the run ends
  scrapy parser --run news         another run; start up to one parser per core"""

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        super().add_options(parser)
        parser.add_argument(
            "--name", metavar="ID", default="", help="prefix of its file names (default: the host name)"
        )

    def run_it(self, args: list[str], opts: argparse.Namespace) -> int:
        from crawlproj.extensions.logs import set_up_logging
        from crawlproj.parsing.guard import run_guarded
        from crawlproj.parsing.names import name_after, new_parser_name

        set_up_logging(self.settings)
        # Checked here, so that bad settings are reported once and not by every child.
        config = self.config()
        logs.name_process(self.run_name(opts), "parser", "")
        stem = new_parser_name(opts.name)

        def work(number: int, notes: Notes) -> int:
            # Its supervisor, or the first one, has agreed on the rules; they may have changed since.
            self.is_agreed = number > 1 or bool(config.supervisor)
            return self.guarded(lambda: asyncio.run(self._parse(opts, f"{stem}-{number}", notes)))

        def record_death(death: Death) -> None:
            name = name_after(death.restarts, f"{stem}-{death.number}")
            self.guarded(lambda: asyncio.run(self._record_death(opts, name, death)))

        return run_guarded(work, record_death, supervisor=config.supervisor)

    async def _parse(self, opts: argparse.Namespace, name: str, notes: Notes) -> int:
        """Parse until the run ends or a signal arrives."""
        from crawlproj.parsing.guard import TimeLimit
        from crawlproj.parsing.memory import limit_memory, settle_memory
        from crawlproj.parsing.signals import run_until_signal
        from crawlproj.parsing.worker import Parser
        from crawlproj.runs.telemetry import Telemetry

        config = self.config()
        settle_memory()
        limit_memory(config.parser_memory)
        async with self.client() as client:
            # A parser may start before the first shard, so it creates the run if needed.
            run = await self.open_run(client, self.run_name(opts))
            run.watch()
            await self._wait_for_rules(run, opts)
            config = self.config()
            telemetry = Telemetry()
            telemetry.start(config, run, "parser")
            parser = Parser(
                run,
                config,
                name,
                await _end_check(run),
                time_limit=TimeLimit(notes, config.parse_seconds),
                metrics=telemetry.metrics,
                heartbeat=telemetry.heartbeat,
            )
            telemetry.metrics.heartbeat_age_seconds = lambda: parser.heartbeat_age_s
            try:
                await run_until_signal(parser, config.drain_seconds)
            finally:
                telemetry.close()
        return 0

    async def _wait_for_rules(self, run: Run, opts: argparse.Namespace) -> None:
        """Obey the rules of *run*. Those of a new run are set by its first shard."""
        is_child = bool(self.config().supervisor)
        is_logged = False
        while not await self.obey(run, opts, may_set=False):
            is_new = await run.state() == RunState.CREATED and not (await run.read_counters()).unstored
            if not is_new and not is_child:
                # It is of an earlier release.
                await self.obey(run, opts)
                return
            if not is_logged:
                logger.info("waiting for the rules of run %s, which its first shard sets", run.name)
            is_logged = True
            await asyncio.sleep(_RULES_S)

    async def _record_death(self, opts: argparse.Namespace, name: str, death: Death) -> int:
        """Count the death of a parser against the page it was parsing, and return its other pages."""
        from crawlproj.pages.deadletters import DeadLetter
        from crawlproj.pages.envelope import unpack
        from crawlproj.pages.queue import PageQueue

        config = self.config()
        async with self.client() as client:
            queue = PageQueue(client, self.run_name(opts))
            stripe, raw = None, None
            if death.position is not None:
                stripe, raw = await queue.page_at(name, death.position)
            if raw is not None:
                try:
                    page = unpack(raw)
                except BadEnvelope:
                    page = None
                letter = DeadLetter.of(raw, page.url if page else "", death.reason, name)
                await queue.fail(name, raw, letter, config.page_attempts, stripe)
            await queue.reclaim_dead(await queue.now_ms(), int(parser_silence_s(config) * 1000))
        return 0


async def _end_check(run: Run) -> Callable[[], Awaitable[bool]]:
    """Return a check for the end of *run*. A run that is finished already gets a moment to be resumed."""
    resumed_by_s = time.monotonic() + _RESUME_S if await run.has_ended() else 0.0

    async def is_over() -> bool:
        nonlocal resumed_by_s
        if not await run.has_ended():
            resumed_by_s = 0.0
            return False
        return time.monotonic() > resumed_by_s

    return is_over
