"""Spiders that people add to the project: what they may expect of Scrapy holds, through the frontier."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from crawlproj.errors import EXIT_NOTHING_FETCHED
from tests.e2e.conftest import error_lines, hold_open

pytestmark = pytest.mark.e2e

#: What every spider below begins with.
HEAD = """
import scrapy
from scrapy import FormRequest, Request, Spider, signals
from scrapy.http import JsonRequest
"""


@pytest.fixture
def spider(tmp_path: Path, scrapy: Callable[..., Any], echo: Any) -> Callable[..., Any]:
    """Starts the spider `mine`, the text of whose module is given; SITE in it is the echo server."""
    (tmp_path / "modules").mkdir()

    def start(text: str, *arguments: str, **settings: str) -> Any:
        module = tmp_path / "modules" / "myspiders.py"
        module.write_text(f"{HEAD}\nSITE = {echo.url!r}\n{text}")
        return scrapy(
            "crawl",
            "mine",
            f"--overwrite-output={tmp_path / 'out.jsonl'}",
            *arguments,
            environment={"PYTHONPATH": str(tmp_path / "modules")},
            **{"SPIDER_MODULES": "myspiders", "DOWNLOAD_DELAY": "0.05", **settings},
        )

    return start


@pytest.fixture
def items(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    """The items that reached the feed."""
    return lambda: [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]


def test_requests_survive_the_queue_with_all_they_carry(
    spider: Callable[..., Any], items: Callable[[], list[dict[str, Any]]], echo: Any
) -> None:
    process = spider("""
class Mine(Spider):
    name = "mine"

    async def start(self):
        yield Request(SITE + "/bytes", method="POST", body=b"\\x00\\xff\\n", callback=self.seen)
        yield FormRequest(SITE + "/form", formdata={"a": "1", "b": "ä"}, callback=self.seen)
        yield JsonRequest(SITE + "/json", data={"n": [1, None]}, callback=self.seen)
        yield Request(SITE + "/headers", headers={"X-Mine": "yes", "X-Two": ["a", "b"]}, callback=self.seen)
        yield Request(SITE + "/cookies", cookies={"session": "s1"}, callback=self.seen)
        yield Request(
            SITE + "/meta",
            meta={"list": [1, {"deep": b"\\xfe"}], "none": None},
            cb_kwargs={"extra": "kw"},
            flags=["f"],
            callback=self.seen,
        )
        yield Request(SITE + "/default")

    def seen(self, response, extra=None):
        request = response.request
        yield {
            "path": response.json()["path"],
            "class": type(request).__name__,
            "meta": repr(request.meta.get("list")),
            "extra": extra,
            "flags": request.flags,
        }

    def parse(self, response):
        yield {"path": "parse " + response.json()["path"]}
""")

    assert process.wait() == 0, process.log

    asked = {seen.path: seen for seen in echo.asked()}
    assert (asked["/bytes"].method, asked["/bytes"].body) == ("POST", b"\x00\xff\n")
    assert parse_qs(asked["/form"].body.decode()) == {"a": ["1"], "b": ["ä"]}
    assert json.loads(asked["/json"].body) == {"n": [1, None]}
    assert asked["/json"].headers["Content-Type"] == "application/json"
    assert asked["/headers"].headers["X-Mine"] == "yes"
    assert asked["/headers"].headers.get_all("X-Two") == ["a", "b"]
    assert asked["/cookies"].headers["Cookie"] == "session=s1"
    found = {item["path"]: item for item in items()}
    assert found.keys() == {
        *("/bytes", "/form", "/json", "/headers", "/cookies", "/meta", "parse /default"),
    }
    assert found["/form"]["class"] == "FormRequest"
    assert found["/json"]["class"] == "JsonRequest"
    assert found["/meta"] == {
        "path": "/meta",
        "class": "Request",
        "meta": r"[1, {'deep': b'\xfe'}]",
        "extra": "kw",
        "flags": ["f"],
    }
    assert error_lines(process.log) == []


def test_requests_that_are_not_json_stay_in_the_process_and_are_fetched(
    spider: Callable[..., Any], items: Callable[[], list[dict[str, Any]]], echo: Any
) -> None:
    process = spider("""
