"""`scrapy run`: a whole crawl by one command, to its end, interrupted, resumed, and started twice."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawlproj.errors import EXIT_SHARD_TAKEN
from crawlproj.storage import read_pages

pytestmark = pytest.mark.e2e

Scrapy = Callable[..., Any]


def run_simweb(scrapy: Scrapy, data: Path, domains: int = 6) -> Any:
    return scrapy("run", "--simweb", str(domains), "--json", "--data", str(data), DOWNLOAD_DELAY="0.1")


def summary_of(process: Any) -> Any:
    return json.loads(re.findall(r"^\{.*\}$", process.log, re.MULTILINE)[-1])


def test_one_command_crawls_a_simulated_web_to_the_referees_content(scrapy: Scrapy, tmp_path: Path) -> None:
    process = run_simweb(scrapy, tmp_path)

    assert process.wait() == 0, process.log
    summary = summary_of(process)
    assert summary["state"] == "finished"
    assert "nothing to object to" in summary["referee"]
    assert len(list(read_pages(summary["pages"]))) == summary["pages_stored"] == summary["fetched"]


def test_an_interrupted_crawl_goes_on_with_the_same_command(
    scrapy: Scrapy, wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    log = tmp_path / "runs" / "simweb" / "access.jsonl"
    first = run_simweb(scrapy, tmp_path, domains=12)
    wait_for(lambda: log.exists() and log.read_text().count("\n") > 60, "some pages are fetched")

    first.send(signal.SIGINT)
    code = first.wait()
    second = run_simweb(scrapy, tmp_path, domains=12)

    assert code == 130, first.log
    assert "Ctrl-C again stops now" in first.log
    assert summary_of(first)["leased"] == 0
    assert second.wait() == 0, second.log
    assert "nothing to object to" in summary_of(second)["referee"]


def test_a_run_at_work_is_not_started_twice(
    scrapy: Scrapy, wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    log = tmp_path / "runs" / "simweb" / "access.jsonl"
    first = run_simweb(scrapy, tmp_path, domains=12)
    wait_for(lambda: log.exists() and log.read_text().count("\n") > 20, "some pages are fetched")

    second = run_simweb(scrapy, tmp_path, domains=12)

    assert second.wait() == EXIT_SHARD_TAKEN, second.log
    assert "is at work under process" in second.log
    assert "Traceback" not in second.log
    assert first.wait() == 0, first.log


def test_what_a_process_says_at_error_is_shown_where_the_person_looks(
    scrapy: Scrapy, wait_for: Callable[..., Any], tmp_path: Path
) -> None:
    pages = tmp_path / "runs" / "simweb" / "pages"
    pages.parent.mkdir(parents=True)
    pages.write_text("a file where a directory should be")

    process = run_simweb(scrapy, tmp_path)

    wait_for(lambda: "parser 0: no pages are taken until they can be stored" in process.log, "it is said")
    process.send(signal.SIGINT)
    assert process.wait() == 130, process.log
    assert "pages not stored yet" in process.log
