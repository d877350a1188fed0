"""The frontier against a model in Python: in any order no URL is lost, lent twice, or lent early."""

from __future__ import annotations

import asyncio
import math
import re
from collections import Counter, defaultdict
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from crawlproj.errors import Fenced
from crawlproj.frontier.frontier import Frontier, Hold
from crawlproj.model.records import Candidate, Lease, Outcome, Settlement, lane_of
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient, pairs
from tests.patience import PATIENCE_S
from tests.waiting import Waiting, questions

RUN = "web"
DOMAINS = ("a.test", "b.test", "c.test")
TTL_MS = 10_000
DELAYS_MS = {"b.test": 3000}
DEFAULT_DELAY_MS = 1000
DOMAIN_BYTES = 1000
MOST_TRAPPED = 3
FOR_GOOD = (Outcome.DONE, Outcome.FAILED, Outcome.SKIPPED, Outcome.TRAPPED)

T = TypeVar("T")


@dataclass
class Domain:
    """What the model knows of a domain."""

    lanes: list[list[tuple[str, int]]] = field(default_factory=lambda: [[], [], []])
    next_ms: int = 0
    ready_ms: int | None = None
    out: int = 0
    fails: int = 0
    fetched: int = 0
    delay_ms: int = 0
    bytes: int = 0
    parked: str = ""
    back_ms: float = 0.0

    @property
    def waiting(self) -> int:
        return sum(map(len, self.lanes))

    def make_ready(self, at_ms: int) -> None:
        self.ready_ms = at_ms if self.waiting and not self.out and not self.parked else None


