"""The time of a partition is its owner's: no clock makes a domain due early, or stops a takeover."""

from __future__ import annotations

import time

import pytest

from crawlproj.frontier.frontier import Frontier, Hold, Taken
from crawlproj.model.records import Candidate, Outcome, Settlement
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from tests.patience import until
from tests.redis.shards import LIMITS, PARTITIONS, RUN, Shards

HOUR_MS = 3_600_000
META = keys.meta(RUN, 0)


class Owner:
    """An owner of the one partition, by the server's real clock and a clock of its own."""

    def __init__(self, client: RedisClient, name: str) -> None:
        self.name = name
        self.clock_s = 1000.0
        self.frontier = Frontier(client, RUN, 1, clock=lambda: self.clock_s)
        self.hold = Hold(0, "", 0)

    async def acquire(self, *, heir_of: str = "", flight_ms: int = 0, expired: int = 0) -> Hold | Taken:
        hold = await self.frontier.acquire(
            0,
            self.name,
            ttl_ms=10_000,
            delay_ms=1000,
            delays_ms={},
            heir_of=[heir_of] if heir_of else [],
            flight_ms=flight_ms,
            expired=expired,
        )
        if isinstance(hold, Hold):
            self.hold = hold
        return hold

    async def lease(self) -> list[str]:
        leases, _ = await self.frontier.lease([(self.hold, 100)], chain=1, chain_ms=1000)
        return [lease.domain for lease in leases]

    async def let_rest(self, domain: str, wait_ms: int) -> None:
        """Lease a URL of *domain*, which must be the only one due, and return it."""
        await self.frontier.admit([Candidate(f"https://{domain}/")])
        [lease], _ = await self.frontier.lease([(self.hold, 100)], chain=1, chain_ms=1000)
        await self.frontier.settle([Settlement(lease, Outcome.RETURNED, wait_ms=wait_ms)])

    async def due_in_ms(self) -> int:
        """In how long the first domain is due."""
        waits, _ = await self.frontier.renew([self.hold], 10_000)
        return waits[0]


@pytest.fixture
async def first(client: RedisClient) -> Owner:
    """An owner, one of whose domains rests for a minute."""
    owner = Owner(client, "first")
    await owner.acquire()
    await owner.let_rest("a.test", 60_000)
    return owner


async def step_server(client: RedisClient, ms: int) -> None:
    """As if the server's clock had been set forward by *ms* since the owner wrote."""
    for field in ("wall", "until"):
        await client.command("HINCRBY", META, field, -ms)


@pytest.mark.parametrize("ms", [HOUR_MS, -HOUR_MS], ids=["forward", "back"])
async def test_for_its_owner_a_domain_rests_as_long_whatever_redis_takes_for_the_time(
    client: RedisClient, first: Owner, ms: int
) -> None:
    await step_server(client, ms)

    first.clock_s += 59.9
    early = await first.lease()
    first.clock_s += 0.2

    assert (early, await first.lease()) == ([], ["a.test"])


async def test_a_new_owner_does_not_find_a_domain_due_early_when_redis_was_set_forward(
    client: RedisClient, first: Owner
) -> None:
    await step_server(client, HOUR_MS)
    second = Owner(client, "second")

    await second.acquire(heir_of="first")

    assert 59_000 < await second.due_in_ms() <= 60_000


async def test_the_time_of_a_partition_stays_behind_a_redis_that_was_once_set_forward(
    client: RedisClient, first: Owner
) -> None:
    for field in ("clock", "wall", "until"):
        await client.command("HINCRBY", META, field, -HOUR_MS)
    await client.command("ZINCRBY", keys.ready(RUN, 0), -HOUR_MS, "a.test")
    next_ms, *others = (await client.command("HGET", keys.domains(RUN, 0), "a.test")).decode().split(" ")
    state = [str(int(next_ms) - HOUR_MS), *others]
    await client.command("HSET", keys.domains(RUN, 0), "a.test", " ".join(state))
    second = Owner(client, "second")

    await second.acquire(heir_of="first")

    assert 59_000 < await second.due_in_ms() <= 60_000


async def test_a_new_owner_does_not_find_a_domain_due_early_when_its_own_clock_was_set_forward(
    client: RedisClient, first: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3600)
    second = Owner(client, "second")

    await second.acquire(heir_of="first")

    assert 59_000 < await second.due_in_ms() <= 60_000


