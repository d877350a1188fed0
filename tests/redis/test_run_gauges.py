"""The figures of a run as its leader tells them."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from crawlproj.config import Config, load_config
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate
from crawlproj.observe.metrics import RUN_METRICS
from crawlproj.redisio import keys
from crawlproj.redisio.client import Door
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Leader, Limits, Run
from crawlproj.runs.gauges import run_gauges
from crawlproj.runs.overview import overview_of
from crawlproj.runs.processes import forget_supervisor, show_supervisor


@pytest.fixture
async def run(door: Door) -> Run:
    return await Run.open(door, "web", partitions=4, shards=2)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(
        {"CRAWL_DATA": str(tmp_path), "CRAWL_PAGE_QUEUE_SOFT": 50, "CRAWL_PAGE_QUEUE_HARD": 100}
    )


async def test_all_figures_that_are_declared_are_told_and_no_others(run: Run, config: Config) -> None:
    assert (await run_gauges(run, config)).keys() == RUN_METRICS.keys()


async def test_the_figures_are_those_of_the_run(run: Run, config: Config) -> None:
    await run.begin(is_first=True)
    urls = [f"https://d{number}.test/{page}" for number in range(3) for page in range(4)]
    await Frontier(run.door, "web", 4).admit([Candidate(url) for url in urls])
    await run.door.command("RPUSH", keys.pages("web"), b"one", b"two")
    await run.door.command("HSET", keys.page_counters("web"), "queued_bytes", 6, "stored", 9, "cut", 3)
    await run.door.command("HSET", keys.dead_letters("web"), "1:2", "{}")

    told = await run_gauges(run, config)

    assert (told["frontier_waiting_urls"], told["frontier_ready_domains"]) == (12, 3)
    assert (told["page_queue_pages"], told["page_queue_bytes"]) == (2, 6)
    assert (told["run_pages_stored_total"], told["run_pages_cut_total"]) == (9, 3)
    assert (told["dead_letters"], told["page_queue_hard_limit_pages"]) == (1, 100)
    assert told["page_queue_hard_limit_bytes"] == config.page_queue_hard_bytes
    assert (told["shards_wanted"], told["shards_alive"]) == (2, 0)
    assert told["run_state"]["running"] == 1
    assert sum(told["run_state"].values()) == 1
    assert min(told["disk_free_bytes"], told["redis_memory_bytes"]) > 0


async def test_of_the_parked_domains_those_that_failed_have_an_open_circuit(run: Run, config: Config) -> None:
    frontier = Frontier(run.door, "web", 4)
    reasons = {"a.test": "failures", "b.test": "retry_after", "c.test": "failures", "d.test": "byte_budget"}
    await frontier.admit(Candidate(f"https://{domain}/") for domain in reasons)
    for domain, reason in reasons.items():
        partition = partition_of(domain, 4)
        hold = await frontier.acquire(partition, "me", ttl_ms=60_000, delay_ms=0, delays_ms={}, heir_of="me")
        assert hold is not None
        await frontier.park(hold, [(domain, reason, 60_000)])
        await frontier.park(hold, [(domain, "failures", 60_000)])
    before = await run_gauges(run, config)

    await frontier.unpark({partition_of("a.test", 4): ["a.test"]})
    after = await run_gauges(run, config)

    assert (before["frontier_parked_domains"], before["circuits_open"]) == (4, 2)
    assert (after["frontier_parked_domains"], after["circuits_open"]) == (3, 1)


async def test_how_far_it_is_to_a_limit_is_told_of_the_nearest(run: Run, config: Config) -> None:
    without = await run_gauges(run, config)
    await run.set_limits(Limits(pages=200, seconds=3600, bytes=10_000))
    await run.door.command("HSET", keys.meta("web", 1), "done", 50, "bytes", 8000)

    told = await run_gauges(run, config)

    assert (without["limit_ratio"], told["limit_ratio"]) == (0.0, 0.8)


async def test_a_disk_that_is_away_takes_its_figure_with_it_and_no_other(run: Run, tmp_path: Path) -> None:
    told = await run_gauges(run, load_config({"CRAWL_DATA": str(tmp_path / "gone")}))

    assert RUN_METRICS.keys() - told.keys() == {"disk_free_bytes"}


async def test_a_supervisor_that_leads_is_told_of_and_a_shard_that_does_is_not(run: Run) -> None:
    first, second = ProcessName.of_this(), ProcessName.of_this()
    supervisor = Leader(run, first, 5000)
    assert await supervisor.lead()
    for number, process in enumerate((first, second)):
        url = f"http://a:{number}/metrics"
        await show_supervisor(run, process, {"metrics": url, "started_ms": number})
    led_by_supervisor = await overview_of(run)
    await supervisor.step_down()
    await forget_supervisor(run, first)
    assert await Leader(run, ProcessName.of_this(), 5000).lead()

    led_by_shard = await overview_of(run)

    assert led_by_supervisor["supervisor"]["metrics"] == "http://a:0/metrics"
    told = [line["metrics"] for line in led_by_supervisor["supervisors"]]
    assert told == ["http://a:0/metrics", "http://a:1/metrics"]
    assert led_by_shard["supervisor"] is None
    assert [line["metrics"] for line in led_by_shard["supervisors"]] == ["http://a:1/metrics"]


async def test_a_supervisor_that_is_gone_or_silent_is_not_told_of(run: Run) -> None:
    gone = replace(ProcessName.of_this(), started="long ago")
    await show_supervisor(run, gone, {})
    await show_supervisor(run, replace(ProcessName.of_this(), host="elsewhere"), {})

    now = await overview_of(run)
    later = await overview_of(run, lambda: int((time.time() + 61) * 1000))

    assert [line["host"] for line in now["supervisors"]] == ["elsewhere"]
    assert later["supervisors"] == []
