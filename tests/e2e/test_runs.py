"""Runs as people handle them: limits, pause, resume, stop, several in one Redis, a leader that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from crawlproj.config import load_config
from crawlproj.redisio import embedded, keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import read_holders
from crawlproj.runs import Limits, Run, RunState
from crawlproj.runs.overview import overview_of
from crawlproj.runs.rules import agree
from crawlproj.simweb.accesslog import read_log
from crawlproj.simweb.spec import WorldSpec
from crawlproj.storage import read_pages

pytestmark = pytest.mark.e2e

T = TypeVar("T")


def with_run(crew: Any, do: Callable[[Run], Awaitable[T]]) -> T:
    """Do something with the crew's run, which is made if there is none."""

    async def work() -> T:
        client = await RedisClient.open(url=embedded.ensure_running(crew.data), data_dir=crew.data)
        try:
            return await do(await Run.open(client, "web", partitions=64, shards=2))
        finally:
            await client.close()

    return asyncio.run(work())


def set_limits(crew: Any, limits: Limits) -> None:
    with_run(crew, lambda run: run.set_limits(limits))


def leader_pid(crew: Any) -> int:
    async def read(run: Run) -> int:
        [holder] = await read_holders(run.client, [keys.leader(run.name)])
        return holder.process.pid if holder else 0

    return with_run(crew, read)


def say(crew: Any, *arguments: str) -> str:
    """Give a command; returns what it said."""
    command = crew.scrapy(*arguments)
    assert command.wait() == 0, command.log
    log: str = command.log
    return log


def test_a_run_stops_exactly_at_its_page_limit_and_resumes_with_a_higher_one(
    crew_of: Callable[..., Any],
) -> None:
    crew = crew_of(WorldSpec.calm(seed=7, domains=10, pages_per_domain=14, size_spread=0, latency_ms=10))
    set_limits(crew, Limits(pages=60))

    crew.start(shards=2)
    crew.finish()

    status = crew.status()
    assert (status["state"], status["reason"]) == ("stopped", "max_pages")
    assert (status["fetched"], status["leased"], status["pages_queued"]) == (60, 0, 0)
    assert status["waiting"] > 0
    stored = Counter(page["url"] for page in crew.pages() if page["status"])
    assert (len(stored), max(stored.values())) == (60, 1)
    asked = [request.url for request in read_log(crew.simweb.log_path)]
    assert sum(not url.endswith("/robots.txt") for url in asked) == 60

    set_limits(crew, Limits(pages=10_000))
    crew.shard(0)
    crew.shard(1)
    crew.parser()
    crew.finish()

    assert crew.status()["state"] == "finished"
    crew.assert_content()


