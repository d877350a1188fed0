"""Whole crawls, as people run them: complete, once, polite, ending, also while processes are hurt."""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from crawlproj.simweb.accesslog import read_log
from crawlproj.simweb.spec import WorldSpec
from tests.e2e.conftest import Process

pytestmark = pytest.mark.e2e

#: Requests a shard may have had in flight when it was killed: one per domain, no more.
SMALL = WorldSpec(seed=3, domains=12, pages_per_domain=20, size_spread=0.3, latency_ms=20, throttle_share=0.0)


@dataclass(frozen=True)
class Ended:
    crew: Any
    at_ms: float


@pytest.fixture(scope="module")
def ended(shared_crew_of: Callable[..., Any]) -> Ended:
    """A crawl by two shards that nothing happened to."""
    # With such a lease the first shard does not do the work of the second one while that starts.
    world = WorldSpec(seed=5, domains=30, pages_per_domain=15, size_spread=0.3)
    crew = shared_crew_of(world, CRAWL_SHARD_LEASE_SECONDS="60")
    crew.start(shards=2)
    crew.finish()
    return Ended(crew, time.time() * 1000)


def test_two_shards_fetch_every_url_once_and_never_share_a_domain(ended: Ended) -> None:
    ended.crew.assert_content()
    shards_of = defaultdict(set)
    for page in ended.crew.pages():
        shards_of[page["domain"]].add(page["shard"])
    assert all(len(shards) == 1 for shards in shards_of.values())
    assert {shard for shards in shards_of.values() for shard in shards} == {0, 1}


def test_a_run_ends_soon_after_its_last_page(ended: Ended) -> None:
    last_ms = max(request.end_ms for request in read_log(ended.crew.simweb.log_path))

    # Within 5 s on a machine of its own (benchmarks/bench_run.py); by a timeout of ours it would take 30.
    assert ended.at_ms - last_ms < 20_000
    assert ended.crew.status()["state"] == "finished"


