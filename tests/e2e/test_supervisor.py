"""`scrapy run` as a supervisor: processes are killed, frozen, made more and fewer; it is killed itself."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crawlproj.errors import EXIT_FENCED, EXIT_RUN_MISMATCH
from crawlproj.redisio import keys
from crawlproj.simweb.spec import WorldSpec
from tests.conftest import RedisServer
from tests.e2e.conftest import Crew, Process, ask_redis, summary_of, wait_until
from tests.processes import PARSER, SHARD, children_of, is_alive, title_of

pytestmark = pytest.mark.e2e

CrewOf = Callable[..., Crew]

SMALL = WorldSpec(seed=3, domains=12, pages_per_domain=20, size_spread=0.3, latency_ms=20, throttle_share=0.0)
#: Enough for half a minute with a delay of 0.3 s.
LONGER = WorldSpec(seed=4, domains=16, pages_per_domain=60, size_spread=0.0, throttle_share=0.0)


def run(crew: Crew, *arguments: str) -> Process:
    return crew.scrapy("run", str(crew.seeds_file), "--json", *arguments, name="run")


def processes_of(crew: Crew) -> list[int]:
    """Return every shard and parser in the data directory of *crew*, whatever its parent."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            # Command line and environment of a forked one are those of its parents; its output is its own.
            if (process / "fd" / "1").readlink().is_relative_to(crew.data) and title_of(process):
                found.append(int(process.name))
        except OSError:
            continue
    return [pid for pid in found if is_alive(pid)]


def test_a_shard_a_parser_and_redis_are_killed_and_the_run_completes(crew_of: CrewOf) -> None:
    crew = crew_of(SMALL)
    crew.hold_open(held=True)
    process = run(crew)
    pid = process.process.pid

    crew.wait_for_fetched(30)
    os.kill(wait_until(lambda: children_of(pid, f"{SHARD}1"), "shard 1 is there")[0], signal.SIGKILL)
    crew.wait_for_fetched(60)
    os.kill(wait_until(lambda: children_of(pid, PARSER), "a parser is there")[0], signal.SIGKILL)
    crew.wait_for_fetched(90)
    redis = crew.redis_pid()
    crew.hold_open(held=False)
    os.kill(redis, signal.SIGKILL)

    assert process.wait() == 0, process.log
    assert summary_of(process)["state"] == "finished"
    assert "shard 1 ended with signal 9; it is restarted in 1 s" in process.log
    assert "parser 0 ended with signal 9; it is restarted in 1 s" in process.log
    crew.assert_content(twice_at_most=12)
    assert processes_of(crew) == []


def test_a_restarted_process_gets_a_secret_that_its_command_line_does_not_show(
    crew_of: CrewOf, redis_server_factory: Callable[..., Any]
) -> None:
    crew, server = crew_of(SMALL), redis_server_factory("--requirepass", "hunter2")
    crew.environment["REDIS_URL"] = server.url
    profile = crew.directory / "secret.toml"
    profile.write_text(
        f'seeds = "{crew.seeds_file}"\nrun = "web"\n[settings]\nREDIS_PARAMS = {{ password = "hunter2" }}\n'
    )
    process = crew.scrapy("run", str(profile), name="run")
    pid = process.process.pid
    crew.wait_until(lambda: crew.requests_seen() >= 30, "30 requests were made")
    killed = children_of(pid, f"{SHARD}0") + children_of(pid, PARSER)
    for child in killed:
        os.kill(child, signal.SIGKILL)

    crew.wait_until(
        lambda: (
            len(set(children_of(pid, f"{SHARD}0") + children_of(pid, PARSER)) - set(killed)) >= len(killed)
        ),
        "they are restarted",
    )
    shown = "".join(Path(f"/proc/{child}/cmdline").read_text() for child in children_of(pid))

    assert "-ashard=0" in shown
    assert "hunter2" not in shown
    assert process.wait() == 0, process.log
    crew.assert_content(twice_at_most=12)


