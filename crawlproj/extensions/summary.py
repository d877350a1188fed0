"""Logs the progress of a shard, instead of Scrapy's LogStats, which does not know the frontier."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any, Self

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.exceptions import NotConfigured
from scrapy.utils.asyncio import create_looping_call

from crawlproj.config import load_config
from crawlproj.errors import BadSetting
from crawlproj.shard.context import find_context

logger = logging.getLogger(__name__)


class ShardSummary:
    """Logs every CRAWL_FIGURES_SECONDS; LOGSTATS_INTERVAL=0 switches it off, as with LogStats."""

    def __init__(
        self, crawler: Crawler, interval_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._crawler = crawler
        self._interval_s = interval_s
        self._clock = clock
        self._logged_s, self._logged_pages = clock(), 0
        self._loop: Any = create_looping_call(self._log)
        crawler.signals.connect(self._start, signals.spider_opened)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if not crawler.settings.getfloat("LOGSTATS_INTERVAL"):
            raise NotConfigured
        try:
            return cls(crawler, load_config(crawler.settings.copy_to_dict()).figures_seconds)
        except BadSetting:
            # The scheduler reports bad settings.
            raise NotConfigured from None

    def _start(self) -> None:
        self._logged_s = self._clock()
        self._loop.start(self._interval_s, now=False)

    def _stop(self) -> None:
        if self._loop.running:
            self._loop.stop()
        self._log()

    def _log(self) -> None:
        context = find_context(self._crawler)
        # None if the shard could not start.
        if context is None:
            return
        feed, dispatcher = context.feed, context.feed.dispatcher
        assert self._crawler.stats is not None
        pages = self._crawler.stats.get_value("response_received_count", 0)
        now_s = self._clock()
        seconds = now_s - self._logged_s
        rate = (pages - self._logged_pages) / seconds if seconds > 0 else 0.0
        self._logged_s, self._logged_pages = now_s, pages

        back_pressure = {level: count for level, count in feed.metrics.back_pressure.items() if count}
        for level, count in back_pressure.items():
            self._crawler.stats.set_value(f"page_queue/{level}_limit_count", count)
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
