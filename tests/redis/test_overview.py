"""What people see of a run: its processes as they report themselves, and the domains that stand out."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from crawlproj.frontier.ownership import ShardNumber
from crawlproj.model.partition import partition_of
from crawlproj.pages.queue import PageQueue
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.names import ProcessName, hold_name
from crawlproj.runs import Limits, Run, status_of
from crawlproj.runs.membership import Membership, read_members
from crawlproj.runs.overview import domains_of, overview_of

PARTITIONS = 4
NOW_MS = 1_800_000_000_000
SHARD = replace(ProcessName.of_this(), host="one", machine="one", pid=11)
PARSER = replace(ProcessName.of_this(), host="two", machine="two", pid=22)


@pytest.fixture
async def run(client: RedisClient) -> Run:
    return await Run.open(client, "web", partitions=PARTITIONS, shards=2)


async def beat_shard(run: Run, number: int, **figures: object) -> None:
    """As a shard that publishes figures."""
    beat = {"process": asdict(SHARD), "renewed_ms": NOW_MS - 2000, "starting": False, "figures": figures}
    await run.client.command("SET", keys.shard(run.name, number), f"{SHARD.instance} {json.dumps(beat)}")


async def know(run: Run, domain: str, state: str) -> None:
    await run.client.command("HSET", keys.domains(run.name, partition_of(domain, PARTITIONS)), domain, state)


async def test_every_name_of_the_status_is_there_and_unchanged(run: Run) -> None:
    status = await status_of(run)

    overview = await overview_of(run)

    assert {name: overview[name] for name in status} == status


async def test_the_status_has_the_seconds_of_all_starts(run: Run) -> None:
    await run.client.run("write_fields", [keys.run_record("web")], ["ran_ms", 23_000])

    status = await status_of(run)

    assert status["ran_seconds"] == 23.0


async def test_processes_are_shown_with_their_figures(run: Run) -> None:
    await beat_shard(run, 1, pages=70, pages_per_s=3.5, in_flight=2, memory_bytes=1000, open_files=9)
    facts = {"pages": 60, "pages_per_s": 2.5, "memory_bytes": 500, "open_files": 5}
    await PageQueue(run.client, "web").heartbeat("two-22-a", NOW_MS - 500, PARSER, **facts)

    overview = await overview_of(run, NOW_MS)

    shard, parser = overview["processes"]
    assert (shard["kind"], shard["name"], shard["host"], shard["pid"]) == ("shard", "1", "one", 11)
    assert (shard["silent_seconds"], shard["pages"], shard["in_flight"]) == (2.0, 70, 2)
    assert (parser["kind"], parser["name"], parser["pid"]) == ("parser", "two-22-a", 22)
    assert (overview["pages_per_second"], overview["parsed_per_second"]) == (3.5, 2.5)
    assert (overview["memory_bytes"], overview["open_files"]) == (1500, 14)


async def test_processes_without_figures_are_shown_without(run: Run) -> None:
    await hold_name(run.client, keys.shard("web", 0), SHARD, 10_000)
    await PageQueue(run.client, "web").heartbeat("old", NOW_MS)

    overview = await overview_of(run)

    assert [(line["kind"], line["name"], line["pid"]) for line in overview["processes"]] == [
        ("shard", "0", 11),
        ("parser", "old", 0),
    ]
    assert overview["pages_per_second"] == 0


async def test_the_memory_of_a_process_that_is_shard_and_parser_counts_once(run: Run) -> None:
    await beat_shard(run, 0, memory_bytes=1000, open_files=9)
    await PageQueue(run.client, "web").heartbeat("p", NOW_MS, SHARD, memory_bytes=1000, open_files=9)

    overview = await overview_of(run)

    assert (overview["memory_bytes"], overview["open_files"]) == (1000, 9)


async def test_readers_of_today_understand_a_heartbeat_with_figures(run: Run) -> None:
    await beat_shard(run, 0, pages=1)

    assert (await run.read_map()).alive[0].process == SHARD


async def test_a_supervisor_of_another_machine_is_shown_until_it_was_silent_for_a_minute(run: Run) -> None:
    await Membership(run, SHARD, 1, data="", silent_s=30).keep([], [])
    shown_ms = await server_ms(run.client)

    shown, silent = (read_members(run, shown_ms + s * 1000) for s in (50, 70))

    assert list(await shown) == [SHARD.instance]
    assert await silent == {}


async def test_the_limits_and_what_remains_are_shown(run: Run) -> None:
    await run.set_limits(Limits(pages=100, seconds=60.0))

    overview = await overview_of(run)

    assert overview["limits"] == {"pages": 100, "seconds": 60.0, "bytes": 0}
    assert overview["remaining"] == 0


async def test_the_domains_that_stand_out_are_named_first_the_most(run: Run) -> None:
    for number in range(1, 21):
        await know(run, f"d{number:02}.test", f"0 0 0 50 {number} {number * 100} 4096 -")
    await know(run, "bad.test", "0 0 7 50 0 0 0 failures")

    found = await domains_of(run)

    assert [d["domain"] for d in found["hottest_domains"]] == [f"d{n}.test" for n in (20, 19, 18, 17, 16)]
    assert [d["delay_ms"] for d in found["slowest_domains"]] == [2000, 1900, 1800, 1700, 1600]
    assert [(d["domain"], d["failures"], d["parked"]) for d in found["failing_domains"]] == [
        ("bad.test", 7, "failures")
    ]
    assert (found["domains_read"], found["domains_are_sample"]) == (21, False)


async def test_of_many_domains_only_some_are_read_and_that_is_said(run: Run) -> None:
    many = [part for n in range(3000) for part in (f"d{n}.test", f"0 0 0 1 {n} 0 0 -")]
    await run.client.command("HSET", keys.domains("web", 0), *many)

    found = await domains_of(run, most=600)

    assert 600 <= found["domains_read"] < 2000
    assert found["domains_are_sample"]


async def test_a_run_without_domains_has_none_that_stand_out(run: Run) -> None:
    assert await domains_of(run) == {
        "domains_read": 0,
        "domains_are_sample": False,
        "hottest_domains": [],
        "slowest_domains": [],
        "failing_domains": [],
    }


async def test_a_shard_publishes_its_figures_with_every_renewal_of_its_number(run: Run) -> None:
    pages = iter(range(10, 100, 10))
    number = ShardNumber(run.client, "web", 0, SHARD, 10_000, lambda: {"pages": next(pages)})
    await number.claim()
    [claimed] = (await overview_of(run))["processes"]

    await number.renew(starting=False)

    [kept] = (await overview_of(run))["processes"]
    assert (claimed["pages"], kept["pages"]) == (10, 20)
