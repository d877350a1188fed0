"""settle_urls: every way a lease can end, counted once, with its page, and when its domain is due again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from crawlproj.errors import Fenced
from crawlproj.model.extra import Extra
from crawlproj.model.records import COOKIE_RETRY, Candidate, Lease, Outcome, Settlement
from crawlproj.redisio import keys

if TYPE_CHECKING:
    from tests.redis.conftest import FrontierAtHand

RUN = "web"
ENDS = [outcome for outcome in Outcome if outcome is not Outcome.PACED]
FOR_GOOD = [Outcome.DONE, Outcome.FAILED, Outcome.SKIPPED, Outcome.TRAPPED]


@pytest.fixture
async def owned(at_hand: FrontierAtHand) -> FrontierAtHand:
    await at_hand.acquire()
    return at_hand


async def chain_of(owned: FrontierAtHand, length: int, *, delay_ms: int = 0) -> list[Lease]:
    """Lend a chain of a.test, with as many URLs still waiting behind it."""
    await owned.admit("https://a.test/first")
    [first] = await owned.lease()
    await owned.frontier.settle([Settlement(first, Outcome.DONE, delay_ms=delay_ms)])
    await owned.admit(*(f"https://a.test/{number}" for number in range(2 * length)))
    leases = await owned.lease(chain=length, chain_ms=10**9)
    assert len(leases) == length
    return leases


async def figures(owned: FrontierAtHand) -> dict[str, int]:
    return {name: int(value) for name, value in (await owned.meta()).items() if name not in keys.META_FIELDS}


async def check_the_sums(owned: FrontierAtHand) -> None:
    """Every lease has a number and ends in one way; every URL admitted waits, is lent, or ended."""
    counts = await figures(owned)
    ended = sum(counts.get(outcome.value, 0) for outcome in ENDS) + counts.get("reclaimed", 0)
    leased = await owned.client.command("ZCARD", keys.leases(RUN, 0))
    finished = sum(counts.get(outcome.value, 0) for outcome in FOR_GOOD)
    assert counts.get("number", 0) - ended == leased
    assert counts["waiting"] + counts.get("parked", 0) + leased + finished == counts["admitted"]


@pytest.mark.parametrize(
    ("outcome", "state", "waits"),
    [
        (Outcome.DONE, {"fetched": 2, "delay": 700}, ["2", "3"]),
        (Outcome.FAILED, {"fetched": 2, "delay": 700}, ["2", "3"]),
        (Outcome.RETRY, {"fetched": 1, "delay": 700}, ["2", "3", "0"]),
        (Outcome.SKIPPED, {"fetched": 1, "delay": 50}, ["2", "3"]),
        (Outcome.TRAPPED, {"fetched": 1, "delay": 50}, ["2", "3"]),
        (Outcome.RETURNED, {"fetched": 1, "delay": 50}, ["0", "2", "3"]),
    ],
)
async def test_each_outcome_leaves_its_mark_on_domain_queue_and_counters(
    owned: FrontierAtHand, outcome: Outcome, state: dict[str, int], waits: list[str]
) -> None:
    lease, _ = await chain_of(owned, 2, delay_ms=50)
    before = await figures(owned)

    await owned.frontier.settle(
        [Settlement(lease, outcome, "because", wait_ms=300, delay_ms=700, fails=4, fetched_bytes=900)]
    )

    after = await figures(owned)
    always = {"out": 1, "admitted": 5, "next": owned.now_ms + 300, "fails": 4, "bytes": 900, "parked": "-"}
    assert await owned.state("a.test") == always | state
    assert [entry.rpartition("/")[2] for entry in await owned.waiting("a.test")] == waits
    assert after[outcome.value] == before.get(outcome.value, 0) + 1
    assert after["reason:because"] == 1
    assert after["waiting"] == len(waits)
    await check_the_sums(owned)


async def test_a_retry_waits_with_one_attempt_more_and_all_it_carried(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/x")
    [lease] = await owned.lease()
    lease.extra = Extra(request={"meta": {"a": 1}})

    await owned.frontier.settle([Settlement(lease, Outcome.RETRY)])
    [again] = await owned.lease()

    assert (again.url, again.attempt, again.extra) == (lease.url, 1, lease.extra)


async def test_a_retry_that_brings_a_cookie_is_the_next_of_its_lane(owned: FrontierAtHand) -> None:
    lease, _ = await chain_of(owned, 2)
    lease.extra = Extra(cookie="a=1")

    await owned.frontier.settle([Settlement(lease, Outcome.RETRY, COOKIE_RETRY)])

    first, *_ = await owned.waiting("a.test")
    assert first.endswith('/0 {"cookie":"a=1"}')
    assert (await figures(owned))["retry"] == 1
    await check_the_sums(owned)


async def test_a_retry_that_was_no_attempt_keeps_its_attempts(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/x")
    [lease] = await owned.lease()

    await owned.frontier.settle([Settlement(lease, Outcome.RETRY, is_attempt=False)])
    [again] = await owned.lease()

    assert (again.url, again.attempt) == (lease.url, 0)


async def test_failures_in_a_row_are_what_the_owner_says(owned: FrontierAtHand) -> None:
    leases = await chain_of(owned, 3)

    kept = []
    for lease, fails in zip(leases, (5, 0, 2), strict=True):
        await owned.frontier.settle([Settlement(lease, Outcome.FAILED, fails=fails)])
        kept.append((await owned.state("a.test"))["fails"])

    assert kept == [5, 0, 2]
    assert [lease.fails for lease in await owned.lease()] == [2]


@pytest.mark.parametrize("outcome", ENDS)
async def test_a_repeated_settlement_counts_once_and_queues_its_page_once(
    owned: FrontierAtHand, outcome: Outcome
) -> None:
    lease, _ = await chain_of(owned, 2)
    settlement = Settlement(lease, outcome, "because", wait_ms=300, page=b"page")
    await owned.frontier.settle([settlement])
    before = (await owned.meta(), await owned.state("a.test"), await owned.waiting("a.test"))

    owned.now_ms += 100
    await owned.frontier.settle([settlement, settlement])

    assert (await owned.meta(), await owned.state("a.test"), await owned.waiting("a.test")) == before
    assert await owned.client.command("LRANGE", keys.pages(RUN), 0, -1) == [b"page"]
    assert await owned.count("pages") == 1


@pytest.mark.parametrize("second", Outcome)
async def test_of_two_settlements_of_one_lease_in_a_batch_the_first_counts(
    owned: FrontierAtHand, second: Outcome
) -> None:
    lease, _ = await chain_of(owned, 2)
    before = await figures(owned)

    await owned.frontier.settle(
        [
            Settlement(lease, Outcome.DONE, page=b"page", delay_ms=50, fetched_bytes=900),
            Settlement(lease, second, "because", wait_ms=300, delay_ms=700, fails=4, page=b"again"),
        ]
    )

    after = await figures(owned)
    assert {name: after[name] - before.get(name, 0) for name in after if after[name] != before.get(name)} == {
        "done": 1,
        "pages": 1,
        "bytes": 900,
    }
    state = await owned.state("a.test")
    assert [state[name] for name in ("next", "out", "fails", "delay", "bytes")] == [
        owned.now_ms,
        1,
        0,
        50,
        900,
    ]
    assert await owned.client.command("LRANGE", keys.pages(RUN), 0, -1) == [b"page"]
    assert len(await owned.waiting("a.test")) == 2
    await check_the_sums(owned)


async def test_pages_are_pushed_in_the_order_of_settlement_and_only_where_there_is_one(
    owned: FrontierAtHand,
) -> None:
    leases = await chain_of(owned, 3)
    pages = [b"\x00one\xff", b"", b"two"]

    await owned.frontier.settle(
        Settlement(lease, Outcome.DONE, page=page) for lease, page in zip(leases, pages, strict=True)
    )

    assert await owned.client.command("LRANGE", keys.pages(RUN), 0, -1) == [b"\x00one\xff", b"two"]


async def test_a_domain_is_ready_again_only_when_all_its_leases_ended(owned: FrontierAtHand) -> None:
    first, second, third = await chain_of(owned, 3)

    await owned.frontier.settle([Settlement(second, Outcome.DONE, wait_ms=100)])
    assert await owned.due_ms("a.test") is None
    await owned.frontier.settle([Settlement(first, Outcome.RETRY, wait_ms=100)])
    assert await owned.due_ms("a.test") is None
    await owned.frontier.settle([Settlement(third, Outcome.RETURNED, wait_ms=100)])

    assert await owned.due_ms("a.test") == 100


async def test_a_domain_is_due_at_the_latest_time_any_of_its_leases_said(owned: FrontierAtHand) -> None:
    first, second, third = await chain_of(owned, 3)

    await owned.frontier.settle(
        Settlement(lease, Outcome.DONE, wait_ms=wait_ms)
        for lease, wait_ms in ((first, 100), (second, 5000), (third, 0))
    )

    assert await owned.due_ms("a.test") == 5000


async def test_a_domain_without_urls_is_not_ready_and_its_rest_is_remembered(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/")
    [lease] = await owned.lease()

    answer = await owned.frontier.settle([Settlement(lease, Outcome.DONE, wait_ms=4000)])

    assert answer == ({0: -1}, {})
    assert await owned.due_ms("a.test") is None
    assert (await owned.state("a.test"))["next"] == owned.now_ms + 4000


async def test_the_answer_says_when_the_next_domain_is_due(owned: FrontierAtHand) -> None:
    leases = await chain_of(owned, 1)

    answer = await owned.frontier.settle([Settlement(leases[0], Outcome.DONE, wait_ms=250)])

    assert answer == ({0: 250}, {})


async def test_returning_a_chain_last_first_restores_its_order(owned: FrontierAtHand) -> None:
    before = [f"0 0 s/{number}" for number in range(8)]
    leases = await chain_of(owned, 4)

    await owned.frontier.settle(Settlement(lease, Outcome.RETURNED) for lease in reversed(leases))

    assert await owned.waiting("a.test") == before
    await check_the_sums(owned)


async def test_a_lease_returns_to_its_own_lane(owned: FrontierAtHand) -> None:
    await owned.frontier.admit([Candidate("https://a.test/", priority=9)])
    [lease] = await owned.lease()

    await owned.frontier.settle([Settlement(lease, Outcome.RETURNED)])

    assert await owned.waiting("a.test", 0) == ["0 0 s/"]


async def test_pacing_notes_the_delay_and_closes_nothing(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/")
    [lease] = await owned.lease()

    await owned.frontier.settle([Settlement(lease, Outcome.PACED, delay_ms=9000)])

    assert (await owned.state("a.test"))["delay"] == 9000
    assert (await owned.state("a.test"))["out"] == 1
    assert await owned.client.command("ZCARD", keys.leases(RUN, 0)) == 1
    await check_the_sums(owned)


async def test_pacing_a_lease_that_ended_does_nothing(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/")
    [lease] = await owned.lease()
    await owned.frontier.settle([Settlement(lease, Outcome.DONE)])
    before = (await owned.meta(), await owned.state("a.test"))

    await owned.frontier.settle([Settlement(lease, Outcome.PACED, delay_ms=9000)])

    assert (await owned.meta(), await owned.state("a.test")) == before


async def test_the_sums_hold_over_a_mixed_batch(owned: FrontierAtHand) -> None:
    leases = await chain_of(owned, 10)

    await owned.frontier.settle(
        Settlement(lease, outcome) for lease, outcome in zip(leases, ENDS, strict=False)
    )

    await check_the_sums(owned)
    assert (await owned.state("a.test"))["out"] == 10 - len(ENDS)


async def test_an_owner_replaced_settles_nothing_and_pushes_no_page(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/")
    [lease] = await owned.lease()
    owned.now_ms += 20_000
    await owned.acquire("b")
    before = (await owned.meta(), await owned.state("a.test"))

    with pytest.raises(Fenced):
        await owned.frontier.settle([Settlement(lease, Outcome.DONE, page=b"page")])

    assert (await owned.meta(), await owned.state("a.test")) == before
    assert await owned.client.command("LLEN", keys.pages(RUN)) == 0


async def test_settling_nothing_asks_redis_nothing(at_hand: FrontierAtHand) -> None:
    assert await at_hand.frontier.settle([]) == ({}, {})


async def test_batches_larger_than_one_command_are_leased_and_settled_whole(
    owned: FrontierAtHand,
) -> None:
    urls = [f"https://site{number}.test/{page}" for number in range(2500) for page in range(2)]
    await owned.admit(*urls)

    leases = await owned.lease(5000)
    await owned.frontier.settle(Settlement(lease, Outcome.DONE, page=b"page") for lease in leases)

    assert len({lease.domain for lease in leases}) == len(leases) == 2500
    assert await owned.client.command("LLEN", keys.pages(RUN)) == 2500
    assert await owned.client.command("ZCARD", keys.leases(RUN, 0)) == 0
    assert len(await owned.lease(5000)) == 2500


# -- bytes --


async def test_bytes_add_up_beyond_what_a_float_could_show_and_are_counted_once(
    owned: FrontierAtHand,
) -> None:
    leases = await chain_of(owned, 3)
    settlements = [Settlement(lease, Outcome.DONE, fetched_bytes=5 * 10**14 + 1) for lease in leases]

    await owned.frontier.settle(settlements)
    await owned.frontier.settle(settlements)

    assert (await owned.state("a.test"))["bytes"] == 15 * 10**14 + 3


async def test_a_domain_that_gave_all_its_bytes_is_named_until_it_is_parked(
    make_at_hand: Callable[..., FrontierAtHand],
) -> None:
    owned = make_at_hand(domain_bytes=1000)
    await owned.acquire()
    leases = await chain_of(owned, 4)

    spent = []
    for lease, size in zip(leases, (999, 1, 0, 0), strict=True):
        if lease is leases[3]:
            await owned.park("a.test", "byte_budget", -1)
        answer = await owned.frontier.settle([Settlement(lease, Outcome.DONE, fetched_bytes=size)])
        spent.append(answer[1])

    assert spent == [{}, {0: ["a.test"]}, {0: ["a.test"]}, {}]


async def test_without_a_budget_no_domain_gave_too_much(owned: FrontierAtHand) -> None:
    [lease] = await chain_of(owned, 1)

    answer = await owned.frontier.settle([Settlement(lease, Outcome.DONE, fetched_bytes=10**12)])

    assert answer[1] == {}


async def test_each_domain_of_a_batch_that_spent_its_bytes_is_named_once(
    make_at_hand: Callable[..., FrontierAtHand],
) -> None:
    owned = make_at_hand(domain_bytes=10)
    await owned.acquire()
    await owned.admit(*(f"https://d{number}.test/" for number in range(4)))
    leases = await owned.lease()

    _, spent = await owned.frontier.settle(
        Settlement(lease, Outcome.DONE, fetched_bytes=20 if lease.domain in ("d1.test", "d3.test") else 9)
        for lease in leases
    )

    assert sorted(spent[0]) == ["d1.test", "d3.test"]


# -- traps --


async def test_a_trapped_url_is_listed_with_all_that_is_needed_to_release_it(owned: FrontierAtHand) -> None:
    await owned.frontier.admit(
        [Candidate("http://www.a.test/cal?d=1", depth=3, priority=-1, extra=Extra(hops=1))]
    )
    [lease] = await owned.lease()

    await owned.frontier.settle([Settlement(lease, Outcome.TRAPPED, "trap_variants", page=b"row")])

    assert await owned.trapped() == [f"trap_variants 2 a.test {lease.token.decode().split(' ', 3)[3]}"]
    assert await owned.client.command("LRANGE", keys.pages(RUN), 0, -1) == [b"row"]
    await check_the_sums(owned)


async def test_of_trapped_urls_the_oldest_make_room(make_at_hand: Callable[..., FrontierAtHand]) -> None:
    owned = make_at_hand(trapped_urls=3)
    await owned.acquire()
    leases = await chain_of(owned, 6)

    for batch in (leases[:2], leases[2:4], leases[4:]):
        owned.now_ms += 1000
        await owned.frontier.settle(Settlement(lease, Outcome.TRAPPED, "trap_shape") for lease in batch)

    kept = [member.rpartition("/")[2] for member in await owned.trapped()]
    assert kept == ["3", "4", "5"]
    assert await owned.count("trapped") == 6
    await check_the_sums(owned)


# -- parked domains --


@pytest.mark.parametrize("outcome", ENDS)
@pytest.mark.parametrize("order", ["parked first", "one before", "both before"])
async def test_what_waits_of_a_domain_parked_meanwhile_is_counted_as_parked(
    owned: FrontierAtHand, outcome: Outcome, order: str
) -> None:
    one, other = await chain_of(owned, 2)
    settled_before = {"parked first": 0, "one before": 1, "both before": 2}[order]
    settlements = [Settlement(one, outcome, wait_ms=100), Settlement(other, outcome, wait_ms=200)]

    await owned.frontier.settle(settlements[:settled_before])
    await owned.park("a.test")
    await owned.frontier.settle(settlements[settled_before:])

    waits = len(await owned.waiting("a.test"))
    assert waits == (4 if outcome in (Outcome.RETRY, Outcome.RETURNED) else 2)
    assert (await owned.count("waiting"), await owned.count("parked")) == (0, waits)
    assert await owned.due_ms("a.test") is None
    assert (await owned.state("a.test"))["out"] == 0
    await check_the_sums(owned)


async def test_a_batch_over_a_parked_and_another_domain_counts_each_as_it_is(owned: FrontierAtHand) -> None:
    for domain in ("a", "b"):
        await owned.admit(*(f"https://{domain}.test/{number}" for number in range(3)))
    one, other = sorted(await owned.lease(), key=lambda lease: lease.domain)
    await owned.park("a.test")

    answer = await owned.frontier.settle(
        [Settlement(one, Outcome.RETRY), Settlement(other, Outcome.RETURNED, wait_ms=70)]
    )

    assert answer == ({0: 70}, {})
    assert (await owned.count("waiting"), await owned.count("parked")) == (3, 3)
    assert (await owned.due_ms("a.test"), await owned.due_ms("b.test")) == (None, 70)
    await check_the_sums(owned)


async def test_a_domain_released_during_a_lease_is_ready_when_that_ends(
    owned: FrontierAtHand,
) -> None:
    one, other = await chain_of(owned, 2)
    await owned.park("a.test")
    await owned.frontier.settle([Settlement(one, Outcome.RETURNED)])
    await owned.unpark("a.test")
    assert await owned.due_ms("a.test") is None

    await owned.frontier.settle([Settlement(other, Outcome.RETRY, wait_ms=300)])

    assert await owned.due_ms("a.test") == 300
    assert (await owned.count("waiting"), await owned.count("parked")) == (4, 0)
    await check_the_sums(owned)
