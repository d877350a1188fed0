"""What users hang into Scrapy is called in a run as it is in plain Scrapy."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawlproj.storage import read_items

pytestmark = pytest.mark.e2e

#: A spider with middlewares, a pipeline, an extension that counts signals, and callbacks of all kinds.
SPIDER = """
import json
from collections import Counter

from scrapy import Request, Spider, signals
from scrapy.exceptions import DropItem, IgnoreRequest
from scrapy.http import TextResponse
from scrapy.linkextractors import LinkExtractor
from scrapy.spiders import CrawlSpider, Rule

SITE = "%s"
SIGNALS = [name for name in dir(signals) if not name.startswith("_")]


class CountSignals:
    def __init__(self, crawler):
        self.counts, self.stats, self.handlers = Counter(), crawler.stats, []
        for name in SIGNALS:
            def handler(name=name, **facts):
                self.counts[name] += 1
            self.handlers.append(handler)
            crawler.signals.connect(handler, getattr(signals, name))
        crawler.signals.connect(self.write, signals.engine_stopped)
        self.path = crawler.settings["COUNTS"]

    @classmethod
    def from_crawler(cls, crawler):
        return cls(crawler)

    def write(self):
        with open(self.path, "w") as file:
            json.dump({"signals": self.counts, "stats": self.stats.get_stats()}, file, default=str)


class Downloads:
    def process_request(self, request):
        if request.url.endswith("/made"):
            return TextResponse(request.url, body=b"made by the middleware")
        if request.url.endswith("/ignored"):
            raise IgnoreRequest("not this one")
        if request.url.endswith("/other"):
            return request.replace(url=SITE + "/instead")

    def process_response(self, request, response):
        if response.url.endswith("/again") and not request.meta.get("again"):
            return request.replace(dont_filter=True, meta={"again": True})
        return response

    def process_exception(self, request, exception):
        if request.url.endswith("/rescued"):
            return TextResponse(request.url, body=b"rescued")


class Output:
    async def process_start(self, start):
        yield {"path": "from a middleware"}
        async for one in start:
            yield one

    async def process_spider_output(self, response, result):
        async for one in result:
            if isinstance(one, dict):
                one["through"] = "middleware"
            yield one

    def process_spider_exception(self, response, exception):
        if response.url.endswith("/caught"):
            return [{"path": "/caught"}]


class Items:
    def process_item(self, item):
        if item["path"] == "/drop":
            raise DropItem("dropped")
        if item["path"] == "/bad-item":
            raise ValueError("bad item")
        return item


class Mine(CrawlSpider):
    name = "mine"
    rules = [Rule(LinkExtractor(allow="/rule"), callback="on_rule")]
    custom_settings = {
        "EXTENSIONS": {CountSignals: 1},
        "DOWNLOADER_MIDDLEWARES": {Downloads: 543},
        "SPIDER_MIDDLEWARES": {Output: 543},
        "ITEM_PIPELINES": {Items: 300},
    }

    async def start(self):
        yield {"path": "first of start", "given": self.given}
        yield Request(SITE + "/links")
        for path in "one drop bad-item raise caught made ignored other again moved gone".split():
            yield Request(f"{SITE}/{path}", callback=self.on_page, errback=self.on_error)
        yield Request(SITE + "/async", callback=self.on_async)
        yield Request("data:,text", callback=self.on_data)
        yield Request("http://127.0.0.1:9/rescued", callback=self.on_page)
        raise ValueError("in start")

    def on_rule(self, response):
        return {"path": "rule", "text": response.meta["link_text"]}

    def on_page(self, response):
        path = response.url.removeprefix(SITE)
        if path in ("/raise", "/caught"):
            raise ValueError(path)
        self.crawler.stats.inc_value("mine/pages")
        yield {"path": path, "depth": response.meta["depth"], "ip": str(response.ip_address)}
        if path == "/one":
            yield from response.follow_all(["/two", "/three"], callback=self.on_page)

    async def on_async(self, response):
        inline = await self.crawler.engine.download_async(Request(SITE + "/inline"))
        yield {"path": "/async", "inline": inline.status}

    def on_data(self, response):
        yield {"path": "data", "text": response.text}
        yield Request(SITE + "/after-data", callback=self.on_page)

    def on_error(self, failure):
        yield {"path": "error", "of": failure.request.url.removeprefix(SITE), "is": failure.type.__name__}
