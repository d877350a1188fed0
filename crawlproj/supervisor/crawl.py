"""One crawl from seeds to the end: `scrapy run`.

The run's record says how many shards there should be and when it is over. The supervisor makes it true: it
starts shards and parsers, leads the run if nobody else does, and ends its processes in order.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import sys
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from crawlproj.config import Config
from crawlproj.errors import CrawlError, RunMismatch
from crawlproj.observe import logs
from crawlproj.redisio import keys
from crawlproj.redisio.client import Door
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Leader, Limits, Run, RunMap, RunState, status_of
from crawlproj.runs.gauges import run_gauges
from crawlproj.runs.overview import overview_of
from crawlproj.runs.presence import Presence
from crawlproj.runs.processes import forget_supervisor, show_supervisor
from crawlproj.supervisor.autoscale import ScaleState, decide
from crawlproj.supervisor.children import LogFiles
from crawlproj.supervisor.crew import ChildDied, Crew
from crawlproj.supervisor.entry import alive_in, leave
from crawlproj.supervisor.nursery import Nursery
from crawlproj.supervisor.plan import Range
from crawlproj.supervisor.progress import progress_line
from crawlproj.supervisor.view import View

logger = logging.getLogger(__name__)

#: Shells expect 128 + SIGINT of what was interrupted.
EXIT_INTERRUPTED = 130
_LOOK_EVERY_S = 1.0
#: How often it looks, as the leader, whether a limit is reached.
_LEAD_EVERY_S = 3.0
#: How often all that is done when nothing is left to fetch: the end should not be late.
_LOOK_AT_THE_END_S = 0.3
#: How long after its request to stop a child may still take, beyond what it was given to drain.
_GRACE_S = 10.0
#: How long Redis is asked at the end, where a person waits.
_LAST_ANSWER_S = 5.0
_LEADER_MS = 5000
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_Answer = TypeVar("_Answer")


@dataclass(frozen=True, slots=True)
class Ending:
    """How a crawl ended: its exit code, the last status of the run, and what went wrong."""

    code: int
    status: dict[str, Any]
    failure: CrawlError | None = None


class Crawl:
    """The processes of a run on this machine. *settings* are handed on to every child, *log_level* is ours.

    *joins*: with how many shards it joined a run that is at work; None: it is the run's own supervisor and
    starts as many shards as the run has, those left to who joined excepted.
    """

    def __init__(
        self,
        run: Run,
        config: Config,
        parsers: Range,
        settings: Mapping[str, str],
        log_files: LogFiles,
        *,
        log_level: str = "INFO",
        limits: Limits | None = None,
        joins: int | None = None,
        nursery: Nursery | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log_file, self._log_level = log_files.own, log_level
        self._run = run
        self._config = config
        self._joins = joins
        self._clock = clock
        self._progress = View(sys.stderr, limits or Limits())
        # Figures of a whole run are what a supervisor costs. Without a terminal few of them are shown.
        is_seen = sys.stderr.isatty()
        self._look = overview_of if is_seen else status_of
        self._read_every_s = _LOOK_EVERY_S if is_seen else _LEAD_EVERY_S
        self._read_s = self._led_s = self._told_s = -math.inf
        self._crew = Crew(
            run.name,
            log_files.of,
            settings if parsers.most else {**settings, "CRAWL_PARSE": "inline"},
            silent_s=2 * config.shard_lease_seconds,
            patience_s=config.drain_seconds + _GRACE_S,
            say=self._progress.say,
            nursery=nursery,
        )
        self._presence = Presence()
        self._process = ProcessName.of_this()
        self._leader = Leader(run, self._process, _LEADER_MS, config.scheduler_idle_before_close)
        self._scale = ScaleState(parsers, config.page_queue_soft, config.page_queue_soft_bytes)
        self._wanted_parsers = parsers.least
        self._taken: tuple[float, int] | None = None
        self._stop = asyncio.Event()
        self._stir = asyncio.Event()
        self._status: dict[str, Any] = {}
        self._has_led = False

    async def go(self) -> Ending:
        """Run until the end, an interrupt, or a child that cannot go on. No child is left in any case."""
        failure: CrawlError | None = None
        self._status = await status_of(self._run)
        with self._signals(), self._seen():
            try:
                await self._run.begin(is_first=not await alive_in(self._run))
                await self._unless_stopped(self._work())
                await self._leave(asked=self._stop.is_set())
            except CrawlError as exc:
                failure = exc
                await self._leave(asked=True, failure=exc)
            finally:
                self._crew.kill()
        self._status["seconds"] = round(self._progress.end(), 1)
        if failure is not None:
            return Ending(failure.exit_code, self._status, failure)
        return Ending(EXIT_INTERRUPTED if self._stop.is_set() else 0, self._status)

    # -- at work --

    async def _work(self) -> None:
        """Watch over the children until the run is over."""
        while True:
            self._stir.clear()
            # Before the run's record is read: who left because the run is over is then not taken for dead.
            ended = self._crew.take_exits()
            try:
                run_map, (joined, queued_bytes) = await self._run.read_map(), await self._read_more()
            except RunMismatch:
                # Deleted by its last shard, which does that to one that is finished (SCHEDULER_PERSIST).
                self._status["state"] = RunState.FINISHED.value
                return
            if run_map.state and RunState(run_map.state).is_end:
                return
            now_s = self._clock()
            ready_for = run_map.shards - joined if self._joins is None else self._joins
            self._crew.tend_shards(ended, run_map, ready_for, now_s)
            # Not before there is a shard: they have nothing to do yet, and would take its time to start.
            if self._crew.parsers or run_map.alive:
                self._crew.tend_parsers(ended, self._wanted_parsers, now_s)
            self._crew.kill_late(now_s)
            is_busy = self._status["waiting"] or self._status["leased"]
            if not is_busy or now_s - self._read_s >= self._read_every_s:
                self._read_s = now_s
                await self._show()
                self._follow_queue(queued_bytes, self._clock())
            if not is_busy or not self._has_led or now_s - self._led_s >= _LEAD_EVERY_S:
                self._led_s = now_s
                if await self._lead(run_map):
                    continue
            is_calm = is_busy and self._has_led
            await self._pause(_LOOK_EVERY_S if is_calm else _LOOK_AT_THE_END_S)

    async def _read_more(self) -> tuple[int, int]:
        """Return how many shards are left to who joined, and the bytes in the page queue."""
        answers = await self._run.door.pipeline(
            [
                ("HGET", keys.run_record(self._run.name), "joined"),
                ("HGET", keys.page_counters(self._run.name), "queued_bytes"),
            ]
        )
        joined, queued_bytes = (int(answer or 0) for answer in answers)
        return joined, queued_bytes

    async def _lead(self, run_map: RunMap) -> bool:
        """Lead the run if nobody else does; returns whether that ended it."""
        # Held from the beginning: shards look less often, so with one of them the end would come later.
        is_leader = await self._leader.lead()
        await show_supervisor(
            self._run, self._process, self._presence.figures.tell(self._status.get("fetched", 0))
        )
        if not self._has_led:
            # Nothing is judged before our shards are there: without them a run looks as if it were over.
            self._has_led = len(run_map.alive) >= len(self._crew.shards) > 0
            return False
        parser_starts = self._status["pages_queued"] and not self._status["parsers"]
        await self._tell_run(is_leader)
        return is_leader and not parser_starts and await self._leader.step()

    async def _tell_run(self, is_leader: bool) -> None:
        """Tell the figures of the run, if it is ours to tell them, with our own; and a line in the log."""
        now_s = self._clock()
        if not is_leader:
            self._presence.metrics.run_figures = {}
        if now_s - self._told_s < self._config.figures_seconds:
            return
        self._told_s = now_s
        if is_leader:
            await self._tell_figures()
        logger.info(progress_line(self._status, self._progress.pages_per_s, self._progress.seconds))

    async def _tell_figures(self) -> None:
        if self._config.metrics_port:
            self._presence.metrics.run_figures = await run_gauges(self._run, self._config)

    def _follow_queue(self, queued_bytes: int, now_s: float) -> None:
        """Decide how many parsers there should be."""
        if self._scale.allowed.least == self._scale.allowed.most:
            return
        # Pages count as stored only with their segment; who was taken by a parser has left the queue.
        taken = self._status["pages_stored"] + self._status["pages_being_parsed"]
        before_s, before = self._taken or (now_s, taken)
        self._taken = now_s, taken
        rate = max(0, taken - before) / (now_s - before_s) if now_s > before_s else 0.0
        waiting = self._status["pages_queued"]
        decision = decide(self._scale, waiting, queued_bytes, self._wanted_parsers, rate, now_s)
        if decision.reason:
            self._progress.say(f"parsers: {self._wanted_parsers} -> {decision.count}, as {decision.reason}")
        self._wanted_parsers = decision.count

    async def _show(self) -> None:
        self._status = await self._look(self._run)
        self._progress.show(self._status)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stir.wait()
        except TimeoutError:
            pass

    # -- leaving --

    async def _leave(self, *, asked: bool, failure: CrawlError | None = None) -> None:
        """End all children, shards first. *asked*: they are asked to; else they know that the run is over."""
        if asked:
            self._crew.stop_shards(self._clock())
            await self._until(lambda _: self._crew.has_shards)
            await self._in_time(self._note_end(failure))
            self._crew.stop_parsers(self._clock())
        if self._presence.metrics.run_figures:
            # As long as parsers still work, who asks should learn that the run has ended.
            await self._in_time(self._tell_figures())
        await self._until((lambda _: self._crew.has_any) if asked else self._drains)
        await self._in_time(forget_supervisor(self._run, self._process))
        await self._in_time(self._leader.step_down())
        await self._in_time(self._show())

    def _drains(self, ended: Mapping[str, int]) -> bool:
        """Whether parsers still have something to do for a run that is over."""
        try:
            self._crew.drain_parsers(ended, self._clock())
        except ChildDied as exc:
            self._progress.say(f"{exc}\nPages that are not stored yet wait for the next start.")
            self._crew.stop_parsers(self._clock())
            self._crew.parsers, self._crew.leaving = [], [*self._crew.leaving, *self._crew.parsers]
        return bool(self._crew.parsers) or self._crew.has_any

    async def _until(self, goes_on: Callable[[Mapping[str, int]], bool]) -> None:
        """Look at the children until *goes_on* is false; who makes no step forward for too long is killed."""
        # Longer than whoever was asked to stop is given.
        patience_s = self._config.drain_seconds + 2 * _GRACE_S
        moved_s, before = self._clock(), self._left()
        while goes_on(self._crew.take_exits()):
            self._stir.clear()
            now_s = self._clock()
            self._crew.kill_late(now_s)
            await self._in_time(self._show())
            if self._left() != before:
                moved_s, before = now_s, self._left()
            elif now_s - moved_s > patience_s:
                self._crew.kill()
            await self._pause(_LOOK_AT_THE_END_S)

    def _left(self) -> tuple[int, ...]:
        """What grows smaller or larger as long as somebody works."""
        names = ("fetched", "leased", "pages_queued", "pages_being_parsed", "pages_stored")
        return tuple(self._status.get(name, 0) for name in names)

    async def _note_end(self, failure: CrawlError | None) -> None:
        """Say in the record why nobody works on the run, unless somebody does."""
        if self._joins is not None:
            await leave(self._run, self._joins)
        if await alive_in(self._run):
            return
        if failure is None:
            await self._run.end(RunState.STOPPED, "interrupted")
        else:
            reason = failure.reason if isinstance(failure, ChildDied) else str(failure)
            await self._run.end(RunState.FAILED, reason[:500])

    async def _in_time(self, work: Coroutine[Any, Any, object]) -> None:
        """Do *work* if Redis lets us: what is said at the end must not keep a person waiting."""
        try:
            async with asyncio.timeout(_LAST_ANSWER_S):
                await work
        except (TimeoutError, CrawlError) as exc:
            if not isinstance(exc, RunMismatch):
                self._progress.say(f"Redis could not be told or asked: {exc or 'no answer'}")

    # -- what others see --

    @contextmanager
    def _seen(self) -> Iterator[None]:
        """Have a log and metrics while it lasts."""
        handlers = (
            logs.make_handler(self._config.log, self._log_file),
            logs.Sayer(self._progress.say),
        )
        handlers[0].setLevel(self._log_level)
        before = logging.root.level
        logging.root.setLevel(min(handler.level for handler in handlers))
        for handler in handlers:
            logging.root.addHandler(handler)
        self._presence.show(self._config, self._run, "supervisor")
        try:
            yield
        finally:
            self._presence.close()
            for handler in handlers:
                logging.root.removeHandler(handler)
                handler.close()
            logging.root.setLevel(before)

    # -- signals --

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        # Under nohup the end of the terminal is not ours.
        is_detached = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        heard = [s for s in _STOP_SIGNALS if s != signal.SIGHUP or not is_detached]
        for signum in heard:
            loop.add_signal_handler(signum, self._asked_to_stop)
        loop.add_signal_handler(signal.SIGCHLD, self._stir.set)
        try:
            yield
        finally:
            for signum in (*heard, signal.SIGCHLD):
                loop.remove_signal_handler(signum)

    def _asked_to_stop(self) -> None:
        if self._stop.is_set():
            self._progress.say("stopping now")
            self._crew.kill()
        else:
            drain_s = self._config.drain_seconds
            self._progress.say(f"stopping: downloads in flight get {drain_s:g} s; Ctrl-C again stops now")
            self._stop.set()

    async def _unless_stopped(self, work: Coroutine[Any, Any, _Answer]) -> _Answer | None:
        """Do *work* until it is done or a signal comes, also while it waits for Redis."""
        at_work = asyncio.create_task(work, name="supervisor")
        stop = asyncio.create_task(self._stop.wait(), name="stop")
        await asyncio.wait({at_work, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if at_work.done():
            return at_work.result()
        at_work.cancel()
        await asyncio.wait({at_work})
        return None


def run_directory(data: Path, run: str) -> Path:
    return data / "runs" / run


async def fresh_run_name(door: Door, stem: str) -> str:
    """Return *stem*, or with a number behind it, of a run that is new or not finished yet."""
    number = 1
    while True:
        name = stem if number == 1 else f"{stem}-{number}"
        if await Run(door, name, 1).state() != RunState.FINISHED:
            return name
        number += 1


def changed_settings(pairs: list[str]) -> dict[str, str]:
    """Return the ``NAME=VALUE`` of -s as a mapping."""
    return dict(pair.split("=", 1) for pair in pairs)
