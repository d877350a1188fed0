"""keep_robots and the store above it: rules shared by all, with their age, in a bounded room."""

from __future__ import annotations

import pytest

from crawlproj.frontier.robots import KEPT_EXPIRED_MS, RobotsStore
from crawlproj.politeness.robots import KnownRules, RobotRules
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient

RUN = "web"
AGENT = "crawlproj"
START_MS = 1_800_000_000_000


class StoreAtHand:
    """A store of one partition, with a clock of the test's own."""

    def __init__(self, client: RedisClient) -> None:
        self.client = client
        self.now_ms = START_MS

    def store(self, max_bytes: int = 1_000_000, agent: str = AGENT, partitions: int = 1) -> RobotsStore:
        return RobotsStore(self.client, RUN, partitions, max_bytes, agent, now_ms=lambda: self.now_ms)

    async def bytes_counted(self) -> int:
        return int(await self.client.command("HGET", keys.robots(RUN, 0), "bytes"))

    async def bytes_held(self) -> int:
        """What the records take, counted anew."""
        flat = await self.client.command("HGETALL", keys.robots(RUN, 0))
        items = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
        return sum(2 * len(origin) + len(record) + 200 for origin, record in items if origin != b"bytes")

    async def origins(self) -> list[str]:
        """The origins kept, those that expire first first."""
        aged = [
            origin.decode() for origin in await self.client.command("ZRANGE", keys.robots_ages(RUN, 0), 0, -1)
        ]
        assert await self.client.command("HLEN", keys.robots(RUN, 0)) == len(aged) + 1
        return aged


@pytest.fixture
def at_hand(client: RedisClient) -> StoreAtHand:
    return StoreAtHand(client)


def rules(text: str = "User-agent: *\nDisallow: /x\nCrawl-delay: 3", status: int = 200) -> RobotRules:
    return RobotRules.from_response(status, text.encode(), AGENT)


def known(left_s: float = 3600.0, text: str = "User-agent: *\nDisallow: /x") -> KnownRules:
    return KnownRules(rules(text), left_s)


async def test_what_one_process_keeps_another_reads_with_the_time_that_is_left(at_hand: StoreAtHand) -> None:
    await at_hand.store().keep({0: {"http://a.test": KnownRules(rules(), 100.0, 2)}})

    at_hand.now_ms += 40_000
    found = await at_hand.store().read({0: ["http://a.test", "http://b.test"]})

    assert found == {"http://a.test": KnownRules(rules(), 60.0, 2)}
    assert not found["http://a.test"].rules.may_fetch("http://a.test/x")
    assert found["http://a.test"].rules.crawl_delay_s == 3


async def test_several_partitions_are_read_and_kept_apart(at_hand: StoreAtHand) -> None:
    store = at_hand.store(partitions=4)
    await store.keep({1: {"http://a.test": known()}, 3: {"http://b.test": known(7.0)}})

    found = await store.read({1: ["http://a.test", "http://b.test"], 3: {"http://b.test"}, 2: []})

    assert {origin: one.expires_at_s for origin, one in found.items()} == {
        "http://a.test": 3600.0,
        "http://b.test": 7.0,
    }


async def test_without_a_clock_of_its_own_the_servers_is_used(client: RedisClient) -> None:
    store = RobotsStore(client, RUN, 1, 1_000_000, AGENT)

    await store.keep({0: {"http://a.test": known(100.0)}})
    [found] = (await store.read({0: ["http://a.test"]})).values()

    assert 90 < found.expires_at_s <= 100


async def test_without_calls_nothing_is_sent(at_hand: StoreAtHand) -> None:
    await at_hand.store().keep({})

    assert await at_hand.store().read({}) == {}
    assert await at_hand.client.command("DBSIZE") == 0


async def test_failures_are_remembered_after_their_wait_is_over(at_hand: StoreAtHand) -> None:
    await at_hand.store().keep({0: {"http://a.test": KnownRules(rules(status=503), 480.0, 4)}})

    at_hand.now_ms += 481_000
    found = await at_hand.store().read({0: ["http://a.test"]})

    assert found["http://a.test"].failures == 4
    assert found["http://a.test"].rules.retry
    assert found["http://a.test"].expires_at_s == -1


async def test_rules_a_day_out_of_date_are_not_known(at_hand: StoreAtHand) -> None:
    await at_hand.store().keep({0: {"http://a.test": known(10.0)}})

    at_hand.now_ms += 10_000 + KEPT_EXPIRED_MS

    assert await at_hand.store().read({0: ["http://a.test"]}) == {}


