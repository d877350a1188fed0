"""The gate of an IP address: callers of two shards on one Redis, also when they are cancelled or die."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path

import pytest

from crawlproj.frontier.addresses import BRIEF_S, AddressGate, Visit
from crawlproj.redisio import keys
from crawlproj.redisio.answers import ScriptError
from crawlproj.redisio.client import RedisClient
from tests.conftest import RedisServer
from tests.patience import until
from tests.redis.conftest import RUN

IP = "192.0.2.1"
OTHER_IP = "192.0.2.2"


@pytest.fixture
async def clients(client: RedisClient, redis_url: str, tmp_path: Path) -> AsyncIterator[list[RedisClient]]:
    """Two processes' worth."""
    second = await RedisClient.open(url=redis_url, data_dir=tmp_path, wait_s=10)
    yield [client, second]
    await second.close()


async def is_inside(client: RedisClient, ip: str = IP) -> bool:
    return bool(await client.command("HEXISTS", keys.address(RUN, ip), "token"))


async def test_callers_of_two_shards_come_one_at_a_time_with_a_delay_between(
    clients: list[RedisClient],
) -> None:
    gates = [AddressGate(client, RUN, 0.08) for client in clients]
    seen: list[tuple[float, float]] = []

    async def crawl(gate: AddressGate, domain: str) -> None:
        for _ in range(2):
            visit = gate.visit(domain)
            while wait_s := await visit.enter(IP, 30.0):
                await visit.leave()
                await asyncio.sleep(wait_s)
            begun_s = time.monotonic()
            await asyncio.sleep(0.002)
            seen.append((begun_s, time.monotonic()))
            await visit.leave()

    await asyncio.gather(*(crawl(gates[number % 2], f"d{number}.test") for number in range(6)))

    seen.sort()
    assert len(seen) == 12
    assert min(after[0] - before[1] for before, after in pairwise(seen)) >= 0.08


async def test_a_visit_to_the_same_address_twice_is_one(client: RedisClient) -> None:
    visit = AddressGate(client, RUN, 60.0).visit("a.test")

    assert await visit.enter(IP, 30.0) == 0
    assert await visit.enter(IP, 30.0) == 0


async def test_a_visit_to_another_address_leaves_the_first(client: RedisClient) -> None:
    visit = AddressGate(client, RUN, 60.0).visit("a.test")
    await visit.enter(IP, 30.0)

    assert await visit.enter(OTHER_IP, 30.0) == 0

    assert not await is_inside(client)
    assert await is_inside(client, OTHER_IP)


async def test_a_brief_wait_is_waited_out_and_a_longer_one_is_not(client: RedisClient) -> None:
    for delay_s, is_let_in in ((BRIEF_S / 2, True), (BRIEF_S * 4, False)):
        gate = AddressGate(client, RUN, delay_s)
        first, second = gate.visit("a.test"), gate.visit("b.test")
        await first.enter(f"{IP} {delay_s}", 30.0)
        await first.leave()

        wait_s = await second.enter(f"{IP} {delay_s}", 30.0)

        assert (wait_s == 0) is is_let_in


async def test_a_refused_visit_does_not_end_the_visit_of_another(client: RedisClient) -> None:
    gate = AddressGate(client, RUN, 60.0)
    await gate.visit("a.test").enter(IP, 30.0)
    refused = gate.visit("b.test")

    assert await refused.enter(IP, 30.0) >= 60
    await refused.leave()

    assert await is_inside(client)


async def test_a_visit_that_never_began_may_be_left(client: RedisClient) -> None:
    await AddressGate(client, RUN, 60.0).visit("a.test").leave()

    assert await client.command("DBSIZE") == 0


async def download(visit: Visit, entered: Callable[[], None] = lambda: None) -> None:
    """As the handler does."""
    try:
        if not await visit.enter(IP, 30.0):
            entered()
            await asyncio.Event().wait()
    finally:
        await visit.leave()


