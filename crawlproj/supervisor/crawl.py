"""The supervisor of a crawl: `scrapy run`.

The run's record says how many shards there should be and when the run is over. The supervisor starts shards
and parsers to match, leads the run if no other process does, and stops its processes in order.
"""

from __future__ import annotations

import asyncio
import logging
import math
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from crawlproj.config import Config
from crawlproj.errors import EXIT_INTERRUPTED, CrawlError, RunMismatch, SetBack
from crawlproj.observe import logs
from crawlproj.redisio.stripes import read_page_queue
from crawlproj.runs import Leader, Run, RunMap, RunState, status_of
from crawlproj.runs.gauges import run_gauges
from crawlproj.runs.membership import Given, Membership
from crawlproj.runs.overview import overview_of
from crawlproj.runs.telemetry import Telemetry
from crawlproj.supervisor.autoscale import ScaleState, decide
from crawlproj.supervisor.children import LogFiles
from crawlproj.supervisor.claim import live_shards, others_continue
from crawlproj.supervisor.crew import ChildDied, Crew
from crawlproj.supervisor.forkpool import ForkPool
from crawlproj.supervisor.plan import Range, longest_pause_s
from crawlproj.supervisor.progress import progress_line
from crawlproj.supervisor.stopsignals import stop_signals
from crawlproj.supervisor.view import View

logger = logging.getLogger(__name__)

_POLL_S = 1.0
#: How often the leader checks the limits.
_LEAD_EVERY_S = 3.0
#: Poll faster once nothing is left to fetch, so that the end is noticed at once.
_POLL_AT_END_S = 0.3
#: How long a child may take to stop beyond its time to drain.
_GRACE_S = 10.0
#: How long to wait for Redis while shutting down.
_LAST_ANSWER_S = 5.0
_LEADER_MS = 5000


@dataclass(frozen=True, slots=True)
class CrawlResult:
    code: int
    status: dict[str, Any]
    failure: CrawlError | None = None


