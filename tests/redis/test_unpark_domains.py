"""unpark_domains: parked domains resume when their time has come, or on request, after a rest."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from crawlproj.model.records import Outcome, Settlement
from crawlproj.redisio import keys
from tests.patience import PATIENCE_S

if TYPE_CHECKING:
    from tests.redis.conftest import FrontierAtHand

RUN = "web"


@pytest.fixture
async def parked(at_hand: FrontierAtHand) -> FrontierAtHand:
    """a.test, two URLs and a delay of 3 s, parked for 60 s; b.test for 90 s; c.test for good."""
    await at_hand.acquire()
    await at_hand.admit(
        "https://a.test/0", "https://a.test/1", "https://a.test/2", "https://b.test/", "https://c.test/"
    )
    [lease] = await at_hand.lease(1)
    assert lease.domain == "a.test"
    await at_hand.frontier.settle(
        [Settlement(lease, Outcome.DONE, wait_ms=3000, delay_ms=3000, fails=8, fetched_bytes=500)]
    )
    for domain, ms in (("a.test", 60_000), ("b.test", 90_000), ("c.test", -1)):
        await at_hand.park(domain, ms=ms)
    return at_hand


async def counted(at_hand: FrontierAtHand) -> tuple[int, int]:
    return await at_hand.count("waiting"), await at_hand.count("parked")


async def test_a_parked_domain_is_released_when_due_and_not_before(parked: FrontierAtHand) -> None:
    parked.now_ms += 59_999
    assert await parked.unpark() == 0
    assert await counted(parked) == (0, 4)

    parked.now_ms += 1
    assert await parked.unpark() == 1

    assert await parked.due_ms("a.test") == 63_000
    assert await parked.back_ms("a.test") is None
    assert (await parked.due_ms("b.test"), await parked.back_ms("b.test")) == (None, 90_000)
    assert await counted(parked) == (2, 2)


async def test_a_named_domain_is_released_at_once_after_its_delay(parked: FrontierAtHand) -> None:
    parked.now_ms += 10

    assert await parked.unpark("a.test", "c.test") == 2

    assert (await parked.due_ms("a.test"), await parked.due_ms("c.test")) == (3010, 10)
    assert await parked.back_ms("b.test") == 90_000
    assert await counted(parked) == (3, 1)
    assert [lease.domain for lease in await parked.lease()] == ["c.test"]


async def test_one_that_is_not_parked_or_not_known_is_left_alone(parked: FrontierAtHand) -> None:
    await parked.unpark("a.test")
    before = (await parked.meta(), await parked.state("a.test"))

    assert await parked.unpark("a.test", "unknown.test") == 0

    assert (await parked.meta(), await parked.state("a.test")) == before


async def test_a_domain_comes_back_with_its_failures_so_that_it_is_asked_gently(
    parked: FrontierAtHand,
) -> None:
    before = await parked.state("a.test")

    await parked.unpark("a.test")
    parked.now_ms += 3000
    leases = await parked.lease(chain=5)

    expected = before | {"parked": "-", "next": parked.now_ms, "out": 1}
    assert await parked.state("a.test") == expected
    assert [(lease.url, lease.fails, lease.delay_ms) for lease in leases] == [("https://a.test/1", 8, 3000)]


async def test_a_domain_that_had_given_all_its_bytes_may_give_as_many_again(parked: FrontierAtHand) -> None:
    await parked.unpark("a.test")
    assert (await parked.state("a.test"))["bytes"] == 500
    await parked.park("a.test", "byte_budget", -1)

    await parked.unpark("a.test")

    assert (await parked.state("a.test"))["bytes"] == 0


async def test_a_domain_without_urls_is_released_but_not_ready(at_hand: FrontierAtHand) -> None:
    await at_hand.acquire()
    await at_hand.admit("https://a.test/")
    [lease] = await at_hand.lease()
    await at_hand.frontier.settle([Settlement(lease, Outcome.DONE)])
    await at_hand.park("a.test")

    assert await at_hand.unpark("a.test") == 1

    assert await at_hand.due_ms("a.test") is None
    assert await counted(at_hand) == (0, 0)


async def test_a_domain_with_a_lease_out_is_not_ready_before_that_ended(at_hand: FrontierAtHand) -> None:
    await at_hand.acquire()
    await at_hand.admit("https://a.test/1", "https://a.test/2")
    [lease] = await at_hand.lease()
    await at_hand.park("a.test")

    await at_hand.unpark("a.test")
    assert await at_hand.due_ms("a.test") is None
    assert await counted(at_hand) == (1, 0)
    await at_hand.frontier.settle([Settlement(lease, Outcome.DONE, wait_ms=40)])

    assert await at_hand.due_ms("a.test") == 40


async def test_a_domain_let_go_early_rests_for_its_delay_only(at_hand: FrontierAtHand) -> None:
    await at_hand.acquire()
    await at_hand.admit("https://a.test/1", "https://a.test/2")
    [lease] = await at_hand.lease()
    await at_hand.frontier.settle([Settlement(lease, Outcome.RETRY, wait_ms=9000, delay_ms=1000)])
    await at_hand.park("a.test", "retry_after", 9000)

    await at_hand.unpark("a.test")

    # The operator may know better than the site did when it asked for a longer rest.
    assert await at_hand.due_ms("a.test") == 1000


async def test_the_owner_is_woken(parked: FrontierAtHand) -> None:
    async with parked.client.subscribe(keys.wake_channel(RUN)) as messages, asyncio.timeout(PATIENCE_S):
        await anext(messages)

        await parked.unpark("unknown.test")
        await parked.unpark("a.test")
        await parked.client.command("PUBLISH", keys.wake_channel(RUN), "end")
        heard = [await anext(messages) for _ in range(2)]

    assert [message[1] for message in heard if message] == [b"0", b"end"]
    assert await parked.count("sleep") == 0


async def test_any_process_may_do_it_whoever_the_owner_is(parked: FrontierAtHand) -> None:
    parked.now_ms += 20_000
    await parked.acquire("b")

    assert await parked.unpark("a.test") == 1
