"""acquire_partition: one owner at a time, growing epochs, and nothing of a dead owner is lost or rushed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from crawlproj.frontier.frontier import Hold
from crawlproj.model.records import Candidate, Outcome, Settlement
from crawlproj.redisio import keys

if TYPE_CHECKING:
    from tests.redis.conftest import FrontierAtHand

RUN = "web"


async def take(
    at_hand: FrontierAtHand, owner: str, *, heir_of: str = "", delays_ms: dict[str, int] | None = None
) -> Hold | None:
    hold = await at_hand.frontier.acquire(
        0, owner, ttl_ms=10_000, delay_ms=1000, delays_ms=delays_ms or {}, heir_of=[heir_of]
    )
    return hold if isinstance(hold, Hold) else None


async def test_a_free_partition_is_acquired_and_every_new_owner_has_a_higher_epoch(
    at_hand: FrontierAtHand,
) -> None:
    epochs = []
    for owner in "abcab":
        hold = await take(at_hand, owner)
        assert hold is not None
        epochs.append(hold.epoch)
        at_hand.now_ms += 10_000

    assert epochs == ["1:a", "2:b", "3:c", "4:a", "5:b"]


async def test_an_owned_partition_is_refused_until_the_hold_ends_and_the_refusal_names_the_owner(
    at_hand: FrontierAtHand,
) -> None:
    await take(at_hand, "a")
    at_hand.now_ms += 9_999

    arguments = ["b", at_hand.now_ms, 10_000, 1000, "{}", "", 0, at_hand.now_ms, 0, "{}"]
    answer = await at_hand.client.run("acquire_partition", at_hand.frontier._keys(0), arguments)
    refused = await take(at_hand, "b")
    at_hand.now_ms += 1
    taken = await take(at_hand, "b")

    assert answer == [b"", b"a", 1, at_hand.now_ms]
    assert refused is None
    assert taken is not None


async def test_the_owner_may_acquire_again_and_keeps_epoch_and_leases(at_hand: FrontierAtHand) -> None:
    first = await at_hand.acquire("a")
    await at_hand.admit("https://a.test/", "https://b.test/")
    leases = await at_hand.lease()
    at_hand.now_ms += 9_000

    again = await take(at_hand, "a")

    assert again == Hold(0, first.epoch, len(leases))
    assert await at_hand.client.command("ZCARD", keys.leases(RUN, 0)) == 2
    at_hand.now_ms += 9_000
    assert await take(at_hand, "b") is None


async def test_the_heir_of_a_dead_owner_need_not_wait(at_hand: FrontierAtHand) -> None:
    await take(at_hand, "dead")

    assert await take(at_hand, "c", heir_of="somebody else") is None
    assert await take(at_hand, "b", heir_of="dead") is not None


async def test_having_no_one_to_inherit_from_opens_no_door(at_hand: FrontierAtHand) -> None:
    await take(at_hand, "a")

    assert await take(at_hand, "b", heir_of="") is None


async def test_leases_of_a_dead_owner_wait_again_in_order_before_the_others(
    at_hand: FrontierAtHand,
) -> None:
    await at_hand.acquire("a")
    await at_hand.admit("https://a.test/first")
    [first] = await at_hand.lease()
    await at_hand.frontier.settle([Settlement(first, Outcome.DONE)])
    await at_hand.frontier.admit(
        Candidate(f"https://a.test/{number}", priority=number % 2) for number in range(30)
    )
    before = [await at_hand.waiting("a.test", lane) for lane in range(3)]
    leases = await at_hand.lease(chain=20, chain_ms=10**9)
    assert len(leases) == 20

    at_hand.now_ms += 10_000
    hold = await at_hand.acquire("b")

    assert [await at_hand.waiting("a.test", lane) for lane in range(3)] == before
    assert hold.number == 21
    assert await at_hand.client.command("EXISTS", keys.leases(RUN, 0)) == 0
    assert (await at_hand.state("a.test"))["out"] == 0
    assert (await at_hand.count("waiting"), await at_hand.count("reclaimed")) == (30, 20)


async def test_each_domain_of_a_dead_owner_waits_its_own_full_delay(at_hand: FrontierAtHand) -> None:
    await at_hand.acquire("a")
    domains = ("default", "set", "quick", "robots", "parked")
    await at_hand.admit(*(f"https://{domain}.test/{number}" for domain in domains for number in range(3)))
    leases = {lease.domain: lease for lease in await at_hand.lease()}
    await at_hand.frontier.settle(
        [
            Settlement(leases["robots.test"], Outcome.DONE, delay_ms=7000),
            Settlement(leases["parked.test"], Outcome.RETRY, wait_ms=9_990, delay_ms=1000),
        ]
    )
    assert [lease.domain for lease in await at_hand.lease()] == ["robots.test"]

    at_hand.now_ms += 10_000
    assert await take(at_hand, "b", delays_ms={"set.test": 4000, "quick.test": 0})

    due_ms = {domain: await at_hand.due_ms(f"{domain}.test") for domain in domains}
    assert due_ms == {"default": 11_000, "set": 14_000, "quick": 10_000, "robots": 17_000, "parked": 9_990}


async def test_a_rest_longer_than_the_delay_outlives_the_owner(at_hand: FrontierAtHand) -> None:
    await at_hand.acquire("a")
    await at_hand.admit("https://a.test/first")
    [first] = await at_hand.lease()
    await at_hand.frontier.settle([Settlement(first, Outcome.DONE)])
    await at_hand.admit("https://a.test/1", "https://a.test/2")
    one, _ = await at_hand.lease(chain=2)
    await at_hand.frontier.settle([Settlement(one, Outcome.FAILED, wait_ms=60_000)])

    at_hand.now_ms += 10_000
    await at_hand.acquire("b")

    assert await at_hand.due_ms("a.test") == 60_000


async def test_a_new_owner_is_not_woken_but_looks_by_itself(at_hand: FrontierAtHand) -> None:
    await at_hand.acquire("a")
    await at_hand.lease()
    at_hand.now_ms += 10_000

    await at_hand.acquire("b")

    assert await at_hand.count("sleep") == 0


@pytest.mark.parametrize(("heir_of", "waits_ms"), [("", 31_000), ("a", 1000)], ids=["may live", "is dead"])
async def test_a_domain_waits_until_a_request_of_its_former_owner_must_have_ended(
    at_hand: FrontierAtHand, heir_of: str, waits_ms: int
) -> None:
    await at_hand.acquire("a")
    await at_hand.admit("https://a.test/")
    [_] = await at_hand.lease()
    at_hand.now_ms += 20_000

    await at_hand.frontier.acquire(
        0, "b", ttl_ms=10_000, delay_ms=1000, delays_ms={}, heir_of=[heir_of], flight_ms=30_000
    )

    assert await at_hand.due_ms("a.test") == 20_000 + waits_ms


async def test_a_domain_waits_no_longer_for_an_owner_that_was_silent_for_longer_than_answers_take(
    at_hand: FrontierAtHand,
) -> None:
    await at_hand.acquire("a")
    await at_hand.admit("https://a.test/")
    [_] = await at_hand.lease()
    at_hand.now_ms += 20_000

    hold = await at_hand.frontier.acquire(
        0, "b", ttl_ms=10_000, delay_ms=1000, delays_ms={}, flight_ms=30_000, silent_flight_ms=500
    )

    assert await at_hand.due_ms("a.test") == 20_000 + 1000 + 500
    assert isinstance(hold, Hold)
    assert hold.others_ms == 500


async def test_leases_of_a_dead_owner_of_a_parked_domain_wait_with_it(
    at_hand: FrontierAtHand,
) -> None:
    await at_hand.acquire("a")
    await at_hand.admit("https://a.test/0", "https://a.test/1", "https://b.test/0", "https://b.test/1")
    assert len(await at_hand.lease()) == 2
    await at_hand.park("a.test", ms=60_000)
    at_hand.now_ms += 10_000

    await at_hand.acquire("b")

    assert (await at_hand.due_ms("a.test"), await at_hand.due_ms("b.test")) == (None, 11_000)
    assert (await at_hand.count("waiting"), await at_hand.count("parked")) == (2, 2)
    assert await at_hand.count("reclaimed") == 2
    state = await at_hand.state("a.test")
    assert (state["out"], state["parked"]) == (0, "failures")
    assert await at_hand.waiting("a.test") == ["0 0 s/0", "0 0 s/1"]
    assert await at_hand.back_ms("a.test") == 60_000


async def test_with_another_server_newcomers_rest_too(at_hand: FrontierAtHand) -> None:
    """They may have been leased in what that server has lost."""
    await at_hand.acquire("a")
    await at_hand.admit("https://a.test/", "https://b.test/", "https://slow.test/")
    await at_hand.park("b.test")
    await at_hand.client.command("HSET", keys.meta(RUN, 0), "server", "another")

    await at_hand.frontier.acquire(
        0, "b", ttl_ms=10_000, delay_ms=1000, delays_ms={"slow.test": 9000}, heir_of=["a"], flight_ms=30_000
    )

    due = [await at_hand.due_ms(domain) for domain in ("a.test", "b.test", "slow.test")]
    assert due == [3000, None, 11_000]
