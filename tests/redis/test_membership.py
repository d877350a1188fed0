"""keep_member and leave_run: shard numbers are given to members by what each brings, in one atomic step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Run
from crawlproj.runs.membership import Membership, read_members, read_numbers

SILENT_S = 30.0


class Machine:
    """A member whose shards start and stop at once."""

    def __init__(self, run: Run, name: str, shards: int, clock: Callable[[], float] = lambda: 0.0) -> None:
        here = ProcessName.of_this()
        self.run = run
        self.process = replace(here, instance=name, host=name, machine=name)
        self.member = Membership(run, self.process, shards, data="/data", silent_s=SILENT_S, clock=clock)
        self.held: set[int] = set()

    async def look(self, *elsewhere: int) -> tuple[int, ...]:
        given = await self.member.keep(self.held, elsewhere)
        self.held = set(given.numbers)
        return given.numbers

    async def silent_for(self, seconds: float) -> None:
        """Let it be *seconds* since this one was heard of."""
        members = keys.members(self.run.name)
        value = (await self.run.client.command("HGET", members, self.process.instance)).decode()
        heard_ms = int(value.partition(" ")[0]) - int(seconds * 1000)
        await self.run.client.command(
            "HSET", members, self.process.instance, f"{heard_ms} {value.partition(' ')[2]}"
        )


@pytest.fixture
async def run(client: RedisClient) -> Run:
    return await Run.open(client, "web", partitions=16)


async def shards_of(run: Run) -> int:
    return (await run.read_map()).shards


async def settled(*machines: Machine) -> list[set[int]]:
    """Look until nothing changes; returns what each holds."""
    held: list[list[set[int]]] = []
    # Twice the same: what one has given up the next can only take after that.
    while held[-3:] != 3 * held[-1:] or not held:
        for machine in machines:
            await machine.look()
        held.append([machine.held for machine in machines])
    return held[-1]


async def test_two_that_join_in_one_instant_both_count(run: Run) -> None:
    machines = [Machine(run, name, 2) for name in ("a", "b", "c", "d")]
    await machines[0].look()

    await asyncio.gather(*(machine.look() for machine in machines[1:]))

    assert await shards_of(run) == 8
    assert sorted(number for machine in machines for number in machine.held) == list(range(8))
    assert [len(machine.held) for machine in machines] == [2, 2, 2, 2]


async def test_the_first_of_a_run_sets_the_number_of_shards(run: Run) -> None:
    await run.set_shards(7)

    assert await Machine(run, "a", 3).look() == (0, 1, 2)

    assert await shards_of(run) == 3


async def test_who_comes_back_after_a_crash_takes_the_vacant_numbers(run: Run) -> None:
    a, b = Machine(run, "a", 2), Machine(run, "b", 2)
    await settled(a, b)
    again = Machine(run, "b-again", 2)
    again.member.dead.add("b")

    assert await again.look() == (2, 3)

    assert await shards_of(run) == 4
    assert list(await read_members(run)) == ["a", "b-again"]


async def test_the_shards_of_a_silent_member_move_to_the_others_and_back(run: Run) -> None:
    a, b, c = (Machine(run, name, 2) for name in "abc")
    await settled(a, b, c)

    await b.silent_for(SILENT_S + 1)
    without = await settled(a, c)
    back = await settled(b, a, c)

    assert [len(held) for held in without] == [3, 3]
    assert [len(held) for held in back] == [2, 2, 2]
    assert set.union(*without) == set.union(*back) == set(range(6))
    assert await shards_of(run) == 6


async def test_a_number_is_given_to_another_only_when_its_process_has_left(run: Run) -> None:
    a, b = Machine(run, "a", 4), Machine(run, "b", 4)
    await run.set_shards(4)
    await a.member.keep([], [])
    await run.set_shards(4)
    a.held = {0, 1, 2, 3}

    first = await b.look(0, 1, 2, 3)
    still = await a.member.keep({0, 1, 2, 3}, [])
    second = await b.look(0, 1, 2, 3)
    await a.member.keep({0, 1}, [])
    third = await b.look(0, 1)

    assert (first, second, third) == ((), (), (2, 3))
    assert still.numbers == (0, 1)


async def test_a_number_that_was_asked_for_is_spread_by_what_each_brings(run: Run) -> None:
    a, b = Machine(run, "a", 3), Machine(run, "b", 1)
    await settled(a, b)
    await run.set_shards(8)

    assert [len(held) for held in await settled(a, b)] == [6, 2]

    await run.set_shards(2)
    assert sum(len(held) for held in await settled(a, b)) == 2


async def test_a_member_that_is_left_alone_runs_no_more_than_twice_what_it_brings(run: Run) -> None:
    machines = [Machine(run, name, 2) for name in "abcd"]
    await settled(*machines)
    for machine in machines[1:]:
        await machine.silent_for(SILENT_S + 1)

    assert await settled(machines[0]) == [{0, 1, 2, 3}]
    assert await shards_of(run) == 8


async def test_what_a_member_brought_goes_with_it(run: Run) -> None:
    a, b = Machine(run, "a", 1), Machine(run, "b", 2)
    await settled(a, b)

    await b.member.leave(continues=True)

    assert await shards_of(run) == 1
    assert await read_numbers(run) == {0: "a"}


async def test_the_numbers_of_the_first_that_leaves_are_for_those_that_stay(run: Run) -> None:
    a, b = Machine(run, "a", 2), Machine(run, "b", 2)
    await settled(a, b)

    await a.member.leave(continues=True)

    assert await settled(b) == [{0, 1, 2, 3}]


async def test_a_process_that_is_gone_and_still_holds_its_number_adds_no_shard(run: Run) -> None:
    a, b, again = Machine(run, "a", 1), Machine(run, "b", 1), Machine(run, "b-again", 1)
    await settled(a, b)
    await b.silent_for(SILENT_S + 1)
    assert await settled(a) == [{0, 1}]

    await again.look(0, 1)
    # Its shard 1 is killed: others see it until its hold expires.
    await a.look()
    await a.look()
    await again.look(0, 1)

    assert await shards_of(run) == 2
    assert await settled(a, again) == [{0}, {1}]


async def test_shards_started_by_hand_count_and_stay(run: Run) -> None:
    await run.update(shards=2)

    assert await Machine(run, "a", 2).look(0, 1) == (2, 3)

    assert await shards_of(run) == 4


async def test_shards_that_a_dead_member_left_behind_are_waited_for(run: Run) -> None:
    a, again = Machine(run, "a", 2), Machine(run, "a-again", 2)
    await a.look()
    again.member.dead.add("a")

    early = await again.look(0, 1)
    late = await again.look()

    assert (early, late) == ((), (0, 1))
    assert await shards_of(run) == 2


async def test_there_are_never_more_shards_than_partitions(run: Run) -> None:
    machines = [Machine(run, name, 6) for name in "abcd"]

    held = await settled(*machines)

    assert await shards_of(run) == 16
    assert [len(numbers) for numbers in held] == [4, 4, 4, 4]


async def test_who_comes_back_from_an_outage_does_not_judge_the_others(run: Run) -> None:
    now_s = 0.0
    a, b = Machine(run, "a", 2, lambda: now_s), Machine(run, "b", 2, lambda: now_s)
    await settled(a, b)
    for machine in (a, b):
        await machine.silent_for(SILENT_S * 2)

    now_s += SILENT_S * 2
    first = await a.look()
    await b.look()
    second = await a.look()

    assert first == second == (0, 1)
    assert b.held == {2, 3}


async def test_a_set_back_of_redis_moves_no_shard(run: Run, client: RedisClient) -> None:
    a, b = Machine(run, "a", 2), Machine(run, "b", 2)
    await settled(a, b)
    await client.command("DEL", keys.members("web"), keys.numbers("web"))

    assert await a.look(*b.held) == (0, 1)
    assert await b.look(*a.held) == (2, 3)
    assert await shards_of(run) == 4


async def test_the_time_of_a_member_is_that_of_redis(run: Run) -> None:
    await Machine(run, "a", 2).look()

    [member] = (await read_members(run)).values()

    assert abs(await server_ms(run.client) - member.at_ms) < 60_000
    assert (member.process.host, member.shards, member.data) == ("a", 2, "/data")
