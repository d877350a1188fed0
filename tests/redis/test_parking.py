"""What was set aside is listed a bounded number at a time, and released on request, once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from crawlproj.config import load_config
from crawlproj.frontier.frontier import Frontier
from crawlproj.frontier.parking import Choice, Parking
from crawlproj.model.extra import Extra
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Candidate, Lease, Outcome, Settlement
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run, status_of

if TYPE_CHECKING:
    from tests.redis.conftest import FrontierAtHand

RUN = "web"
START_MS = 1_800_000_000_000
ALL = Choice()


@pytest.fixture
def parking(client: RedisClient) -> Parking:
    return Parking(client, RUN, 1)


@pytest.fixture
async def parked(at_hand: FrontierAtHand) -> FrontierAtHand:
    """a.test with two URLs for 60 s, after 8 failures; b.test with one for 30 s; c.test with one for good."""
    await at_hand.acquire()
    await at_hand.admit("https://a.test/0", "https://b.test/", "https://c.test/")
    await at_hand.frontier.admit([Candidate("https://a.test/1", priority=1)])
    leases = {lease.domain: lease for lease in await at_hand.lease()}
    await at_hand.frontier.settle(
        Settlement(lease, Outcome.RETRY, fails=8 if domain == "a.test" else 0)
        for domain, lease in leases.items()
    )
    await at_hand.park("a.test", "failures", 60_000)
    await at_hand.park("b.test", "retry_after", 30_000)
    await at_hand.park("c.test", "byte_budget", -1)
    return at_hand


async def trap_late(
    at_hand: FrontierAtHand, *candidates: Candidate, reason: str = "trap_shape"
) -> list[Lease]:
    """Admit URLs, and have them taken for traps when their turn comes, a second after each other."""
    leases = []
    for candidate in candidates:
        assert (await at_hand.frontier.admit([candidate])).new == 1
        [lease] = await at_hand.lease()
        at_hand.now_ms += 1000
        await at_hand.frontier.settle([Settlement(lease, Outcome.TRAPPED, reason)])
        leases.append(lease)
    return leases


async def lent(at_hand: FrontierAtHand) -> list[Lease]:
    """What is lent next, a URL of each domain."""
    at_hand.now_ms += 60_000
    return await at_hand.lease()


# -- listing --


async def test_parked_domains_are_listed_with_what_waits_the_soonest_to_come_back_first(
    parked: FrontierAtHand, parking: Parking
) -> None:
    domains, total = await parking.list_domains(ALL, 10)

    assert [(d.domain, d.reason, d.urls, d.failures, d.back_ms) for d in domains] == [
        ("b.test", "retry_after", 1, 0, START_MS + 30_000),
        ("a.test", "failures", 2, 8, START_MS + 60_000),
        ("c.test", "byte_budget", 1, 0, None),
    ]
    assert total == 3


async def test_trapped_urls_are_listed_the_latest_first(at_hand: FrontierAtHand, parking: Parking) -> None:
    await at_hand.acquire()
    await trap_late(at_hand, Candidate("https://a.test/2030/01", depth=4))
    at_hand.now_ms += 1000
    await at_hand.frontier.trap({"http://b.test/x/x/x/x": (7, "trap_repeat")})

    urls, total = await parking.list_urls(ALL, 10)

    assert [(u.url, u.domain, u.reason, u.depth, u.trapped_ms) for u in urls] == [
        ("http://b.test/x/x/x/x", "b.test", "trap_repeat", 7, START_MS + 2000),
        ("https://a.test/2030/01", "a.test", "trap_shape", 4, START_MS + 1000),
    ]
    assert total == 2


@pytest.mark.parametrize(
    ("choice", "domains", "urls"),
    [
        (Choice(frozenset({"a.test"})), ["a.test"], ["https://a.test/x/x/x/x"]),
        (Choice(frozenset({"a.test", "c.test"})), ["a.test", "c.test"], ["https://a.test/x/x/x/x"]),
        (Choice(reason="byte_budget"), ["c.test"], []),
        (Choice(reason="trap_depth"), [], ["https://d.test/1/2/3"]),
        (Choice(frozenset({"a.test"}), "trap_depth"), [], []),
    ],
)
async def test_only_what_is_chosen_is_listed(
    parked: FrontierAtHand, parking: Parking, choice: Choice, domains: list[str], urls: list[str]
) -> None:
    await parked.frontier.trap(
        {"https://a.test/x/x/x/x": (1, "trap_repeat"), "https://d.test/1/2/3": (1, "trap_depth")}
    )

    found_domains, domain_count = await parking.list_domains(choice, 10)
    found_urls, url_count = await parking.list_urls(choice, 10)

    assert [found.domain for found in found_domains] == domains
    assert [found.url for found in found_urls] == urls
    assert (domain_count, url_count) == (len(domains), len(urls))


async def test_of_many_in_many_partitions_the_first_are_listed_and_all_are_counted(
    client: RedisClient,
) -> None:
    names = [f"d{number}.test" for number in range(1500)]
    for number, name in enumerate(names):
        part = partition_of(name, 3)
        await client.pipeline(
            [
                ("ZADD", keys.parked(RUN, part), START_MS + number, name),
                ("HSET", keys.domains(RUN, part), name, "0 0 6 0 0 0 0 failures"),
                (
                    "ZADD",
                    keys.trapped(RUN, part),
                    START_MS + number,
                    f"trap_depth 1 {name} 1 0 https://{name}/",
                ),
            ]
        )
    parking = Parking(client, RUN, 3)

    domains, domain_count = await parking.list_domains(ALL, 3)
    urls, url_count = await parking.list_urls(ALL, 2)

    assert [found.domain for found in domains] == names[:3]
    assert [found.domain for found in urls] == names[:-3:-1]
    assert (domain_count, url_count) == (1500, 1500)


async def test_nothing_parked_is_an_empty_list(client: RedisClient, parking: Parking) -> None:
    assert await parking.list_domains(ALL, 10) == ([], 0)
    assert await parking.list_urls(ALL, 10) == ([], 0)


# -- releasing domains --


async def test_the_chosen_domains_are_released_and_the_others_stay(
    parked: FrontierAtHand, parking: Parking
) -> None:
    assert await parking.release_domains(Choice(reason="failures")) == 1

    assert (await parked.count("waiting"), await parked.count("parked")) == (2, 2)
    assert [await parked.back_ms(name) is None for name in ("a.test", "b.test", "c.test")] == [
        True,
        False,
        False,
    ]


async def test_releasing_all_domains_again_finds_none_left(parked: FrontierAtHand, parking: Parking) -> None:
    assert await parking.release_domains(ALL) == 3

    assert await parking.release_domains(ALL) == 0
    assert (await parked.count("waiting"), await parked.count("parked")) == (4, 0)


async def test_a_domain_that_is_due_but_not_chosen_stays_parked(
    parked: FrontierAtHand, parking: Parking
) -> None:
    parked.now_ms += 120_000

    assert await parking.release_domains(Choice(frozenset({"unknown.test"}))) == 0

    assert await parked.count("parked") == 4


# -- releasing URLs --


async def test_a_url_trapped_at_its_turn_is_leased_again_marked_as_freed(
    at_hand: FrontierAtHand, parking: Parking
) -> None:
    await at_hand.acquire()
    extra = Extra(2, "https://a.test/")
    [first] = await trap_late(
        at_hand, Candidate("https://a.test/2030/01", depth=4, priority=1, extra=extra), reason="trap_variants"
    )

    admitted = await parking.release_urls(ALL)

    [lease] = await lent(at_hand)
    assert (lease.url, lease.depth, lease.lane, lease.attempt) == (first.url, 4, first.lane, 0)
    assert lease.extra == Extra(2, "https://a.test/", is_freed=True)
    assert admitted.new == 1
    assert await at_hand.trapped() == []


async def test_a_link_that_looked_like_a_trap_is_leased_marked_as_freed(
    at_hand: FrontierAtHand, parking: Parking
) -> None:
    await at_hand.acquire()
    await at_hand.frontier.trap({"https://a.test/x/x/x/x": (3, "trap_repeat")})

    assert (await parking.release_urls(ALL)).new == 1

    [lease] = await lent(at_hand)
    assert (lease.url, lease.depth, lease.extra) == ("https://a.test/x/x/x/x", 3, Extra(is_freed=True))


async def test_a_released_link_is_not_fetched_again_when_found_again(
    at_hand: FrontierAtHand, parking: Parking
) -> None:
    await at_hand.acquire()
    await at_hand.frontier.trap({"https://a.test/x/x/x/x": (3, "trap_repeat")})
    await parking.release_urls(ALL)
    at_hand.now_ms += 5000
    await at_hand.frontier.trap({"https://a.test/x/x/x/x": (3, "trap_repeat")})

    admitted = await parking.release_urls(ALL)

    assert (admitted.new, admitted.seen) == (0, 1)
    assert await at_hand.trapped() == []
    assert len(await at_hand.waiting("a.test")) == 1


async def test_a_crash_before_urls_are_forgotten_admits_none_of_them_twice(
    at_hand: FrontierAtHand, parking: Parking
) -> None:
    await at_hand.acquire()
    await trap_late(at_hand, Candidate("https://a.test/1"), Candidate("https://a.test/2"))
    await at_hand.frontier.trap({"https://a.test/x/x/x/x": (3, "trap_repeat")})
    key = keys.trapped(RUN, 0)
    before = await at_hand.client.command("ZRANGE", key, 0, -1, "WITHSCORES")
    await parking.release_urls(ALL)
    # As it is when the process died after it had admitted them.
    await at_hand.client.command(
        "ZADD", key, *(part for pair in zip(before[1::2], before[::2], strict=True) for part in pair)
    )

    admitted = await parking.release_urls(ALL)

    assert (admitted.new, admitted.seen) == (0, 3)
    assert await at_hand.trapped() == []
    assert sorted(await at_hand.waiting("a.test")) == [
        '0 0 s/1 {"freed":true}',
        '0 0 s/2 {"freed":true}',
        '3 0 s/x/x/x/x {"freed":true}',
    ]


async def test_only_the_chosen_urls_are_released_with_their_shapes(
    at_hand: FrontierAtHand, parking: Parking
) -> None:
    await at_hand.acquire()
    await trap_late(at_hand, Candidate("https://a.test/1"), Candidate("https://b.test/1"))
    await trap_late(at_hand, Candidate("https://a.test/?q=1"), reason="trap_variants")
    shapes = {
        "a.test a.test/{n}": "trap_shape",
        "b.test b.test/{n}": "trap_shape",
        "a.test a.test/?q": "trap_variants",
    }
    await at_hand.client.command(
        "HSET", keys.traps(RUN, 0), *(part for shape in shapes.items() for part in shape)
    )

    await parking.release_urls(Choice(frozenset({"a.test"}), "trap_shape"))

    assert await at_hand.count("waiting") == 1
    assert [lease.url for lease in await lent(at_hand)] == ["https://a.test/1"]
    assert [member.split(" ")[0:3:2] for member in await at_hand.trapped()] == [
        ["trap_shape", "b.test"],
        ["trap_variants", "a.test"],
    ]
    left = await at_hand.client.command("HKEYS", keys.traps(RUN, 0))
    assert sorted(left) == [b"a.test a.test/?q", b"b.test b.test/{n}"]


async def test_urls_beyond_the_page_budget_are_fetched_when_released(
    make_at_hand: Callable[..., FrontierAtHand], parking: Parking
) -> None:
    at_hand = make_at_hand(domain_pages=1)
    await at_hand.acquire()
    await trap_late(at_hand, Candidate("https://a.test/1"))
    assert await at_hand.admit("https://a.test/2") == 0

    await parking.release_urls(ALL)

    assert [lease.url for lease in await lent(at_hand)] == ["https://a.test/1"]


async def test_a_url_of_a_parked_domain_waits_with_it(parked: FrontierAtHand, parking: Parking) -> None:
    await parked.frontier.trap({"https://c.test/x/x/x/x": (3, "trap_repeat")})

    await parking.release_urls(ALL)

    assert await lent(parked) == []
    assert await parked.count("parked") == 5


async def test_thousands_of_urls_are_released_in_batches_and_none_is_left_behind(
    at_hand: FrontierAtHand, parking: Parking
) -> None:
    await at_hand.acquire()
    await at_hand.frontier.trap({f"https://d{n % 7}.test/x/{n}": (3, "trap_depth") for n in range(3000)})

    assert (await parking.release_urls(ALL)).new == 3000

    assert await at_hand.trapped() == []
    assert await at_hand.count("waiting") == 3000


# -- the status --


async def test_the_status_counts_what_is_parked_and_what_was_filtered(client: RedisClient) -> None:
    run = await Run.open(client, RUN, partitions=4)
    for number in range(3):
        await client.command("ZADD", keys.parked(RUN, number), START_MS, f"d{number}.test")
    await client.command(
        "ZADD", keys.trapped(RUN, 3), 1, "trap_depth 1 a.test 1 0 s/1", 2, "trap_depth 1 a.test 1 0 s/2"
    )
    await client.command(
        "HSET", keys.page_counters(RUN), "stored", 5, "filtered:scope", 7, "filtered:extension", 9
    )

    status = await status_of(run)

    assert (status["parked_domains"], status["trapped_kept"]) == (3, 2)
    assert status["filtered"] == {"extension": 9, "scope": 7}
    assert status["pages_stored"] == 5


async def test_no_process_of_a_run_keeps_more_trapped_urls_than_the_setting(client: RedisClient) -> None:
    run = await Run.open(client, RUN, partitions=1)
    frontier = Frontier.of(run, load_config({"CRAWL_PARKED_URLS": 2}))

    await frontier.trap({f"https://a.test/{n}": (1, "trap_shape") for n in range(5)})

    assert await client.command("ZCARD", keys.trapped(RUN, 0)) == 2
