"""A line now and then on how a shard comes along, in place of Scrapy's LogStats, which knows no frontier."""

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
from crawlproj.frontier.feed import Feed

logger = logging.getLogger(__name__)


class ShardSummary:
    """Logs every CRAWL_FIGURES_SECONDS; LOGSTATS_INTERVAL=0 switches it off, as with LogStats."""

    def __init__(
        self, crawler: Crawler, interval_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._crawler = crawler
        self._interval_s = interval_s
        self._clock = clock
        self._told_s, self._told_pages = clock(), 0
        self._loop: Any = create_looping_call(self._tell)
        crawler.signals.connect(self._start, signals.spider_opened)
        crawler.signals.connect(self._stop, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        if not crawler.settings.getfloat("LOGSTATS_INTERVAL"):
            raise NotConfigured
        try:
            return cls(crawler, load_config(crawler.settings.copy_to_dict()).figures_seconds)
        except BadSetting:
            # The scheduler refuses wrong settings, in one clear line.
            raise NotConfigured from None

    def _start(self) -> None:
        self._told_s = self._clock()
        self._loop.start(self._interval_s, now=False)

    def _stop(self) -> None:
        if self._loop.running:
            self._loop.stop()
        self._tell()

    def _tell(self) -> None:
        # None when the shard never got as far as its Redis.
        feed: Feed | None = getattr(self._crawler, "feed", None)
        if feed is None:
            return
        assert self._crawler.stats is not None
        pages = self._crawler.stats.get_value("response_received_count", 0)
        now_s = self._clock()
        seconds = now_s - self._told_s
        rate = (pages - self._told_pages) / seconds if seconds > 0 else 0.0
        self._told_s, self._told_pages = now_s, pages
        # How often the page queue made this shard lease less (soft) or nothing (hard).
        back_pressure = {level: count for level, count in feed.metrics.back_pressure.items() if count}
        for level, count in back_pressure.items():
            self._crawler.stats.set_value(f"page_queue/{level}_limit_count", count)
        logger.info(
            "shard %d: %d responses, %.1f a second lately; %d partitions, %d leases held, %d of them waiting",
            feed.number.number,
            pages,
            rate,
            len(feed.partitions),
            feed.held,
            feed.pacer.buffered,
            extra={"back_pressure": back_pressure},
        )
