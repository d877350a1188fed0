"""settle_urls: every way a lease can end, counted once, with its page, and when its domain is due again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from crawlproj.errors import Fenced
from crawlproj.model.records import Candidate, Lease, Outcome, Settlement
from crawlproj.redisio import keys

if TYPE_CHECKING:
    from tests.redis.conftest import FrontierAtHand

RUN = "web"
ENDS = [outcome for outcome in Outcome if outcome is not Outcome.PACED]


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
    return {
        name: int(value) for name, value in (await owned.meta()).items() if name not in {"owner", "sleep"}
    }


async def check_the_sums(owned: FrontierAtHand) -> None:
    """Every lease has a number and ends in one way; every URL admitted waits, is lent, or ended."""
    counts = await figures(owned)
    ended = sum(counts.get(outcome.value, 0) for outcome in ENDS) + counts.get("reclaimed", 0)
    leased = await owned.door.command("ZCARD", keys.leases(RUN, 0))
    finished = counts.get("done", 0) + counts.get("failed", 0) + counts.get("skipped", 0)
    assert counts.get("number", 0) - ended == leased
    assert counts["waiting"] + leased + finished == counts["admitted"]


@pytest.mark.parametrize(
    ("outcome", "state", "waits"),
    [
        (Outcome.DONE, {"fails": 0, "fetched": 2, "delay": 700}, ["2", "3"]),
        (Outcome.FAILED, {"fails": 1, "fetched": 2, "delay": 700}, ["2", "3"]),
        (Outcome.RETRY, {"fails": 1, "fetched": 1, "delay": 700}, ["2", "3", "0"]),
        (Outcome.SKIPPED, {"fails": 0, "fetched": 1, "delay": 50}, ["2", "3"]),
        (Outcome.RETURNED, {"fails": 0, "fetched": 1, "delay": 50}, ["0", "2", "3"]),
    ],
)
async def test_each_outcome_leaves_its_mark_on_domain_queue_and_counters(
    owned: FrontierAtHand, outcome: Outcome, state: dict[str, int], waits: list[str]
) -> None:
    lease, _ = await chain_of(owned, 2, delay_ms=50)
    before = await figures(owned)

    await owned.frontier.settle([Settlement(lease, outcome, "because", wait_ms=300, delay_ms=700)])

    after = await figures(owned)
    assert await owned.state("a.test") == {"out": 1, "admitted": 5, "next": owned.now_ms + 300} | state
    assert [entry.rpartition("/")[2] for entry in await owned.waiting("a.test")] == waits
    assert after[outcome.value] == before.get(outcome.value, 0) + 1
    assert after["reason:because"] == 1
    assert after["waiting"] == len(waits)
    await check_the_sums(owned)


async def test_a_retry_waits_with_one_attempt_more_and_all_it_carried(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/x")
    [lease] = await owned.lease()
    lease.extra = '{"meta":{"a":1}}'

    await owned.frontier.settle([Settlement(lease, Outcome.RETRY)])
    [again] = await owned.lease()

    assert (again.url, again.attempt, again.extra) == (lease.url, 1, '{"meta":{"a":1}}')


async def test_success_ends_a_row_of_failures(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/x")
    for expected in (1, 2, 3):
        [lease] = await owned.lease()
        await owned.frontier.settle([Settlement(lease, Outcome.RETRY)])
        assert (await owned.state("a.test"))["fails"] == expected

    [lease] = await owned.lease()
    await owned.frontier.settle([Settlement(lease, Outcome.DONE)])

    assert (await owned.state("a.test"))["fails"] == 0


@pytest.mark.parametrize("outcome", ENDS)
async def test_a_settlement_repeated_counts_once_and_hands_on_its_page_once(
    owned: FrontierAtHand, outcome: Outcome
) -> None:
    lease, _ = await chain_of(owned, 2)
    settlement = Settlement(lease, outcome, "because", wait_ms=300, page=b"page")
    await owned.frontier.settle([settlement])
    before = (await owned.meta(), await owned.state("a.test"), await owned.waiting("a.test"))

    owned.now_ms += 100
    await owned.frontier.settle([settlement, settlement])

    assert (await owned.meta(), await owned.state("a.test"), await owned.waiting("a.test")) == before
    assert await owned.door.command("LRANGE", keys.pages(RUN), 0, -1) == [b"page"]
    assert await owned.count("pages") == 1


async def test_pages_are_pushed_in_the_order_of_settlement_and_only_where_there_is_one(
    owned: FrontierAtHand,
) -> None:
    leases = await chain_of(owned, 3)
    pages = [b"\x00one\xff", b"", b"two"]

    await owned.frontier.settle(
        Settlement(lease, Outcome.DONE, page=page) for lease, page in zip(leases, pages, strict=True)
    )

    assert await owned.door.command("LRANGE", keys.pages(RUN), 0, -1) == [b"\x00one\xff", b"two"]


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

    due_in_ms = await owned.frontier.settle([Settlement(lease, Outcome.DONE, wait_ms=4000)])

    assert due_in_ms == {0: -1}
    assert await owned.due_ms("a.test") is None
    assert (await owned.state("a.test"))["next"] == owned.now_ms + 4000


async def test_the_answer_tells_when_the_next_domain_is_due(owned: FrontierAtHand) -> None:
    leases = await chain_of(owned, 1)

    assert await owned.frontier.settle([Settlement(leases[0], Outcome.DONE, wait_ms=250)]) == {0: 250}


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
    assert await owned.door.command("ZCARD", keys.leases(RUN, 0)) == 1
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
    assert (await owned.state("a.test"))["out"] == 5


async def test_an_owner_replaced_settles_nothing_and_pushes_no_page(owned: FrontierAtHand) -> None:
    await owned.admit("https://a.test/")
    [lease] = await owned.lease()
    owned.now_ms += 20_000
    await owned.acquire("b")
    before = (await owned.meta(), await owned.state("a.test"))

    with pytest.raises(Fenced):
        await owned.frontier.settle([Settlement(lease, Outcome.DONE, page=b"page")])

    assert (await owned.meta(), await owned.state("a.test")) == before
    assert await owned.door.command("LLEN", keys.pages(RUN)) == 0


async def test_settling_nothing_asks_redis_nothing(at_hand: FrontierAtHand) -> None:
    assert await at_hand.frontier.settle([]) == {}


async def test_batches_beyond_what_one_command_takes_are_lent_and_settled_whole(
    owned: FrontierAtHand,
) -> None:
    urls = [f"https://site{number}.test/{page}" for number in range(2500) for page in range(2)]
    await owned.admit(*urls)

    leases = await owned.lease(5000)
    await owned.frontier.settle(Settlement(lease, Outcome.DONE, page=b"page") for lease in leases)

    assert len({lease.domain for lease in leases}) == len(leases) == 2500
    assert await owned.door.command("LLEN", keys.pages(RUN)) == 2500
    assert await owned.door.command("ZCARD", keys.leases(RUN, 0)) == 0
    assert len(await owned.lease(5000)) == 2500
