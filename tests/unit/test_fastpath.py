"""What the short way owes Scrapy beyond what is told: see tests/e2e/test_fastpath.py for that."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from scrapy import Request, Spider, signals
from scrapy.core.engine import ExecutionEngine, _Slot
from scrapy.core.scheduler import BaseScheduler
from scrapy.core.scraper import Slot
from scrapy.crawler import Crawler
from scrapy.exceptions import DropItem
from scrapy.http import Response
from scrapy.utils.reactor import CallLaterOnce
from scrapy.utils.test import get_crawler

from crawlproj import fastpath
from crawlproj.commands.run import _prepare_shards
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


def test_the_steps_of_scrapy_are_read_once_for_all_shards() -> None:
    fastpath.digest_of_steps.cache_clear()

    _prepare_shards()
    fastpath.digest_of_steps()

    assert fastpath.digest_of_steps.cache_info().misses == 1


class Item(dict[str, str]):
    """What `Broken` takes directly."""


class Broken:
    """A pipeline like ours, on the short way, that fails."""

    plain_item = Item
    error: Exception = ValueError("no")

    def process_item(self, item: Any) -> Any:
        raise self.error


@pytest.mark.parametrize(
    ("error", "signal"), [(ValueError("no"), signals.item_error), (DropItem("no"), signals.item_dropped)]
)
async def test_an_item_its_pipeline_fails_at_is_told_as_scrapy_does(
    error: Exception, signal: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Broken, "error", error)
    crawler, path = path_of(Broken)
    told: list[Any] = []

    def note(item: Any, response: Response) -> None:
        told.append((item, response.url))

    crawler.signals.connect(note, signal)
    request = Request("http://a.test/", crawler.spider.parse)

    await path._hand_on(Item(a="b"), answer_to(request))

    assert told == [({"a": "b"}, "http://a.test/")]


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
