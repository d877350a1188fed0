"""drop_name: only the instance named gives up the name."""

from __future__ import annotations

from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName, drop_name, hold_name

KEY = keys.leader("web")


def named(instance: str) -> ProcessName:
    return ProcessName(instance, "elsewhere", 1, "another boot", "1")


async def test_a_name_dropped_is_free(client: RedisClient) -> None:
    await hold_name(client, KEY, named("a"), 10_000)

    await drop_name(client, KEY, "a")

    assert await hold_name(client, KEY, named("b"), 10_000) is None


async def test_the_name_of_another_is_left_alone(client: RedisClient) -> None:
    await hold_name(client, KEY, named("ab"), 10_000)

    for other in ("a", "b", "abc", ""):
        await drop_name(client, KEY, other)

    assert await client.command("EXISTS", KEY) == 1


async def test_dropping_a_free_name_is_fine(client: RedisClient) -> None:
    await drop_name(client, KEY, "a")

    assert await client.command("EXISTS", KEY) == 0
