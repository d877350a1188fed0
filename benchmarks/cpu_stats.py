"""A Scrapy extension that writes down what a crawl cost its process, without starting and ending Python."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Self

from scrapy import signals
from scrapy.crawler import Crawler


class CpuStats:
    """Writes CPU time between spider_opened and spider_closed, all threads, to the file BENCH_CPU_FILE."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened_s = 0.0

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        extension = cls(Path(str(crawler.settings["BENCH_CPU_FILE"])))
        crawler.signals.connect(extension.opened, signals.spider_opened)
        crawler.signals.connect(extension.closed, signals.spider_closed)
        return extension

    def opened(self) -> None:
        self._opened_s = time.process_time()

    def closed(self) -> None:
        used_s = time.process_time() - self._opened_s
        self._path.write_text(json.dumps({"cpu_s": used_s}))
