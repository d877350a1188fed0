"""rest_domains: what a shard knows of rests counts, whoever owns the partition, and shortens none."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.redis.conftest import FrontierAtHand


async def test_a_domain_rests_that_somebody_else_owns(at_hand: FrontierAtHand) -> None:
    await at_hand.acquire("another")
    await at_hand.admit("https://a.test/", "https://b.test/")

    await at_hand.frontier.rest({"a.test": 5000})

    assert [lease.domain for lease in await at_hand.lease()] == ["b.test"]
    at_hand.now_ms += 5000
    assert [lease.domain for lease in await at_hand.lease()] == ["a.test"]


async def test_a_longer_rest_is_kept(at_hand: FrontierAtHand) -> None:
    await at_hand.acquire()
    await at_hand.admit("https://a.test/")

    await at_hand.frontier.rest({"a.test": 5000})
    await at_hand.frontier.rest({"a.test": 100})

    assert await at_hand.due_ms("a.test") == 5000


async def test_a_domain_that_is_found_again_rests_too(at_hand: FrontierAtHand) -> None:
    await at_hand.acquire()

    await at_hand.frontier.rest({"a.test": 5000})
    assert await at_hand.due_ms("a.test") is None
    await at_hand.admit("https://a.test/")

    assert await at_hand.lease() == []
    assert await at_hand.due_ms("a.test") == 5000
