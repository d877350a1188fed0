"""A shard whose Redis is set back: it drops what it holds, fetches what was lost again, and stays polite."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from crawlproj.errors import EXIT_FENCED, Replaced, SetBack
from crawlproj.frontier.ownership import ShardNumber
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate, Lease
from crawlproj.politeness.pacing import DelayRules, Ending
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName, drop_name, hold_name
from crawlproj.runs import Leader, Limits
from tests.patience import PATIENCE_S, until
from tests.redis.setbacks import Backup
from tests.redis.shards import LIMITS, LONG, PARTITIONS, RUN, Shard, Shards, ready_in_s, sites

NUMBER = keys.shard(RUN, 0)
#: Longer than a test takes.
SLOW = DelayRules(60.0)
#: Gives up at once, and for longer than a test takes.
STRICT = DelayRules(0.0, give_up=1, parked_s=600.0)


@pytest.fixture(autouse=True)
def watching(shards: Shards) -> None:
    shards.run.watch()


async def fetch_all(shards: Shards, shard: Shard, count: int) -> list[str]:
    """Fetch until *count* URLs are done; returns those fetched."""
    urls: list[str] = []
    async with asyncio.timeout(PATIENCE_S):
        while (await shards.read_counters()).counts["done"] < count:
            for lease in shard.take_leases():
                shard.fetch(lease)
                urls.append(lease.url)
            await asyncio.sleep(0.005)
    return urls


async def until_sent(shard: Shard) -> None:
    await until(lambda: not shard.dispatcher.has_work)


async def until_acquired(shard: Shard) -> None:
    await until(lambda: shard.feed._holdings.restarts and len(shard.feed.partitions) == PARTITIONS)


async def until_parked(shards: Shards, parked: dict[str, str]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while await shards.parked() != parked:  # noqa: ASYNC110  # Redis has no event
            await asyncio.sleep(0.005)


async def owners(client: RedisClient) -> set[str]:
    metas = await client.pipeline([("HGET", keys.meta(RUN, p), "owner") for p in range(PARTITIONS)])
    return {owner.decode() for owner in metas}


def stranger(machine: str = "elsewhere") -> ProcessName:
    return replace(ProcessName.of_this(), machine=machine)


def dead_here() -> ProcessName:
    """A process of this machine that is gone: no process has this PID."""
    return replace(ProcessName.of_this(), pid=2**22 + 1)


# -- nothing is lost --


async def test_what_was_lost_is_leased_again_under_a_new_owner_until_nothing_is_left(
    shards: Shards, bystander: RedisClient
) -> None:
    await shards.admit(*sites(6))
    shard = await shards.open(limits=LONG)
    await until(lambda: len(shard.feed.partitions) == PARTITIONS)
    backup = await Backup.of(bystander)
    first = await fetch_all(shards, shard, 6)

    await backup.restore()
    again = await fetch_all(shards, shard, 6)

    counters = await shards.read_counters()
    assert sorted(first) == sorted(again) == sorted(sites(6))
    assert (counters.outstanding, shard.held, shard.ends) == (0, 0, [])
    assert await owners(bystander) == {f"{shard.feed.number.process.instance}.1"}


async def test_a_settlement_that_was_lost_does_not_keep_its_domain_for_ever(
    shards: Shards, bystander: RedisClient
) -> None:
    await shards.admit(*sites(1, pages=3))
    shard = await shards.open(limits=LONG)
    lease = await shard.take_one()
    backup = await Backup.of(bystander)
    shard.fetch(lease)
    await until(lambda: not shard.dispatcher.leases.unsent)

    await backup.restore()
    await fetch_all(shards, shard, 3)

    assert (await shards.read_counters()).outstanding == 0


async def test_a_lease_that_was_dropped_settles_nothing_though_its_number_is_used_again(
    shards: Shards, bystander: RedisClient
) -> None:
    await shards.admit("https://a.test/")
    backup = await Backup.of(bystander)
    shard = await shards.open(limits=LONG)
    dropped = await shard.take_one()
    # Its page is still being made.
    shard.dispatcher.request_ended(dropped, Ending(200))

    await backup.restore()
    again = await shard.take_one()
    shard.settle(dropped)

    assert again.token == dropped.token
    assert shard.held == 1
    shard.fetch(again)
    await until_sent(shard)
    assert shard.feed._holdings.restarts == 1
    assert (await shards.read_counters()).counts["done"] == 1


async def test_candidates_that_were_not_sent_yet_are_admitted_after_a_set_back(
    shards: Shards, bystander: RedisClient
) -> None:
    shard = await shards.open(limits=LONG)
    await until(lambda: len(shard.feed.partitions) == PARTITIONS)
    backup = await Backup.of(bystander)
    await shards.run.client.command("PING")
    await backup.restore()

    shard.dispatcher.add([Candidate("https://b.test/")])

    assert (await shard.take_one()).url == "https://b.test/"


async def test_what_was_admitted_at_the_start_is_admitted_again_also_if_a_second_set_back_comes(
    shards: Shards, bystander: RedisClient
) -> None:
    shard = await shards.open(limits=LONG)
    await until(lambda: len(shard.feed.partitions) == PARTITIONS)
    backup = await Backup.of(bystander)
    calls = []

    async def admit_seeds() -> None:
        calls.append("admit")
        if len(calls) == 1:
            await backup.restore()
        await shard.feed.admit_now([Candidate("https://a.test/")])

    shard.feed.on_set_back = admit_seeds
    await shards.run.client.command("PING")
    await backup.restore()

    assert (await shard.take_one()).url == "https://a.test/"
    assert (len(calls), shard.ends) == (2, [])


async def test_a_set_back_while_a_fenced_shard_starts_over_brings_the_seeds_back_too(
    shards: Shards, bystander: RedisClient
) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(limits=LIMITS)
    lease = await shard.take_one()
    backup = await Backup.of(bystander)
    calls = []

    async def admit_seeds() -> None:
        calls.append("admit")

    shard.feed.on_set_back = admit_seeds
    await bystander.pipeline([("HSET", keys.meta(RUN, p), "epoch", "9:x") for p in range(PARTITIONS)])
    await until(lambda: shard.dispatcher.is_paused)
    await backup.restore()
    await until(lambda: shards.client.generation)
    assert calls == []

    shard.fetch(lease)
    await until(lambda: calls)

    assert shard.ends == []


# -- politeness --


async def test_requests_in_flight_end_before_anything_is_acquired_and_the_number_is_kept_meanwhile(
    shards: Shards, bystander: RedisClient, events: list[str]
) -> None:
    await shards.admit("https://a.test/")
    shard = await shards.open(limits=LIMITS)
    backup = await Backup.of(bystander)
    lease = await shard.take_one()

    await backup.restore()
    await until(lambda: shards.client.generation)
    events.clear()
    await until(lambda: events.count("hold_name") >= 3)
    meanwhile = list(events)
    shard.fetch(lease)
    await until_acquired(shard)

    assert set(meanwhile) <= {"hold_name", "rest_domains"}
    assert "acquire_partition" in events


async def test_a_domain_keeps_the_delay_that_redis_has_lost(shards: Shards, bystander: RedisClient) -> None:
    await shards.admit(*sites(1, pages=2))
    backup = await Backup.of(bystander)
    shard = await shards.open(limits=LONG, rules=SLOW)
    shard.fetch(await shard.take_one())
    await until_sent(shard)

    await backup.restore()
    await until_acquired(shard)

    [due_s] = await ready_in_s(shards, "d0.test")
    assert 50 < due_s <= 60


async def test_a_domain_keeps_the_retry_after_that_redis_has_lost(
    shards: Shards, bystander: RedisClient
) -> None:
    await shards.admit(*sites(1, pages=2))
    shard = await shards.open(limits=LONG, rules=DelayRules(0.0))
    await until(lambda: len(shard.feed.partitions) == PARTITIONS)
    backup = await Backup.of(bystander)
    shard.fail(await shard.take_one(), Ending(429, retry_after_s=300))
    await until_sent(shard)

    await backup.restore()
    await until_acquired(shard)

    [due_s] = await ready_in_s(shards, "d0.test")
    assert 290 < due_s <= 300


async def test_a_domain_whose_parking_redis_has_lost_is_parked_again(
    shards: Shards, bystander: RedisClient
) -> None:
    await shards.admit(*sites(1, pages=2))
    shard = await shards.open(limits=LONG, rules=STRICT)
    await until(lambda: len(shard.feed.partitions) == PARTITIONS)
    backup = await Backup.of(bystander)
    shard.fail(await shard.take_one())
    await until_sent(shard)

    await backup.restore()
    await until_parked(shards, {"d0.test": "failures"})

    back_at = await bystander.command(
        "ZSCORE", keys.parked(RUN, partition_of("d0.test", PARTITIONS)), "d0.test"
    )
    seconds, _ = await bystander.command("TIME")
    assert 590 < float(back_at) / 1000 - int(seconds) <= 601
    assert shard.take() == []


async def test_nothing_is_leased_of_a_domain_that_had_been_parked_for_good(
    shards: Shards, bystander: RedisClient
) -> None:
    await shards.admit(*sites(1, pages=2))
    backup = await Backup.of(bystander)
    shard = await shards.open(limits=LONG, domain_bytes=10)
    lease = await shard.take_one()
    shard.dispatcher.request_ended(lease, Ending(200), fetched_bytes=10)
    shard.settle(lease)
    await until_parked(shards, {"d0.test": "byte_budget"})
    await until_sent(shard)

    await backup.restore()
    await until_parked(shards, {"d0.test": "byte_budget"})

    assert shard.held == 0


async def test_a_partition_released_in_the_lost_time_is_not_taken_back_at_once(
    shards: Shards, bystander: RedisClient
) -> None:
    # Of shard 1, once there are two.
    url = next(url for url in sites(20) if partition_of(url[8:].rstrip("/0"), PARTITIONS) % 2)
    domain = url[8:].rstrip("/0")
    await shards.admit(url)
    limits = replace(LIMITS, flight_s=100.0)
    first = await shards.open(limits=limits)
    await until(lambda: first.held)
    backup = await Backup.of(bystander)
    await shards.run.set_shards(2)
    second = await shards.open(1, limits=limits)
    await second.take_one()

    await backup.restore()
    await until_acquired(first)

    # The other shard's request may still be on its way.
    [due_s] = await ready_in_s(shards, domain)
    assert 90 < due_s <= 100


# -- a shard that was away --


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_a_shard_that_was_away_requests_nothing_until_others_have_said_which_domains_rest(
    shards: Shards, is_restarted: bool
) -> None:
    """Another shard may have had its domains, in what a restarted Redis has lost."""
    await shards.admit(*sites(3))
    shard = await shards.open(limits=LONG)
    await until(lambda: shard.held == 3)
    in_flight = shard.dispatcher.take()
    assert isinstance(in_flight, Lease)

    shard.skew_s += 40
    if is_restarted:
        shards.client.server = "another"
    shard.feed._stir.set()
    await until(lambda: shard.feed.heartbeat_age_s < 30)
    held = shard.held
    shard.fetch(in_flight, page=b"kept")
    await until(lambda: not shard.dispatcher.leases.unsent)
    left = shard.held
    shard.skew_s += 4
    shard.feed._stir.set()
    again = await shard.take_some(2)

    assert {lease.url for lease in again} == {*sites(3)} - {in_flight.url}
    assert (held, left) == ((1, 0) if is_restarted else (3, 2))
    assert await shards.client.command("LRANGE", keys.pages(RUN), 0, -1) == [b"kept"]


async def test_nothing_is_leased_for_a_while_from_a_redis_that_was_restarted(shards: Shards) -> None:
    """It may have lost which domains other shards have asked to rest; what is leased already continues."""
    await shards.admit(*sites(2))
    shard = await shards.open(limits=LONG)
    await until(lambda: shard.held == 2)

    shards.client.server = "another"
    await shards.admit("https://e0.test/")
    for lease in await shard.take_some(2):
        shard.fetch(lease)
    await until(lambda: not shard.dispatcher.leases.unsent)
    shard.feed._stir.set()
    await until(
        lambda: shard.feed._due.at_s and min(shard.feed._due.at_s.values()) > shard.dispatcher.clock()
    )
    held = shard.held
    shard.skew_s += 4
    shard.feed._stir.set()
    lease = await shard.take_one()

    assert held == 0
    assert lease.url == "https://e0.test/"


async def test_leases_of_a_redis_that_was_restarted_during_the_call_are_returned(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = await shards.open(limits=LONG)
    await until(lambda: len(shard.feed.partitions) == PARTITIONS)
    lease_urls = shard.feed.frontier.lease

    async def restart_and_lease(*arguments: Any, **more: Any) -> Any:
        shards.client.server = "another"
        return await lease_urls(*arguments, **more)

    monkeypatch.setattr(shard.feed.frontier, "lease", restart_and_lease)
    await shards.admit(*sites(1))
    async with asyncio.timeout(PATIENCE_S):
        while (await shards.read_counters()).counts["returned"] < 1:  # noqa: ASYNC110  # Redis has no event
            await asyncio.sleep(0.005)

    assert shards.client.server == "another"
    shard.skew_s += 4
    shard.feed._stir.set()
    await shard.take_one()


async def test_rests_are_said_again_when_redis_is_set_back_while_requests_end(
    shards: Shards, bystander: RedisClient
) -> None:
    await shards.admit(*sites(1))
    limits = replace(LONG, flight_s=100.0)
    shard = await shards.open(limits=limits)
    backup = await Backup.of(bystander)
    lease = await shard.take_one()

    async def rests() -> bool:
        return int((await shards.state("d0.test"))[0]) > 0

    for _ in range(2):
        await backup.restore()
        async with asyncio.timeout(PATIENCE_S):
            while not await rests():  # noqa: ASYNC110  # Redis has no event
                await asyncio.sleep(0.005)

    assert shard.feed._holdings.restarts == 0
    shard.fetch(lease)
    await until_acquired(shard)


async def test_the_partition_of_an_absent_shard_rests_for_a_flight_if_redis_was_restarted(
    shards: Shards, bystander: RedisClient
) -> None:
    """It may be suspended, with a request that Redis has forgotten; and so after the next set-back."""
    await shards.run.set_shards(2)
    url = next(url for url in sites(20) if partition_of(url[8:].rstrip("/0"), PARTITIONS) % 2 == 0)
    await shards.admit(url)
    for partition in range(PARTITIONS):
        await bystander.command("HSET", keys.meta(RUN, partition), "server", "earlier")
    shard = await shards.open(1, limits=replace(LIMITS, flight_s=100.0))
    await until(lambda: len(shard.feed.partitions) == PARTITIONS)

    rested = [await bystander.command("HGET", keys.meta(RUN, p), "rested") for p in range(PARTITIONS)]
    await shard.feed._holdings.start_over()

    [due_s] = await ready_in_s(shards, url[8:].rstrip("/0"))
    assert 90 < due_s <= 100
    assert len({int(at_ms) // 50_000 for at_ms in rested}) == 2
    assert set(shard.feed._holdings._ours) == {p for p in range(PARTITIONS) if p % 2}


# -- the shard's number --


@pytest.mark.parametrize(
    ("process", "ttl_ms"), [(dead_here(), 60_000), (stranger(), 600)], ids=["dead here", "silent elsewhere"]
)
async def test_a_dead_predecessors_claim_that_reappears_does_not_end_the_shard(
    shards: Shards, bystander: RedisClient, process: ProcessName, ttl_ms: int
) -> None:
    await hold_name(bystander, NUMBER, process, ttl_ms)
    backup = await Backup.of(bystander)
    await drop_name(bystander, NUMBER, process.instance)
    shard = await shards.open(limits=LIMITS)
    await until(lambda: len(shard.feed.partitions) == PARTITIONS)

    await backup.restore()
    await until_acquired(shard)

    assert shard.ends == []
    held = await bystander.command("GET", NUMBER)
    assert held.decode().startswith(shard.feed.number.process.instance)


async def test_a_living_stranger_with_the_number_ends_the_shard(
    shards: Shards, bystander: RedisClient
) -> None:
    process = stranger()
    await hold_name(bystander, NUMBER, process, 60_000)
    backup = await Backup.of(bystander)
    await drop_name(bystander, NUMBER, process.instance)
    shard = await shards.open(limits=replace(LIMITS, shard_lease_s=0.2))
    await until(lambda: len(shard.feed.partitions) == PARTITIONS)

    await backup.restore()
    while not shard.ends:
        # It renews its hold.
        await hold_name(bystander, NUMBER, process, 60_000)
        await asyncio.sleep(0.01)

    [(reason, error)] = shard.ends
    assert reason == "Replaced"
    assert isinstance(error, Replaced)
    assert error.exit_code == EXIT_FENCED == 6


async def test_a_renewal_that_meets_a_set_back_does_not_take_a_dead_process_for_a_successor(
    shards: Shards, bystander: RedisClient
) -> None:
    await hold_name(bystander, NUMBER, stranger(), 60_000)
    backup = await Backup.of(bystander)
    await bystander.command("DEL", NUMBER)
    number = ShardNumber(shards.client, RUN, 0, stranger(), 60_000)
    await number.claim()
    await backup.restore()

    with pytest.raises(SetBack):
        await number.renew(starting=False, generation=0)


async def test_a_shard_without_partitions_is_not_ended_by_a_claim_that_reappears(
    shards: Shards, bystander: RedisClient
) -> None:
    await bystander.pipeline(
        [("HSET", keys.meta(RUN, p), "owner", "x", "until", 10**13) for p in range(PARTITIONS)]
    )
    process = stranger()
    await hold_name(bystander, NUMBER, process, 600)
    backup = await Backup.of(bystander)
    await drop_name(bystander, NUMBER, process.instance)
    shard = await shards.open(limits=LONG)
    # It has tried to acquire them, and waits.
    await until(lambda: min(shard.feed._holdings.try_at_s.values()) > shard.dispatcher.clock())

    await backup.restore()
    await until(lambda: shard.feed._holdings.restarts or shard.ends)

    assert shard.ends == []


# -- page limits --


async def test_promises_that_redis_has_lost_are_not_returned(shards: Shards, bystander: RedisClient) -> None:
    run = shards.run
    await run.promise_pages(5, 10)
    backup = await Backup.of(bystander)
    await run.return_promises(1, 0)
    await backup.restore()

    with pytest.raises(SetBack):
        await run.return_promises(1, 0)

    assert await bystander.command("HGET", keys.promises(RUN), "promised") == b"5"


async def test_a_run_with_a_page_limit_ends_at_it_in_spite_of_a_set_back(
    shards: Shards, bystander: RedisClient
) -> None:
    await shards.run.set_limits(Limits(pages=4))
    await shards.run.begin(is_first=True)
    await shards.admit(*sites(9))
    shard = await shards.open(limits=LONG)
    leases = await shard.take_some(4)
    shard.fetch(leases[0])
    await until(lambda: not shard.dispatcher.leases.unsent)
    backup = await Backup.of(bystander)
    for lease in leases[1:]:
        shard.fetch(lease)
    await until(lambda: not shard.dispatcher.leases.unsent)
    leader = Leader(shards.run, ProcessName.of_this(), 5000)

    await backup.restore()
    async with asyncio.timeout(PATIENCE_S):
        while not await leader.step():
            for lease in shard.take_leases():
                shard.fetch(lease)
            await asyncio.sleep(0.005)

    assert (await shards.run.read_map()).reason == "max_pages"
    assert (await shards.read_counters()).counts["done"] == 4