@pytest.mark.parametrize("turns", range(8))
async def test_a_download_cancelled_at_any_moment_of_its_entry_leaves(
    client: RedisClient, turns: int
) -> None:
    task = asyncio.create_task(download(AddressGate(client, RUN, 0.0).visit("a.test")))
    for _ in range(turns):
        await asyncio.sleep(0)

    task.cancel()
    # As some do who cannot wait.
    asyncio.get_running_loop().call_soon(task.cancel)
    await asyncio.gather(task, return_exceptions=True)

    # Whatever is still on its way to Redis.
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.gather(*others, return_exceptions=True)
    assert not await is_inside(client)


async def test_a_download_cancelled_while_it_waits_for_the_answer_leaves(client: RedisClient) -> None:
    entered = asyncio.Event()
    task = asyncio.create_task(download(AddressGate(client, RUN, 0.0).visit("a.test"), entered.set))
    await entered.wait()
    assert await is_inside(client)

    task.cancel()
    await asyncio.gather(task, return_exceptions=True)

    assert not await is_inside(client)


async def test_leaving_does_not_overtake_an_entry_that_takes_its_time(client: RedisClient) -> None:
    gate = AddressGate(client, RUN, 0.0)
    delivered = asyncio.Event()

    async def enter_late() -> float:
        await delivered.wait()
        return await gate.enter(IP, "a.test", b"token", 30.0)

    leaving = asyncio.create_task(gate.leave_after(asyncio.create_task(enter_late()), IP, b"token"))
    for _ in range(20):
        await client.command("PING")
    delivered.set()
    await leaving

    assert not await is_inside(client)


async def test_the_end_of_a_killed_shards_request_is_not_waited_for_longer_than_it_may_take(
    client: RedisClient,
) -> None:
    now_ms = 1_800_000_000_000
    gate = AddressGate(client, RUN, 1.0, now_ms=lambda: now_ms)
    await gate.visit("killed.test").enter(IP, 5.0)

    now_ms += 5000
    resting_s = await gate.visit("b.test").enter(IP, 5.0)
    now_ms += 1000

    assert resting_s == 1.0
    assert await gate.visit("b.test").enter(IP, 5.0) == 0


async def test_while_redis_is_unreachable_a_download_is_put_off_in_time_and_leaves_later(
    redis_server_factory: Callable[..., RedisServer], tmp_path: Path
) -> None:
    server = redis_server_factory()
    client = await RedisClient.open(url=server.url, data_dir=tmp_path, wait_s=10)
    visit = AddressGate(client, RUN, 3.0).visit("a.test")
    server.pause()

    wait_s = await visit.enter(IP, 0.2)
    leaving = asyncio.create_task(visit.leave())
    server.unpause()
    await leaving

    assert wait_s == 3.0
    assert not await is_inside(client)
    await client.close()


async def test_concurrent_calls_share_a_round_trip(client: RedisClient) -> None:
    gate = AddressGate(client, RUN, 60.0)
    round_trips: list[float] = []
    client.on_answer = round_trips.append

    waits_s = await asyncio.gather(
        *(gate.visit(f"d{n}.test").enter(f"192.0.2.{n}", 30.0) for n in range(100))
    )

    assert set(waits_s) == {0.0}
    assert len(round_trips) <= 10


async def test_an_error_of_redis_reaches_all_waiters(client: RedisClient) -> None:
    gate = AddressGate(client, RUN, 60.0)
    await client.command("SET", keys.address(RUN, IP), "not a hash")
    visits = [gate.visit(f"d{n}.test") for n in range(3)]

    errors = await asyncio.gather(*(visit.enter(IP, 30.0) for visit in visits), return_exceptions=True)
    left = await asyncio.gather(*(visit.leave() for visit in visits), return_exceptions=True)

    assert [type(error) for error in errors + left] == [ScriptError] * 6
    assert await gate.visit("d.test").enter(OTHER_IP, 30.0) == 0


async def test_no_task_is_left_behind(client: RedisClient) -> None:
    gate = AddressGate(client, RUN, 0.0)
    visit = gate.visit("a.test")
    await visit.enter(IP, 30.0)
    await visit.leave()

    await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    assert not gate._leaving
