"""A frontier on the session's Redis, with a clock of the test's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from crawlproj.frontier.frontier import Frontier, Hold
from crawlproj.model.records import Candidate, Lease
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from tests.redis.shards import PARTITIONS, Shards
from tests.waiting import due_of, lanes_of

RUN = "web"
#: As many digits as a real time in ms has, which is what the scripts must be able to write down.
START_MS = 1_800_000_000_000


class FrontierAtHand:
    """A frontier of one partition, held by ``owner``, and what a test asks of it again and again."""

    def __init__(self, client: RedisClient, **options: int) -> None:
        self.client = client
        self.now_ms = START_MS
        self.frontier = Frontier(client, RUN, 1, now_ms=lambda: self.now_ms, **options)
        self.hold = Hold(0, "", 0)

    async def acquire(self, owner: str = "a", *, delay_ms: int = 1000, ttl_ms: int = 10_000) -> Hold:
        hold = await self.frontier.acquire(0, owner, ttl_ms=ttl_ms, delay_ms=delay_ms, delays_ms={})
        assert isinstance(hold, Hold)
        self.hold = hold
        return hold

    async def admit(self, *urls: str) -> int:
        return (await self.frontier.admit(Candidate(url) for url in urls)).new

    async def lease(self, count: int = 100, *, chain: int = 1, chain_ms: int = 10_000) -> list[Lease]:
        leases, _ = await self.frontier.lease([(self.hold, count)], chain=chain, chain_ms=chain_ms)
        return leases

    async def park(self, domain: str, reason: str = "failures", ms: int = 60_000) -> int:
        return await self.frontier.park(self.hold, [(domain, reason, ms)])

    async def unpark(self, *domains: str) -> int:
        return await self.frontier.unpark({0: domains})

    async def meta(self) -> dict[str, str]:
        flat = await self.client.command("HGETALL", keys.meta(RUN, 0))
        items = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
        return {name.decode(): value.decode() for name, value in items}

    async def count(self, name: str) -> int:
        return int((await self.meta()).get(name, 0))

    async def due_ms(self, domain: str) -> int | None:
        """When *domain* is due, after the start of the test; None: it has nothing to be leased."""
        due = (await due_of(self.client, RUN, 0)).get(domain)
        return None if due is None else int(due) - START_MS

    async def back_ms(self, domain: str) -> float | None:
        """When *domain* is parked no more, after the start of the test; None: it is not parked."""
        score = await self.client.command("ZSCORE", keys.parked(RUN, 0), domain)
        return None if score is None else float(score) - START_MS

    async def trapped(self) -> list[str]:
        """The URLs taken for traps, with the reason, oldest first."""
        return [
            member.decode() for member in await self.client.command("ZRANGE", keys.trapped(RUN, 0), 0, -1)
        ]

    async def state(self, domain: str) -> dict[str, int | str]:
        """The state of *domain* as the partition knows it."""
        value = await self.client.command("HGET", keys.domains(RUN, 0), domain)
        *numbers, parked = value.decode().partition("\n")[0].split(" ")
        names = ("next", "out", "fails", "admitted", "fetched", "delay", "bytes")
        return dict(zip(names, map(int, numbers), strict=True)) | {"parked": parked}

    async def waiting(self, domain: str, lane: int = 1) -> list[str]:
        return (await lanes_of(self.client, RUN, 0, domain))[lane]


@pytest.fixture
async def bystander(redis_url: str, client: RedisClient, tmp_path: Path) -> AsyncIterator[RedisClient]:
    """A second client: it does not watch what happens to Redis, so it can do it."""
    opened = await RedisClient.open(url=redis_url, data_dir=tmp_path, wait_s=10)
    yield opened
    await opened.close()


@pytest.fixture
def at_hand(client: RedisClient) -> FrontierAtHand:
    return FrontierAtHand(client)


@pytest.fixture
def make_at_hand(client: RedisClient) -> Callable[..., FrontierAtHand]:
    return lambda **options: FrontierAtHand(client, **options)


@pytest.fixture
async def shards(client: RedisClient) -> AsyncIterator[Shards]:
    """Makes shards of one run; those still there in the end are killed."""
    made = Shards(client, await Run.open(client, RUN, partitions=PARTITIONS, shards=1))
    yield made
    await made.kill()


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The scripts that Redis has carried out since the test began, by name, in the order of its answers."""
    seen: list[str] = []
    run_many = RedisClient.run_many

    async def run_and_record(
        self: RedisClient, script: str, calls: Sequence[Any], **options: Any
    ) -> list[Any]:
        answers = await run_many(self, script, calls, **options)
        seen.append(script)
        return answers

    monkeypatch.setattr(RedisClient, "run_many", run_and_record)
    return seen
