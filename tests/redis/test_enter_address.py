"""enter_address and leave_address: one at a time at an address, a rest after each, places in line."""

from __future__ import annotations

import heapq
from collections import Counter
from itertools import pairwise

import pytest

from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from tests.redis.conftest import RUN, START_MS

IP = "192.0.2.1"
DELAY_MS = 1000
FLIGHT_MS = 30_000


class AddressAtHand:
    """One address, with a clock of the test's own that begins at 0."""

    def __init__(self, client: RedisClient) -> None:
        self.client = client
        self.now_ms = 0

    async def enter(self, domain: str, token: str = "", ip: str = IP) -> int:
        """The token is the domain unless given."""
        wait_ms: int = await self.client.run(
            "enter_address",
            [keys.address(RUN, ip), keys.address_line(RUN, ip)],
            [START_MS + self.now_ms, token or domain, domain, DELAY_MS, FLIGHT_MS],
        )
        return wait_ms

    async def leave(self, token: str) -> int:
        left: int = await self.client.run(
            "leave_address", [keys.address(RUN, IP)], [START_MS + self.now_ms, token, DELAY_MS]
        )
        return left

    async def line(self) -> list[str]:
        return [
            name.decode() for name in await self.client.command("ZRANGE", keys.address_line(RUN, IP), 0, -1)
        ]


@pytest.fixture
def address(client: RedisClient) -> AddressAtHand:
    return AddressAtHand(client)


async def test_the_first_may_go_and_no_other_until_it_left_and_the_delay_is_over(
    address: AddressAtHand,
) -> None:
    assert await address.enter("a.test") == 0
    address.now_ms = 200
    assert await address.enter("b.test") > 0

    address.now_ms = 300
    assert await address.leave("a.test") == 1

    address.now_ms = 1299
    assert await address.enter("b.test") == 1
    address.now_ms = 1300
    assert await address.enter("b.test") == 0


async def test_the_same_domain_waits_as_well(address: AddressAtHand) -> None:
    await address.enter("a.test", "first")

    assert await address.enter("a.test", "second") > 0


async def test_addresses_do_not_hinder_each_other(address: AddressAtHand) -> None:
    await address.enter("a.test")

    assert await address.enter("b.test", ip="2001:db8::1") == 0


async def test_an_address_at_rest_says_when_the_rest_is_over(address: AddressAtHand) -> None:
    await address.enter("a.test")
    address.now_ms = 100
    await address.leave("a.test")

    address.now_ms = 400

    assert await address.enter("b.test") == 700


async def test_waiting_domains_get_places_a_delay_apart(address: AddressAtHand) -> None:
    await address.enter("a.test")

    waits_ms = [await address.enter(f"{number}.test") for number in range(50)]

    assert min(later - sooner for sooner, later in pairwise(waits_ms)) >= DELAY_MS
    assert waits_ms[0] == DELAY_MS


async def test_places_are_further_apart_where_requests_take_long(address: AddressAtHand) -> None:
    await address.enter("a.test")
    address.now_ms = 500
    await address.leave("a.test")

    first_ms, second_ms = await address.enter("b.test"), await address.enter("c.test")

    assert second_ms - first_ms == DELAY_MS + 500


async def test_one_that_hung_does_not_make_places_rare(address: AddressAtHand) -> None:
    await address.enter("a.test")
    address.now_ms = 29_000
    await address.leave("a.test")

    first_ms, second_ms = await address.enter("b.test"), await address.enter("c.test")

    assert second_ms - first_ms == 2 * DELAY_MS


async def test_a_place_stands_for_one_who_comes_too_early(address: AddressAtHand) -> None:
    await address.enter("a.test")
    await address.enter("b.test")
    wait_ms = await address.enter("c.test")

    address.now_ms = 600

    assert await address.enter("c.test") == wait_ms - 600


async def test_a_newcomer_does_not_overtake_those_in_line(address: AddressAtHand) -> None:
    await address.enter("a.test")
    await address.leave("a.test")
    await address.enter("b.test")
    wait_ms = await address.enter("c.test")

    address.now_ms = 1500  # free, and b.test is late

    assert await address.enter("new.test") + 1500 >= wait_ms + DELAY_MS
    assert await address.enter("b.test") == 0


async def test_only_one_of_those_due_is_promised_the_next_turn(address: AddressAtHand) -> None:
    await address.enter("a.test")
    places = {name: await address.enter(name) for name in ("b.test", "c.test", "d.test")}
    address.now_ms = max(places.values())  # all are due, and a.test is still there

    waits_ms = [await address.enter(name) for name in places]

    assert waits_ms[0] == DELAY_MS
    assert len(set(waits_ms)) == 3
    assert min(waits_ms[1:]) >= 2 * DELAY_MS


