"""Scrapy's own commands inside the project: they work as in any other, without Redis and without a run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawlproj.errors import EXIT_USAGE

pytestmark = pytest.mark.e2e

PAGE = b'<html><body><p>Hello</p><a href="/next">on</a></body></html>'

SPIDER = """
import scrapy

class Upper:
    def process_item(self, item):
        return {"text": item["text"].upper()}

class Mine(scrapy.Spider):
    name = "mine"
    greeting = "Hello"
    custom_settings = {"ITEM_PIPELINES": {Upper: 100}}

    async def start(self):
        yield scrapy.Request(f"SITE/{self.greeting}", callback=lambda response: self.parse(response))

    def parse(self, response):
        \"\"\"Finds the text of a page.

        @url SITE/
        @returns items 1 1
        @returns requests 1 1
        @scrapes text
        \"\"\"
        yield {"text": response.css("p::text").get("none")}
        yield from response.follow_all(css="a", callback=self.parse)
"""


@pytest.fixture
def project(tmp_path: Path, echo: Any) -> Path:
    """A folder with the package of a user's spiders, and a browser that shows pages on standard output."""
    html = {"Content-Type": "text/html"}
    echo.answers["/"] = echo.answers["/Hello"] = [(200, html, PAGE)]
    echo.answers["/next"] = [(200, html, b"<p>Last</p>")]
    # The new spider is half written for a moment, so it goes where no other command looks.
    for package in ("myspiders", "newspiders"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    (tmp_path / "myspiders" / "mine.py").write_text(SPIDER.replace("SITE", echo.url))
    (tmp_path / "alone.py").write_text(SPIDER.replace("SITE", echo.url))
    browser = tmp_path / "browser"
    browser.write_text('#!/bin/sh\ncat "${1#file://}"\n')
    browser.chmod(0o755)
    return tmp_path


@pytest.fixture
def tool(project: Path, scrapy: Callable[..., Any]) -> Callable[..., Any]:
    """Starts a command that has no Redis: one that needs it would start its own, under the data directory."""

    def start(*arguments: str, **settings: str) -> Any:
        environment = {"REDIS_URL": "", "PYTHONPATH": str(project), "BROWSER": str(project / "browser")}
        modules = {"SPIDER_MODULES": "myspiders", "NEWSPIDER_MODULE": "newspiders"}
        return scrapy(*arguments, environment=environment, **(modules | settings))

    return start


def test_every_tool_works_without_redis_and_leaves_no_run_behind(
    tool: Callable[..., Any], project: Path, echo: Any
) -> None:
    url, out = f"{echo.url}/", project / "out.jsonl"
    started = {
        "the page": tool("fetch", "--nolog", url),
        "the headers": tool("fetch", "--nolog", "--headers", url),
        "a browser": tool("view", url),
        "the shell": tool("shell", url, "-c", f"(response.css('p::text').get(), fetch('{url}x'), response)"),
        "its own spider": tool("shell", "--spider=mine", url, "-c", "spider"),
        "items and requests": tool("parse", "--spider=mine", "--pipelines", "--depth=2", url),
        "contracts": tool("check", "mine", "--verbose"),
        "a file": tool("runspider", str(project / "alone.py"), "-agreeting=Hello", "-O", str(out)),
        "a benchmark": tool("bench", CLOSESPIDER_TIMEOUT="1"),
        "a new spider": tool("genspider", "fresh", "example.org"),
    }

    codes = {what: process.wait() for what, process in started.items()}

    logs = {what: process.log for what, process in started.items()}
    assert codes == dict.fromkeys(started, 0), logs
    assert PAGE.decode() in logs["the page"]
    assert "> User-Agent: crawlproj/" in logs["the headers"]
    assert PAGE.decode()[12:] in logs["a browser"]
    assert f"('Hello', None, <200 {url}x>)" in logs["the shell"]
    assert "<Mine 'mine' at" in logs["its own spider"]
    assert "[{'text': 'Hello'}, {'text': 'Last'}]" in logs["items and requests"]
    assert "Ran 3 contracts" in logs["contracts"]
    assert [json.loads(line)["text"] for line in out.read_text().splitlines()] == ["HELLO", "LAST"]
    assert "pages/min" in logs["a benchmark"]
    assert "'response_received_count'" in logs["a benchmark"]
    assert "class FreshSpider" in (project / "newspiders" / "fresh.py").read_text()
    assert not (project / "data").exists()


def test_robots_txt_and_the_address_guard_hold_for_tools_without_tracebacks(
    tool: Callable[..., Any], echo: Any
) -> None:
    echo.answers["/robots.txt"] = [(200, {}, b"User-agent: *\nDisallow: /private")]
    forbidden = tool("fetch", f"{echo.url}/private")
    allowed = {"CRAWL_ALLOW_ADDRESSES": "127.0.0.1"}
    refused = tool("fetch", "http://127.0.0.2:9/", **allowed, ROBOTSTXT_OBEY="False")
    shell = tool("shell", "http://127.0.0.2:9/", "-c", "response", **allowed)
    misspelt = tool("crawl", "mien")

    assert [forbidden.wait(), refused.wait()] == [0, 0]
    assert [shell.wait(), misspelt.wait()] == [EXIT_USAGE, EXIT_USAGE]

    assert f"robots.txt forbids {echo.url}/private" in forbidden.log
    assert [seen.path for seen in echo.log] == ["/robots.txt"]
    says = "127.0.0.2 is loopback and not crawled. To crawl it, add it to CRAWL_ALLOW_ADDRESSES."
    assert says in refused.log
    assert f"scrapy: {says}" in shell.log
    assert "There is no spider 'mien'; there are: mine. Did you mean mine?" in misspelt.log
    assert "Traceback" not in refused.log + shell.log + misspelt.log
    assert "'downloader/request_count': 1," in refused.log