def test_a_killed_supervisor_leaves_no_orphan_and_the_same_command_resumes(crew_of: CrewOf) -> None:
    crew = crew_of(SMALL, CRAWL_SHARD_LEASE_SECONDS="30")
    first = run(crew)
    crew.wait_for_fetched(40)
    late = children_of(first.process.pid, f"{SHARD}0")[0]

    os.kill(late, signal.SIGSTOP)
    first.kill()
    second = run(crew)
    wait_until(lambda: f"still has processes: shard 0 is process {late}" in second.log, "it waits")
    os.kill(late, signal.SIGCONT)

    assert second.wait() == 0, second.log
    crew.assert_content()
    assert processes_of(crew) == []


def test_processes_without_a_supervisor_leave_by_themselves(crew_of: CrewOf) -> None:
    # Time to return all leases on a loaded machine, too.
    crew = crew_of(LONGER, CRAWL_DRAIN_SECONDS="30")
    process = run(crew)
    crew.wait_for_fetched(20)

    process.kill()

    wait_until(lambda: not processes_of(crew), "all have left")
    assert crew.status()["leased"] == 0


def test_a_frozen_shard_is_killed_and_replaced(crew_of: CrewOf) -> None:
    crew = crew_of(SMALL)
    process = run(crew, "--shards", "1")
    crew.wait_for_fetched(30)

    os.kill(children_of(process.process.pid, f"{SHARD}0")[0], signal.SIGSTOP)

    assert process.wait() == 0, process.log
    assert re.search(r"shard 0 \(process \d+\) was silent for 6 s and is killed", process.log)
    crew.assert_content(twice_at_most=12)


def test_the_number_of_shards_changes_from_one_to_four_to_two_under_load(crew_of: CrewOf) -> None:
    crew = crew_of(LONGER, DOWNLOAD_DELAY="0.3")
    process = run(crew, "--shards", "1")
    pid = process.process.pid
    crew.wait_for_fetched(20)
    crew.hold_open(held=True)

    assert crew.scrapy("shards", "4").wait() == 0
    wait_until(lambda: len(crew.status()["shards_alive"]) == 4, "four are alive")
    four = children_of(pid, SHARD)
    assert crew.scrapy("shards", "2").wait() == 0
    wait_until(lambda: len(children_of(pid, SHARD)) == 2, "two have left")
    crew.hold_open(held=False)

    assert len(four) == 4
    assert process.wait() == 0, process.log
    assert "started again" not in process.log
    crew.assert_content()


def test_a_joining_supervisor_adds_shards_and_removes_them_when_it_leaves(crew_of: CrewOf) -> None:
    crew = crew_of(LONGER, DOWNLOAD_DELAY="0.3")
    first = run(crew, "--shards", "1")
    crew.wait_for_fetched(20)
    crew.hold_open(held=True)

    second = crew.scrapy("run", "--join", "--shards", "2", "--parsers", "1", name="run")
    wait_until(lambda: len(crew.status()["shards_alive"]) == 3, "three are alive")
    held = [len(children_of(process.process.pid, SHARD)) for process in (first, second)]
    second.send(signal.SIGINT)

    assert held == [1, 2]
    assert second.wait() == 130, second.log
    assert crew.status()["shards"] == 1
    crew.hold_open(held=False)
    assert first.wait() == 0, first.log
    crew.assert_content()