async def test_a_request_whose_end_is_never_recorded_times_out(address: AddressAtHand) -> None:
    await address.enter("dead.test")

    address.now_ms = FLIGHT_MS
    assert await address.enter("b.test") == DELAY_MS
    address.now_ms = FLIGHT_MS + DELAY_MS

    assert await address.enter("b.test") == 0


async def test_a_step_whose_answer_was_lost_may_be_taken_again(address: AddressAtHand) -> None:
    assert [await address.enter("a.test", "one") for _ in range(2)] == [0, 0]
    waits_ms = [await address.enter("b.test", "two") for _ in range(2)]
    assert waits_ms[0] == waits_ms[1] > 0

    address.now_ms = 10
    assert [await address.leave("one") for _ in range(2)] == [1, 0]
    address.now_ms = 500
    assert await address.leave("one") == 0

    address.now_ms = 1010
    assert await address.enter("b.test", "two") == 0


async def test_an_expired_visit_cannot_end_the_request_of_another(address: AddressAtHand) -> None:
    await address.enter("slow.test")
    address.now_ms = FLIGHT_MS + DELAY_MS
    await address.enter("b.test")

    assert await address.leave("slow.test") == 0
    address.now_ms += 10 * DELAY_MS

    assert await address.enter("c.test") > 0


async def test_a_domain_that_does_not_come_back_loses_its_place(address: AddressAtHand) -> None:
    await address.enter("a.test")
    for number in range(5):
        await address.enter(f"gone{number}.test")
    await address.leave("a.test")

    address.now_ms = 5 * DELAY_MS + 1
    assert await address.enter("new.test") == 0
    address.now_ms += FLIGHT_MS
    await address.enter("other.test")

    assert await address.line() == ["other.test"]


async def test_both_keys_expire_by_themselves_but_not_before_the_last_place(
    client: RedisClient, address: AddressAtHand
) -> None:
    await address.enter("a.test")
    names = [keys.address(RUN, IP), keys.address_line(RUN, IP)]
    alone_ms = await client.command("PTTL", names[0])

    waits_ms = [await address.enter(f"{number}.test") for number in range(20)]
    await address.leave("a.test")
    lasts_ms = [await client.command("PTTL", name) for name in names]

    assert 0 < alone_ms <= FLIGHT_MS + DELAY_MS
    assert all(waits_ms[-1] < lasting <= waits_ms[-1] + FLIGHT_MS + DELAY_MS for lasting in lasts_ms)


async def test_without_a_clock_of_its_own_the_servers_is_used(client: RedisClient) -> None:
    names = [keys.address(RUN, IP), keys.address_line(RUN, IP)]

    assert await client.run("enter_address", names, [0, "one", "a.test", 60_000, FLIGHT_MS]) == 0
    assert await client.run("leave_address", names[:1], [0, "one", 60_000]) == 1

    assert (
        50_000 < await client.run("enter_address", names, [0, "two", "b.test", 60_000, FLIGHT_MS]) <= 60_001
    )


@pytest.mark.parametrize(
    ("took_ms", "late_ms", "asks_each"), [(5, 0, 3.2), (5, 40, 3.2), (300, 40, 3.2), (2500, 100, 4)]
)
async def test_many_domains_at_one_address_get_their_turns_without_crowding(
    address: AddressAtHand, took_ms: int, late_ms: int, asks_each: float
) -> None:
    # Each of them comes back when it should, or a little later, until it had eight turns.
    domains, turns = 40, 8
    coming = [(number * 3, "come", f"{number}.test") for number in range(domains)]
    heapq.heapify(coming)
    served: Counter[str] = Counter({domain: 0 for _, _, domain in coming})
    ahead = asked = inside = last_end_ms = 0
    gaps_ms = []
    while coming:
        address.now_ms, what, domain = heapq.heappop(coming)
        if what == "end":
            inside -= 1
            last_end_ms = address.now_ms
            await address.leave(domain)
            served[domain] += 1
            ahead = max(ahead, max(served.values()) - min(served.values()))
            if served[domain] < turns:
                heapq.heappush(coming, (address.now_ms + DELAY_MS, "come", domain))
            continue
        asked += 1
        wait_ms = await address.enter(domain)
        if wait_ms:
            again_ms = address.now_ms + wait_ms + (asked * 7919) % (late_ms + 1)
            heapq.heappush(coming, (again_ms, "come", domain))
            continue
        inside += 1
        assert inside == 1
        gaps_ms.append(address.now_ms - last_end_ms)
        heapq.heappush(coming, (address.now_ms + took_ms, "end", domain))

    least_ms = domains * turns * (took_ms + DELAY_MS)
    assert min(gaps_ms[1:]) >= DELAY_MS
    assert set(served.values()) == {turns}
    assert ahead <= turns / 2
    assert address.now_ms < 1.05 * least_ms
    assert asked < asks_each * domains * turns
