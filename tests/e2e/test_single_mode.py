"""Single mode: one command crawls, reads and stores; killed midway, it resumes in either mode."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawlproj.errors import EXIT_NOTHING_FETCHED
from crawlproj.redisio import keys
from crawlproj.simweb.spec import WorldSpec
from crawlproj.storage import read_pages
from tests.ports import HeldPorts

pytestmark = pytest.mark.e2e

#: Many small domains: what takes time here is how often one may be asked.
SMALL = WorldSpec(seed=3, domains=24, pages_per_domain=6, size_spread=0.2, throttle_share=0.0)
#: Its end makes this expression try all ways to split the rest, holding Python's lock all the while.
HANGS_ON = '{"hang": "xpath://body[re:test(string(.), \'(a+)+$\')]"}'
HANGING_BODY = b"<body>" + b"a" * 60 + b"!"


def start(crew: Any, *arguments: str) -> Any:
    """The whole crawl as one command."""
    return crew.scrapy("crawl", "web", f"-aseeds={crew.seeds_file}", *arguments, name="single")


def test_one_command_fetches_and_stores_every_page_once_and_ends(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(SMALL)

    start(crew)
    crew.finish()

    crew.assert_content()
    status = crew.status()
    assert status["state"] == "finished"
    assert status["parsers"] == {}
    assert "Traceback" not in crew.processes[0].log


def test_a_killed_single_crawl_resumes(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(SMALL, CRAWL_SEGMENT_SECONDS="0.5")
    crew.hold_open(held=True)
    victim = start(crew)
    crew.wait_until(lambda: crew.status()["pages_stored"] >= 40, "pages are stored")

    victim.kill()
    crew.hold_open(held=False)
    start(crew)
    crew.finish()

    # Of each domain one in flight, and one that had come but was not yet settled.
    crew.assert_content(twice_at_most=2 * SMALL.domains)


def test_an_interrupted_single_crawl_has_stored_what_it_fetched_and_resumes_with_two_shards(
    crew_of: Callable[..., Any],
) -> None:
    # URLs must be left, however late the signal comes, and none of the second shard be fetched by the first.
    crew = crew_of(SMALL, DOWNLOAD_DELAY="0.5", CRAWL_SHARD_LEASE_SECONDS="60")
    stopped = start(crew)
    crew.wait_for_fetched(40)

    stopped.send(signal.SIGINT)
    code = stopped.wait()
    status = crew.status()
    crew.start(shards=2)
    crew.finish()

    assert code == 0, stopped.log
    assert "Traceback" not in stopped.log
    assert status["waiting"] > 0
    assert (status["leased"], status["pages_queued"], status["pages_being_parsed"]) == (0, 0, 0)
    assert status["parsers"] == {}
    crew.assert_content()
    assert {page["shard"] for page in crew.pages()} == {0, 1}


def test_a_single_crawl_interrupted_twice_exits_at_once_and_resumes(crew_of: Callable[..., Any]) -> None:
    slow = WorldSpec.calm(seed=1, domains=8, pages_per_domain=3, slow_share=0.3, slow_ms=2000)
    crew = crew_of(slow, CRAWL_DRAIN_SECONDS="60")
    hurried = start(crew)
    crew.wait_for_fetched(6)

    hurried.send(signal.SIGINT)
    crew.wait_until(lambda: hurried.says("Received SIGINT"), "the first is heard")
    stopped_s = time.monotonic()
    hurried.send(signal.SIGINT)
    hurried.wait()
    took_s = time.monotonic() - stopped_s
    start(crew)
    crew.finish()

    # Without the second signal it would have a minute.
    assert took_s < 30
    crew.assert_content(twice_at_most=slow.domains)


def test_a_run_of_two_shards_resumes_in_single_mode(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(SMALL)
    crew.hold_open(held=True)
    crew.start(shards=2)
    crew.wait_for_fetched(40)
    for process in crew.processes:
        process.send(signal.SIGTERM)
    for process in crew.processes:
        assert process.wait() == 0, process.log

    single = start(crew)
    crew.wait_until(lambda: single.says("holding 64"), "it holds all partitions")
    crew.hold_open(held=False)
    crew.finish()

    crew.assert_content()


def test_a_page_that_hangs_becomes_a_dead_letter_and_delays_no_other(
    scrapy: Callable[..., Any], echo: Any, ask: Callable[..., Any], empty_redis_url: str, tmp_path: Path
) -> None:
    html = {"Content-Type": "text/html"}
    echo.answers["/hang"] = [(200, html, HANGING_BODY)]
    echo.answers["/fine"] = [(200, html, b"<title>Fine</title><body>words")]
    seeds = tmp_path / "seeds.txt"
    seeds.write_text(f"{echo.url}/hang\n{echo.url}/fine\n")

    single = scrapy("crawl", "web", f"-aseeds={seeds}", CRAWL_FIELDS=HANGS_ON, CRAWL_PARSE_SECONDS="0.5")

    assert single.wait() == 0, single.log
    [letter] = [json.loads(value) for value in ask(empty_redis_url, "HVALS", keys.dead_letters("web"))]
    assert letter["url"] == f"{echo.url}/hang"
    assert "took longer than CRAWL_PARSE_SECONDS" in letter["error"]
    stored = list(read_pages(tmp_path / "data" / "runs" / "web" / "pages"))
    assert [page["title"] for page in stored if page["url"] == f"{echo.url}/fine"] == ["Fine"]


def test_a_single_crawl_whose_parser_cannot_start_says_why_and_stops(
    scrapy: Callable[..., Any], echo: Any, tmp_path: Path
) -> None:
    seeds = tmp_path / "seeds.txt"
    seeds.write_text(f"{echo.url}/\n")

    (tmp_path / "sitecustomize.py").write_text(
        'import os, sys\nif "crawlproj.parsing.extractor" in sys.orig_argv:\n    os._exit(3)\n'
    )

    single = scrapy("crawl", "web", f"-aseeds={seeds}", environment={"PYTHONPATH": str(tmp_path)})

    assert single.wait() == 1, single.log
    assert single.says("its parser failed: Cannot parse pages: the extractor process ended with exit code 3")
    assert "Traceback" not in single.log


def test_a_single_crawl_whose_seeds_all_fail_says_why_and_ends_with_a_code_of_its_own(
    scrapy: Callable[..., Any], ports: HeldPorts
) -> None:
    url = f"http://127.0.0.1:{ports.hold()}/"

    single = scrapy("crawl", "web", f"-aseeds={url}", CRAWL_GIVE_UP_FAILURES="1")

    assert single.wait() == EXIT_NOTHING_FETCHED, single.log
    assert single.says("no seed could be fetched: connection_refused, 1 time: nothing listens there")
