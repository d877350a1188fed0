"""What a spider of one's own scrapes is stored with the run: every item once, whatever dies meanwhile."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawlproj.errors import EXIT_FINISHED, EXIT_OK, EXIT_RUN_MISMATCH, EXIT_USAGE
from crawlproj.storage import read_items
from tests.e2e.dying import Crash, count_deaths, killed_at

pytestmark = pytest.mark.e2e

#: Follows a link from each of its pages, and yields an item for each of both.
CHAIN = """
from scrapy import Spider

class Mine(Spider):
    name = "mine"
    start_urls = [f"{site}/{number}" for site in SITES for number in range(PAGES)]

    def parse(self, response):
        yield {"url": response.url}
        child = getattr(self, "child_name", "child")
        yield response.follow(f"{response.url}/{child}", callback=self.child)

    def child(self, response):
        yield {"url": response.url}
"""


@pytest.fixture
def mine(tmp_path: Path, scrapy: Callable[..., Any]) -> Callable[..., Any]:
    """Starts a command in a project whose spider `mine` has the given text."""
    (tmp_path / "modules").mkdir()

    def start(text: str, *command: str, **options: Any) -> Any:
        (tmp_path / "modules" / "myspiders.py").write_text(text)
        return scrapy(
            *command,
            environment={"PYTHONPATH": str(tmp_path / "modules")},
            **{"SPIDER_MODULES": "myspiders", "DOWNLOAD_DELAY": "0.02", "CRAWL_LOG": "text", **options},
        )

    return start


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[], list[dict[str, Any]]]:
    return lambda: list(read_items(tmp_path / "data" / "runs" / "mine"))


def test_items_of_every_kind_are_stored_as_a_feed_has_them(
    mine: Callable[..., Any], stored: Callable[[], list[dict[str, Any]]], echo: Any
) -> None:
    echo.answers["/gone"] = [(404, {}, b"")]

    process = mine(
        f"SITE = {echo.url!r}"
        """
from dataclasses import dataclass, field
from datetime import date
import attrs, scrapy
from scrapy import Request, Spider

@dataclass
class Data:
    kind: str = "dataclass"
    tags: list = field(default_factory=lambda: ["a", None, 1.5])

@attrs.define
class Attrs:
    kind: str = "attrs"

class Item(scrapy.Item):
    kind = scrapy.Field()
    deep = scrapy.Field()

class Dropping:
    def process_item(self, item):
        if item == {"kind": "dropped"}:
            raise scrapy.exceptions.DropItem("not wanted")
        if item == {"kind": "raw"}:
            return {"kind": "changed by a pipeline"}
        return item

class Mine(Spider):
    name = "mine"
    custom_settings = {"ITEM_PIPELINES": {Dropping: 100}}

    async def start(self):
        yield {"kind": "of no page"}
        yield Request(SITE + "/page")
        yield Request(SITE + "/gone", errback=self.gone)

    def parse(self, response):
        yield {"kind": "dict", "day": date(2026, 1, 2), "ä": "日本"}
        yield Data()
        yield Attrs()
        yield Item(kind="Item", deep={"list": [{"n": 1}]})
        yield {"kind": "raw"}
        yield {"kind": "dropped"}
        yield {"kind": "not JSON", "object": object()}

    def gone(self, failure):
        yield {"kind": "of an errback"}
