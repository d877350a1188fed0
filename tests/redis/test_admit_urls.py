"""admit_urls: exact deduplication at any size, order, lanes, budget, readiness and wakes."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from crawlproj.frontier.batches import Admitted
from crawlproj.model.records import Candidate, Outcome, Settlement, new_mark
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from tests.waiting import due_of

if TYPE_CHECKING:
    from tests.redis.conftest import FrontierAtHand

RUN = "web"


async def admit_marks(at_hand: FrontierAtHand, marks: list[int]) -> Admitted:
    counts: Counter[str] = Counter()
    # In parts that a loaded machine answers in time: a call that is repeated counts its URLs as seen.
    for start in range(0, len(marks), 5_000):
        admitted = await at_hand.frontier.admit(
            Candidate(f"https://d{number % 50}.test/{number}", mark=mark)
            for number, mark in enumerate(marks[start : start + 5_000])
        )
        counts.update(asdict(admitted))
    return Admitted(**counts)


async def seen_buckets(client: RedisClient) -> list[str]:
    found: list[str] = []
    cursor: bytes | int = b"0"
    while True:
        cursor, names = await client.command(
            "SCAN", cursor, "MATCH", keys.seen_prefix(RUN, 0) + "*", "COUNT", 1000
        )
        found += (name.decode() for name in names)
        if cursor in (b"0", 0):
            return found


@pytest.fixture
async def wakes(client: RedisClient, at_hand: FrontierAtHand) -> AsyncIterator[Callable[[], list[bytes]]]:
    """What was published to the owners so far, read in the order Redis sent it."""
    async with client.subscribe(keys.wake_channel(RUN)) as messages:
        await anext(messages)

        async def heard() -> list[bytes]:
            await client.command("PUBLISH", keys.wake_channel(RUN), "end")
            words: list[bytes] = []
            async for message in messages:
                if message is None:
                    continue
                if message[1] == b"end":
                    return words
                words.append(message[1])
            raise AssertionError("the subscription ended")

        yield heard


async def test_deduplication_is_exact_and_compact_over_a_hundred_thousand_urls(
    client: RedisClient, at_hand: FrontierAtHand
) -> None:
    chance = random.Random(7)
    marks = [chance.getrandbits(63) for _ in range(100_000)]
    half = len(marks) // 2

    first = await admit_marks(at_hand, marks[:half])
    again = await admit_marks(at_hand, chance.sample(marks[:half], half))
    mixed = marks[half - 10_000 :]
    chance.shuffle(mixed)
    second = await admit_marks(at_hand, mixed)

    assert (first.new, again.new, second.new) == (half, 0, half)
    assert (again.seen, second.seen) == (half, 10_000)

    buckets = await seen_buckets(client)
    facts = await client.pipeline(
        [
            (*command, bucket)
            for bucket in buckets
            for command in (("OBJECT", "ENCODING"), ("SCARD",), ("MEMORY", "USAGE"))
        ]
    )
    encodings, sizes, usages = facts[::3], facts[1::3], facts[2::3]
    assert set(encodings) == {b"intset"}
    assert sum(sizes) == len(marks)
    assert max(sizes) <= 512
    assert sum(usages) / len(marks) <= 16


async def test_every_mark_is_in_exactly_one_bucket_at_every_size(
    client: RedisClient, at_hand: FrontierAtHand
) -> None:
    chance = random.Random(8)
    marks: set[int] = set()

    for size in (1, 199, 200, 201, 399, 400, 401, 800, 1601, 3200):
        more = [chance.getrandbits(63) for _ in range(size - len(marks))]
        marks.update(more)
        await admit_marks(at_hand, more)
        stored = [
            int(mark)
            for bucket in await seen_buckets(client)
            for mark in await client.command("SMEMBERS", bucket)
        ]

        assert sorted(stored) == sorted(marks)
        assert (await admit_marks(at_hand, list(marks))).new == 0


async def test_a_bucket_filled_on_purpose_is_split_all_the_same(at_hand: FrontierAtHand) -> None:
    # All in bucket 0 for as long as there are 64 buckets, then all of them in the 65th.
    marks = [64 + 128 * number for number in range(13_000)]

    admitted = await admit_marks(at_hand, marks)
    again = await admit_marks(at_hand, marks)

    assert (admitted.new, again.new) == (13_000, 0)


async def test_small_and_large_fingerprints_are_kept_apart(at_hand: FrontierAtHand) -> None:
    marks = [0, 1, 9, 10**9, 10**9 + 1, 2 * 10**9, 2**53, 2**53 + 1, 2**63 - 1, 2**63 - 2]

    assert (await admit_marks(at_hand, marks)).new == len(marks)
    assert (await admit_marks(at_hand, marks)).seen == len(marks)


async def test_the_same_call_again_admits_nothing(at_hand: FrontierAtHand) -> None:
    urls = [f"https://a.test/{number}" for number in range(700)]
    await at_hand.admit(*urls)
    before = await at_hand.meta()

    again = await at_hand.frontier.admit(Candidate(url) for url in urls)

    assert again == Admitted(0, 700, 0)
    assert await at_hand.meta() == before


async def test_a_url_twice_in_one_call_is_admitted_once(at_hand: FrontierAtHand) -> None:
    admitted = await at_hand.frontier.admit([Candidate("https://a.test/"), Candidate("https://a.test/")])

    assert admitted == Admitted(1, 1, 0)
    assert await at_hand.waiting("a.test") == ["0 0 s/"]


async def test_urls_of_a_domain_wait_in_the_order_they_came(at_hand: FrontierAtHand) -> None:
    paths = [str(number) for number in range(1203)]

    await at_hand.frontier.admit(
        Candidate(f"https://{domain}.test/{path}") for path in paths for domain in ("a", "b")
    )

    assert await at_hand.waiting("a.test") == [f"0 0 s/{path}" for path in paths]
    assert await at_hand.waiting("b.test") == [f"0 0 s/{path}" for path in paths]


async def test_priorities_go_to_three_lanes(at_hand: FrontierAtHand) -> None:
    await at_hand.frontier.admit(
        Candidate(f"https://a.test/{priority}", priority=priority) for priority in (-5, 0, 7, 1, -1)
    )

    assert [await at_hand.waiting("a.test", lane) for lane in range(3)] == [
        ["0 0 s/7", "0 0 s/1"],
        ["0 0 s/0"],
        ["0 0 s/-5", "0 0 s/-1"],
    ]


async def test_a_domain_has_no_more_urls_than_its_budget(make_at_hand: Callable[..., FrontierAtHand]) -> None:
    at_hand = make_at_hand(domain_pages=3)

    first = await at_hand.frontier.admit(Candidate(f"https://a.test/{number}") for number in range(2))
    second = await at_hand.frontier.admit(
        Candidate(f"https://{domain}.test/{number}") for domain in "ab" for number in range(2, 5)
    )

    assert (first, second) == (Admitted(2, 0, 0), Admitted(4, 0, 2))
    assert len(await at_hand.waiting("a.test")) == 3
    assert (await at_hand.state("a.test"))["admitted"] == 3


async def test_a_url_refused_by_the_budget_is_not_marked_as_seen(
    make_at_hand: Callable[..., FrontierAtHand],
) -> None:
    tight, wide = make_at_hand(domain_pages=1), make_at_hand()
    await tight.admit("https://a.test/1", "https://a.test/2")

    assert await wide.admit("https://a.test/1", "https://a.test/2") == 1


async def test_candidates_wanted_again_are_admitted_each_but_a_repetition_counts_once(
    at_hand: FrontierAtHand,
) -> None:
    await at_hand.admit("https://a.test/")
    again = [Candidate("https://a.test/", mark=new_mark()) for _ in range(2)]

    first = await at_hand.frontier.admit(again)
    # The answer was lost.
    repeated = await at_hand.frontier.admit(again)

    assert (first, repeated) == (Admitted(new=2), Admitted(seen=2))
    assert await at_hand.count("waiting") == 3


async def test_a_new_domain_is_ready_at_once_and_a_resting_one_when_it_is_due(
    at_hand: FrontierAtHand,
) -> None:
    await at_hand.acquire()
    await at_hand.admit("https://rests.test/1")
    [lease] = await at_hand.lease()
    await at_hand.frontier.settle([Settlement(lease, Outcome.DONE, wait_ms=5000)])

    await at_hand.admit("https://rests.test/2", "https://new.test/")

    assert await at_hand.due_ms("new.test") == 0
    assert await at_hand.due_ms("rests.test") == 5000


async def test_a_domain_in_flight_is_not_made_ready(at_hand: FrontierAtHand) -> None:
    await at_hand.acquire()
    await at_hand.admit("https://a.test/1")
    await at_hand.lease()

    await at_hand.admit("https://a.test/2")

    assert await at_hand.due_ms("a.test") is None
    assert await at_hand.lease() == []


async def test_a_domain_already_ready_keeps_its_due_time(at_hand: FrontierAtHand) -> None:
    await at_hand.admit("https://a.test/1")
    at_hand.now_ms += 5000

    await at_hand.admit("https://a.test/2")

    assert await at_hand.due_ms("a.test") == 0


async def test_an_owner_that_never_looked_or_is_about_to_look_is_not_woken(
    at_hand: FrontierAtHand, wakes
) -> None:
    await at_hand.admit("https://a.test/1")
    await at_hand.acquire()
    await at_hand.admit("https://b.test/1")

    assert await wakes() == []


async def test_an_owner_asleep_is_woken_once_with_its_partition(at_hand: FrontierAtHand, wakes) -> None:
    await at_hand.acquire()
    await at_hand.lease()

    for number in range(3):
        await at_hand.admit(f"https://d{number}.test/")
    await at_hand.admit("https://d0.test/more")

    assert await wakes() == [b"0"]


async def test_an_owner_is_woken_again_after_it_has_looked(at_hand: FrontierAtHand, wakes) -> None:
    await at_hand.acquire()
    for number in range(2):
        await at_hand.lease()
        await at_hand.admit(f"https://d{number}.test/")

    assert await wakes() == [b"0", b"0"]


async def test_an_owner_that_looks_again_before_the_new_url_is_due_sleeps_on(
    at_hand: FrontierAtHand, wakes
) -> None:
    await at_hand.acquire()
    await at_hand.admit("https://late.test/1", "https://soon.test/1", "https://soon.test/2")
    late, soon = await at_hand.lease()
    await at_hand.frontier.settle(
        [Settlement(late, Outcome.DONE, wait_ms=9000), Settlement(soon, Outcome.DONE, wait_ms=2000)]
    )
    await at_hand.lease()
    assert (await at_hand.count("sleep")) - at_hand.now_ms == 2000

    await at_hand.admit("https://late.test/2")
    assert await wakes() == []

    await at_hand.admit("https://now.test/")
    assert await wakes() == [b"0"]


async def test_no_shard_is_woken_for_a_known_url(at_hand: FrontierAtHand, wakes) -> None:
    await at_hand.acquire()
    await at_hand.admit("https://a.test/")
    [lease] = await at_hand.lease()
    await at_hand.frontier.settle([Settlement(lease, Outcome.DONE)])
    await at_hand.lease()

    await at_hand.admit("https://a.test/")

    assert await wakes() == []


async def test_the_servers_clock_is_used_when_none_is_given(
    client: RedisClient, at_hand: FrontierAtHand
) -> None:
    at_hand.now_ms = 0
    before_s = (await client.command("TIME"))[0]

    await at_hand.admit("https://a.test/")

    due = await due_of(client, RUN, 0)
    assert 0 <= due["a.test"] / 1000 - int(before_s) < 10


async def test_domains_of_all_kinds_keep_their_queues(at_hand: FrontierAtHand) -> None:
    urls = [
        "https://[2001:db8::1]:8080/x",
        "http://10.0.0.1/x",
        "https://xn--bcher-kva.example/x",
        "https://www.a.test/x",
        "http://a.test:81/x?a=b%20c",
        "https://a{b}c.test/",
    ]
    await at_hand.acquire()

    await at_hand.admit(*urls)
    leases = await at_hand.lease()
    await at_hand.frontier.settle(Settlement(lease, Outcome.DONE) for lease in leases)
    leases += await at_hand.lease()

    assert sorted(lease.url for lease in leases) == sorted(urls)


async def test_a_domain_with_two_urls_takes_at_most_300_bytes(
    client: RedisClient, at_hand: FrontierAtHand
) -> None:
    # Its tables have room for 32,768, so nearly the worst case.
    domains = 20_000
    await at_hand.acquire()
    before = await used_bytes(client)

    for start in range(0, domains, 1000):
        await at_hand.admit(
            *(
                f"https://www.site-{number:07d}.com/news/{page:02d}/a-longer-title-{page:07d}"
                for number in range(start, start + 1000)
                for page in range(2)
            )
        )

    assert (await used_bytes(client) - before) / domains <= 300


async def used_bytes(client: RedisClient) -> int:
    return int(re.search(rb"used_memory:(\d+)", await client.command("INFO", "memory"))[1])  # type: ignore[index]


async def test_urls_that_are_few_have_no_key_of_their_own(
    client: RedisClient, at_hand: FrontierAtHand
) -> None:
    await at_hand.admit(*(f"https://few.test/{number:0100}" for number in range(2)))
    await at_hand.admit(*(f"https://many.test/{number:0100}" for number in range(3)))

    lists = await client.command("KEYS", keys.queue_prefix(RUN, 0) + "*")

    assert lists == [f"{keys.queue_prefix(RUN, 0)}1:many.test".encode()]
    assert [len(await at_hand.waiting(domain)) for domain in ("few.test", "many.test")] == [2, 3]
