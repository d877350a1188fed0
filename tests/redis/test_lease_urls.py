"""lease_urls: only domains due now or soon, one chain of each, repeated when the answer was lost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from crawlproj.errors import Fenced
from crawlproj.frontier.frontier import Hold
from crawlproj.model.extra import Extra
from crawlproj.model.records import Candidate, Outcome, Settlement
from crawlproj.redisio import keys

if TYPE_CHECKING:
    from tests.redis.conftest import FrontierAtHand

RUN = "web"


@pytest.fixture
async def owned(at_hand: FrontierAtHand) -> FrontierAtHand:
    await at_hand.acquire()
    return at_hand


async def fetched_once(owned: FrontierAtHand, *domains: str, delay_ms: int = 0) -> None:
    """Have each domain fetched successfully once, so that it may be lent in chains."""
    await owned.admit(*(f"https://{domain}/first" for domain in domains))
    leases = await owned.lease()
    await owned.frontier.settle(Settlement(lease, Outcome.DONE, delay_ms=delay_ms) for lease in leases)


async def test_with_nothing_waiting_nothing_is_leased(owned: FrontierAtHand) -> None:
    assert await owned.frontier.lease([(owned.hold, 10)], chain=8, chain_ms=1000) == ([], {0: -1})


async def test_only_due_domains_are_leased_the_longest_due_first(owned: FrontierAtHand) -> None:
    for wait_ms, name in ((2000, "b"), (1000, "a"), (3000, "c")):
        await owned.admit(f"https://{name}.test/1", f"https://{name}.test/2")
        [lease] = await owned.lease()
        await owned.frontier.settle([Settlement(lease, Outcome.DONE, wait_ms=wait_ms)])

    assert await owned.lease() == []

    owned.now_ms += 999
    assert await owned.lease() == []

    owned.now_ms += 1001
    assert [lease.domain for lease in await owned.lease()] == ["a.test", "b.test"]


async def test_domains_due_soon_are_leased_with_how_long_they_have_to_wait(
    owned: FrontierAtHand,
) -> None:
    for wait_ms, name in ((50, "a"), (100, "b"), (101, "c")):
        await owned.admit(f"https://{name}.test/1", f"https://{name}.test/2")
        [lease] = await owned.lease()
        await owned.frontier.settle([Settlement(lease, Outcome.DONE, wait_ms=wait_ms)])

    leases, due_in_ms = await owned.frontier.lease([(owned.hold, 10)], chain=1, chain_ms=1000, ahead_ms=100)

    assert [(lease.domain, lease.wait_ms) for lease in leases] == [("a.test", 50), ("b.test", 100)]
    assert due_in_ms == {0: 101}


async def test_a_lease_returned_again_says_how_long_its_domain_still_has_to_wait(
    owned: FrontierAtHand,
) -> None:
    await owned.admit("https://a.test/1", "https://a.test/2")
    [lease] = await owned.lease()
    await owned.frontier.settle([Settlement(lease, Outcome.DONE, wait_ms=80)])
    lost = Hold(0, owned.hold.epoch, owned.hold.number)
    await owned.frontier.lease([(lost, 10)], chain=1, chain_ms=1000, ahead_ms=100)
    owned.now_ms += 30

    [again] = await owned.lease()

    assert again.wait_ms == 50


async def test_the_answer_says_when_the_next_domain_is_due(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/1", "https://a.test/2")
    [lease] = await owned.lease()
    await owned.frontier.settle([Settlement(lease, Outcome.DONE, wait_ms=1500)])
    owned.now_ms += 300

    _, due_in_ms = await owned.frontier.lease([(owned.hold, 10)], chain=8, chain_ms=1000)

    assert due_in_ms == {0: 1200}


async def test_a_domain_never_fetched_gets_one_lease(owned: FrontierAtHand) -> None:
    await owned.admit(*(f"https://a.test/{number}" for number in range(5)))

    assert len(await owned.lease(chain=8)) == 1


async def test_a_fetched_domain_gets_a_chain_in_order(owned: FrontierAtHand) -> None:
    await fetched_once(owned, "a.test")
    await owned.admit(*(f"https://a.test/{number}" for number in range(20)))

    leases = await owned.lease(chain=8)

    assert [lease.url for lease in leases] == [f"https://a.test/{number}" for number in range(8)]
    assert (await owned.state("a.test"))["out"] == 8


@pytest.mark.parametrize(
    ("behind", "sizes"), [(0, [1, 1, 1]), (1, [1, 1, 2]), (5, [1, 3, 4]), (99, [4, 4, 4])]
)
async def test_every_domain_gets_one_lease_and_the_partition_a_limited_number_behind_them(
    owned: FrontierAtHand, behind: int, sizes: list[int]
) -> None:
    domains = ("a.test", "b.test", "c.test")
    await fetched_once(owned, *domains)
    await owned.admit(*(f"https://{domain}/{number}" for domain in domains for number in range(9)))

    leases, _ = await owned.frontier.lease([(owned.hold, 50)], chain=4, chain_ms=1000, behind=behind)

    assert sorted(Counter(lease.domain for lease in leases).values()) == sizes


@pytest.mark.parametrize(("delay_ms", "expected"), [(100, 8), (500, 4), (1999, 1), (2000, 1), (60_000, 1)])
async def test_a_chain_takes_no_longer_than_it_may(
    owned: FrontierAtHand, delay_ms: int, expected: int
) -> None:
    await fetched_once(owned, "a.test", delay_ms=delay_ms)
    await owned.admit(*(f"https://a.test/{number}" for number in range(20)))

    leases = await owned.lease(chain=8, chain_ms=2000)

    assert [lease.delay_ms for lease in leases] == [delay_ms] * expected


async def test_a_failing_domain_gets_one_lease_with_its_failures(owned: FrontierAtHand) -> None:
    await fetched_once(owned, "a.test")
    await owned.admit(*(f"https://a.test/{number}" for number in range(20)))
    leases = await owned.lease(chain=2)
    await owned.frontier.settle(
        Settlement(lease, Outcome.RETRY, fails=fails) for fails, lease in enumerate(leases, 1)
    )

    assert [lease.fails for lease in await owned.lease(chain=8)] == [2]


async def test_a_lease_says_how_many_pages_its_domain_gave(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/1", "https://a.test/2")
    [first] = await owned.lease()
    await owned.frontier.settle([Settlement(first, Outcome.DONE)])

    [second] = await owned.lease()

    assert (first.fetched, second.fetched) == (0, 1)


async def test_higher_priorities_go_first_also_within_a_chain(owned: FrontierAtHand) -> None:
    await fetched_once(owned, "a.test")
    await owned.frontier.admit(
        Candidate(f"https://a.test/{number}", priority=priority)
        for number, priority in enumerate([-1, 0, 1, -1, 0, 1])
    )

    leases = await owned.lease(chain=5)

    assert [lease.url[-1] for lease in leases] == list("25140")
    assert [lease.lane for lease in leases] == [0, 0, 1, 1, 2]


async def test_no_more_are_leased_than_wanted(owned: FrontierAtHand) -> None:
    await fetched_once(owned, *(f"d{number}.test" for number in range(10)))
    await owned.admit(*(f"https://d{number}.test/{path}" for number in range(10) for path in range(10)))

    assert len(await owned.lease(13, chain=4)) == 13
    assert await owned.lease(0, chain=4) == []


async def test_a_domain_checked_out_is_not_leased_again(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/1", "https://a.test/2")
    await owned.lease()

    owned.now_ms += 10**9

    assert await owned.lease() == []


async def test_leases_whose_answer_was_lost_are_returned_again(owned: FrontierAtHand) -> None:
    await owned.admit(*(f"https://d{number}.test/" for number in range(5)))
    known = await owned.lease(1)
    before = owned.hold.number
    lost = await owned.lease(3)
    owned.hold.number = before

    again = await owned.lease(100)

    assert [lease.token for lease in again[:3]] == [lease.token for lease in lost]
    assert len(again) == 4
    assert {lease.url for lease in again} & {lease.url for lease in known} == set()
    assert await owned.count("number") == 5


async def test_leases_returned_again_count_as_wanted(owned: FrontierAtHand) -> None:
    await owned.admit(*(f"https://d{number}.test/" for number in range(5)))
    lost = await owned.lease(3)
    owned.hold.number = 0

    again = await owned.lease(2)

    assert [lease.token for lease in again] == [lease.token for lease in lost]


async def test_a_lease_settled_meanwhile_is_not_returned_again(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/", "https://b.test/")
    first, second = await owned.lease()
    await owned.frontier.settle([Settlement(first, Outcome.DONE)])
    owned.hold.number = 0

    assert [lease.token for lease in await owned.lease()] == [second.token]


async def test_an_epoch_that_is_over_is_refused_and_takes_nothing(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/")
    old = owned.hold
    owned.now_ms += 20_000
    await owned.acquire("b")
    before = await owned.meta()

    with pytest.raises(Fenced):
        await owned.frontier.lease([(old, 10)], chain=1, chain_ms=1000)

    assert await owned.meta() == before
    assert len(await owned.lease()) == 1


async def test_a_partition_never_owned_leases_nothing(at_hand: FrontierAtHand) -> None:
    await at_hand.admit("https://a.test/")

    with pytest.raises(Fenced):
        await at_hand.frontier.lease([(Hold(0, 0, 0), 10)], chain=1, chain_ms=1000)


async def test_thousands_of_leases_fit_into_one_call(owned: FrontierAtHand) -> None:
    await owned.admit(*(f"https://d{number}.test/" for number in range(9000)))

    assert len(await owned.lease(9000)) == 9000
    assert await owned.client.command("ZCARD", keys.leases(RUN, 0)) == 9000


async def test_a_lease_brings_back_all_that_was_admitted(owned: FrontierAtHand) -> None:
    extra = Extra(request={"method": "POST", "meta": {"q": "a b  c"}, "body": {"$bytes": "AAE="}})
    await owned.frontier.admit([Candidate("https://sub.a.test:8443/p?q=1", depth=7, extra=extra)])

    [lease] = await owned.lease()

    assert (lease.url, lease.depth, lease.attempt, lease.extra) == (
        "https://sub.a.test:8443/p?q=1",
        7,
        0,
        extra,
    )
    assert (lease.partition, lease.epoch, lease.number, lease.domain) == (0, owned.hold.epoch, 1, "a.test")


async def test_newcomers_and_others_are_leased_by_how_long_they_have_waited(owned: FrontierAtHand) -> None:
    await fetched_once(owned, "second.test", "fourth.test")
    start_ms = owned.now_ms
    for at_ms, name in ((0, "first"), (10, "second"), (20, "third"), (30, "fourth"), (40, "fifth")):
        owned.now_ms = start_ms + at_ms
        await owned.admit(f"https://{name}.test/")

    one_by_one = [lease.domain for _ in range(6) for lease in await owned.lease(1)]

    assert one_by_one == [f"{name}.test" for name in ("first", "second", "third", "fourth", "fifth")]
    assert await owned.client.command("EXISTS", keys.newcomers(RUN, 0)) == 0


@pytest.mark.parametrize("is_released", [False, True])
async def test_a_newcomer_that_was_parked_is_leased_once_and_only_when_it_may(
    owned: FrontierAtHand, is_released: bool
) -> None:
    await owned.admit("https://a.test/", "https://b.test/")
    await owned.park("a.test")
    if is_released:
        await owned.unpark("a.test")
        assert await owned.due_ms("a.test") == 0

    domains = [lease.domain for lease in await owned.lease()]

    assert sorted(domains) == ["a.test", "b.test"][not is_released :]
    assert await owned.lease() == []
    assert (await owned.frontier.renew([owned.hold], 10_000))[0] == {0: -1}


async def test_a_domain_keeps_its_order_however_many_urls_it_has(owned: FrontierAtHand) -> None:
    await fetched_once(owned, "a.test")
    urls = [f"https://a.test/{number:0100}" for number in range(7)]
    leased = []
    # Two are kept with its state, three are not; then again.
    for count in (2, 3, 2):
        await owned.admit(*urls[:count])
        del urls[:count]
        [lease] = await owned.lease()
        leased.append(lease.url)
        await owned.frontier.settle([Settlement(lease, Outcome.RETURNED)])

    leased += [lease.url for lease in await owned.lease(chain=10, chain_ms=10**6)]

    assert [int(url[-1]) for url in leased] == [0, 0, 0, *range(7)]


async def test_while_there_are_newcomers_one_is_due(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/", "https://b.test/", "https://c.test/")

    [lease], due_in_ms = await owned.frontier.lease([(owned.hold, 1)], chain=1, chain_ms=0)
    after, _ = await owned.frontier.settle([Settlement(lease, Outcome.DONE, wait_ms=1000)])

    assert (due_in_ms, after) == ({0: 0}, {0: 0})
    assert await owned.count("sleep") == owned.now_ms
