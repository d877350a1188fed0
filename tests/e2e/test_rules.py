"""A run owns its rules, whoever starts its processes, and stays within the sites of its seeds."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from crawlproj.config.rules import RULES
from crawlproj.errors import EXIT_RUN_MISMATCH, EXIT_USAGE, RunFinished
from crawlproj.simweb.accesslog import read_log
from crawlproj.simweb.spec import WorldSpec

pytestmark = pytest.mark.e2e


def hosts_asked(crew: Any) -> set[str | None]:
    return {urlsplit(request.url).hostname for request in read_log(crew.simweb.log_path)}


def depths(crew: Any) -> set[int]:
    return {page["depth"] for page in crew.pages()}


def test_a_limit_given_to_a_shard_started_by_hand_is_obeyed_by_the_parser(
    crew_of: Callable[..., Any],
) -> None:
    crew = crew_of(WorldSpec.calm(seed=3, domains=3, pages_per_domain=12))

    # The parser comes first, and knows nothing.
    crew.parser()
    crew.settings |= {"DEPTH_LIMIT": "1", "CRAWL_FIELDS": '{"heading": "css:h1::text"}'}
    crew.shard(0, f"seeds={crew.seeds_file}")
    crew.finish()

    assert depths(crew) == {0, 1}
    assert any(page["fields"] for page in crew.pages())


def test_a_shard_that_was_given_other_rules_is_refused_with_one_clear_line(
    crew_of: Callable[..., Any],
) -> None:
    crew = crew_of(WorldSpec.calm(seed=3, domains=2, pages_per_domain=4), DEPTH_LIMIT="1")
    shard = crew.shard(0, "shards=1", f"seeds={crew.seeds_file}")
    crew.parser()
    crew.finish(shard)

    crew.settings["DEPTH_LIMIT"] = "2"
    refused = crew.shard(0)

    assert refused.wait() == EXIT_RUN_MISMATCH, refused.log
    assert "DEPTH_LIMIT is 1 in the run, and 2 was given" in refused.log
    assert "scrapy run --change --run web -s DEPTH_LIMIT=2" in refused.log
    assert "Traceback" not in refused.log


def test_a_run_stays_within_the_sites_of_its_seeds_and_says_so(
    crew_of: Callable[..., Any],
) -> None:
    crew = crew_of(WorldSpec.calm(seed=5, domains=4, pages_per_domain=8), CRAWL_SCOPE="sites")
    seed = crew.simweb.seeds()[0]

    run = crew.scrapy("run", seed, "--shards=1", "--parsers=1")
    assert run.wait() == 0, run.log

    host = urlsplit(seed).hostname
    assert hosts_asked(crew) == {host}
    assert f"follows links within {host} and hosts below; to follow all links: --scope everything" in run.log
    status = crew.scrapy("status", "--json")
    assert status.wait() == 0
    said = json.loads(status.log.strip().splitlines()[-1])
    assert said["filtered"]["scope"] > 0
    assert said["rules"]["CRAWL_SCOPE"] == "sites"
    assert said["rules_not_default"] == [
        *("CRAWL_ALLOW_ADDRESSES", "CRAWL_BACKOFF_SECONDS", "DOWNLOAD_DELAY")
    ]

    # Not even the addresses that may be crawled need to be given again.
    crew.settings = {name: value for name, value in crew.settings.items() if name not in RULES}
    more = crew.simweb.seeds()[1]
    added = crew.scrapy("seed", more)
    assert added.wait() == 0, added.log
    again = crew.scrapy("run", "--shards=1", "--parsers=1")
    assert again.wait() == 0, again.log

    assert hosts_asked(crew) == {host, urlsplit(more).hostname}
    assert {page["depth"] for page in crew.pages() if page["domain"] == urlsplit(more).hostname} > {0}


def test_a_change_reaches_all_processes_at_work(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(
        WorldSpec.calm(seed=7, domains=6, pages_per_domain=200, latency_ms=5), DOWNLOAD_DELAY="0.5"
    )
    run = crew.scrapy("run", str(crew.seeds_file), "--shards=1", "--parsers=1")
    crew.wait_for_fetched(12)

    # Everything that waits is refused from now on, so the run ends: thousands of seconds early.
    crew.settings = {}
    change = crew.scrapy("run", "--change", "--run", "web", "-s", "CRAWL_EXCLUDE=.", "--max-pages", "9999")

    assert change.wait() == 0, change.log
    assert "run web: CRAWL_EXCLUDE none -> .; max-pages 0 -> 9999" in change.log
    assert run.wait() == 0, run.log
    status = crew.status()
    assert status["state"] == "finished"
    assert status["by_reason"]["excluded"] > 0


SPIDER = """
from scrapy import Request, Spider

class Mine(Spider):
    name = "mine"
    start_urls = [{seeds!r}]
    custom_settings = {{"DOWNLOAD_DELAY": 0.2}}

    def parse(self, response):
        yield {{"url": response.url}}
"""


def test_a_run_of_another_spider_continues_with_that_spider(
    scrapy: Callable[..., Any], echo: Any, tmp_path: Path
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "myspiders.py").write_text(SPIDER.format(seeds=echo.url))
    mine = {
        "environment": {"PYTHONPATH": str(tmp_path / "modules")},
        "SPIDER_MODULES": "myspiders,crawlproj.spiders",
    }
    first = scrapy("crawl", "mine", **mine)
    assert first.wait() == 0, first.log

    other = scrapy("run", "--run", "mine", "--spider", "web", "--shards=1", "--parsers=1", **mine)
    code = other.wait()
    again = scrapy("run", "--run", "mine", "--shards=1", "--parsers=1", **mine)

    assert code == EXIT_RUN_MISMATCH, other.log
    assert "Run 'mine' is one of the spider 'mine', not of 'web'" in other.log
    # There is nothing new, as its own spider finds out; `web` would be refused.
    assert again.wait() == RunFinished.exit_code, again.log
    assert "scrapy run --spider mine --run mine --restart" in again.log


def test_what_a_spider_sets_itself_counts_before_the_start(
    scrapy: Callable[..., Any], tmp_path: Path
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "myspiders.py").write_text(
        SPIDER.format(seeds="") + "    custom_settings = {'CRAWL_CONTACT': 'me@a.test'}\n"
    )

    # It is checked, and not started: there are 64 partitions.
    process = scrapy(
        *("run", "--spider", "mine", "--shards", "65"),
        environment={"PYTHONPATH": str(tmp_path / "modules")},
        SPIDER_MODULES="myspiders",
        CRAWL_ALLOW_ADDRESSES="",
    )

    assert process.wait() == EXIT_USAGE
    assert "--shards 65: at most 64" in process.log
