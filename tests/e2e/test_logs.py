"""Logs of real processes: a JSON object a line, whose it is in each, and no line for a page."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from crawlproj.config import Config
from crawlproj.config.rules import Rules
from crawlproj.redisio import keys
from crawlproj.simweb.spec import WorldSpec
from tests.e2e.conftest import Crew, Process

pytestmark = pytest.mark.e2e

SMALL = WorldSpec(seed=3, domains=6, pages_per_domain=15, size_spread=0.3, latency_ms=5, throttle_share=0.0)


@pytest.fixture(scope="module")
def crew(shared_crew_of: Callable[..., Crew]) -> Crew:
    crew = shared_crew_of(SMALL, CRAWL_LOG="auto", CRAWL_FIGURES_SECONDS="1", DOWNLOAD_DELAY="0.02")
    crew.start(shards=1)
    crew.finish()
    return crew


@pytest.mark.parametrize("number", [0, 1])
def test_every_line_is_a_json_object_that_says_whose_it_is(crew: Crew, number: int) -> None:
    process: Process = crew.processes[number]
    lines = [json.loads(line) for line in process.log.splitlines()]

    named = [line for line in lines if "run" in line]

    assert all({"time", "level", "logger", "message", "pid"} <= line.keys() for line in lines)
    assert {(line["run"], line["kind"]) for line in named} == {("web", ["shard", "parser"][number])}
    # All but what is said before the process knows what it is.
    assert "run" in lines[-1]


@pytest.mark.parametrize("number", [0, 1])
def test_there_are_fewer_lines_than_pages(crew: Crew, number: int) -> None:
    lines = crew.processes[number].log.splitlines()

    assert len(lines) < len(crew.pages()) / 2, "\n".join(lines)


def test_the_guard_of_a_parser_says_whose_it_is_too(
    scrapy: Callable[..., Process],
    wait_for: Callable[..., object],
    ask: Callable[..., object],
    empty_redis_url: str,
) -> None:
    # As the first shard does: a parser waits for the rules of its run.
    ask(empty_redis_url, "HSET", keys.run_record("web"), "rules", Rules.of(Config(), "web").encode())
    guard = scrapy("parser", CRAWL_LOG="json")

    def said(words: str) -> list[dict[str, object]]:
        whole_lines = guard.log.rpartition("\n")[0].splitlines()
        return [line for line in map(json.loads, whole_lines) if words in line["message"]]

    wait_for(lambda: said("started, storing pages in"), "the parser has begun")
    os.kill(int(str(said("started, storing pages in")[0]["pid"])), signal.SIGKILL)
    wait_for(lambda: said("died (SIGKILL)"), "its guard says so")

    [line] = said("died (SIGKILL)")
    assert (line["run"], line["kind"], line["pid"]) == ("web", "parser", guard.process.pid)


def test_a_shard_says_now_and_then_how_it_comes_along(crew: Crew) -> None:
    said = [json.loads(line)["message"] for line in crew.processes[0].log.splitlines()]

    assert [message for message in said if "responses" in message and "per second" in message]


def test_a_log_file_and_a_level_that_are_asked_for_are_those_of_all_processes(
    crew_of: Callable[..., Crew], tmp_path: Path
) -> None:
    crew = crew_of(
        SMALL, LOG_FILE=str(tmp_path / "mine" / "crawl.log"), CRAWL_LOG="json", DOWNLOAD_DELAY="0.02"
    )

    run = crew.scrapy(
        *("run", str(crew.seeds_file), "--shards=1", "--parsers=1", "--max-pages=20", "-L", "WARNING")
    )

    assert run.wait() == 0, run.log
    assert sorted(file.name for file in (tmp_path / "mine").iterdir()) == [
        *("crawl-parser-0.log", "crawl-shard-0.log", "crawl.log")
    ]
    assert not (crew.data / "runs" / "web" / "logs").exists()
    texts = [file.read_text() for file in (tmp_path / "mine").iterdir()]
    lines = [json.loads(line) for text in texts for line in text.splitlines()]
    assert [line for line in lines if line["level"] in ("DEBUG", "INFO")] == []
