"""A Scrapy extension that writes down how late the loop of a shard was."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Self

from scrapy import signals
from scrapy.crawler import Crawler

#: How long each sleep is; any time beyond it is the lag.
_NAP_S = 0.005


class LoopLag:
    """Writes the lag between spider_opened and spider_closed to BENCH_LAG_FILE, as JSON."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lags_s: list[float] = []

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        extension = cls(Path(str(crawler.settings["BENCH_LAG_FILE"])))
        crawler.signals.connect(extension.opened, signals.spider_opened)
        crawler.signals.connect(extension.closed, signals.spider_closed)
        return extension

    def opened(self) -> None:
        self._task = asyncio.create_task(self._watch(), name="loop lag")

    def closed(self) -> None:
        self._task.cancel()
        lags_s = sorted(self._lags_s)
        places = {"p50_ms": len(lags_s) // 2, "p99_ms": len(lags_s) * 99 // 100, "max_ms": -1}
        self._path.write_text(json.dumps({name: 1000 * lags_s[place] for name, place in places.items()}))

    async def _watch(self) -> None:
        while True:
            before_s = time.perf_counter()
            await asyncio.sleep(_NAP_S)
            self._lags_s.append(time.perf_counter() - before_s - _NAP_S)