"""


def test_items_signals_and_statistics_are_those_of_plain_scrapy(
    scrapy: Callable[..., Any], echo: Any, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(SPIDER % echo.url)
    echo.answers["/links"] = [(200, {"Content-Type": "text/html"}, b'<a href="/rule/1">one</a>')]
    echo.answers["/moved"] = [(301, {"Location": "/target"}, b"")]
    echo.answers["/gone"] = [(404, {}, b"")]

    def crawl(name: str, **settings: str) -> Any:
        return scrapy(
            *("crawl", "mine", "-agiven=argument", "-O", str(tmp_path / f"{name}.jsonl")),
            environment={"PYTHONPATH": str(tmp_path)},
            **{
                "SPIDER_MODULES": "mine",
                "COUNTS": str(tmp_path / f"{name}.json"),
                "DOWNLOAD_DELAY": "0.02",
                "ROBOTSTXT_OBEY": "False",
                "RETRY_ENABLED": "False",
                "CRAWL_CONTACT": "me@example.org",
                **settings,
            },
        )

    in_a_run, plain = crawl("run"), crawl("plain", SCHEDULER="scrapy.core.scheduler.Scheduler")
    assert [in_a_run.wait(), plain.wait()] == [0, 0], in_a_run.log + plain.log

    # The spider has middlewares of its own, beside those of the project.
    assert {seen.headers["User-Agent"] for seen in echo.log} == {"crawlproj/0.1 (+me@example.org)"}
    items, counts = {}, {}
    for name in ("run", "plain"):
        items[name] = sorted((tmp_path / f"{name}.jsonl").read_text().splitlines())
        counts[name] = json.loads((tmp_path / f"{name}.json").read_text())
    assert items["run"] == items["plain"]
    assert len(items["run"]) == 17
    assert sum('"through": "middleware"' in item for item in items["run"]) == 13
    assert comparable(counts["run"]["signals"]) == comparable(counts["plain"]["signals"])
    # Those of start() and of a data: URL are not stored with the run, which is counted, and logged once.
    assert len(list(read_items(tmp_path / "data" / "runs" / "mine"))) == 17 - 3
    assert counts["run"]["stats"].pop("items/without_page") == 3
    counts["run"]["stats"]["log_count/WARNING"] -= 1
    assert counts["run"]["stats"]["finish_reason"] == "start_error"
    assert comparable(counts["run"]["stats"]) == comparable(counts["plain"]["stats"])


def comparable(counts: dict[str, Any]) -> dict[str, Any]:
    """What does not depend on time, memory or the kind of scheduler."""
    others = ("scheduler", "memusage", "elapsed", "start_time", "finish_time", "items_per", "responses_per")
    return {
        name: count
        for name, count in counts.items()
        if not name.startswith(others) and name not in ("log_count/INFO", "spider_idle")
    }


def test_autothrottle_does_not_make_domains_wait_for_each_other(
    scrapy: Callable[..., Any], echo_at: Callable[[str], Any], tmp_path: Path
) -> None:
    servers = [echo_at(f"127.0.0.{number}") for number in range(2, 8)]
    (tmp_path / "mine.py").write_text(f"""
from scrapy import Spider

class Mine(Spider):
    name = "mine"
    start_urls = {[server.url + path for path in ("/1", "/2") for server in servers]}

    def parse(self, response):
        pass
""")

    process = scrapy(
        *("crawl", "mine"),
        environment={"PYTHONPATH": str(tmp_path)},
        SPIDER_MODULES="mine",
        AUTOTHROTTLE_ENABLED="True",
        DOWNLOAD_DELAY="1",
        ROBOTSTXT_OBEY="False",
    )
    assert process.wait() == 0, process.log

    first, second = ([server.asked(path)[0].start_s for server in servers] for path in ("/1", "/2"))
    assert max(second) - min(first) < 1 * len(servers)
    assert min(after - before for before, after in zip(first, second, strict=True)) >= 1
