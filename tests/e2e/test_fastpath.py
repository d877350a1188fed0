"""The short way through Scrapy does what Scrapy's own way does, for everything people put in between."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

SPIDER = """
import json, logging
from scrapy import Request, Spider, signals
from scrapy.exceptions import DropItem, IgnoreRequest
from scrapy.http import Response, TextResponse

EVENTS = open(EVENTS_FILE, "a")

def note(url, what):
    EVENTS.write(json.dumps([url.rpartition("/")[2], what]) + "\\n")
    EVENTS.flush()

class Sync:
    def process_request(self, request, spider):
        note(request.url, "sync request")
        if "answered" in request.url:
            return TextResponse(request.url, body=b"{}", encoding="utf-8")
        if "ignored" in request.url:
            raise IgnoreRequest("not this one")
        if "broken-request" in request.url:
            raise ValueError("broken middleware")
        if "wrong-request" in request.url:
            return 7

    def process_response(self, request, response):
        note(request.url, f"sync response {response.status}")
        if "again" in request.url:
            return request.replace(url=request.url.replace("again", "other"), dont_filter=True)
        if "wrong-response" in request.url:
            return None
        return response

    def process_exception(self, request, exception):
        note(request.url, f"sync exception {type(exception).__name__}")
        if "rescued" in request.url:
            return TextResponse(request.url, status=203, body=b"{}", encoding="utf-8")

class Async:
    async def process_request(self, request):
        note(request.url, "async request")

    async def process_response(self, request, response):
        note(request.url, "async response")
        if "rescued" in request.url and response.status == 200:
            raise IgnoreRequest("now rescue it")
        return response

class Near:
    def process_response(self, request, response):
        note(request.url, "near response")
        if "rescued" in request.url:
            raise RuntimeError("too late for process_exception")
        return response

class Pipe:
    def process_item(self, item):
        note(item["url"], "pipe")
        if item.get("drop"):
            raise DropItem("unwanted")
        if item.get("break"):
            raise ValueError("broken pipeline")
        return item

class AsyncPipe:
    async def process_item(self, item):
        note(item["url"], "async pipe")
        return item

class Listener:
    @classmethod
    def from_crawler(cls, crawler):
        one = cls()
        for name in ("request_reached_downloader", "response_downloaded", "request_left_downloader",
                     "response_received", "item_scraped", "item_dropped", "item_error", "spider_error",
                     "headers_received", "bytes_received"):
            crawler.signals.connect(getattr(one, name), getattr(signals, name))
        return one

    def request_reached_downloader(self, request): note(request.url, "reached downloader")
    def response_downloaded(self, response, request, spider): note(request.url, "downloaded")
    def request_left_downloader(self, request): note(request.url, "left downloader")
    def response_received(self, response, request): note(request.url, "received")
    async def item_scraped(self, item, response): note(item["url"], "scraped")
    def item_dropped(self, item, exception): note(item["url"], "dropped")
    def item_error(self, item, failure): note(item["url"], f"item error {failure.type.__name__}")
    def spider_error(self, failure, response): note(response.url, f"spider error {failure.type.__name__}")
    def headers_received(self, request): note(request.url, "headers")
    def bytes_received(self, request): note(request.url, "bytes")

class Mine(Spider):
    name = "mine"
    custom_settings = {
        "SPIDER_MIDDLEWARES": {} if WITH_SPIDER_MIDDLEWARES else {
            "scrapy.spidermiddlewares.start.StartSpiderMiddleware": None,
            "scrapy.spidermiddlewares.httperror.HttpErrorMiddleware": None,
            "scrapy.spidermiddlewares.referer.RefererMiddleware": None,
            "scrapy.spidermiddlewares.urllength.UrlLengthMiddleware": None,
            "scrapy.spidermiddlewares.depth.DepthMiddleware": None,
            "scrapy.spidermiddlewares.metacopy.MetaCopyDetectionMiddleware": None,
        },
    }

    @classmethod
    def update_settings(cls, settings):
        super().update_settings(settings)
        add = lambda name, value: settings.set(name, {**settings[name], **value}, priority="spider")
        add("DOWNLOADER_MIDDLEWARES", {"myspiders.Sync": 600, "myspiders.Async": 610, "myspiders.Near": 940})
        add("ITEM_PIPELINES", {"myspiders.Pipe": 300, "myspiders.AsyncPipe": 310})
        add("EXTENSIONS", {"myspiders.Listener": 0})

    async def start(self):
        for name in ("generator", "list", "nothing", "asyncgen", "coroutine", "answered", "ignored",
                     "broken-request", "wrong-request", "again", "wrong-response", "rescued", "drop",
                     "break", "spider-breaks", "breaks-late", "follows", "kwargs"):
            callback = getattr(self, name.replace("-", "_"), self.generator)
            more = {"cb_kwargs": {"word": "hello"}} if name == "kwargs" else {}
            yield Request(SITE + "/" + name, callback, errback=self.failed, **more)

    def failed(self, failure):
        note(failure.request.url, f"errback {failure.type.__name__}")
        yield {"url": failure.request.url}

    def generator(self, response):
        note(response.url, "callback")
        yield {"url": response.url}

    def list(self, response):
        return [{"url": response.url}, None, {"url": response.url}]

    def nothing(self, response):
        note(response.url, "callback")

    async def asyncgen(self, response):
        yield {"url": response.url}

    async def coroutine(self, response):
        return [{"url": response.url}]

    def drop(self, response):
        yield {"url": response.url, "drop": True}

    def break_(self, response):
        yield {"url": response.url, "break": True}

    def spider_breaks(self, response):
        raise KeyError("spider")
        yield

    def breaks_late(self, response):
        yield None
        yield {"url": response.url}
        raise KeyError("spider")

    def follows(self, response):
        yield Request(SITE + "/followed", self.generator)
        yield {"url": response.url}

    def kwargs(self, response, word):
        note(response.url, word)
        yield {"url": response.url}

