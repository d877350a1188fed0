"""park_domains: a domain is set aside with all its URLs, and nothing of it is lent, counted twice or lost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from crawlproj.errors import Fenced
from crawlproj.model.records import Candidate, Outcome, Settlement

if TYPE_CHECKING:
    from tests.redis.conftest import FrontierAtHand


@pytest.fixture
async def owned(at_hand: FrontierAtHand) -> FrontierAtHand:
    """Two domains: a.test with a URL in each lane, b.test with one."""
    await at_hand.acquire()
    await at_hand.frontier.admit(
        [Candidate(f"https://a.test/{priority}", priority=priority) for priority in (-1, 0, 1)]
    )
    await at_hand.admit("https://b.test/")
    return at_hand


async def counted(owned: FrontierAtHand) -> tuple[int, int]:
    return await owned.count("waiting"), await owned.count("parked")


async def test_a_parked_domain_is_not_leased_and_keeps_its_urls(owned: FrontierAtHand) -> None:
    assert await owned.park("a.test", "failures", 60_000) == 1

    assert [lease.domain for lease in await owned.lease(chain=5)] == ["b.test"]
    assert [await owned.waiting("a.test", lane) for lane in range(3)] == [
        ["0 0 s/1"],
        ["0 0 s/0"],
        ["0 0 s/-1"],
    ]
    assert (await owned.state("a.test"))["parked"] == "failures"
    assert await owned.back_ms("a.test") == 60_000


async def test_its_urls_are_counted_apart_from_those_that_wait(owned: FrontierAtHand) -> None:
    assert await counted(owned) == (4, 0)

    await owned.park("a.test")

    assert await counted(owned) == (1, 3)


async def test_one_parked_already_stays_as_it_is(owned: FrontierAtHand) -> None:
    await owned.park("a.test", "failures", 60_000)
    owned.now_ms += 1000

    assert await owned.park("a.test", "retry_after", 5000) == 0

    assert (await owned.state("a.test"))["parked"] == "failures"
    assert await owned.back_ms("a.test") == 60_000
    assert await counted(owned) == (1, 3)


async def test_a_domain_can_be_parked_for_good(owned: FrontierAtHand) -> None:
    await owned.park("a.test", "byte_budget", -1)

    assert await owned.back_ms("a.test") == math.inf


async def test_several_are_parked_in_one_step_each_with_its_reason_and_time(owned: FrontierAtHand) -> None:
    parked = await owned.frontier.park(
        owned.hold, [("a.test", "failures", 1000), ("b.test", "retry_after", 2000)]
    )

    assert parked == 2
    assert [(await owned.state(domain))["parked"] for domain in ("a.test", "b.test")] == [
        "failures",
        "retry_after",
    ]
    assert [await owned.back_ms(domain) for domain in ("a.test", "b.test")] == [1000, 2000]
    assert await counted(owned) == (0, 4)


async def test_an_unknown_domain_is_not_parked(owned: FrontierAtHand) -> None:
    assert await owned.park("unknown.test") == 0

    assert await owned.back_ms("unknown.test") is None
    assert await counted(owned) == (4, 0)


async def test_a_domain_with_all_its_urls_leased_or_fetched_can_be_parked(owned: FrontierAtHand) -> None:
    [lease] = [lease for lease in await owned.lease() if lease.domain == "b.test"]
    await owned.frontier.settle([Settlement(lease, Outcome.DONE)])

    assert await owned.park("b.test") == 1

    # Two of a.test wait, one of it is lent.
    assert await counted(owned) == (2, 0)


async def test_what_is_admitted_for_a_parked_domain_waits_with_it(owned: FrontierAtHand) -> None:
    await owned.park("a.test")

    assert await owned.admit("https://a.test/new", "https://a.test/newer", "https://c.test/") == 3

    assert await counted(owned) == (2, 5)
    assert await owned.due_ms("a.test") is None
    assert await owned.due_ms("c.test") == 0


async def test_parking_forgets_nothing_else_of_a_domain(owned: FrontierAtHand) -> None:
    [lease] = [lease for lease in await owned.lease() if lease.domain == "a.test"]
    await owned.frontier.settle(
        [Settlement(lease, Outcome.RETRY, wait_ms=500, delay_ms=2000, fails=7, fetched_bytes=99)]
    )
    before = await owned.state("a.test")

    await owned.park("a.test")

    assert await owned.state("a.test") == before | {"parked": "failures"}


async def test_an_owner_replaced_parks_nothing(owned: FrontierAtHand) -> None:
    old = owned.hold
    owned.now_ms += 20_000
    await owned.acquire("b")
    before = (await owned.meta(), await owned.state("a.test"))

    with pytest.raises(Fenced):
        await owned.frontier.park(old, [("a.test", "failures", 1000)])

    assert (await owned.meta(), await owned.state("a.test")) == before
    assert await owned.back_ms("a.test") is None
