"""drop_name: only the instance named gives up the name."""

from __future__ import annotations

from crawlproj.redisio import keys
from crawlproj.redisio.client import Door
from crawlproj.redisio.names import ProcessName, drop_name, hold_name

KEY = keys.leader("web")


def named(instance: str) -> ProcessName:
    return ProcessName(instance, "elsewhere", 1, "boot:1")


async def test_a_name_dropped_is_free(door: Door) -> None:
    await hold_name(door, KEY, named("a"), 10_000)

    await drop_name(door, KEY, "a")

    assert await hold_name(door, KEY, named("b"), 10_000) is None


async def test_the_name_of_another_is_left_alone(door: Door) -> None:
    await hold_name(door, KEY, named("ab"), 10_000)

    for other in ("a", "b", "abc", ""):
        await drop_name(door, KEY, other)

    assert await door.command("EXISTS", KEY) == 1


async def test_dropping_a_name_nobody_holds_is_fine(door: Door) -> None:
    await drop_name(door, KEY, "a")

    assert await door.command("EXISTS", KEY) == 0