class Crawl:
    """The processes of a run on this machine; which shards these are, the others and we agree on as members.

    *settings* go to every child, *log_level* is the supervisor's. *restore* is called when Redis may have
    lost rules and seeds.
    """

    def __init__(
        self,
        membership: Membership,
        run: Run,
        config: Config,
        parsers: Range,
        settings: Mapping[str, str],
        log_files: LogFiles,
        *,
        log_level: str = "INFO",
        forkpool: ForkPool | None = None,
        restore: Callable[[], Awaitable[object]] | None = None,
        spider_words: Sequence[str] = ("web",),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log_file, self._log_level = log_files.own, log_level
        self._run = run
        run.watch()
        self._restore = restore
        self._generation = 0
        self._config = config
        self._clock = clock
        self._view = View(sys.stderr)
        # The overview is most of a supervisor's cost, and only a terminal shows all of it.
        is_terminal = sys.stderr.isatty()
        self._read_status = overview_of if is_terminal else status_of
        self._read_every_s = _POLL_S if is_terminal else _LEAD_EVERY_S
        self._read_s = self._led_s = self._published_s = -math.inf
        self._crew = Crew(
            run.name,
            log_files.of,
            settings if parsers.most else {**settings, "CRAWL_PARSE": "inline"},
            silent_s=2 * config.shard_lease_seconds,
            patience_s=config.drain_seconds + _GRACE_S,
            notify=self._view.notify,
            forkpool=forkpool,
            spider_words=spider_words,
            merges=bool(config.compact_bytes),
        )
        self._telemetry = Telemetry()
        self._membership, self._process = membership, membership.process
        self._figures: dict[str, Any] = {}
        self._given = Given(0, 1, ())
        self._leader = Leader(run, self._process, _LEADER_MS, config.scheduler_idle_before_close)
        self._scale = ScaleState(parsers, config.page_queue_soft, config.page_queue_soft_bytes)
        self._parsers_wanted = parsers.least
        self._taken: tuple[float, int] | None = None
        self._stop = asyncio.Event()
        self._wake = asyncio.Event()
        self._status: dict[str, Any] = {}
        self._has_led = False

    async def run(self) -> CrawlResult:
        """Run until the end, an interrupt, or a child that keeps failing. Leaves no child behind."""
        failure: CrawlError | None = None
        self._status = await status_of(self._run)
        with self._signals(), self._logs_and_metrics():
            try:
                await self._run.begin(is_first=not await live_shards(self._run))
                is_open = True
                while is_open:
                    await self._supervise_until_stopped()
                    is_open = not await self._shut_down(stop=self._stop.is_set())
            except CrawlError as exc:
                failure = exc
                await self._shut_down(stop=True, failure=exc)
            finally:
                self._crew.kill()
        self._status["seconds"] = round(self._view.end(), 1)
        self._status["cpu_seconds"] = {"supervisor": time.process_time(), **self._crew.cpu_s}
        if failure is not None:
            return CrawlResult(failure.exit_code, self._status, failure)
        return CrawlResult(EXIT_INTERRUPTED if self._stop.is_set() else 0, self._status)

    # -- supervising --

    async def _supervise(self) -> None:
        """Keep the right children running until the run is over."""
        while True:
            self._wake.clear()
            # Before the record is read, so that a child that exited because the run is over is not restarted.
            ended = self._crew.take_exits()
            try:
                await self._restore_lost()
                run_map = await self._run.read_map()
                given = await self._stay_member(run_map)
                _, queued_bytes = await read_page_queue(self._run.client, self._run.name)
            except RunMismatch:
                if self._config.scheduler_persist:
                    raise
                # Its last shard has deleted it, as it has finished.
                self._status["state"] = RunState.FINISHED.value
                return
            if run_map.state.is_end:
                return
            now_s, young_s = self._clock(), longest_pause_s(self._view.seconds)
            self._crew.maintain_shards(ended, run_map, given.numbers, now_s)
            # Shards first: parsers have nothing to do yet, and would slow down their start.
            if self._crew.parsers or run_map.alive:
                self._crew.maintain_parsers(ended, self._parsers_wanted, now_s)
            self._crew.maintain_merger(now_s)
            self._crew.kill_overdue(now_s)
            is_busy = self._status["waiting"] or self._status["leased"]
            if not is_busy or now_s - self._read_s >= min(young_s, self._read_every_s):
                self._read_s = now_s
                await self._refresh()
                self._scale_parsers(queued_bytes, self._clock())
            if not is_busy or not self._has_led or now_s - self._led_s >= min(young_s, _LEAD_EVERY_S):
                self._led_s = now_s
                if await self._lead(run_map):
                    continue
            is_calm = is_busy and self._has_led
            await self._sleep(min(young_s, _POLL_S) if is_calm else _POLL_AT_END_S)

    async def _restore_lost(self) -> None:
        generation = self._run.client.generation
        if generation != self._generation and self._restore is not None:
            # Not into another run of this name.
            await self._run.read_map()
            try:
                await self._restore()
            except SetBack:
                # Once more, then.
                return
        self._generation = generation

    async def _stay_member(self, run_map: RunMap) -> Given:
        elsewhere = self._crew.elsewhere(run_map)
        given = await self._membership.keep(self._crew.shards, elsewhere, self._figures)
        before, self._given = self._given, given
        if given != before and given.members + before.members > 2:
            mine = ", ".join(map(str, sorted(given.numbers))) or "none"
            self._view.notify(f"machines: {given.members}, shards: {given.shards}; this one runs: {mine}")
        return given

    async def _lead(self, run_map: RunMap) -> bool:
        """Lead the run if no other process does; returns whether that ended it."""
        # From the start: shards check less often, so with a shard as leader the end would come later.
        is_leader = await self._leader.lead()
        self._figures = self._telemetry.heartbeat.beat(self._status.get("fetched", 0))
        if not self._has_led:
            # Not before our shards are up: a run without shards looks finished.
            self._has_led = len(run_map.alive) >= len(self._crew.shards) > 0
            return False
        parser_starts = self._status["pages_queued"] and not self._status["parsers"]
        await self._publish_run(is_leader)
        return is_leader and not parser_starts and await self._leader.step()

    async def _publish_run(self, is_leader: bool) -> None:
        """Publish the run's metrics if we are the leader, and log the progress."""
        now_s = self._clock()
        if not is_leader:
            self._telemetry.metrics.run_figures = {}
        if now_s - self._published_s < self._config.figures_seconds:
            return
        self._published_s = now_s
        if is_leader:
            await self._publish_metrics()
        logger.info(progress_line(self._status, self._view.pages_per_s, self._view.seconds))

    async def _publish_metrics(self) -> None:
        if self._config.metrics_port:
            self._telemetry.metrics.run_figures = await run_gauges(self._run, self._config)

    def _scale_parsers(self, queued_bytes: int, now_s: float) -> None:
        if self._scale.allowed.least == self._scale.allowed.most:
            return
        # What has left the queue: pages are counted as stored only with their segment.
        taken = self._status["pages_stored"] + self._status["pages_being_parsed"]
        before_s, before = self._taken or (now_s, taken)
        self._taken = now_s, taken
        rate = max(0, taken - before) / (now_s - before_s) if now_s > before_s else 0.0
        waiting = self._status["pages_queued"]
        decision = decide(self._scale, waiting, queued_bytes, self._parsers_wanted, rate, now_s)
        if decision.reason:
            self._view.notify(f"parsers: {self._parsers_wanted} -> {decision.count}: {decision.reason}")
        self._parsers_wanted = decision.count

    async def _refresh(self) -> None:
        self._status = await self._read_status(self._run)
        self._view.show(self._status)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass

    # -- shutting down --

    async def _shut_down(self, *, stop: bool, failure: CrawlError | None = None) -> bool:
        """Wait until all children have exited. *stop*: signal them, shards first; else the run is over.

        Returns False if it is not over after all: it got more seeds, or Redis was set back to before its end.
        """
        await self._with_timeout(self._refresh())
        if stop:
            self._crew.stop_shards(self._clock())
            await self._wait_while(lambda _: self._crew.has_shards)
            await self._with_timeout(self._record_end(failure), self._config.shard_lease_seconds)
            self._crew.stop_parsers(self._clock())
        if self._telemetry.metrics.run_figures:
            # Parsers may still work: until they are done the endpoint shows that the run has ended.
            await self._with_timeout(self._publish_metrics())
        await self._wait_while((lambda _: self._crew.has_any) if stop else self._is_draining)
        if not stop and not self._is_over:
            return False
        await self._with_timeout(self._membership.leave(continues=not self._is_over))
        await self._with_timeout(self._leader.step_down())
        await self._with_timeout(self._refresh())
        return True

    @property
    def _is_over(self) -> bool:
        return RunState(self._status["state"]).is_end

    def _is_draining(self, ended: Mapping[str, int]) -> bool:
        """Whether parsers still work on a run that is over."""
        if not self._is_over:
            return False
        try:
            self._crew.drain_parsers(ended, self._clock())
        except ChildDied as exc:
            self._view.notify(f"{exc}\nPages not stored yet are kept for the next start.")
            self._crew.stop_parsers(self._clock())
            self._crew.parsers, self._crew.leaving = [], [*self._crew.leaving, *self._crew.parsers]
        return bool(self._crew.parsers) or self._crew.has_any

    async def _wait_while(self, is_busy: Callable[[Mapping[str, int]], bool]) -> None:
        """Wait until *is_busy* is false; kill the children when they make no progress for too long."""
        # Longer than the deadline of a child that was signalled.
        patience_s = self._config.drain_seconds + 2 * _GRACE_S
        moved_s, before = self._clock(), self._progress_counts()
        while is_busy(self._crew.take_exits()):
            self._wake.clear()
            now_s = self._clock()
            self._crew.kill_overdue(now_s)
            await self._with_timeout(self._refresh())
            if self._progress_counts() != before:
                moved_s, before = now_s, self._progress_counts()
            elif now_s - moved_s > patience_s and not self._crew.is_merging:
                self._crew.kill()
            await self._sleep(_POLL_AT_END_S)

    def _progress_counts(self) -> tuple[int, ...]:
        """Return counts that change as long as any child works."""
        names = ("fetched", "leased", "pages_queued", "pages_being_parsed", "pages_stored")
        return tuple(self._status.get(name, 0) for name in names)

    async def _record_end(self, failure: CrawlError | None) -> None:
        """Record why the run stopped, unless it is not ours, or other processes still work on it."""
        await self._membership.leave(continues=True)
        lease_s = self._config.shard_lease_seconds
        if isinstance(failure, RunMismatch) or await others_continue(self._run, self._membership, lease_s):
            return
        if failure is None:
            await self._run.end(RunState.STOPPED, "interrupted")
        else:
            reason = failure.reason if isinstance(failure, ChildDied) else str(failure)
            await self._run.end(RunState.FAILED, reason[:500])

    async def _with_timeout(self, work: Coroutine[Any, Any, object], more_s: float = 0.0) -> None:
        """Do *work* if Redis answers soon: it must not hold up the shutdown."""
        try:
            async with asyncio.timeout(_LAST_ANSWER_S + more_s):
                await work
        except (TimeoutError, CrawlError) as exc:
            if not isinstance(exc, RunMismatch):
                self._view.notify(f"Redis is unreachable: {str(exc) or 'no answer'}")

    # -- logs and metrics --

    @contextmanager
    def _logs_and_metrics(self) -> Iterator[None]:
        handlers = (
            logs.make_handler(self._config.log, self._log_file),
            logs.CallbackHandler(self._view.notify),
        )
        handlers[0].setLevel(self._log_level)
        before = logging.root.level
        logging.root.setLevel(min(handler.level for handler in handlers))
        for handler in handlers:
            logging.root.addHandler(handler)
        self._telemetry.start(self._config, self._run, "supervisor")
        try:
            yield
        finally:
            self._telemetry.close()
            for handler in handlers:
                logging.root.removeHandler(handler)
                handler.close()
            logging.root.setLevel(before)

    # -- signals --

    @contextmanager
    def _signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        handled = stop_signals()
        for signum in handled:
            loop.add_signal_handler(signum, self._on_stop_signal)
        loop.add_signal_handler(signal.SIGCHLD, self._wake.set)
        try:
            yield
        finally:
            for signum in (*handled, signal.SIGCHLD):
                loop.remove_signal_handler(signum)

    def _on_stop_signal(self) -> None:
        if self._stop.is_set():
            self._view.notify("stopping now")
            self._crew.kill()
        else:
            drain_s = self._config.drain_seconds
            self._view.notify(f"stopping: downloads get up to {drain_s:g} s; Ctrl-C again stops now")
            self._stop.set()

    async def _supervise_until_stopped(self) -> None:
        """Supervise until the run is over or a signal arrives, even while waiting for Redis."""
        at_work = asyncio.create_task(self._supervise(), name="supervisor")
        stop = asyncio.create_task(self._stop.wait(), name="stop")
        await asyncio.wait({at_work, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if at_work.done():
            at_work.result()
        at_work.cancel()
        await asyncio.wait({at_work})
