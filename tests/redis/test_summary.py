"""The line of a shard in its log."""

from __future__ import annotations

import logging

import pytest
from scrapy import signals

from crawlproj.extensions.summary import ShardSummary
from tests.redis.shards import Shards


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


async def test_the_last_line_has_the_rate_of_the_time_since_the_one_before(
    shards: Shards, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "crawlproj.extensions.summary")
    shard, clock = await shards.open(), Clock()
    crawler = shard.crawler()
    summary = ShardSummary(crawler, 60.0, clock)
    await crawler.signals.send_catch_log_async(signals.spider_opened)
    assert crawler.stats is not None
    shard.feed.metrics.back_pressure["hard"] += 1

    clock.now_s += 2
    crawler.stats.set_value("response_received_count", 50)
    await crawler.signals.send_catch_log_async(signals.spider_closed)

    assert summary is not None
    assert "shard 0: 50 responses, 25.0 per second" in caplog.text
    assert crawler.stats.get_value("page_queue/hard_limit_count") == 1
    assert crawler.stats.get_value("page_queue/soft_limit_count") is None
