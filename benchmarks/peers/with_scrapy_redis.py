"""scrapy-redis: the stock spider with queue and dupefilter in Redis. Seeds come from ``pages:start_urls``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scrapy import Request
from scrapy.http import TextResponse
from scrapy_redis.spiders import RedisSpider
from stock import SETTINGS, read_page


class PagesSpider(RedisSpider):  # type: ignore[misc]
    name = "pages"
    custom_settings = SETTINGS | {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        # Otherwise the process that ends first empties queue and dupefilter for the other one, too.
        "SCHEDULER_PERSIST": True,
        # Idle spiders poll every five seconds; the second process may wait that long for its first work.
        "MAX_IDLE_TIME_BEFORE_CLOSE": 8,
    }

    def make_request_from_data(self, data: bytes) -> Request:
        # Its own passes the dupefilter by, and pages that link to a seed make it fetched twice.
        return Request(data.decode())

    def parse(self, response: TextResponse, **kwargs: Any) -> Iterator[Any]:
        return read_page(response)