def test_a_supervisor_without_shards_continues_for_one_that_leaves(crew_of: CrewOf) -> None:
    # A member is alive if it was heard of within a third of it.
    crew = crew_of(LONGER, DOWNLOAD_DELAY="0.3", CRAWL_SHARD_LEASE_SECONDS="180")
    first = run(crew, "--shards", "1")
    crew.wait_for_fetched(20)
    crew.hold_open(held=True)
    second = crew.scrapy("run", "--join", "--shards", "1", "--parsers", "1", name="run")
    wait_until(lambda: len(crew.status()["shards_alive"]) == 2, "two are alive")
    assert crew.scrapy("shards", "1").wait() == 0
    wait_until(lambda: len(crew.status()["shards_alive"]) == 1, "one is left")

    at_work, idle = sorted((first, second), key=lambda one: not children_of(one.process.pid, SHARD))
    # Not fast enough to start a shard before the other one looks.
    idle.send(signal.SIGSTOP)
    at_work.send(signal.SIGINT)
    code = at_work.wait()
    idle.send(signal.SIGCONT)
    crew.hold_open(held=False)

    assert code == 130, at_work.log
    assert idle.wait() == 0, idle.log
    crew.assert_content()


def test_a_supervisor_with_other_partitions_does_not_join(crew_of: CrewOf) -> None:
    crew = crew_of(SMALL)
    crew.hold_open(held=True)
    first = run(crew, "--shards", "1")
    crew.wait_for_fetched(1)

    second = crew.scrapy("run", "--join", "--shards", "2", "--set=CRAWL_PARTITIONS=32", name="run")

    assert second.wait() == EXIT_RUN_MISMATCH, second.log
    crew.hold_open(held=False)
    assert "Run 'web' was created with CRAWL_PARTITIONS=64, not 32" in second.log
    assert "machines: 2" not in first.log
    assert first.wait() == 0, first.log


def test_parsers_become_more_while_pages_wait_and_fewer_when_none_do(crew_of: CrewOf) -> None:
    crew = crew_of(WorldSpec(seed=6, domains=90, pages_per_domain=12, size_spread=0.0), DOWNLOAD_DELAY="2")
    # No links are found while the parsers are stopped.
    crew.seeds_file.write_text("\n".join(crew.simweb.seeds(90)))
    process = run(crew, "--shards", "1", "--parsers", "1..3")
    pid = process.process.pid
    frozen: set[int] = set()

    def freeze_parsers() -> bool:
        for guard in children_of(pid, PARSER):
            for worker in set(children_of(guard)) - frozen:
                os.kill(worker, signal.SIGSTOP)
                frozen.add(worker)
        return len(children_of(pid, PARSER)) == 3

    try:
        wait_until(freeze_parsers, "there are three parsers")
    finally:
        for worker in frozen:
            os.kill(worker, signal.SIGCONT)
    wait_until(lambda: "parsers: 3 -> 2" in process.log, "one has left")
    process.send(signal.SIGINT)

    assert process.wait() == 130, process.log
    assert re.search(r"parsers: 1 -> 2: \d+ pages are queued", process.log)
    assert "parsers: 3 -> 2: the page queue was nearly empty for 20 s" in process.log


def test_a_run_stops_at_its_limit_exactly_and_resumes_with_a_higher_one(crew_of: CrewOf) -> None:
    crew = crew_of(SMALL)
    crew.hold_open(held=True)

    first = run(crew, "--max-pages", "50")
    code = first.wait()
    seconds = run(crew, "--max-pages", "100000", "--max-seconds", "1")
    seconds_code = seconds.wait()
    crew.hold_open(held=False)
    last = run(crew, "--max-seconds", "0")

    assert (code, seconds_code) == (0, 0)
    stopped = summary_of(first)
    assert (stopped["state"], stopped["reason"], stopped["pages_fetched"]) == ("stopped", "max_pages", 50)
    assert stopped["pages_stored"] == 50 + stopped["failed"] + stopped["skipped"]
    assert "a higher --max-pages" in first.log
    assert summary_of(seconds)["reason"] == "max_seconds"
    assert last.wait() == 0, last.log
    assert summary_of(last)["state"] == "finished"
    crew.assert_content()


