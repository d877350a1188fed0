"""What a gate has learnt reaches Redis whole, also what it learns while it writes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from crawlproj.frontier.gate import Gate, Robots
from crawlproj.frontier.robots import RobotsStore
from crawlproj.frontier.traps import TrapDetector
from crawlproj.model.partition import partition_of
from crawlproj.model.records import Lease
from crawlproj.politeness.robots import KnownRules, RobotsCache
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from tests.redis.shards import AGENT, PARTITIONS, RUN, rules_of

OLD, NEW = rules_of("User-agent: *\nDisallow: /old"), rules_of("User-agent: *\nDisallow: /new")


@pytest.fixture
def store(client: RedisClient) -> RobotsStore:
    return RobotsStore(client, RUN, PARTITIONS, 10_000_000, AGENT)


@pytest.fixture
def traps() -> TrapDetector:
    return TrapDetector(1)


@pytest.fixture
def gate(client: RedisClient, store: RobotsStore, traps: TrapDetector) -> Gate:
    robots = Robots(AGENT, RobotsCache(10, 100), store)
    return Gate(client, RUN, PARTITIONS, robots=robots, traps=traps)


async def publish_twice(gate: Gate, client: RedisClient, meanwhile: Callable[[], object]) -> bool:
    """Write, with something learnt after Redis has the rest but before we know; returns if it was news."""

    def learn_once(seconds: float) -> None:
        client.on_answer = lambda seconds: None
        meanwhile()

    client.on_answer = learn_once
    await gate.publish(0.0)
    has_news = gate.has_news
    await gate.publish(0.0)
    return has_news


@pytest.mark.parametrize("learnt", ["https://a.test", "https://b.test"])
async def test_rules_learnt_while_others_are_written_are_written_next(
    gate: Gate, client: RedisClient, store: RobotsStore, learnt: str
) -> None:
    gate.learn("https://a.test", OLD, 0.0)

    assert await publish_twice(gate, client, lambda: gate.learn(learnt, NEW, 0.0))

    domain = learnt.removeprefix("https://")
    [known] = (await store.read({partition_of(domain, PARTITIONS): [learnt]})).values()
    assert known.rules.may_fetch(f"{learnt}/old")
    assert not known.rules.may_fetch(f"{learnt}/new")
    assert not gate.has_news


async def test_traps_found_while_others_are_written_are_written_next(
    gate: Gate, client: RedisClient, traps: TrapDetector
) -> None:
    def find(path: str) -> None:
        verdicts = [traps.judge("a.test", f"https://a.test/{path}?a={n}&b=1&c=1") for n in range(2)]
        assert verdicts == [None, "trap_variants"]

    find("old")

    assert await publish_twice(gate, client, lambda: find("new"))

    written = await client.command("HKEYS", keys.traps(RUN, partition_of("a.test", PARTITIONS)))
    assert sorted(written) == [b"a.test a.test/new?*", b"a.test a.test/old?*"]
    assert not gate.has_news


async def test_rules_that_are_not_written_yet_are_not_replaced_by_those_in_redis(
    gate: Gate, store: RobotsStore
) -> None:
    partition, origin = partition_of("a.test", PARTITIONS), "https://a.test"
    assert gate.robots is not None
    await store.keep({partition: {origin: KnownRules(OLD, 1000.0)}})
    gate.learn(origin, NEW, 0.0)
    lease = Lease.from_token(b"1 1 a.test 0 0 https://a.test/old", partition, 1)

    # The rules learnt last have expired by then, and those in Redis would be valid.
    await gate.recall_robots([lease], 500.0)

    assert gate.robots.cache.get(origin, 500.0) is None