""",
        *("crawl", "mine"),
    )

    assert process.wait() == EXIT_OK, process.log

    assert sorted(stored(), key=lambda item: item["kind"]) == [
        {"kind": "Item", "deep": {"list": [{"n": 1}]}},
        {"kind": "attrs"},
        {"kind": "changed by a pipeline"},
        {"kind": "dataclass", "tags": ["a", None, 1.5]},
        {"kind": "dict", "day": "2026-01-02", "ä": "日本"},
        {"kind": "of an errback"},
    ]
    [error] = [line for line in process.log.splitlines() if "] ERROR: " in line]
    assert re.search("item not stored: it is not JSON: .*object", error)
    assert "such as one of start(), is not stored" in process.log


def test_a_shard_and_a_parser_killed_at_every_step_lose_no_item_and_store_none_twice(
    mine: Callable[..., Any],
    stored: Callable[[], list[dict[str, Any]]],
    echo_at: Callable[[str], Any],
    tmp_path: Path,
) -> None:
    servers = [echo_at(f"127.0.0.{number}") for number in (2, 3, 4, 5)]
    text = f"SITES, PAGES = {[server.url for server in servers]!r}, 4\n{CHAIN}"
    plans = {
        "shard": "settlement_queued settled response_received:2",
        "parser": "row_appended@both files_synced@both segment_recorded@both",
    }

    def dying(who: str) -> list[str]:
        return killed_at([Crash.read(point) for point in plans[who].split()], tmp_path / who)

    quick = {"CRAWL_SEGMENT_PAGES": "3", "CRAWL_PARSE": "processes", "CRAWL_SHARD_LEASE_SECONDS": "1"}
    shard = mine(text, "crawl", "mine", before=dying("shard"), **quick)
    parser = mine(text, "parser", "--run", "mine", before=dying("parser"), **quick)

    assert (shard.wait(), parser.wait()) == (EXIT_OK, EXIT_OK), shard.log + parser.log
    for who, plan in plans.items():
        assert count_deaths(tmp_path / who) == len(plan.split())
    found = Counter(item["url"] for item in stored())
    assert found == Counter(
        f"{server.url}/{number}{child}"
        for server in servers
        for number in range(4)
        for child in ("", "/child")
    )


def test_a_finished_run_says_so_and_its_feed_is_not_emptied(
    mine: Callable[..., Any], stored: Callable[[], list[dict[str, Any]]], echo: Any, tmp_path: Path
) -> None:
    text = f"SITES, PAGES = {[echo.url]!r}, 2\n{CHAIN}"
    output = tmp_path / "items.jsonl"
    command = ("crawl", "mine", f"--overwrite-output={output}")
    first = mine(text, *command)
    assert first.wait() == EXIT_OK, first.log
    before = output.read_text()

    again = mine(text, *command)

    assert again.wait() == EXIT_FINISHED, again.log
    assert "Run 'mine' has finished, and there is nothing new to fetch" in again.log
    assert "scrapy run --spider mine --run mine --restart" in again.log
    assert output.read_text() == before
    assert len(before.splitlines()) == len(stored()) == 4
    # Nor is it by a process that cannot start.
    assert mine(text, *command, "-ashards=none").wait() == EXIT_USAGE
    assert output.read_text() == before


def test_a_spider_runs_as_shards_and_its_items_are_counted_and_exported(
    mine: Callable[..., Any], scrapy: Callable[..., Any], echo_at: Callable[[str], Any], tmp_path: Path
) -> None:
    sites = [echo_at(f"127.0.0.{number}").url for number in (2, 3, 4)]
    text = f"SITES, PAGES = {sites!r}, 2\n{CHAIN}"
    command = ("run", "--spider", "mine", "--shards", "2", "--parsers", "1")
    run = mine(text, *command, "-a", "child_name=leaf")
    assert run.wait() == EXIT_OK, run.log

    count = scrapy("items", "--run", "mine", "--count")
    export = scrapy("items", "--run", "mine", "--output", str(tmp_path / "out.jsonl"))
    assert (count.wait(), export.wait()) == (EXIT_OK, EXIT_OK)
    # The run has kept the argument: without it, too, there is nothing new.
    again = mine(text, *command)
    assert again.wait() == EXIT_FINISHED, again.log
    other = mine(text, *command, "-a", "child_name=twig")
    assert other.wait() == EXIT_RUN_MISMATCH, other.log
    restarted = mine(text, *command, "--restart", "-a", "child_name=leaf")
    assert restarted.wait() == EXIT_OK, restarted.log

    expected = {f"{site}/{path}" for site in sites for path in ("0", "0/leaf", "1", "1/leaf")}
    assert count.log == "12\n"
    assert f"12 items are in {tmp_path / 'data/runs/mine/items'}" in run.log
    lines = (tmp_path / "out.jsonl").read_text().splitlines()
    assert Counter(json.loads(line)["url"] for line in lines) == Counter(expected)
    assert "Run 'mine' has finished, and there is nothing new to fetch" in again.log
    assert 'CRAWL_ARGUMENTS is {"child_name": "leaf"} in the run' in other.log
    [earlier] = re.findall(r"to see it: scrapy items --run (\S+)", restarted.log)
    for name in ("mine", earlier):
        items = read_items(tmp_path / "data" / "runs" / name)
        assert Counter(item["url"] for item in items) == Counter(expected)
