"""The figures of a run as its leader publishes them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crawlproj.config import Config, load_config
from crawlproj.frontier.frontier import Frontier, Hold
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate
from crawlproj.model.spill import SpillRecord
from crawlproj.observe.metrics import RUN_METRICS
from crawlproj.pages.queue import PageQueue
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Leader, Limits, Run
from crawlproj.runs.gauges import run_gauges
from crawlproj.runs.membership import Membership
from crawlproj.runs.overview import overview_of


@pytest.fixture
async def run(client: RedisClient) -> Run:
    return await Run.open(client, "web", partitions=4, shards=2)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return load_config(
        {"CRAWL_DATA": str(tmp_path), "CRAWL_PAGE_QUEUE_SOFT": 50, "CRAWL_PAGE_QUEUE_HARD": 100}
    )


async def test_all_declared_run_metrics_are_published_and_no_others(run: Run, config: Config) -> None:
    assert (await run_gauges(run, config)).keys() == RUN_METRICS.keys()


async def test_the_figures_are_those_of_the_run(run: Run, config: Config) -> None:
    await run.begin(is_first=True)
    urls = [f"https://d{number}.test/{page}" for number in range(3) for page in range(4)]
    await Frontier(run.client, "web", 4).admit([Candidate(url) for url in urls])
    await run.client.command("RPUSH", keys.pages("web"), b"one", b"two")
    await run.client.command("HSET", keys.page_counters("web"), "queued_bytes", 6, "stored", 9, "cut", 3)
    await run.client.command("HSET", keys.page_counters("web"), "dead", 1)
    await run.client.command("HSET", keys.spills("web"), "p-000001.links", SpillRecord(7, "here").encode())

    gauges = await run_gauges(run, config)

    assert (gauges["frontier_waiting_urls"], gauges["frontier_ready_domains"]) == (12, 3)
    assert gauges["frontier_spilled_links"] == 7
    assert (gauges["page_queue_pages"], gauges["page_queue_bytes"]) == (2, 6)
    assert (gauges["run_pages_stored_total"], gauges["run_pages_cut_total"]) == (9, 3)
    assert (gauges["dead_letters"], gauges["page_queue_hard_limit_pages"]) == (1, 100)
    assert gauges["page_queue_hard_limit_bytes"] == config.page_queue_hard_bytes
    assert (gauges["shards_wanted"], gauges["shards_alive"]) == (2, 0)
    assert gauges["run_state"]["running"] == 1
    assert sum(gauges["run_state"].values()) == 1
    assert gauges["redis_memory_bytes"] > 0


async def test_of_the_parked_domains_those_that_failed_have_an_open_circuit(run: Run, config: Config) -> None:
    frontier = Frontier(run.client, "web", 4)
    reasons = {"a.test": "failures", "b.test": "retry_after", "c.test": "failures", "d.test": "byte_budget"}
    await frontier.admit(Candidate(f"https://{domain}/") for domain in reasons)
    for domain, reason in reasons.items():
        partition = partition_of(domain, 4)
        hold = await frontier.acquire(
            partition, "me", ttl_ms=60_000, delay_ms=0, delays_ms={}, heir_of=["me"]
        )
        assert isinstance(hold, Hold)
        await frontier.park(hold, [(domain, reason, 60_000)])
        await frontier.park(hold, [(domain, "failures", 60_000)])
    before = await run_gauges(run, config)

    await frontier.unpark({partition_of("a.test", 4): ["a.test"]})
    after = await run_gauges(run, config)

    assert (before["frontier_parked_domains"], before["circuits_open"]) == (4, 2)
    assert (after["frontier_parked_domains"], after["circuits_open"]) == (3, 1)


async def test_the_limit_ratio_is_that_of_the_nearest_limit(run: Run, config: Config) -> None:
    without = await run_gauges(run, config)
    await run.set_limits(Limits(pages=200, seconds=3600, bytes=10_000))
    await run.client.command("HSET", keys.meta("web", 1), "done", 50, "bytes", 8000)

    gauges = await run_gauges(run, config)

    assert (without["limit_ratio"], gauges["limit_ratio"]) == (0.0, 0.8)


async def test_the_disk_of_each_host_is_listed_the_fullest_first(run: Run) -> None:
    process = ProcessName.of_this()
    queue = PageQueue(run.client, "web")
    for host, free in (("roomy", 9), ("full", 2), ("roomy", 5), ("no disk", None)):
        elsewhere = replace(process, host=host, machine="other", instance=f"{host}-{free}")
        await queue.heartbeat(elsewhere.instance, await queue.now_ms(), elsewhere, disk_free_bytes=free)

    overview = await overview_of(run)

    assert overview["disks"] == [{"host": "full", "free_bytes": 2}, {"host": "roomy", "free_bytes": 5}]


async def test_a_leading_supervisor_is_listed_and_a_leading_shard_is_not(run: Run) -> None:
    first, second = ProcessName.of_this(), ProcessName.of_this()
    supervisor = Leader(run, first, 5000)
    assert await supervisor.lead()
    members = [Membership(run, process, 1, data="", silent_s=30) for process in (first, second)]
    for number, member in enumerate(members):
        await member.keep([], [], {"metrics": f"http://a:{number}/metrics"})
    led_by_supervisor = await overview_of(run)
    await supervisor.step_down()
    await members[0].leave(continues=True)
    assert await Leader(run, ProcessName.of_this(), 5000).lead()

    led_by_shard = await overview_of(run)

    assert led_by_supervisor["supervisor"]["metrics"] == "http://a:0/metrics"
    urls = [line["metrics"] for line in led_by_supervisor["supervisors"]]
    assert urls == ["http://a:0/metrics", "http://a:1/metrics"]
    assert led_by_shard["supervisor"] is None
    assert [line["metrics"] for line in led_by_shard["supervisors"]] == ["http://a:1/metrics"]


async def test_a_supervisor_that_is_gone_or_silent_is_not_listed(run: Run) -> None:
    gone = replace(ProcessName.of_this(), started="long ago")
    elsewhere = replace(ProcessName.of_this(), host="elsewhere", machine="elsewhere")
    for process in (gone, elsewhere):
        await Membership(run, process, 1, data="", silent_s=30).keep([], [])

    now = await overview_of(run)
    later = await overview_of(run, await server_ms(run.client) + 61_000)

    assert [line["host"] for line in now["supervisors"]] == ["elsewhere"]
    assert later["supervisors"] == []
