"""change_state: a run is brought from state to state in one step, and its processes hear of it."""

from __future__ import annotations

import asyncio

import pytest

from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient, pairs
from tests.patience import PATIENCE_S

RECORD = keys.run_record("web")
CHANNEL = keys.wake_channel("web")
#: As many digits as a real time has.
NOW_MS = 1_800_000_000_000


async def change(
    client: RedisClient, state: str, *before: str, now_ms: int = NOW_MS, reason: str = ""
) -> str:
    was: bytes = await client.run("change_state", [RECORD], [state, reason, now_ms, CHANNEL, "", *before])
    return was.decode()


async def fields(client: RedisClient) -> dict[str, str]:
    return dict(pairs(await client.command("HGETALL", RECORD)))


async def test_a_run_in_one_of_the_states_named_comes_into_the_new_one(client: RedisClient) -> None:
    await client.command("HSET", RECORD, "state", "created")

    assert await change(client, "running", "paused", "created", reason="why") == "created"

    assert await fields(client) == {
        "state": "running",
        "reason": "why",
        "since_ms": str(NOW_MS),
        "running_ms": str(NOW_MS),
    }


@pytest.mark.parametrize("before", [(), ("paused",), ("paused", "finished")])
async def test_a_run_in_another_state_stays_as_it_is(client: RedisClient, before: tuple[str, ...]) -> None:
    await client.command("HSET", RECORD, "state", "created")

    assert await change(client, "running", *before) == "created"

    assert await fields(client) == {"state": "created"}


async def test_a_run_that_is_gone_is_not_made_again(client: RedisClient) -> None:
    assert await change(client, "running", "created", "running") == ""

    assert await client.command("EXISTS", RECORD) == 0


async def test_the_same_state_again_changes_nothing(client: RedisClient) -> None:
    await client.command("HSET", RECORD, "state", "running")
    await change(client, "stopped", "running", reason="max_pages")
    once = await fields(client)

    assert (
        await change(client, "stopped", "running", "stopped", now_ms=NOW_MS + 5, reason="asked") == "stopped"
    )

    assert await fields(client) == once


async def test_time_is_added_up_when_a_run_leaves_running(client: RedisClient) -> None:
    await client.command("HSET", RECORD, "state", "created")

    for now_ms, state in [(0, "running"), (700, "paused"), (900, "running"), (950, "stopped")]:
        await change(client, state, "created", "running", "paused", now_ms=NOW_MS + now_ms)

    assert (await fields(client))["ran_ms"] == "750"


async def test_a_record_without_times_and_a_clock_that_went_back_count_nothing(client: RedisClient) -> None:
    await client.command("HSET", RECORD, "state", "running")
    await change(client, "paused", "running")
    assert (await fields(client))["ran_ms"] == "0"
    await change(client, "running", "paused")

    await change(client, "paused", "running", now_ms=NOW_MS - 1000)

    assert (await fields(client))["ran_ms"] == "0"


async def test_processes_hear_of_a_change_and_of_nothing_else(client: RedisClient) -> None:
    await client.command("HSET", RECORD, "state", "running")
    heard: list[bytes] = []

    async with client.subscribe(CHANNEL) as messages:
        # The first message says that the subscription stands.
        assert await anext(messages) is None
        await change(client, "running", "running")
        await change(client, "finished", "created")
        await change(client, "paused", "running")
        await client.command("PUBLISH", CHANNEL, "last")
        async with asyncio.timeout(PATIENCE_S):
            while b"last" not in heard:
                message = await anext(messages)
                heard.append(message[1] if message else b"")

    assert heard == [b"map", b"last"]


async def test_a_run_that_is_reopened_is_still_the_one_that_was_created(client: RedisClient) -> None:
    await client.command("HSET", RECORD, "state", "finished", "created_ms", "7")

    await change(client, "created", "finished")

    assert (await fields(client))["created_ms"] == "7"
    assert (await fields(client))["reopened_ms"] == str(NOW_MS)
