"""release_partition: the next shard need not wait, and a late release does no harm."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.redis.conftest import FrontierAtHand


async def test_a_partition_released_is_free_at_once_and_its_epoch_still_grows(
    at_hand: FrontierAtHand,
) -> None:
    first = await at_hand.acquire("a")

    await at_hand.frontier.release([first])
    second = await at_hand.acquire("b")

    assert (first.epoch, second.epoch) == ("1:a", "2:b")


async def test_releasing_again_after_another_came_changes_nothing(at_hand: FrontierAtHand) -> None:
    first = await at_hand.acquire("a")
    await at_hand.frontier.release([first])
    await at_hand.acquire("b")
    before = await at_hand.meta()

    await at_hand.frontier.release([first])

    assert await at_hand.meta() == before


async def test_a_lease_left_behind_by_a_release_waits_again(at_hand: FrontierAtHand) -> None:
    first = await at_hand.acquire("a")
    await at_hand.admit("https://a.test/")
    [lost] = await at_hand.lease()
    await at_hand.frontier.release([first])

    await at_hand.acquire("b", delay_ms=500)
    at_hand.now_ms += 500

    assert [lease.url for lease in await at_hand.lease()] == [lost.url]


async def test_work_admitted_to_a_free_partition_is_found_by_the_next_owner(
    at_hand: FrontierAtHand,
) -> None:
    first = await at_hand.acquire("a")
    await at_hand.lease()
    await at_hand.frontier.release([first])
    await at_hand.admit("https://a.test/")

    await at_hand.acquire("b")

    assert len(await at_hand.lease()) == 1