class Mine(Spider):
    name = "mine"

    def start_requests(self):
        raise AssertionError("not the way of this Scrapy")

    async def start(self):
        class Special(Request):
            pass

        yield Request(SITE + "/lambda", callback=lambda response: self.parse(response, "lambda"))
        yield Request(SITE + "/lambda", callback=lambda response: self.parse(response, "twice"))
        yield Request(SITE + "/errback", errback=print)
        yield Request(SITE + "/object", meta={"deep": [{"spider": self}]})
        yield Request(SITE + "/kwargs", cb_kwargs={"by": {1}})
        yield Special(SITE + "/class")
        yield Request(SITE + "/fine")

    def parse(self, response, by="parse"):
        deep = response.meta.get("deep")
        yield {"path": response.url.removeprefix(SITE), "by": str(by)}
        assert deep is None or deep[0]["spider"] is self
        if response.url.endswith("/lambda"):
            yield response.follow("/more", callback=lambda response: self.parse(response, "more"))
            yield response.follow("/moved", callback=lambda response: self.parse(response, "moved"))
""")
    echo.answers["/moved"] = [(302, {"Location": "/target"}, b"")]

    assert process.wait() == 0, process.log

    assert {item["path"]: item["by"] for item in items()} == {
        "/lambda": "lambda",
        "/errback": "parse",
        "/object": "parse",
        "/kwargs": "{1}",
        "/class": "parse",
        "/fine": "parse",
        "/more": "more",
        "/target": "moved",
    }
    assert len(items()) == len(echo.asked()) - 1  # the redirect
    assert min(echo.gaps_s()) >= 0.05
    assert error_lines(process.log) == []
    [warning] = [line for line in process.log.splitlines() if "] WARNING: " in line]
    assert re.search(r"<GET http://[^/]+/lambda> cannot wait .*: its callback is .*lost", warning)


def test_of_the_requests_in_a_killed_process_those_of_start_are_fetched_and_others_reported(
    spider: Callable[..., Any], wait_for: Callable[..., Any], echo: Any
) -> None:
    text = """
import asyncio

class Mine(Spider):
    name = "mine"

    async def start(self):
        # What waits in Redis comes back before.
        await asyncio.sleep(1)
        for number in range(12):
            yield Request(f"{SITE}/{number}", callback=lambda response: self.parse(response))

    def parse(self, response):
        yield response.follow(f"{response.url}/child", callback=lambda response: None, priority=-5)
"""
    # Not all of them, however late the test looks.
    first = spider(text, DOWNLOAD_DELAY="0.2")
    wait_for(lambda: len(echo.asked()) >= 4, "some pages are fetched")

    first.kill()
    killed_at = len(echo.asked())
    second = spider(text, DOWNLOAD_DELAY="0.2")

    assert second.wait() == 0, second.log
    paths = [seen.path for seen in echo.asked()]
    assert {path for path in paths if not path.endswith("/child")} == {f"/{number}" for number in range(12)}
    lost = [line for line in error_lines(second.log) if "request lost" in line]
    assert 0 < len(lost) <= killed_at
    assert len(lost) == len(error_lines(second.log)) == 12 - len([p for p in paths if p.endswith("/child")])


def test_higher_priorities_go_first_and_dont_filter_goes_twice(spider: Callable[..., Any], echo: Any) -> None:
    process = spider("""
class Mine(Spider):
    name = "mine"

    async def start(self):
        yield Request(SITE + "/first", callback=self.first)
        for _ in range(2):
            yield Request(SITE + "/start", dont_filter=True, priority=-9)

    def first(self, response):
        yield Request(SITE + "/low", priority=-5)
        yield Request(SITE + "/twice")
        yield Request(SITE + "/twice", dont_filter=True)
        yield Request(SITE + "/once")
        yield Request(SITE + "/once")
        yield Request(SITE + "/once", method="POST")
        yield Request(SITE + "/high", priority=5)

    def parse(self, response):
        pass
