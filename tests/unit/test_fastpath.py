"""What the short way owes Scrapy beyond what is told: see tests/e2e/test_fastpath.py for that."""

from __future__ import annotations

import asyncio
from typing import Any

from scrapy import Request, Spider
from scrapy.core.engine import ExecutionEngine, _Slot
from scrapy.core.scheduler import BaseScheduler
from scrapy.core.scraper import Slot
from scrapy.crawler import Crawler
from scrapy.http import Response
from scrapy.utils.reactor import CallLaterOnce
from scrapy.utils.test import get_crawler

from crawlproj.fastpath import FastPath


class Slow:
    """A pipeline that keeps an item until it is let go."""

    def __init__(self) -> None:
        self.has_item, self.may_go = asyncio.Event(), asyncio.Event()

    async def process_item(self, item: Any) -> Any:
        self.has_item.set()
        await self.may_go.wait()
        return item


class Mine(Spider):
    name = "mine"

    def parse(self, response: Response, **kwargs: Any) -> Any:
        yield {"url": response.url}

    def picky(self, response: Response) -> Any:
        yield {"url": response.url}


async def test_a_response_whose_items_wait_counts_against_new_requests() -> None:
    crawler, path = path_of(Slow)
    slot, [pipe] = crawler.engine.scraper.slot, crawler.engine.scraper.itemproc.middlewares
    request = Request("http://a.test/", crawler.spider.parse)

    scraping = asyncio.create_task(path._scrape(answer_to(request), request))
    await pipe.has_item.wait()

    assert slot.needs_backout()

    pipe.may_go.set()
    await scraping

    assert slot.active_size == 0


async def test_a_callback_that_cannot_be_called_is_an_error_of_the_spider() -> None:
    crawler, path = path_of()
    request = Request("http://a.test/", crawler.spider.picky, cb_kwargs={"unknown": 1})

    await path._scrape(answer_to(request), request)

    assert crawler.stats.get_value("spider_exceptions/TypeError") == 1


def path_of(*pipelines: type) -> tuple[Any, FastPath]:
    """Return a crawler whose scraper has room for one response, and its short way."""
    settings = {
        # With any of them, responses go Scrapy's own way.
        "SPIDER_MIDDLEWARES_BASE": {},
        "ITEM_PIPELINES": dict.fromkeys(pipelines, 1),
        # Nothing is downloaded, and some would want to be closed.
        "DOWNLOAD_HANDLERS": dict.fromkeys(("data", "file", "ftp", "http", "https", "s3")),
    }
    crawler: Crawler = get_crawler(Mine, settings)
    crawler.spider = crawler._create_spider()
    engine = crawler.engine = ExecutionEngine(crawler, lambda _: None)
    engine._slot = _Slot(True, CallLaterOnce(lambda: None), BaseScheduler())
    engine.scraper.slot = Slot(max_active_size=1)
    return crawler, FastPath(crawler, engine)


def answer_to(request: Request) -> Response:
    response = Response(request.url)
    response.request = request
    return response
