"""People who come from scrapy-redis: their settings and their list of start URLs keep working."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import scrapy_redis.scheduler

from crawlproj.redisio import keys
from crawlproj.scheduler import Scheduler
from tests.e2e.conftest import error_lines

pytestmark = pytest.mark.e2e

PAGES = ("/a", "/b", "/c")

#: A spider as they have it, with start requests of its own.
MINE = """
from scrapy import Request, Spider

class Mine(Spider):
    name = "mine"

    async def start(self):
        for path in {paths!r}:
            yield Request({site!r} + path)

    def parse(self, response):
        yield {{"path": response.json()["path"], "job": response.meta.get("job")}}
"""


@pytest.fixture
def spider(tmp_path: Path, scrapy: Callable[..., Any]) -> Callable[..., Any]:
    """Starts the spider `mine`, the text of whose module is given."""
    (tmp_path / "modules").mkdir()

    def start(text: str, **settings: str) -> Any:
        (tmp_path / "modules" / "myspiders.py").write_text(text)
        return scrapy(
            "crawl",
            "mine",
            f"--overwrite-output={tmp_path / 'out.jsonl'}",
            environment={"PYTHONPATH": str(tmp_path / "modules")},
            **{"SPIDER_MODULES": "myspiders", "DOWNLOAD_DELAY": "0.05", **settings},
        )

    return start


@pytest.fixture
def items(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    return lambda: [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]


def test_the_scheduler_is_one_of_scrapy_redis() -> None:
    assert issubclass(Scheduler, scrapy_redis.scheduler.Scheduler)


def test_start_urls_pushed_while_running_are_crawled_and_bad_ones_reported(
    spider: Callable[..., Any],
    items: Callable[[], list[dict[str, Any]]],
    ask: Callable[..., Any],
    wait_for: Callable[..., Any],
    empty_redis_url: str,
    echo: Any,
) -> None:
    process = spider(MINE.format(paths=(), site=echo.url))
    wait_for(lambda: process.says("opened run"), "the shard runs")
    good = [
        f"{echo.url}/plain",
        json.dumps({"url": f"{echo.url}/json", "meta": {"job": "j1"}}),
        json.dumps({"url": f"{echo.url}/form", "method": "post", "meta": {"job": "j2"}, "q": "ä", "n": "1"}),
    ]
    bad = [
        "no url",
        '{"no": "url"}',
        '{"url": 5}',
        '{"url": "http://a.test/", ',
        json.dumps({"url": f"{echo.url}/meta", "meta": "text"}),
        json.dumps({"url": f"{echo.url}/number", "page": 3}),
        json.dumps({"url": f"{echo.url}/depth", "meta": {"depth": "deep"}}),
        f'{{"url": "{echo.url}/depth", "meta": {{"depth": 1e999}}}}',
        json.dumps({"url": f"{echo.url}/depth", "meta": {"depth": 10**30}}),
        '{"url": ' + "[" * 100_000,
        "ftp://a.test/",
    ]

    ask(empty_redis_url, "RPUSH", "mine:start_urls", *bad, *good)

    assert process.wait() == 0, process.log
    assert sorted((item["path"], item["job"]) for item in items()) == [
        *(("/form", "j2"), ("/json", "j1"), ("/plain", None)),
    ]
    [form] = echo.asked("/form")
    assert (form.method, form.body) == ("POST", b"q=%C3%A4&n=1")
    lines = error_lines(process.log)
    assert len(lines) == len(bad), lines
    assert all("start URL refused" in line for line in lines)
    assert "Traceback" not in process.log
    assert (
        ask(empty_redis_url, "EXISTS", "mine:start_urls", keys.start_urls_taken("mine", "mine:start_urls", 0))
        == 0
    )


def test_start_urls_taken_but_not_admitted_when_killed_are_not_lost(
    spider: Callable[..., Any], ask: Callable[..., Any], empty_redis_url: str, echo: Any
) -> None:
    # What a process leaves behind that dies between taking a line and admitting it.
    ask(empty_redis_url, "RPUSH", keys.start_urls_taken("mine", "mine:start_urls", 0), f"{echo.url}/taken")

    process = spider(MINE.format(paths=(), site=echo.url))

    assert process.wait() == 0, process.log
    assert [seen.path for seen in echo.asked()] == ["/taken"]


def test_a_redis_spider_with_a_password_in_redis_params_reads_its_list(
    spider: Callable[..., Any],
    items: Callable[[], list[dict[str, Any]]],
    ask: Callable[..., Any],
    redis_server_factory: Callable[..., Any],
    echo: Any,
) -> None:
    url = redis_server_factory("--requirepass", "hunter2").url
    ask(f"{url}?password=hunter2", "RPUSH", "mine:start_urls", f'{{"url": "{echo.url}/page"}}')

    process = spider(
        """
from scrapy_redis.spiders import RedisSpider

class Mine(RedisSpider):
    name = "mine"

    def parse(self, response):
        yield response.json()
""",
        REDIS_URL=url,
        REDIS_PARAMS='{"password": "hunter2"}',
    )

    assert process.wait() == 0, process.log
    assert [item["path"] for item in items()] == ["/page"]
    assert error_lines(process.log) == []
    assert ask(f"{url}?password=hunter2", "EXISTS", keys.run_record("mine")) == 1


def test_an_idle_crawl_stays_open_for_the_time_asked_and_then_ends(
    spider: Callable[..., Any], wait_for: Callable[..., Any], echo: Any
) -> None:
    process = spider(MINE.format(paths=PAGES, site=echo.url), SCHEDULER_IDLE_BEFORE_CLOSE="3")
    wait_for(lambda: len(echo.asked()) == len(PAGES), "all pages are fetched")

    assert process.wait() == 0, process.log

    idle_s = time.monotonic() - echo.log[-1].end_s
    assert idle_s >= 3


def test_a_finished_run_resumes_with_what_is_new_and_flushed_it_starts_over(
    spider: Callable[..., Any], echo: Any
) -> None:
    assert spider(MINE.format(paths=PAGES, site=echo.url)).wait() == 0
    more = MINE.format(paths=[*PAGES, "/new"], site=echo.url)

    assert spider(more).wait() == 0
    fetched_later = [seen.path for seen in echo.asked()[len(PAGES) :]]
    assert spider(more, SCHEDULER_FLUSH_ON_START="true").wait() == 0

    assert fetched_later == ["/new"]
    assert sorted(seen.path for seen in echo.asked()) == sorted([*PAGES, *PAGES, "/new", "/new"])


def test_without_persist_a_finished_run_leaves_no_key_and_an_interrupted_one_all(
    spider: Callable[..., Any],
    ask: Callable[..., Any],
    wait_for: Callable[..., Any],
    empty_redis_url: str,
    echo: Any,
) -> None:
    text = MINE.format(paths=[f"/{number}" for number in range(12)], site=echo.url)
    echo.delay_s = 0.05
    process = spider(text, SCHEDULER_PERSIST="false", DOWNLOAD_DELAY="0.2")
    wait_for(lambda: len(echo.asked()) >= 2, "some pages are fetched")

    process.send(signal.SIGTERM)
    assert process.wait() == 0, process.log
    after_interrupt = ask(empty_redis_url, "DBSIZE")
    again = spider(text, SCHEDULER_PERSIST="false")
    assert again.wait() == 0, again.log

    assert after_interrupt > 0
    assert ask(empty_redis_url, "DBSIZE") == 0
    assert sorted(int(seen.path[1:]) for seen in echo.asked()) == list(range(12))