async def test_a_rest_continues_while_nobody_owns_the_partition(client: RedisClient, first: Owner) -> None:
    # Half a minute ago, by both clocks.
    for field in ("wall", "mine"):
        await client.command("HINCRBY", META, field, -30_000)
    second = Owner(client, "second")

    await second.acquire(heir_of="first")

    assert 29_000 < await second.due_in_ms() <= 30_000


async def test_a_redis_that_was_set_back_in_time_makes_a_rest_no_longer(
    client: RedisClient, first: Owner
) -> None:
    await step_server(client, -HOUR_MS)
    second = Owner(client, "second")

    await second.acquire(heir_of="first")

    assert await second.due_in_ms() <= 60_000


async def test_what_is_admitted_is_due_by_the_owners_clock(client: RedisClient) -> None:
    owner = Owner(client, "first")
    await owner.acquire()
    # The server's clock was set forward by an hour, which the partition has not seen.
    for field in ("clock", "wall"):
        await client.command("HINCRBY", META, field, -HOUR_MS)
    await owner.acquire()

    await owner.frontier.admit([Candidate("https://a.test/")])

    assert await owner.lease() == ["a.test"]


async def test_a_parked_domain_is_not_released_early_when_redis_was_set_forward(
    client: RedisClient, first: Owner
) -> None:
    await first.frontier.park(first.hold, [("a.test", "failures", 60_000)])
    await step_server(client, HOUR_MS)

    assert await first.frontier.unpark({0: ()}) == 0
    first.clock_s += 61
    _, returning = await first.frontier.renew([first.hold], 10_000)
    assert returning == [0]
    assert await first.frontier.unpark({0: ()}) == 1


async def test_a_hold_that_is_renewed_is_not_taken_for_expired(client: RedisClient, first: Owner) -> None:
    second = Owner(client, "second")
    seen = await second.acquire()
    assert isinstance(seen, Taken)
    await client.command("HINCRBY", META, "wall", -1)
    await first.frontier.renew([first.hold], 20_000)

    assert isinstance(await second.acquire(expired=seen.until), Taken)


async def test_a_hold_that_is_not_renewed_ends_however_far_its_end_lies_in_the_future(
    client: RedisClient, first: Owner
) -> None:
    await client.command("HINCRBY", META, "until", HOUR_MS)
    second = Owner(client, "second")
    seen = await second.acquire()
    assert isinstance(seen, Taken)

    assert isinstance(await second.acquire(expired=seen.until), Hold)


async def test_a_dead_shard_is_followed_in_time_though_redis_was_set_back_by_an_hour(
    shards: Shards, client: RedisClient
) -> None:
    await shards.run.set_shards(2)
    dead, other = [await shards.open(number, limits=LIMITS) for number in (0, 1)]
    await until(lambda: len(dead.feed.partitions) + len(other.feed.partitions) == PARTITIONS)
    await dead.kill()

    await client.pipeline([("HINCRBY", keys.meta(RUN, p), "until", HOUR_MS) for p in range(PARTITIONS)])

    await until(lambda: len(other.feed.partitions) == PARTITIONS)


# -- another server --


async def test_after_a_restart_of_redis_every_domain_rests_before_a_new_owner_asks_it(
    client: RedisClient, first: Owner
) -> None:
    await first.frontier.admit([Candidate("https://b.test/")])
    await client.command("HSET", META, "server", "another")
    second = Owner(client, "second")

    await second.acquire(heir_of="first")

    assert await second.lease() == []
    assert 2900 < await second.due_in_ms() <= 3000


async def test_in_the_same_redis_a_domain_that_nobody_had_leased_is_due_at_once(
    client: RedisClient, first: Owner
) -> None:
    await first.frontier.admit([Candidate("https://b.test/")])
    second = Owner(client, "second")

    await second.acquire(heir_of="first")

    assert await second.lease() == ["b.test"]


async def test_a_rest_that_another_shard_asks_for_is_no_longer_when_redis_was_set_forward(
    client: RedisClient, first: Owner
) -> None:
    await first.frontier.admit([Candidate("https://b.test/")])
    await step_server(client, HOUR_MS)

    await Frontier(client, RUN, 1).rest({"b.test": 5000})

    assert await first.lease() == []
    assert 4000 < await first.due_in_ms() <= 6000