async def test_rules_made_for_another_agent_are_not_known(at_hand: StoreAtHand) -> None:
    await at_hand.store().keep({0: {"http://a.test": known()}})

    assert await at_hand.store(agent="otherbot").read({0: ["http://a.test"]}) == {}


@pytest.mark.parametrize(
    "record", [b"", b"x", b"99 0", b"9" * 13 + b" 0 ", b"9" * 13 + b" 0 \x01junk", b"9" * 13 + b" \xff \x02"]
)
async def test_a_damaged_record_is_not_known(at_hand: StoreAtHand, record: bytes) -> None:
    await at_hand.store().keep({0: {"http://a.test": known()}})
    await at_hand.client.command("HSET", keys.robots(RUN, 0), "http://b.test", record)

    found = await at_hand.store().read({0: ["http://a.test", "http://b.test"]})

    assert list(found) == ["http://a.test"]


async def test_large_rules_are_read_as_they_were_kept(at_hand: StoreAtHand) -> None:
    text = "User-agent: *\n" + "".join(f"Disallow: /{7919 * n:x}\n" for n in range(10_000))

    await at_hand.store().keep({0: {"http://a.test": known(text=text)}})
    found = await at_hand.store().read({0: ["http://a.test"]})

    assert found["http://a.test"].rules == rules(text)
    assert not found["http://a.test"].rules.may_fetch(f"http://a.test/{7919 * 4321:x}")


async def test_keeping_again_replaces_and_may_be_repeated(at_hand: StoreAtHand) -> None:
    store = at_hand.store()
    await store.keep({0: {"http://a.test": known(text="User-agent: *\nDisallow: /old")}})

    for _ in range(2):
        await store.keep({0: {"http://a.test": known(50.0)}})

    found = await store.read({0: ["http://a.test"]})
    assert found["http://a.test"].expires_at_s == 50
    assert found["http://a.test"].rules == rules("User-agent: *\nDisallow: /x")
    assert await at_hand.origins() == ["http://a.test"]
    assert await at_hand.bytes_counted() == await at_hand.bytes_held()


async def test_what_expires_first_makes_room(at_hand: StoreAtHand) -> None:
    store = at_hand.store(max_bytes=3000)
    lasting = {f"http://{n}.test": known(10_000.0 + n) for n in range(4)}
    await store.keep({0: lasting})

    for n in range(30):
        await store.keep({0: {f"http://short{n}.test": known(100.0 + n)}})

    kept = await at_hand.origins()
    assert kept[-4:] == list(lasting)
    assert kept[:-4]
    assert set(kept[:-4]) <= {f"http://short{n}.test" for n in range(20, 30)}
    assert await at_hand.bytes_counted() == await at_hand.bytes_held() <= 3000


async def test_the_room_is_shared_out_to_the_partitions(at_hand: StoreAtHand) -> None:
    await at_hand.store(max_bytes=30_000, partitions=10).keep(
        {0: {f"http://{n}.test": known() for n in range(100)}}
    )

    assert 2000 < await at_hand.bytes_counted() <= 3000


async def test_rules_too_large_are_not_kept_and_evict_no_others(at_hand: StoreAtHand) -> None:
    store = at_hand.store(max_bytes=4000)
    await store.keep({0: {"http://a.test": known(), "http://b.test": known()}})
    large = "User-agent: *\n" + "".join(f"Disallow: /{7919 * n:x}\n" for n in range(500))

    await store.keep({0: {"http://b.test": known(text=large)}})

    assert await at_hand.origins() == ["http://a.test"]
    assert await at_hand.bytes_counted() == await at_hand.bytes_held()


async def test_unused_rules_do_not_stay_forever(at_hand: StoreAtHand) -> None:
    store = at_hand.store()
    await store.keep({0: {f"http://{n}.test": known(10.0) for n in range(150)}})
    at_hand.now_ms += 10_001 + KEPT_EXPIRED_MS

    await store.keep({0: {"http://new.test": known()}})
    left = len(await at_hand.origins())
    await store.keep({0: {"http://new.test": known()}})

    assert left == 51
    assert await at_hand.origins() == ["http://new.test"]
    assert await at_hand.bytes_counted() == await at_hand.bytes_held()


async def test_more_than_a_script_should_take_at_once_is_kept_all_the_same(at_hand: StoreAtHand) -> None:
    await at_hand.store().keep({0: {f"http://{n}.test": known() for n in range(250)}})

    assert len(await at_hand.origins()) == 250
