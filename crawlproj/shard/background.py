"""What a shard does beside fetching: lead the run, publish metrics, log progress, watch the supervisor."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import time
from collections.abc import Callable, Coroutine

from scrapy.statscollectors import StatsCollector

from crawlproj.config import Config
from crawlproj.download.client import HttpClient
from crawlproj.errors import CrawlError, NoSeeds
from crawlproj.frontier.feed import Feed
from crawlproj.observe.metrics import Metrics
from crawlproj.runs import Leader, Run, RunState
from crawlproj.runs.gauges import run_gauges
from crawlproj.runs.history import LEAST_S

logger = logging.getLogger(__name__)

#: How soon an idle shard checks whether the run is over.
_LEAD_S = 0.5
#: How often a shard with metrics takes or keeps the lead, which is lost after 5 s.
_KEEP_LEAD_S = 2.0
#: How often a shard checks whether its machine reaches the web.
_EGRESS_S = 2.0
#: How often a shard checks whether its supervisor is alive.
_WATCH_S = 1.0
#: How long a shard without a supervisor may take to stop, beyond its time to drain.
_LEAVE_S = 10.0
#: Allocations between collections of the young generation; 700 by default.
_YOUNG = 20_000
#: Collections of a generation between those of the next older one; 10 by default.
_OLDER = 20


async def lead(
    leader: Leader,
    feed: Feed,
    has_work: Callable[[], bool],
    *,
    is_started: Callable[[], bool],
    wake: Callable[[], None],
) -> None:
    """While this shard is idle, find out whether the whole run is; end it if so.

    *has_work*: this shard is not idle. *is_started*: all start requests have reached the scheduler. *wake*
    makes the engine ask the spider for more. Raises NoSeeds when the run never had a seed.
    """
    dispatcher = feed.dispatcher
    pause_s = _LEAD_S
    idle_s = unled_s = 0.0
    while True:
        await asyncio.sleep(pause_s)
        unled_s += pause_s
        if feed.starting and is_started() and not dispatcher.candidates:
            feed.stop_starting()
        is_idle = not has_work() and not feed.starting
        if is_idle and not idle_s:
            # Handlers of spider_idle may add requests; the engine itself calls them only every 5 s.
            wake()
        idle_s = idle_s + pause_s if is_idle else 0.0
        pause_s = min(pause_s * 1.5, 2.0) if is_idle else _LEAD_S
        # A run without limits cannot end while this shard has work, but it has a history.
        if not (is_idle or feed.has_limits or unled_s >= LEAST_S):
            continue
        unled_s = 0.0
        if not await leader.lead():
            continue
        if await leader.step():
            return
        leader.check_seeded()
        if leader.awaits_parsers:
            pause_s = _LEAD_S
        elif leader.is_quiet:
            # Only another process can add work now, and that wakes us.
            left_s = leader.idle_before_close_s - idle_s
            pause_s = min(max(_LEAD_S, left_s), max(pause_s, idle_s / 2))


async def lead_without_seeds(leading: Coroutine[None, None, None], run: Run) -> None:
    """Lead the run of a user's spider: one that sends no requests is finished, and may have had items."""
    try:
        await leading
    except NoSeeds:
        await run.end(RunState.FINISHED)


async def publish_run_metrics(leader: Leader, run: Run, metrics: Metrics, config: Config) -> None:
    """While this shard leads, publish the metrics of the run with its own."""
    read_s, is_well = float("-inf"), True
    while True:
        try:
            if not await leader.lead():
                metrics.run_figures = {}
            elif time.monotonic() - read_s >= config.figures_seconds:
                read_s = time.monotonic()
                metrics.run_figures = await run_gauges(run, config)
            is_well = True
        except CrawlError as exc:
            # Stale metrics would look current.
            metrics.run_figures = {}
            if is_well:
                logger.warning("cannot read the metrics of the run: %s", exc)
            is_well = False
        await asyncio.sleep(min(_KEEP_LEAD_S, config.figures_seconds))


async def watch_egress(feed: Feed, client: HttpClient) -> None:
    """Leave our domains to other machines while no site can be reached from this one."""
    number, egress = feed.number, feed.dispatcher.egress
    while True:
        await asyncio.sleep(_EGRESS_S)
        if not number.cut_off:
            if number.others_fetch and egress.is_lost(feed.dispatcher.clock()):
                number.cut_off = True
                # An error, so that `scrapy run` and `scrapy status` show it.
                logger.error(
                    "no site can be reached from this machine; others get its domains. Check network and DNS"
                )
                feed.renew_soon()
            continue
        for url in egress.samples:
            if await client.reaches(url):
                number.cut_off = False
                egress.answered()
                logger.warning("sites can be reached again from this machine; it takes its domains back")
                feed.renew_soon()
                break


class ProgressLog:
    """Logs the progress of a shard."""

    def __init__(
        self, feed: Feed, stats: StatsCollector, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._feed = feed
        self._stats = stats
        self._clock = clock
        self._logged_s, self._logged_pages = clock(), 0

    async def log_every(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            self.log()

    def log(self) -> None:
        feed, dispatcher = self._feed, self._feed.dispatcher
        pages, now_s = self._stats.get_value("response_received_count", 0), self._clock()
        seconds = now_s - self._logged_s
        rate = (pages - self._logged_pages) / seconds if seconds > 0 else 0.0
        self._logged_s, self._logged_pages = now_s, pages
        back_pressure = {level: count for level, count in feed.metrics.back_pressure.items() if count}
        for level, count in back_pressure.items():
            self._stats.set_value(f"page_queue/{level}_limit_count", count)
        logger.info(
            "shard %d: %d responses, %.1f per second; %d partitions, %d leases, %d of them waiting",
            feed.number.number,
            pages,
            rate,
            len(feed.partitions),
            len(dispatcher.leases),
            dispatcher.pacer.buffered,
            extra={"back_pressure": back_pressure},
        )


def tune_collector() -> Callable[[], None]:
    """Make Python's garbage collector run less often; returns what restores it.

    Scrapy's modules make half a million objects that live forever, and a page makes hundreds that are freed
    without the collector. By default it walks all of them again and again, a sixth of a shard's time.
    """
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _OLDER, _OLDER)

    def restore() -> None:
        gc.set_threshold(*before)
        gc.unfreeze()

    return restore


async def watch_supervisor(config: Config) -> None:
    """Stop as on SIGTERM when the process that started this one is gone."""
    pid = config.supervisor
    while os.getppid() == pid:  # noqa: ASYNC110  # there is no event for the death of a parent
        await asyncio.sleep(_WATCH_S)
    logger.error("the supervisor, process %d, is gone; stopping this shard", pid)
    signal.raise_signal(signal.SIGTERM)
    # A second one, in case the shard cannot stop because Redis is unreachable.
    limit_s = config.drain_seconds + _LEAVE_S
    asyncio.get_running_loop().call_later(limit_s, signal.raise_signal, signal.SIGTERM)