""")

    assert process.wait() == 0, process.log

    asked = [f"{seen.method} {seen.path}" for seen in echo.asked()]
    assert asked == [
        *("GET /first", "GET /high", "GET /twice", "GET /twice", "GET /once", "POST /once"),
        *("GET /start", "GET /start", "GET /low"),
    ]


def test_redirects_and_retries_of_scrapys_own_wait_for_their_domains_turn(
    spider: Callable[..., Any], items: Callable[[], list[dict[str, Any]]], echo: Any
) -> None:
    echo.answers["/moved"] = [(302, {"Location": "/target"}, b"")]
    echo.answers["/flaky"] = [(502, {}, b""), (502, {}, b""), (200, {}, b"at last")]
    echo.answers["/broken"] = [(500, {}, b"")]
    echo.answers["/gone"] = [(404, {}, b"")]
    echo.delay_s = 0.02

    process = spider(
        """
class Mine(Spider):
    name = "mine"

    async def start(self):
        for path in ("/moved", "/flaky", "/broken", "/gone", "/a", "/b", "/c"):
            yield Request(SITE + path, errback=self.failed)

    def parse(self, response):
        yield {
            "path": response.url.removeprefix(SITE),
            "from": response.meta.get("redirect_urls", []),
            "retries": response.meta.get("retry_times", 0),
        }

    def failed(self, failure):
        yield {"failed": failure.request.url.removeprefix(SITE), "why": failure.type.__name__}
""",
        DOWNLOAD_DELAY="0.2",
    )

    assert process.wait() == 0, process.log

    found = items()
    assert {"path": "/target", "from": [f"{echo.url}/moved"], "retries": 0} in found
    assert {"path": "/flaky", "from": [], "retries": 2} in found
    assert {"failed": "/broken", "why": "HttpError"} in found
    assert {"failed": "/gone", "why": "HttpError"} in found
    assert len(found) == 7
    assert len(echo.asked("/flaky")) == 3
    assert len(echo.asked("/broken")) == 3
    assert len(echo.asked()) == 12
    assert min(echo.gaps_s()) >= 0.2


def test_a_callback_that_raises_is_reported_and_costs_only_its_page(
    spider: Callable[..., Any], items: Callable[[], list[dict[str, Any]]], echo: Any
) -> None:
    process = spider("""
class Mine(Spider):
    name = "mine"
    start_urls = [SITE + "/one", SITE + "/bad", SITE + "/two"]

    def parse(self, response):
        if response.url.endswith("/bad"):
            raise ValueError("my own bug")
        yield {"url": response.url}
""")

    assert process.wait() == 0, process.log

    assert sorted(item["url"] for item in items()) == [f"{echo.url}/one", f"{echo.url}/two"]
    assert len(error_lines(process.log)) == 1
    assert "ValueError: my own bug" in process.log
    assert len(echo.asked()) == 3


def test_a_spiders_own_idle_handler_is_called_and_may_bring_more(
    spider: Callable[..., Any], items: Callable[[], list[dict[str, Any]]]
) -> None:
    process = spider("""
class Mine(Spider):
    name = "mine"
    start_urls = [SITE + "/start"]
    asked_for_more = False

    @classmethod
    def from_crawler(cls, crawler, *args, **kwargs):
        spider = super().from_crawler(crawler, *args, **kwargs)
        crawler.signals.connect(spider.idle, signals.spider_idle)
        return spider

    def idle(self):
        if not self.asked_for_more:
            self.asked_for_more = True
            self.crawler.engine.crawl(Request(SITE + "/more"))

    def parse(self, response):
        yield {"path": response.json()["path"]}
""")

    assert process.wait() == 0, process.log

    assert [item["path"] for item in items()] == ["/start", "/more"]


CHAIN = """
class ToFile:
    # Each item is on disk before its URL counts as done; Scrapy's own feeds write when they please.
    def process_item(self, item, spider=None):
        with open(ITEMS, "a") as items:
            items.write(json.dumps(item) + "\\n")
        return item