def test_a_run_is_paused_resumed_stopped_and_gone_on_with(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(
        WorldSpec.calm(seed=8, domains=8, pages_per_domain=50, size_spread=0, latency_ms=20),
        DOWNLOAD_DELAY="0.2",
    )
    crew.start(shards=2)
    crew.wait_for_fetched(40)

    with_run(crew, lambda run: run.change(RunState.PAUSED))
    crew.wait_until(lambda: not crew.status()["leased"], "everything lent is given back")
    quiet_ms = time.time() * 1000
    # Five times what lies between two requests to a domain: that nothing comes is what is tested.
    time.sleep(1)
    resumed_ms = time.time() * 1000
    before = crew.status()["fetched"]
    with_run(crew, lambda run: run.change(RunState.RUNNING))
    crew.wait_for_fetched(before + 30)
    stopped = say(crew, "stop")

    starts = [request.start_ms for request in read_log(crew.simweb.log_path)]
    assert [start for start in starts if quiet_ms < start < resumed_ms] == []
    assert "run web is stopped" in stopped
    assert "run web has no processes left" in stopped
    status = crew.status()
    assert (status["state"], status["reason"], status["leased"]) == ("stopped", "asked", 0)
    assert status["pages_queued"] + status["pages_being_parsed"] == 0
    assert status["waiting"] > 0
    crew.finish()

    crew.shard(0)
    crew.shard(1)
    crew.parser()
    crew.finish()
    status = crew.status()
    assert (status["state"], status["waiting"], status["parked"]) == ("finished", 0, 0), status
    crew.assert_content()


def test_a_run_that_is_stopped_while_a_child_of_its_supervisor_starts_stays_stopped(
    crew_of: Callable[..., Any],
) -> None:
    crew = crew_of(WorldSpec.calm(seed=11, domains=2, pages_per_domain=5, size_spread=0))
    with_run(crew, lambda run: run.change(RunState.STOPPED, "asked"))
    # As its supervisor did.
    with_run(crew, lambda run: agree(run, load_config(crew.settings), ()))
    crew.settings["CRAWL_SUPERVISOR"] = str(os.getpid())
    # A child of ours.
    crew.before = ["env"]

    shard = crew.shard(0, "shards=2")
    crew.finish(shard)

    # Its run is over before Scrapy has opened everything.
    assert "ERROR" not in shard.log, shard.log
    status = crew.status()
    assert (status["state"], status["reason"], status["shards_alive"]) == ("stopped", "asked", {})


def test_two_runs_in_one_redis_do_not_see_each_other(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(WorldSpec.calm(seed=9, domains=8, pages_per_domain=12, size_spread=0))

    for name in ("one", "two"):
        crew.shard(0, f"run={name}", f"seeds={crew.seeds_file}")
        crew.scrapy("parser", "--run", name, name="parser")
    crew.finish()

    expected = crew.referee().expected
    for name in ("one", "two"):
        stored = Counter(page["url"] for page in read_pages(crew.data / "runs" / name / "pages"))
        assert expected - set(stored) == set()
        assert max(stored.values()) == 1
    lines = [json.loads(line) for line in say(crew, "runs", "--json").splitlines()]
    assert [(line["run"], line["state"]) for line in lines] == [("one", "finished"), ("two", "finished")]
    assert lines[0]["fetched"] == lines[1]["fetched"] >= len(expected)


def test_when_the_leader_is_killed_another_ends_the_run_within_seconds(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(WorldSpec.calm(seed=10, domains=12, pages_per_domain=400, latency_ms=20))
    shards = crew.start(shards=2)
    crew.wait_for_fetched(20)
    # From here on: on a busy machine the start alone may take as long.
    limit_s = with_run(crew, lambda run: run.read_map()).ran_s + 7
    set_limits(crew, Limits(seconds=limit_s))
    pid = crew.wait_until(lambda: leader_pid(crew), "there is a leader")
    [victim] = [shard for shard in shards if shard.process.pid == pid]
    [survivor] = [shard for shard in shards if shard is not victim]

    os.kill(pid, signal.SIGKILL)
    victim.wait()
    crew.finish(survivor)

    run_map = with_run(crew, lambda run: run.read_map())
    assert (run_map.state, run_map.reason) == ("stopped", "max_seconds")
    assert limit_s <= run_map.ran_s < limit_s + 18
    crew.finish()
    status = crew.status()
    assert status["pages_queued"] + status["pages_being_parsed"] == 0


def test_the_speed_of_a_shard_is_that_of_its_pages_without_robots_txt(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(WorldSpec.calm(seed=3, domains=12, pages_per_domain=4, size_spread=0))
    crew.settings["SCHEDULER_IDLE_BEFORE_CLOSE"] = "3600"
    crew.start()
    crew.wait_for_fetched(30)

    def has_counted_all() -> bool:
        seen = with_run(crew, overview_of)
        pages = sum(one["pages"] for one in seen["processes"] if one["kind"] == "shard")
        return not seen["waiting"] + seen["leased"] and pages == seen["fetched"]

    # A robots.txt that was counted, too, would stay in the count.
    crew.wait_until(has_counted_all, "the shards say that they have fetched all pages, and nothing else")