def test_a_rough_web_is_crawled_to_its_end(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(
        WorldSpec.rough(seed=11, domains=15, pages_per_domain=20, hang_s=3, retry_after_s=1),
        DOWNLOAD_TIMEOUT="1.5",
    )

    crew.start(shards=2)
    crew.finish()

    crew.assert_content()


def test_a_world_of_names_is_crawled_through_the_resolver_hook(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(
        WorldSpec(seed=2, domains=8, pages_per_domain=10, naming="name"),
        TWISTED_DNS_RESOLVER="crawlproj.simweb.names.SimwebResolver",
    )

    crew.start(shards=2)
    crew.finish()

    crew.assert_content()


def test_a_restarted_shard_resumes_at_once(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(SMALL, CRAWL_SHARD_LEASE_SECONDS="60")
    crew.hold_open(held=True)
    _, victim = crew.start(shards=2)
    crew.wait_for_fetched(60)

    victim.kill()
    again = crew.shard(1)
    crew.wait_until(lambda: again.says("acquired 32 partitions"), "it has its partitions again")
    crew.hold_open(held=False)
    crew.finish()

    crew.assert_content(twice_at_most=SMALL.domains)


def test_the_others_take_over_from_a_killed_shard(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(SMALL)
    crew.hold_open(held=True)
    survivor, victim = crew.start(shards=2)
    crew.wait_for_fetched(60)

    victim.kill()
    crew.wait_until(lambda: survivor.says("holding 64"), "the other holds all partitions")
    crew.hold_open(held=False)
    crew.finish()

    crew.assert_content(twice_at_most=SMALL.domains)


def test_a_paused_shard_whose_partitions_were_taken_starts_over(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(SMALL)
    crew.hold_open(held=True)
    survivor, paused = crew.start(shards=2)
    crew.wait_for_fetched(60)

    paused.send(signal.SIGSTOP)
    crew.wait_until(lambda: survivor.says("holding 64"), "the other holds all partitions")
    paused.send(signal.SIGCONT)
    crew.wait_until(lambda: paused.says("starting over: FENCED epoch "), "it starts over")
    crew.hold_open(held=False)
    crew.finish()

    assert "Traceback" not in paused.log
    crew.assert_content(twice_at_most=SMALL.domains)


def test_shards_change_from_two_to_three_to_one_while_running(crew_of: Callable[..., Any]) -> None:
    world = WorldSpec(seed=4, domains=24, pages_per_domain=80, size_spread=0.3, latency_ms=20)
    crew = crew_of(world, DOWNLOAD_DELAY="0.2")
    crew.hold_open(held=True)
    first, second = crew.start(shards=2)
    crew.wait_for_fetched(60)

    assert crew.scrapy("shards", "3").wait() == 0
    third = crew.shard(2)
    crew.wait_until(lambda: third.says("holding 21"), "the third shard has its partitions")
    crew.wait_for_fetched(crew.status()["fetched"] + 60)
    assert crew.scrapy("shards", "1").wait() == 0

    assert second.wait() == 0
    assert third.wait() == 0
    assert second.says("retired"), second.log
    crew.wait_until(lambda: first.says("holding 64"), "the first one holds all partitions")
    crew.hold_open(held=False)
    crew.finish()
    crew.assert_content()


def test_an_embedded_redis_killed_in_full_run_comes_back_with_everything(crew_of: Callable[..., Any]) -> None:
    crew = crew_of(SMALL)
    shards = crew.start(shards=2)
    crew.wait_for_fetched(60)

    os.kill(crew.redis_pid(), signal.SIGKILL)
    crew.finish()

    for shard in shards:
        assert "Traceback" not in shard.log, shard.log
    crew.assert_content()


def test_a_redis_unreachable_for_half_a_minute_is_waited_for_with_one_warning(
    crew_of: Callable[..., Any], redis_server_factory: Callable[..., Any]
) -> None:
    server = redis_server_factory("--appendonly", "yes")
    crew = crew_of(SMALL, CRAWL_SHARD_LEASE_SECONDS="30", CRAWL_REDIS_WAIT_SECONDS="120")
    crew.environment["REDIS_URL"] = server.url
    crew.hold_open(held=True)
    shards = crew.start(shards=2)
    crew.wait_for_fetched(60)

    server.kill()
    # How long it is unreachable is what is tested.
    time.sleep(30)
    server.start()
    crew.hold_open(held=False)
    crew.finish()

    for process in crew.processes:
        assert "Traceback" not in process.log, process.log
    for shard in shards:
        warnings = [line for line in shard.log.splitlines() if "WARNING" in line and "Redis" in line]
        assert len(warnings) == 1, warnings
    crew.assert_content()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_shard_returns_every_lease_and_the_run_resumes(
    crew_of: Callable[..., Any], signum: int
) -> None:
    # URLs must be left, however late the signal comes.
    crew = crew_of(SMALL, DOWNLOAD_DELAY="0.3")
    shards = crew.start(shards=2)
    crew.wait_for_fetched(40)

    for shard in shards:
        shard.send(signum)
    stopped_s = time.monotonic()
    for shard in shards:
        assert shard.wait() == 0, shard.log
    took_s = time.monotonic() - stopped_s

    status = crew.status()
    assert took_s < float(crew.settings["CRAWL_DRAIN_SECONDS"]) + 60
    assert status["leased"] == 0
    assert status["waiting"] > 0
    assert status["partitions_owned"] == 0

    crew.shard(0)
    crew.shard(1)
    crew.finish()

    crew.assert_content()


def turns_of(process: Process) -> int:
    """Return how often a process has gone to sleep, having done what there was to do."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return int(status.split("\nvoluntary_ctxt_switches:")[1].split()[0])


def test_slow_downloads_are_cut_when_the_time_to_drain_is_over(crew_of: Callable[..., Any]) -> None:
    slow = WorldSpec.calm(seed=1, domains=6, pages_per_domain=10, slow_share=1.0, slow_ms=3_600_000)
    waits = dict.fromkeys(["CRAWL_IDLE_SECONDS", "DOWNLOAD_TIMEOUT"], "3600")
    settings = {"DOWNLOAD_DELAY": "0", "CRAWL_DRAIN_SECONDS": "2", "CRAWL_LEASE_SECONDS": "4000"}
    crew = crew_of(slow, **settings, **waits)
    [shard] = crew.start(shards=1)
    # Front pages are never slow.
    crew.wait_for_fetched(6)
    crew.wait_until(lambda: crew.status()["leased"] >= 3, "slow pages are leased")
    begun = turns_of(shard)
    crew.wait_until(lambda: turns_of(shard) > begun + 5, "they are requested")

    shard.send(signal.SIGTERM)
    stopped_s = time.monotonic()
    code = shard.wait()
    took_s = time.monotonic() - stopped_s

    assert code == 0, shard.log
    # The pages would take an hour.
    assert took_s < 60
    assert shard.says("downloads in flight were aborted after CRAWL_DRAIN_SECONDS=2")
    status = crew.status()
    assert status["leased"] == 0
    assert (status["fetched"], status["waiting"]) == (6, status["admitted"] - 6)
