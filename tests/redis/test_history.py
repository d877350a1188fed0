"""The history of a run, as its leader writes it and the chart of its speed draws it."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from crawlproj.model.run import RunState
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Leader, Run
from crawlproj.runs.counters import RunCounters
from crawlproj.runs.history import LEAST_S, MOST_POINTS, History, read_history
from crawlproj.shard import background
from tests.patience import PATIENCE_S
from tests.redis.shards import Shards

_HOUR_S = 3600


def counters(fetched: int) -> RunCounters:
    return RunCounters(Counter(done=fetched), 0, 0, {"p": 1}, fetched)


async def note(run: Run, seconds: range) -> None:
    """Note one page a second, by leaders that die now and then."""
    for second in seconds:
        if second % 1600 == 0:
            history = History(run)
        await history.note(second, counters(second))


@pytest.mark.parametrize("hours", [1, 12])
async def test_a_history_is_short_even_and_whole_however_long_the_run(
    client: RedisClient, hours: int
) -> None:
    run = await Run.open(client, "web", partitions=4)
    await note(run, range(hours * _HOUR_S))

    fetched = [point.fetched for point in await read_history(run)]

    [step] = {after - before for before, after in pairwise(fetched)}
    assert MOST_POINTS / 2 <= len(fetched) <= MOST_POINTS
    assert fetched[0] == 0
    assert fetched[-1] >= hours * _HOUR_S - step


async def test_surplus_points_go_also_when_a_leader_died_before(client: RedisClient) -> None:
    run = await Run.open(client, "web", partitions=4)
    surplus = [word for second in range(2 * MOST_POINTS) for word in (second, f"{second} 0 0")]
    await client.command("HSET", keys.history("web"), *surplus)

    await History(run).note(10, counters(1))

    assert len(await read_history(run)) <= MOST_POINTS


async def test_the_leader_writes_it_while_the_run_runs_and_it_goes_with_the_run(client: RedisClient) -> None:
    run = await Run.open(client, "web", partitions=4)
    leader = Leader(run, ProcessName.of_this(), 5000)
    await client.command("HSET", keys.page_counters("web"), "stored", 7)
    await run.begin(is_first=True)
    await leader.step()
    await run.change(RunState.PAUSED)
    await client.command("HSET", keys.run_record("web"), "ran_ms", 10 * LEAST_S * 1000)
    await leader.step()

    [point] = await read_history(run)
    await run.delete()

    assert point.parsed == 7
    assert await client.command("EXISTS", keys.history("web")) == 0


async def test_a_shard_that_is_busy_all_the_time_writes_it_when_no_supervisor_does(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_LEAD_S", 0.01)
    monkeypatch.setattr(background, "LEAST_S", 0.05)
    shard = await shards.open()
    await shards.run.begin(is_first=True)
    leader = Leader(shards.run, ProcessName.of_this(), 5000)

    leading = asyncio.create_task(
        background.lead(leader, shard.feed, lambda: True, is_started=lambda: True, wake=lambda: None)
    )
    async with asyncio.timeout(PATIENCE_S):
        while not await read_history(shards.run):  # noqa: ASYNC110  # Redis has no event
            await asyncio.sleep(0.01)
    leading.cancel()

    assert await shards.run.state() == RunState.RUNNING
