"""hold_name: a shard number or the leadership has one holder at a time."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from crawlproj.errors import Fenced, ShardTaken
from crawlproj.frontier.ownership import ShardNumber
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName, hold_name, read_holders

KEY = keys.shard("web", 0)
_TELL_NAME = """
import json
from dataclasses import asdict
from crawlproj.redisio.names import ProcessName
print(json.dumps(asdict(ProcessName.of_this())))
"""


def named(instance: str) -> ProcessName:
    """A process on another machine, which cannot be checked for life."""
    return ProcessName(instance, "elsewhere", 1, "another boot", "1")


async def test_a_free_name_is_held_and_the_next_process_learns_by_whom(client: RedisClient) -> None:
    assert await hold_name(client, KEY, named("a"), 10_000, starting=True) is None

    holder = await hold_name(client, KEY, named("b"), 10_000)

    assert holder is not None
    assert (holder.process, holder.starting) == (named("a"), True)


async def test_a_holder_renews_and_changes_what_is_known_about_it(client: RedisClient) -> None:
    await hold_name(client, KEY, named("a"), 100, starting=True)

    assert await hold_name(client, KEY, named("a"), 60_000, starting=False) is None

    [holder] = await read_holders(client, [KEY])
    assert holder is not None
    assert not holder.starting
    assert await client.command("PTTL", KEY) > 50_000


async def test_a_hold_that_ends_later_than_any_may_is_shortened(client: RedisClient) -> None:
    """The clock of Redis was ahead when it began; a holder that is alive renews it."""
    await hold_name(client, KEY, named("a"), 3_600_000)
    before = await hold_name(client, KEY, named("b"), 7_200_000)
    untouched = await client.command("PTTL", KEY)

    holder = await hold_name(client, KEY, named("b"), 10_000)

    assert before is not None
    assert untouched > 3_000_000
    assert holder is not None
    assert 0 < await client.command("PTTL", KEY) <= 10_000


async def test_a_name_that_begins_like_ours_is_not_ours(client: RedisClient) -> None:
    await hold_name(client, KEY, named("ab"), 10_000)

    assert await hold_name(client, KEY, named("a"), 10_000) is not None


async def test_a_name_is_free_when_its_hold_ran_out(client: RedisClient) -> None:
    await hold_name(client, KEY, named("a"), 60_000)
    await client.command("PEXPIRE", KEY, 0)

    assert await hold_name(client, KEY, named("b"), 10_000) is None


async def test_free_names_are_read_as_none(client: RedisClient) -> None:
    await hold_name(client, keys.shard("web", 1), named("a"), 10_000)

    holders = await read_holders(client, [keys.shard("web", number) for number in range(3)])

    assert [holder and holder.process.instance for holder in holders] == [None, "a", None]


async def test_a_shard_number_alive_elsewhere_is_refused_naming_host_and_process(client: RedisClient) -> None:
    await ShardNumber(client, "web", 0, replace(named("a"), pid=4711), 10_000).claim()

    with pytest.raises(ShardTaken, match="already running on elsewhere, process 4711"):
        await ShardNumber(client, "web", 0, named("b"), 10_000).claim()


async def test_the_number_of_a_process_that_died_here_is_taken_at_once_and_its_partitions_inherited(
    client: RedisClient,
) -> None:
    child = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-c", _TELL_NAME),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
    )
    printed, _ = await child.communicate()
    dead = ProcessName(**json.loads(printed))
    await ShardNumber(client, "web", 0, dead, 60_000).claim()

    heir = ShardNumber(client, "web", 0, ProcessName.of_this(), 60_000)
    await heir.claim()

    assert heir.heir_of == {dead.instance}


async def test_a_process_alive_here_keeps_its_number(client: RedisClient) -> None:
    await ShardNumber(client, "web", 0, ProcessName.of_this(), 60_000).claim()

    with pytest.raises(ShardTaken):
        await ShardNumber(client, "web", 0, ProcessName.of_this(), 60_000).claim()


async def test_a_process_whose_number_was_taken_is_fenced(client: RedisClient) -> None:
    paused = ShardNumber(client, "web", 0, named("a"), 60_000)
    await paused.claim()
    await client.command("PEXPIRE", KEY, 0)
    await ShardNumber(client, "web", 0, named("b"), 60_000).claim()

    with pytest.raises(Fenced, match="elsewhere"):
        await paused.renew(starting=False)


async def test_a_number_whose_hold_ran_out_unnoticed_is_kept(client: RedisClient) -> None:
    slow = ShardNumber(client, "web", 0, named("a"), 60_000)
    await slow.claim()
    await client.command("PEXPIRE", KEY, 0)

    await slow.renew(starting=False)

    assert [holder and holder.process for holder in await read_holders(client, [KEY])] == [named("a")]
