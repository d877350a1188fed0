"""Gives crawls that belong to no run Scrapy's own scheduler: `scrapy shell`, `fetch`, `parse` and the like.

An add-on, because only those can change the components of a crawl after its spider is known. What holds for
such crawls is in docs/tools.md.
"""

from __future__ import annotations

from typing import Self

from scrapy import signals
from scrapy.crawler import Crawler
from scrapy.settings import BaseSettings
from scrapy.spiderloader import DummySpiderLoader

from crawlproj.shard import seams

#: The scheduler of runs.
_OURS = "crawlproj.scheduler.Scheduler"
_SCRAPYS = "scrapy.core.scheduler.Scheduler"
#: Components that a run does without: the frontier does their work.
_LEFT_OUT = {
    "DOWNLOADER_MIDDLEWARES": {"crawlproj.extensions.robotstxt.RobotsTxtMiddleware": 100},
    "EXTENSIONS": {"scrapy.extensions.logstats.LogStats": 0},
}
#: Scrapy's commands, and ScrapyRT, put a `start` of their own into the spider.
_COMMANDS = ("scrapy.commands.", "scrapyrt.")
#: `scrapy bench` crawls nothing but a server that it starts on this machine.
_BENCH = {
    "CRAWL_ALLOW_ADDRESSES": ("127.0.0.0/8", "::1"),
    "CONCURRENT_REQUESTS_PER_DOMAIN": 8,
    "DOWNLOAD_DELAY": 0,
}


class ToolSettings:
    """Changes the settings of a crawl that belongs to no run; those of all others stay as they are."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Self:
        return cls(crawler)

    def update_settings(self, settings: BaseSettings) -> None:
        if belongs_to_a_run(self._crawler):
            return
        self._crawler.signals.connect(seams.use_bundled_suffix_list, signals.spider_opened)
        if settings["SCHEDULER"] == _OURS:
            _replace(settings, "SCHEDULER", _SCRAPYS)
        for table, components in _LEFT_OUT.items():
            _replace(settings, table, {**settings[table], **components})
        if _module_of_start(self._crawler) == "scrapy.commands.bench":
            settings.setdict(_BENCH, priority="project")


def belongs_to_a_run(crawler: Crawler) -> bool:
    """Whether our scheduler serves a crawl.

    It does if a spider of the project sends its own requests, by `scrapy crawl`, `scrapy run`, scrapyd or a
    script. It does not if a command of Scrapy's sends them, if the spider is only a file, or if the settings
    name another scheduler.
    """
    settings = crawler.settings
    # `scrapy shell` runs an engine without a crawl.
    is_shell = not crawler.crawling
    is_command = _module_of_start(crawler).startswith(_COMMANDS)
    is_file = settings["SPIDER_LOADER_CLASS"] is DummySpiderLoader  # `scrapy runspider`
    return settings["SCHEDULER"] == _OURS and not (is_shell or is_command or is_file)


def _module_of_start(crawler: Crawler) -> str:
    return str(getattr(crawler.spidercls.start, "__module__", ""))


def _replace(settings: BaseSettings, name: str, value: object) -> None:
    """Set *value* whatever priority the present one has."""
    settings.set(name, value, priority=settings.getpriority(name) or 0)
