"""The line of a shard in its log."""

from __future__ import annotations

import logging

import pytest

from crawlproj.shard.background import ProgressLog
from tests.clock import Clock
from tests.redis.shards import Shards


async def test_a_line_has_the_rate_of_the_time_since_the_one_before(
    shards: Shards, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "crawlproj.shard.background")
    shard, clock = await shards.open(), Clock(100.0)
    stats = shard.crawler().stats
    assert stats is not None
    progress = ProgressLog(shard.feed, stats, clock)
    shard.feed.metrics.back_pressure["hard"] += 1

    clock.now_s += 2
    stats.set_value("response_received_count", 50)
    progress.log()

    assert "shard 0: 50 responses, 25.0 per second" in caplog.text
    assert stats.get_value("page_queue/hard_limit_count") == 1
    assert stats.get_value("page_queue/soft_limit_count") is None