setattr(Mine, "break", Mine.break_)
"""
#: What depends on time, or on the way itself.
PASSING = (
    "time",
    "memusage",
    "start",
    "finish",
    "log_count",
    "scheduler/",
    "elapsed",
    "items_per",
    "responses_per",
)


@pytest.mark.parametrize("with_spider_middlewares", [False, True], ids=["no-spider-mw", "spider-mw"])
def test_both_ways_tell_middlewares_pipelines_signals_and_callbacks_the_same(
    tmp_path: Path, scrapy: Callable[..., Any], echo: Any, with_spider_middlewares: bool
) -> None:
    told: dict[str, dict[str, list[str]]] = {}
    stats: dict[str, dict[str, Any]] = {}
    for fast in ("1", "0"):
        events = tmp_path / f"events-{fast}.jsonl"
        head = f"SITE, EVENTS_FILE = {echo.url!r}, {str(events)!r}\n"
        head += f"WITH_SPIDER_MIDDLEWARES = {with_spider_middlewares}\n"
        modules = tmp_path / f"modules-{fast}"
        modules.mkdir()
        (modules / "myspiders.py").write_text(head + SPIDER)

        process = scrapy(
            "crawl",
            "mine",
            environment={"PYTHONPATH": str(modules)},
            SPIDER_MODULES="myspiders",
            DOWNLOAD_DELAY="0",
            CRAWL_FAST=fast,
            CRAWL_RUN=f"fast-{fast}",
            STATS_DUMP="1",
            LOG_LEVEL="INFO",
        )
        assert process.wait() == 0, process.log

        by_url: defaultdict[str, list[str]] = defaultdict(list)
        for line in events.read_text().splitlines():
            url, what = json.loads(line)
            by_url[url].append(what)
        # Scrapy asks a generator for more before its items have been processed; we do not.
        by_url["breaks-late"].sort()
        told[fast] = dict(by_url)
        stats[fast] = _stats(process.log)

    assert told["1"] == told["0"]
    assert stats["1"] == stats["0"]
    # And it was no empty agreement.
    assert told["1"]["generator"][-2:] == ["async pipe", "scraped"]
    assert {"answered", "ignored", "again", "other", "rescued", "followed"} <= told["1"].keys()


def test_scrapy_of_another_build_is_told_once_and_gone_the_long_way(
    tmp_path: Path, scrapy: Callable[..., Any], echo: Any
) -> None:
    (tmp_path / "myspiders.py").write_text(f"""
import scrapy
from scrapy.core.downloader import Downloader

class Other(Downloader):
    pass

class Mine(scrapy.Spider):
    name = "mine"
    start_urls = [{echo.url!r} + "/" + str(n) for n in range(3)]
    custom_settings = {{"DOWNLOADER": Other}}

    def parse(self, response):
        pass
""")

    process = scrapy(
        "crawl",
        "mine",
        environment={"PYTHONPATH": str(tmp_path)},
        SPIDER_MODULES="myspiders",
        DOWNLOAD_DELAY="0",
        # Also where the suite runs without it: it is what is refused here.
        CRAWL_FAST="1",
    )

    assert process.wait() == 0, process.log
    assert process.log.count("requests go Scrapy's own way") == 1
    assert "Other is in the place of Scrapy's Downloader" in process.log
    assert {seen.path for seen in echo.asked()} >= {"/0", "/1", "/2"}


def _stats(log: str) -> dict[str, Any]:
    dump = log.partition("Dumping Scrapy stats:")[2]
    text = dump[: dump.index("}\n") + 1]
    # Dates are written as Python writes them.
    lines = [line for line in text.splitlines() if "datetime" not in line and "tzinfo" not in line]
    values = {}
    for line in lines:
        name, _, value = line.strip(" {},").rpartition(": ")
        values[name.strip("'")] = value
    return {name: value for name, value in values.items() if not any(word in name for word in PASSING)}
