"""renew_partition: a hold is prolonged by its epoch only, and the owner hears whether there is work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from crawlproj.errors import Fenced
from crawlproj.frontier.frontier import Taken
from crawlproj.model.records import Outcome, Settlement

if TYPE_CHECKING:
    from tests.redis.conftest import FrontierAtHand


async def test_a_partition_renewed_in_time_stays_owned(at_hand: FrontierAtHand) -> None:
    hold = await at_hand.acquire("a")
    for _ in range(5):
        at_hand.now_ms += 9_000
        await at_hand.frontier.renew([hold], 10_000)

        assert isinstance(await at_hand.frontier.acquire(0, "b", ttl_ms=1, delay_ms=0, delays_ms={}), Taken)


async def test_renewing_late_is_fine_while_the_name_is_free(at_hand: FrontierAtHand) -> None:
    hold = await at_hand.acquire("a")
    at_hand.now_ms += 60_000

    await at_hand.frontier.renew([hold], 10_000)

    assert isinstance(await at_hand.frontier.acquire(0, "b", ttl_ms=1, delay_ms=0, delays_ms={}), Taken)


async def test_an_owner_replaced_is_refused_and_prolongs_nothing(at_hand: FrontierAtHand) -> None:
    old = await at_hand.acquire("a")
    at_hand.now_ms += 10_000
    await at_hand.acquire("b")
    before = await at_hand.meta()

    with pytest.raises(Fenced):
        await at_hand.frontier.renew([old], 10_000)

    assert await at_hand.meta() == before


async def test_renewing_returns_when_the_next_domain_is_due(at_hand: FrontierAtHand) -> None:
    hold = await at_hand.acquire("a")
    assert await at_hand.frontier.renew([hold], 10_000) == ({0: -1}, [])

    await at_hand.admit("https://a.test/1", "https://a.test/2")
    assert await at_hand.frontier.renew([hold], 10_000) == ({0: 0}, [])

    [lease] = await at_hand.lease()
    await at_hand.frontier.settle([Settlement(lease, Outcome.DONE, wait_ms=800)])
    assert await at_hand.frontier.renew([hold], 10_000) == ({0: 800}, [])


async def test_renewing_reports_a_parked_domain_that_is_due_and_not_before(
    at_hand: FrontierAtHand,
) -> None:
    hold = await at_hand.acquire("a")
    await at_hand.admit("https://soon.test/", "https://later.test/", "https://never.test/")
    for domain, ms in (("later.test", 9000), ("soon.test", 5000), ("never.test", -1)):
        await at_hand.park(domain, ms=ms)
    # Until then each is still among the newcomers.
    assert await at_hand.lease() == []

    answers = []
    for passed_ms in (0, 4999, 1):
        at_hand.now_ms += passed_ms
        answers.append(await at_hand.frontier.renew([hold], 10_000))

    assert answers == [({0: -1}, []), ({0: -1}, []), ({0: -1}, [0])]


async def test_a_domain_parked_for_good_never_has_its_time(at_hand: FrontierAtHand) -> None:
    hold = await at_hand.acquire("a")
    await at_hand.admit("https://a.test/")
    await at_hand.park("a.test", ms=-1)
    assert await at_hand.lease() == []

    at_hand.now_ms += 10**12

    assert await at_hand.frontier.renew([hold], 10_000) == ({0: -1}, [])


async def test_a_due_domain_stays_parked_until_it_is_released(
    at_hand: FrontierAtHand,
) -> None:
    hold = await at_hand.acquire("a")
    await at_hand.admit("https://a.test/")
    await at_hand.park("a.test", ms=0)
    assert await at_hand.lease() == []

    assert await at_hand.frontier.renew([hold], 10_000) == ({0: -1}, [0])
    assert await at_hand.frontier.renew([hold], 10_000) == ({0: -1}, [0])
    await at_hand.unpark()

    assert await at_hand.frontier.renew([hold], 10_000) == ({0: 0}, [])


async def test_renewing_nothing_asks_redis_nothing(at_hand: FrontierAtHand) -> None:
    assert await at_hand.frontier.renew([], 10_000) == ({}, [])


async def test_a_newcomer_is_due_at_once(at_hand: FrontierAtHand) -> None:
    await at_hand.acquire("a")
    await at_hand.admit("https://a.test/")

    due_in_ms, _ = await at_hand.frontier.renew([at_hand.hold], 10_000)

    assert due_in_ms == {0: 0}