class FrontierMachine(RuleBasedStateMachine):
    runner: asyncio.Runner
    client: RedisClient

    def __init__(self) -> None:
        super().__init__()
        self.run(self.client.command("FLUSHDB"))
        self.now_ms = 1_800_000_000_000
        self.frontier = Frontier(
            self.client,
            RUN,
            1,
            domain_bytes=DOMAIN_BYTES,
            trapped_urls=MOST_TRAPPED,
            now_ms=lambda: self.now_ms,
        )
        self.domains: dict[str, Domain] = defaultdict(Domain)
        self.admitted: set[str] = set()
        self.on_loan: dict[bytes, Lease] = {}
        self.lost: list[bytes] = []
        self.settled: list[Settlement] = []
        self.counts: Counter[str] = Counter()
        self.pages: list[bytes] = []
        self.trapped: list[tuple[int, str]] = []
        self.owners = 0
        self.zombies: list[Hold] = []
        self.hold = self._acquire()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(call)

    def _acquire(self) -> Hold:
        self.owners += 1
        hold = self.run(
            self.frontier.acquire(
                0, f"o{self.owners}", ttl_ms=TTL_MS, delay_ms=DEFAULT_DELAY_MS, delays_ms=DELAYS_MS
            )
        )
        assert hold is not None
        return hold

    @rule(
        found=st.lists(
            st.tuples(st.sampled_from(DOMAINS), st.integers(0, 12), st.sampled_from([-1, 0, 1])), max_size=8
        )
    )
    def admit(self, found: list[tuple[str, int, int]]) -> None:
        # As long as that four of them are more than the state of a domain holds.
        candidates = [Candidate(f"https://{d}/{path:060}", priority=priority) for d, path, priority in found]
        new = 0
        for (name, _, priority), candidate in zip(found, candidates, strict=True):
            if candidate.url not in self.admitted:
                self.admitted.add(candidate.url)
                domain = self.domains[name]
                domain.lanes[lane_of(priority)].append((candidate.url, 0))
                if domain.ready_ms is None:
                    domain.make_ready(max(self.now_ms, domain.next_ms))
                new += 1

        assert self.run(self.frontier.admit(candidates)).new == new

    @rule(count=st.integers(0, 6), chain=st.integers(1, 4), lose=st.booleans())
    def lease(self, count: int, chain: int, lose: bool) -> None:
        received = self.hold.number
        leases, _ = self.run(self.frontier.lease([(self.hold, count)], chain=chain, chain_ms=5000))

        lent_again, new = leases[: len(self.lost)], leases[len(self.lost) :]
        assert [lease.token for lease in lent_again] == self.lost
        assert len(new) <= max(0, count - len(self.lost))
        for lease in new:
            assert lease.token not in self.on_loan
            domain = self.domains[lease.domain]
            if domain.ready_ms is not None:
                assert domain.ready_ms <= self.now_ms, "lent before its domain was due"
                assert domain.out == 0, "lent while in flight"
                domain.ready_ms = None
            lane = next(lane for lane in domain.lanes if lane)
            assert lane.pop(0) == (lease.url, lease.attempt)
            assert (lease.fails, lease.delay_ms) == (domain.fails, domain.delay_ms)
            domain.out += 1
            self.on_loan[lease.token] = lease
        for name, lent in Counter(lease.domain for lease in new).items():
            domain = self.domains[name]
            allowed = chain
            if not domain.fetched or domain.fails:
                allowed = 1
            elif domain.delay_ms:
                allowed = max(1, min(chain, 5000 // domain.delay_ms))
            assert lent <= allowed
        if len(new) < count - len(lent_again):
            left = [d for d in self.domains.values() if d.ready_ms is not None and d.ready_ms <= self.now_ms]
            assert left == [], "a domain that is due was left out"
        self.counts["number"] += len(new)
        self.lost = []
        if lose:
            self.hold.number = received
            self.lost = [lease.token for lease in leases]

    @precondition(lambda self: self.on_loan)
    @rule(
        data=st.data(),
        outcome=st.sampled_from(list(Outcome)),
        wait_ms=st.sampled_from([0, 500, 4000]),
        delay_ms=st.sampled_from([0, 1000, 2500]),
        fails=st.sampled_from([0, 0, 3]),
        fetched_bytes=st.sampled_from([0, 400]),
    )
    def settle(
        self,
        data: st.DataObject,
        outcome: Outcome,
        wait_ms: int,
        delay_ms: int,
        fails: int,
        fetched_bytes: int,
    ) -> None:
        received = [token for token in self.on_loan if token not in self.lost]
        if not received:
            return
        lease = self.on_loan[data.draw(st.sampled_from(received))]
        page = b"page %d" % lease.number if outcome in (Outcome.DONE, Outcome.FAILED) else b""
        settlement = Settlement(
            lease,
            outcome,
            wait_ms=wait_ms,
            delay_ms=delay_ms,
            fails=fails,
            fetched_bytes=fetched_bytes,
            page=page,
            is_attempt=data.draw(st.booleans()),
        )
        self._settle_in_model(settlement)

        _, spent = self.run(self.frontier.settle([settlement]))

        domain = self.domains[lease.domain]
        is_spent = domain.bytes >= DOMAIN_BYTES and not domain.parked
        assert spent == ({0: [lease.domain]} if is_spent else {})

    def _settle_in_model(self, settlement: Settlement) -> None:
        lease, outcome = settlement.lease, settlement.outcome
        domain = self.domains[lease.domain]
        domain.next_ms = max(domain.next_ms, self.now_ms + settlement.wait_ms)
        domain.bytes += settlement.fetched_bytes
        if outcome not in (Outcome.RETURNED, Outcome.SKIPPED, Outcome.TRAPPED):
            domain.delay_ms = settlement.delay_ms
        self.counts[outcome.value] += 1
        if outcome is Outcome.PACED:
            return
        del self.on_loan[lease.token]
        self.settled.append(settlement)
        domain.out -= 1
        if outcome in (Outcome.DONE, Outcome.FAILED):
            domain.fetched += 1
            self.pages.append(settlement.page)
        domain.fails = settlement.fails
        if outcome is Outcome.RETRY:
            domain.lanes[lease.lane].append((lease.url, lease.attempt + settlement.is_attempt))
        elif outcome is Outcome.RETURNED:
            domain.lanes[lease.lane].insert(0, (lease.url, lease.attempt))
        elif outcome is Outcome.TRAPPED:
            entry = lease.token.decode().split(" ", 1)[1]
            # Those of one time are in the order of their letters.
            self.trapped = sorted([*self.trapped, (self.now_ms, f" {entry}")])[-MOST_TRAPPED:]
        domain.make_ready(domain.next_ms)

    @precondition(lambda self: self.settled)
    @rule(data=st.data())
    def settle_again(self, data: st.DataObject) -> None:
        settlement = data.draw(st.sampled_from(self.settled))
        if settlement.lease.epoch == self.hold.epoch:
            self.run(self.frontier.settle([settlement]))

    @rule(passed_ms=st.sampled_from([100, 1000, 5000]))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms

        _, returning = self.run(self.frontier.renew([self.hold], TTL_MS))

        assert returning == [0] * any(d.parked and d.back_ms <= self.now_ms for d in self.domains.values())

    @rule(
        name=st.sampled_from(DOMAINS),
        reason=st.sampled_from(["failures", "byte_budget"]),
        ms=st.sampled_from([-1, 500, 4000]),
    )
    def park(self, name: str, reason: str, ms: int) -> None:
        domain = self.domains.get(name)
        is_parked_now = domain is not None and not domain.parked
        if domain is not None and is_parked_now:
            domain.parked, domain.ready_ms = reason, None
            domain.back_ms = self.now_ms + ms if ms >= 0 else math.inf

        assert self.run(self.frontier.park(self.hold, [(name, reason, ms)])) == is_parked_now

    @rule(names=st.sets(st.sampled_from(DOMAINS)))
    def unpark(self, names: set[str]) -> None:
        """Those named, or those whose time has come."""
        freed = [
            domain
            for name, domain in self.domains.items()
            if domain.parked and (name in names if names else domain.back_ms <= self.now_ms)
        ]
        for domain in freed:
            if domain.parked == "byte_budget":
                domain.bytes = 0
            domain.parked = ""
            domain.next_ms = self.now_ms + domain.delay_ms
            domain.make_ready(domain.next_ms)

        assert self.run(self.frontier.unpark({0: sorted(names)})) == len(freed)

    @rule()
    def crash_and_take_over(self) -> None:
        self.zombies.append(self.hold)
        self.now_ms += TTL_MS
        for lease in sorted(self.on_loan.values(), key=lambda lease: -lease.number):
            domain = self.domains[lease.domain]
            domain.lanes[lease.lane].insert(0, (lease.url, lease.attempt))
            full_ms = max(domain.delay_ms, DELAYS_MS.get(lease.domain, DEFAULT_DELAY_MS))
            domain.next_ms = max(domain.next_ms, self.now_ms + full_ms)
            domain.out = 0
            domain.make_ready(domain.next_ms)
        self.counts["reclaimed"] += len(self.on_loan)
        self.on_loan, self.lost = {}, []

        self.hold = self._acquire()

        assert int(self.hold.epoch.partition(":")[0]) == self.owners

    @precondition(lambda self: self.zombies)
    @rule(data=st.data())
    def a_replaced_owner_comes_back(self, data: st.DataObject) -> None:
        old = data.draw(st.sampled_from(self.zombies))
        with pytest.raises(Fenced):
            self.run(self.frontier.lease([(old, 5)], chain=2, chain_ms=5000))
        with pytest.raises(Fenced):
            self.run(self.frontier.renew([old], TTL_MS))
        with pytest.raises(Fenced):
            self.run(self.frontier.park(old, [("a.test", "failures", 1000)]))
        for settlement in [one for one in self.settled if one.lease.epoch == old.epoch][:1]:
            with pytest.raises(Fenced):
                self.run(self.frontier.settle([settlement]))
        self.run(self.frontier.release([old]))

    @invariant()
    def redis_and_the_model_agree(self) -> None:
        parked, trapped, leased, pages, meta, *answers = self.run(
            self.client.pipeline(
                [
                    ("ZRANGE", keys.parked(RUN, 0), 0, -1, "WITHSCORES"),
                    ("ZRANGE", keys.trapped(RUN, 0), 0, -1),
                    ("ZRANGE", keys.leases(RUN, 0), 0, -1),
                    ("LRANGE", keys.pages(RUN), 0, -1),
                    ("HGETALL", keys.meta(RUN, 0)),
                    *questions(RUN, 0, DOMAINS),
                ]
            )
        )
        stored = dict(pairs(meta))
        in_redis = Waiting(DOMAINS, *answers)
        assert in_redis.lanes == {
            name: [
                [f"0 {attempt} s/{url.rpartition('/')[2]}" for url, attempt in lane]
                for lane in self.domains.get(name, Domain()).lanes
            ]
            for name in DOMAINS
        }
        assert in_redis.due == {
            name: domain.ready_ms for name, domain in self.domains.items() if domain.ready_ms is not None
        }
        assert in_redis.due.keys() == {
            name for name, d in self.domains.items() if d.waiting and not d.out and not d.parked
        }
        assert {name: float(score) for name, score in pairs(parked)} == {
            name: domain.back_ms for name, domain in self.domains.items() if domain.parked
        }
        assert {name: state[2:8] for name, state in in_redis.states.items()} == {
            name: self._state_of(name) for name in self.domains
        }
        assert [member.decode() for member in trapped] == [member for _, member in self.trapped]
        assert set(leased) == set(self.on_loan)
        assert pages == self.pages
        waiting = sum(domain.waiting for domain in self.domains.values() if not domain.parked)
        set_aside = sum(domain.waiting for domain in self.domains.values() if domain.parked)
        ended = sum(self.counts[outcome.value] for outcome in FOR_GOOD)
        assert waiting + set_aside + len(leased) + ended == len(self.admitted), "a URL was lost or doubled"
        expected_counts = self.counts | {
            "waiting": waiting,
            "parked": set_aside,
            "admitted": len(self.admitted),
            "seen": len(self.admitted),
        }
        assert {name: int(stored.get(name, 0)) for name in expected_counts} == dict(expected_counts)

    def _state_of(self, name: str) -> tuple[int | str, ...]:
        """Fails and all that follows in the state of a domain."""
        domain = self.domains[name]
        admitted = sum(url.startswith(f"https://{name}/") for url in self.admitted)
        return (domain.fails, admitted, domain.fetched, domain.delay_ms, domain.bytes, domain.parked)


def test_redis_and_the_model_agree_after_every_step(redis_url: str, tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        client = runner.run(RedisClient.open(url=redis_url, data_dir=tmp_path, wait_s=10))

        class OnThisRedis(FrontierMachine):
            pass

        OnThisRedis.runner, OnThisRedis.client = runner, client
        try:
            run_state_machine_as_test(
                OnThisRedis,
                settings=settings(
                    max_examples=40,
                    stateful_step_count=30,
                    # No shrinking: it would take minutes.
                    phases=[Phase.explicit, Phase.reuse, Phase.generate],
                    suppress_health_check=list(HealthCheck),
                ),
            )
        finally:
            runner.run(client.close())


async def test_every_key_a_step_touches_has_its_partitions_tag(client: RedisClient, redis_url: str) -> None:
    reader, writer = await asyncio.open_unix_connection(redis_url.removeprefix("unix://"))
    writer.write(b"MONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"

    await take_every_step(client)
    await client.command("ECHO", "all steps were taken")

    touched: Counter[tuple[str, str]] = Counter()
    async with asyncio.timeout(PATIENCE_S):
        while b"all steps were taken" not in (line := await reader.readline()):
            client, words = line.decode().split("]", 1)
            command, *arguments = re.findall(r'"((?:[^"\\]|\\.)*)"', words)
            if client.endswith("lua") and command.upper() not in {"TIME", "PUBLISH", "INFO"}:
                touched.update(
                    (command, key) for key in (arguments if command == "EXISTS" else arguments[:1])
                )
    writer.close()
    await writer.wait_closed()
    commands = {command for command, _ in touched}
    foreign = {key for _, key in touched if not key.startswith(keys.meta(RUN, 0).removesuffix("meta"))}
    assert {"SADD", "SREM", "RPUSH", "LPUSH", "LPOP", "ZADD", "ZREM", "EXISTS", "DEL"} <= commands
    assert foreign == {keys.pages(RUN), keys.page_counters(RUN)}


async def take_every_step(client: RedisClient) -> None:
    frontier = Frontier(client, RUN, 1)
    options: dict[str, Any] = {"ttl_ms": TTL_MS, "delay_ms": 0, "delays_ms": {}}
    hold = await frontier.acquire(0, "a", **options)
    assert hold is not None
    # Half of the domains have more than their state holds.
    paths = ["", *("x" * size for size in range(100, 104))]
    await frontier.admit(
        Candidate(f"https://d{number}.test/{path}")
        for number in range(100)
        for path in paths[: 1 + number % 2 * 4]
    )
    for outcome in Outcome:
        leases, _ = await frontier.lease([(hold, 3)], chain=2, chain_ms=1000)
        await frontier.settle(Settlement(lease, outcome, "why", page=b"page") for lease in leases)
    await frontier.lease([(hold, 3)], chain=2, chain_ms=1000)
    await frontier.renew([hold], TTL_MS)
    await frontier.park(hold, [("d1.test", "failures", 0), ("d2.test", "failures", -1)])
    await frontier.unpark({0: []})
    await frontier.unpark({0: ["d2.test"]})
    await frontier.acquire(0, "b", heir_of=["a"], **options)
    await frontier.release([hold])
