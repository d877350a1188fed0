"""Which components and listeners of a user keep pages from being fetched directly."""

from __future__ import annotations

import pytest
from scrapy import signals
from scrapy.core.engine import ExecutionEngine
from scrapy.crawler import Crawler
from scrapy.settings import Settings

from crawlproj import settings as project
from crawlproj.shard.ways import reason_against
from crawlproj.spiders.web import WebSpider

#: All that Scrapy's engine sends about requests, responses and items on their way.
ABOUT_FETCHES = (
    "request_reached_downloader",
    "request_left_downloader",
    "headers_received",
    "bytes_received",
    "response_downloaded",
    "response_received",
    "spider_error",
    "item_scraped",
    "item_dropped",
    "item_error",
)
#: What a direct fetch does not bypass.
ABOUT_OTHER_THINGS = ("spider_opened", "spider_idle", "spider_closed", "request_scheduled", "scheduler_empty")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def crawler_with(**changed: object) -> Crawler:
    settings = Settings()
    settings.setmodule(project, priority="project")
    # No reactor in the test's process.
    settings.update({"TWISTED_REACTOR_ENABLED": False, **changed}, priority="cmdline")
    crawler = Crawler(WebSpider, settings)
    # As in `scrapy crawl`; without it, this would be one of Scrapy's tools.
    crawler.crawling = True
    crawler._apply_settings()
    crawler.spider = crawler._create_spider()
    crawler.engine = ExecutionEngine(crawler, lambda _: None)
    return crawler


@pytest.fixture
async def crawler() -> Crawler:
    return crawler_with()


def heard() -> None: ...


async def test_nothing_speaks_against_it_as_the_project_comes(crawler: Crawler) -> None:
    assert reason_against(crawler) == ""


@pytest.mark.parametrize("name", ABOUT_FETCHES)
async def test_a_listener_to_a_signal_about_fetches_is_an_obstacle(crawler: Crawler, name: str) -> None:
    crawler.signals.connect(heard, getattr(signals, name))

    assert reason_against(crawler).endswith("heard")


@pytest.mark.parametrize("name", ABOUT_OTHER_THINGS)
async def test_a_listener_to_other_signals_is_none(crawler: Crawler, name: str) -> None:
    crawler.signals.connect(heard, getattr(signals, name))

    assert reason_against(crawler) == ""


async def test_a_proxy_in_the_environment_is_an_obstacle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:3128")

    assert reason_against(crawler_with()).endswith("HttpProxyMiddleware")


async def test_a_scheme_without_a_handler_is_not_an_obstacle_and_a_foreign_handler_is_one() -> None:
    without = {**project.DOWNLOAD_HANDLERS, "https": None}
    foreign = {
        **project.DOWNLOAD_HANDLERS,
        "https": "scrapy.core.downloader.handlers.file.FileDownloadHandler",
    }

    assert reason_against(crawler_with(DOWNLOAD_HANDLERS=without)) == ""
    assert reason_against(crawler_with(DOWNLOAD_HANDLERS=foreign)).endswith("FileDownloadHandler")
