"""`scrapy compare`, typed as a person would, its figures beside the simulated web's own log."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from crawlproj.simweb.accesslog import read_log
from crawlproj.storage import read_pages
from tests.e2e.conftest import EchoServer, Process

pytestmark = pytest.mark.e2e


def test_the_figures_of_each_mode_are_those_of_the_webs_own_log(
    scrapy: Callable[..., Process], tmp_path: Path
) -> None:
    page = tmp_path / "compared.html"
    compare = scrapy("compare", "--simweb", "2", "--json", "--keep", "-o", str(page), DOWNLOAD_DELAY="0.02")

    assert compare.wait() == 0

    result = json.loads(next(line for line in compare.log.splitlines() if line.startswith("{")))
    single, sharded = result["crawls"]
    assert [(crawl["name"], crawl["mode"]) for crawl in result["crawls"]] == [
        ("single", "single"),
        ("2 shards", "sharded"),
    ]
    runs = [tmp_path / "data" / "runs" / name for name in ("compare-single", "compare-2-shards")]
    for crawl, run in zip(result["crawls"], runs, strict=True):
        log = list(read_log(run / "access.jsonl"))
        asked = {seen.url for seen in log if not seen.url.endswith(("/robots.txt", ".xml"))}
        rows = list(read_pages(run))
        assert crawl["pages"] == sum(row["status"] > 0 for row in rows)
        assert asked == {row["url"] for row in rows if row["status"]}
        assert crawl["domains"] == len({seen.domain for seen in log}) == 2
        took_s = (max(seen.end_ms for seen in log) - min(seen.start_ms for seen in log)) / 1000
        assert 0 < crawl["fetching_s"] <= took_s + 1 <= crawl["seconds"] + 1
        slowest = crawl["slowest"]
        assert slowest["pages"] == sum(row["domain"] == slowest["domain"] for row in rows if row["status"])
        assert crawl["memory_bytes"] > 50_000_000
        assert crawl["cpu_s"]["redis"] > 0
    assert single["cpu_s"]["parser"] == 0 < single["cpu_s"]["shard"]
    assert sharded["cpu_s"]["parser"] > 0
    assert sharded["cpu_s"]["shard"] > 0
    assert sharded["texts"] == {"common": single["pages"], "different": [], "only_in_one": []}
    assert sum("the simulated web's own log agrees" in sentence for sentence in result["verdict"]) == 2
    assert page.read_text("utf-8").count("<svg") == 4
    assert "kept run compare-single; to delete it: scrapy runs --delete compare-single" in compare.log


def test_an_interrupted_comparison_ends_in_order_and_leaves_no_run(
    scrapy: Callable[..., Process], echo: EchoServer, wait_for: Callable[..., object], tmp_path: Path
) -> None:
    compare = scrapy("compare", echo.url, DOWNLOAD_DELAY="60")
    wait_for(lambda: echo.log, "the first crawl fetches")
    compare.send(signal.SIGINT)

    assert compare.wait() == 130

    assert "Each site is asked 2 times over: at most 200 pages in each of 2 crawls" in compare.log
    assert "interrupted; nothing was compared" in compare.log
    assert list((tmp_path / "data" / "runs").iterdir()) == []
    assert not (tmp_path / "data" / "compare.html").exists()


def test_everything_that_is_wrong_is_said_before_anything_is_made(
    scrapy: Callable[..., Process], tmp_path: Path
) -> None:
    compare = scrapy("compare", "http://10.0.0.1/", "missing.txt", CRAWL_TEXT="none")

    assert compare.wait() == 2

    assert "3 problems; nothing was started." in compare.log
    assert not (tmp_path / "data").exists()