def test_a_child_that_dies_again_and_again_ends_the_run_with_its_last_words(crew_of: CrewOf) -> None:
    crew = crew_of(SMALL, SCHEDULER="nowhere.Scheduler")

    process = run(crew, "--shards", "1")

    assert process.wait() == 1, process.log
    assert "shard 0 ended 5 times in a row, the last time with exit code 1: " in process.log
    assert "No module named 'nowhere'" in process.log
    summary = summary_of(process)
    assert summary["state"] == "failed"
    assert "nowhere" in summary["reason"]
    assert processes_of(crew) == []


def test_a_second_interrupt_stops_at_once_and_the_same_command_resumes(crew_of: CrewOf) -> None:
    slow = WorldSpec(seed=3, domains=8, pages_per_domain=4, size_spread=0.0, latency_ms=1500)
    crew = crew_of(slow, CRAWL_DRAIN_SECONDS="60", DOWNLOAD_TIMEOUT="20")
    first = run(crew, "--shards", "1")
    crew.wait_for_fetched(1)

    first.send(signal.SIGINT)
    wait_until(lambda: "Ctrl-C again stops now" in first.log, "it has heard")
    asked_s = time.monotonic()
    first.send(signal.SIGINT)
    code = first.wait()
    took_s = time.monotonic() - asked_s
    second = run(crew, "--shards", "1")

    assert code == 130
    # Without the second signal they would have a minute.
    assert took_s < 30
    assert summary_of(first)["state"] == "stopped"
    assert summary_of(first)["reason"] == "interrupted"
    assert second.wait() == 0, second.log
    crew.assert_content(twice_at_most=8)


def test_a_run_that_redis_has_lost_is_no_finished_run(
    crew_of: CrewOf, redis_server_factory: Callable[..., RedisServer]
) -> None:
    redis = redis_server_factory()
    crew = crew_of(SMALL, REDIS_URL=redis.url)
    crew.hold_open(held=True)
    supervisor = run(crew, "--shards", "1", "--parsers", "1")
    crew.wait_for_fetched(5)

    # It keeps nothing.
    redis.kill()
    redis.start()

    assert supervisor.wait() == EXIT_RUN_MISMATCH, supervisor.log
    assert "Run 'web' is gone from Redis. If Redis was restarted, it does not keep its data" in supervisor.log


def test_a_child_does_not_begin_a_lost_run_again(crew_of: CrewOf, empty_redis_url: str) -> None:
    crew = crew_of(SMALL, REDIS_URL=empty_redis_url, CRAWL_SUPERVISOR=str(os.getpid()))
    crew.before = ["env"]

    children = [crew.shard(1), crew.parser()]

    assert [child.wait() for child in children] == [EXIT_RUN_MISMATCH, EXIT_RUN_MISMATCH]
    assert all("Run 'web' is gone from Redis." in child.log for child in children)
    assert ask_redis(empty_redis_url, "EXISTS", keys.run_record("web")) == 0


def test_a_supervisor_that_was_away_leaves_a_run_that_has_begun_again_to_others(
    crew_of: CrewOf, empty_redis_url: str
) -> None:
    crew = crew_of(LONGER, CRAWL_SEGMENT_SECONDS="0.5", REDIS_URL=empty_redis_url)
    crew.hold_open(held=True)
    record = keys.run_record("web")
    supervisor = run(crew, "--shards", "1", "--parsers", "1")
    wait_until(lambda: crew.status()["pages_stored"], "pages are stored")
    before = set(crew.data.glob("runs/web/pages/*.parquet"))

    ask_redis(empty_redis_url, "HSET", record, "created_ms", 7)

    assert supervisor.wait() == EXIT_FENCED, supervisor.log
    assert "Run 'web' was deleted and has begun again" in supervisor.log
    assert ask_redis(empty_redis_url, "HGET", record, "state") == b"running"
    # Started again, it keeps what it has stored apart.
    again = run(crew, "--shards", "1", "--parsers", "1")
    wait_until(
        lambda: "pages of an earlier run web, deleted meanwhile, are now in" in again.log, "it says so"
    )
    assert not before & set(crew.data.glob("runs/web/pages/*.parquet"))
