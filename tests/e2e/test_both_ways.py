"""A page comes out the same either way, directly or by Scrapy's engine, and no component is left out."""

from __future__ import annotations

import ast
import gzip
import json
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crawlproj.storage import read_pages

pytestmark = pytest.mark.e2e

HTML = {"Content-Type": "text/html; charset=utf-8"}
#: Statistics that depend on time, or on which way was gone.
PASSING = re.compile(
    r"time|memusage|start|finish|log_count|elapsed|_per_minute|request_bytes|scheduler/empty"
)
#: Columns that depend on time.
TIMES = ("fetched_at", "latency_ms")


def page(*links: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    body = "".join(f'<p>Some text about <a href="{link}">{link}</a>.</p>' for link in links)
    return 200, HTML | {name.replace("_", "-"): value for name, value in headers.items()}, body.encode()


def site() -> dict[str, list[tuple[int, dict[str, str], bytes]]]:
    """Every kind of answer a fetch must distinguish."""
    robots = b"User-agent: *\nDisallow: /private\nSitemap: /sitemap.xml\n"
    zipped = gzip.compress(page("/from-gzip")[2])
    sitemap = b"<urlset><url><loc>/from-sitemap</loc></url></urlset>"
    paths = (
        "/plain /private /gone /broken /throttled /moved /cookie /round /nowhere /image /zip /large /tagged"
    )
    return {
        "/robots.txt": [(200, {"Content-Type": "text/plain"}, robots)],
        "/sitemap.xml": [(200, {"Content-Type": "text/xml"}, sitemap)],
        "/": [page(*paths.split(), "/tagged")],
        "/gone": [(404, HTML, b"<p>Gone.</p>")],
        "/broken": [(500, HTML, b"<p>Try again.</p>"), page()],
        "/throttled": [(429, HTML | {"Retry-After": "0"}, b""), page()],
        "/moved": [(301, {"Location": "/target"}, b"")],
        "/cookie": [(302, {"Location": "/cookie", "Set-Cookie": "a=1"}, b""), page()],
        "/round": [(302, {"Location": "/round"}, b"")],
        "/nowhere": [(302, {"Location": "http://"}, b"")],
        "/image": [(200, {"Content-Type": "image/png"}, b"\x89PNG")],
        "/zip": [(200, HTML | {"Content-Encoding": "gzip"}, zipped)],
        "/large": [page(*(f"/private/{number}" for number in range(2000)))],
        "/tagged": [page(X_Robots_Tag="nofollow", Last_Modified="Mon, 02 Nov 2026 10:00:00 GMT")],
    }


@dataclass
class Crawl:
    requests: Counter[str]
    rows: list[dict[str, Any]]
    stats: dict[str, Any]
    log: str


@pytest.fixture
def crawl(
    tmp_path: Path,
    scrapy: Callable[..., Any],
    echo_at: Callable[[str], Any],
    ask: Callable[..., Any],
    empty_redis_url: str,
) -> Callable[..., Crawl]:
    """Crawls `site` with the spider *name*, and returns all that can be seen of it."""

    def run(name: str = "web", module: str = "", project: str = "", **settings: str) -> Crawl:
        ask(empty_redis_url, "FLUSHDB")
        echo = echo_at("127.0.0.1")
        echo.answers = site()
        folder = tmp_path / f"crawl-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        (folder / "seeds.txt").write_text(f"{echo.url}/\nhttp://127.0.0.1:9/refused\n")
        form = json.dumps({"url": f"{echo.url}/form", "method": "POST", "q": "x"})
        ask(empty_redis_url, "RPUSH", f"{name}:start_urls", form)
        (folder / "mine.py").write_text(module)
        (folder / "mysettings.py").write_text(f"from crawlproj.settings import *\n{project}\n")
        process = scrapy(
            "crawl",
            name,
            "-a",
            f"seeds={folder / 'seeds.txt'}",
            environment={"PYTHONPATH": str(folder), "SCRAPY_SETTINGS_MODULE": "mysettings"},
            SPIDER_MODULES="crawlproj.spiders" + (",mine" if module else ""),
            CRAWL_DATA=str(folder / "data"),
            CRAWL_SITEMAPS="True",
            CRAWL_MAX_BODY="20000",
            CRAWL_CONTENT_TYPES="text/html,text/xml,application/json",
            DOWNLOAD_DELAY="0",
            CRAWL_BACKOFF_SECONDS="0.1",
            STATS_DUMP="1",
            LOG_LEVEL="INFO",
            **settings,
        )
        assert process.wait() == 0, process.log
        rows = [dict(row) for row in read_pages(folder / "data" / "runs" / name / "pages")]
        text = json.dumps(
            [[row[key] for key in sorted(row) if key not in TIMES] for row in rows], default=str
        )
        return Crawl(
            Counter(_seen(seen) for seen in echo.log),
            sorted(json.loads(text.replace(echo.url, "http://site")), key=str),
            _stats(process.log),
            process.log.replace(echo.url, "http://site"),
        )

    return run


def test_both_ways_send_store_and_count_the_same(crawl: Callable[..., Crawl]) -> None:
    direct, stock = crawl(CRAWL_DIRECT="1"), crawl(CRAWL_DIRECT="0")

    assert "fetched by Scrapy's engine" not in direct.log
    assert "fetched by Scrapy's engine" in stock.log
    assert direct.requests == stock.requests
    assert direct.rows == stock.rows
    assert direct.stats == stock.stats
    # And it was no empty agreement.
    paths = {line.split()[1] for line in direct.requests}
    assert {"/from-sitemap", "/from-gzip", "/target", "/throttled", "/form"} <= paths
    assert direct.stats["downloader/response_status_count/429"] == 1
    assert direct.stats["item_scraped_count"] >= 15


COMPONENTS = {
    "DOWNLOADER_MIDDLEWARES": "def process_request(self, request): heard()",
    "SPIDER_MIDDLEWARES": "def process_spider_input(self, response): heard()",
    "ITEM_PIPELINES": "def process_item(self, item): heard(); return item",
    "EXTENSIONS": "def __init__(self, crawler): crawler.signals.connect(heard, signals.response_received)\n"
    "    from_crawler = classmethod(lambda cls, crawler: cls(crawler))",
}


@pytest.mark.parametrize("table", COMPONENTS)
def test_a_component_of_the_user_takes_part_and_the_log_says_what_it_costs(
    crawl: Callable[..., Crawl], table: str
) -> None:
    module = f"""
from scrapy import signals

def heard():
    print("HEARD", flush=True)

class Mine:
    {COMPONENTS[table]}
"""

    found = crawl(module=module, project=f"{table} = {{**globals().get({table!r}, {{}}), 'mine.Mine': 600}}")

    assert "which is slower, because of mine." in found.log
    assert found.log.count("HEARD") >= 10


def test_a_spider_made_from_web_has_its_own_methods_called(crawl: Callable[..., Crawl]) -> None:
    module = """
from crawlproj.spiders.web import WebSpider

class Mine(WebSpider):
    name = "mine"

    def parse(self, response, **kwargs):
        print("HEARD", flush=True)
        yield from super().parse(response, **kwargs)
"""
    found = crawl("mine", module=module)

    assert "because of mine.Mine" in found.log
    assert found.log.count("HEARD") >= 10


def test_a_listener_that_comes_too_late_for_the_direct_way_is_reported(crawl: Callable[..., Crawl]) -> None:
    module = """
from scrapy import signals

class Mine:
    @classmethod
    def from_crawler(cls, crawler):
        mine = cls()
        mine.crawler = crawler
        crawler.signals.connect(mine.opened, signals.spider_opened)
        return mine

    def opened(self):
        self.crawler.signals.connect(self.heard, signals.item_scraped)

    def heard(self): ...
"""
    found = crawl(module=module, project="EXTENSIONS = {**EXTENSIONS, 'mine.Mine': 600}")

    assert "mine.Mine was connected after the scheduler opened" in found.log


def _seen(seen: Any) -> str:
    """One request as the server saw it: line, headers but for its own address, body."""
    headers = sorted(f"{name}: {value}" for name, value in seen.headers.items() if name != "Host")
    return f"{seen.method} {seen.path} {headers} {seen.body!r}"


def _stats(log: str) -> dict[str, Any]:
    """Return the statistics that Scrapy printed at the end, but for times."""
    dump = log.partition("Dumping Scrapy stats:")[2]
    pairs = re.findall(r"'([^']+)': (\d+|'[^']*')[,}]", dump[: dump.index("}\n") + 1])
    return {name: ast.literal_eval(value) for name, value in pairs if not PASSING.search(name)}
