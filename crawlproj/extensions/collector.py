"""Python's garbage collector, told what a shard is like.

Scrapy's modules make half a million objects that never go away, and a page makes hundreds that go away by
themselves. By default the collector walks all of them again and again, a sixth of a shard's time.
"""

from __future__ import annotations

import gc
from typing import Self

from scrapy import signals
from scrapy.crawler import Crawler

#: Allocations between two looks at the young objects; 700 in Python.
_YOUNG = 20_000
#: Looks at the young between two at the middle-aged, and of those between two at the old; 10 in Python.
_OLDER = 20


class CalmCollector:
    """Sets the collector up when the spider has been opened, and puts it back when it is closed."""

    def __init__(self, crawler: Crawler) -> None:
        self._before = gc.get_threshold()
        crawler.signals.connect(self._calm, signals.spider_opened)
        crawler.signals.connect(self._restore, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def _calm(self) -> None:
        gc.collect()
        gc.freeze()
        gc.set_threshold(_YOUNG, _OLDER, _OLDER)

    def _restore(self) -> None:
        gc.set_threshold(*self._before)
        gc.unfreeze()