class Mine(Spider):
    name = "mine"
    custom_settings = {"ITEM_PIPELINES": {ToFile: 100}}

    async def start(self):
        for site in SITES:
            for number in range(PAGES):
                yield Request(f"{site}/{number}", cb_kwargs={"number": number})

    def parse(self, response, number):
        yield {"url": response.url, "shard": getattr(self, "shard", "0")}
        yield response.follow(f"/{number}/child", callback=self.child)

    def child(self, response):
        yield {"url": response.url, "shard": getattr(self, "shard", "0")}
"""


def test_a_spider_killed_in_full_run_loses_no_page_when_started_again(
    spider: Callable[..., Any],
    wait_for: Callable[..., Any],
    empty_redis_url: str,
    echo: Any,
    tmp_path: Path,
) -> None:
    stored = tmp_path / "items.jsonl"
    text = f"import json\nITEMS = {str(stored)!r}\nSITES, PAGES = [SITE], 15\n{CHAIN}"
    echo.delay_s = 0.02
    hold_open(empty_redis_url, "mine", held=True)
    first = spider(text, DOWNLOAD_DELAY="0.02")
    wait_for(lambda: len(echo.asked()) >= 10, "some pages are fetched")

    first.kill()
    hold_open(empty_redis_url, "mine", held=False)
    second = spider(text, DOWNLOAD_DELAY="0.02")

    assert second.wait() == 0, second.log
    expected = {f"{echo.url}/{n}{child}" for n in range(15) for child in ("", "/child")}
    assert {json.loads(line)["url"] for line in stored.read_text().splitlines()} == expected
    assert error_lines(second.log) == []


def test_two_shards_of_a_spider_share_its_domains(
    spider: Callable[..., Any], echo_at: Callable[[str], Any], tmp_path: Path
) -> None:
    stored = tmp_path / "items.jsonl"
    servers = [echo_at(f"127.0.0.{number}") for number in range(2, 8)]
    sites = [server.url for server in servers]
    text = f"import json\nITEMS = {str(stored)!r}\nSITES, PAGES = {sites!r}, 3\n{CHAIN}"

    # With such a lease the first shard does not do the work of the second one while that starts.
    settings = {"CRAWL_SHARD_LEASE_SECONDS": "60"}
    shards = [spider(text, "-ashards=2", f"-ashard={number}", **settings) for number in range(2)]
    codes = [shard.wait() for shard in shards]

    assert codes == [0, 0], shards[0].log + shards[1].log
    items = [json.loads(line) for line in stored.read_text().splitlines()]
    pairs = {(item["url"].split("/")[2], item["shard"]) for item in items}
    assert len(pairs) == len(sites)
    assert {shard for _, shard in pairs} == {"0", "1"}
    # Both shards yielded every start request, and each was fetched once.
    assert [len(server.asked()) for server in servers] == [6] * len(servers)


def test_an_unreachable_host_does_not_keep_a_crawl_from_ending(
    spider: Callable[..., Any], items: Callable[[], list[dict[str, Any]]], echo: Any
) -> None:
    process = spider("""
class Mine(Spider):
    name = "mine"
    start_urls = ["http://127.0.0.9:9/one", "http://127.0.0.9:9/two", SITE + "/fine"]

    def parse(self, response):
        yield {"url": response.url}
""")

    assert process.wait() == 0, process.log

    assert items() == [{"url": f"{echo.url}/fine"}]
    assert error_lines(process.log) == []


def test_a_crawl_whose_start_requests_all_fail_says_why_and_ends_with_a_code_of_its_own(
    spider: Callable[..., Any],
) -> None:
    process = spider(
        """
class Mine(Spider):
    name = "mine"
    start_urls = ["http://127.0.0.9:9/one"]
""",
        CRAWL_GIVE_UP_FAILURES="1",
    )

    assert process.wait() == EXIT_NOTHING_FETCHED, process.log

    [line] = error_lines(process.log)
    assert "no seed could be fetched: connection_refused, 1 time: nothing listens there" in line
