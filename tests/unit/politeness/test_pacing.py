"""Pacing: one at a time per domain, a delay after each end, and slower in trouble, never faster."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from crawlproj.model.records import Lease
from crawlproj.politeness.pacing import RETRYABLE, THROTTLED, DelayRules, DomainRule, Ended, Pacer

RULES = DelayRules(
    1.0, {"fast.test": DomainRule(0.5, at_once=3)}, factor=2.0, backoff_s=5.0, max_delay_s=60.0
)


def lease(domain: str, number: int = 1, *, fails: int = 0, delay_ms: int = 0, partition: int = 0) -> Lease:
    return Lease.from_token(f"{number} 1 {domain} 0 0 s/{number}".encode(), partition, 1, fails, delay_ms)


def filled(*leases: Lease) -> Pacer:
    pacer = Pacer(RULES)
    for one in leases:
        pacer.add(one, 0.0)
    return pacer


# -- how long a domain rests --

seconds = st.floats(0, 1000)
endings = st.builds(
    Ended,
    status=st.sampled_from([0, 200, 301, 404, 408, 429, 500, 502, 503, 504]),
    latency_s=seconds,
    retry_after_s=st.none() | seconds,
    error=st.sampled_from(["", "timeout"]),
)


@given(endings, seconds, st.integers(0, 60))
def test_a_rest_is_never_shorter_than_the_delay_nor_longer_than_the_bound(
    ended: Ended, delay_s: float, fails: int
) -> None:
    rest_s = RULES.wait_s(delay_s, ended, fails)

    assert delay_s <= rest_s <= max(delay_s, RULES.max_delay_s)


@given(endings, seconds, st.integers(0, 60))
def test_more_failures_in_a_row_never_shorten_a_rest(ended: Ended, delay_s: float, fails: int) -> None:
    assert RULES.wait_s(delay_s, ended, fails) <= RULES.wait_s(delay_s, ended, fails + 1)


@pytest.mark.parametrize(
    ("ended", "fails", "rest_s"),
    [
        (Ended(200), 0, 1.0),
        (Ended(200, latency_s=3.0), 0, 6.0),
        (Ended(200, latency_s=300.0), 0, 60.0),
        (Ended(500), 0, 1.0),
        (Ended(429), 0, 5.0),
        (Ended(503), 1, 10.0),
        (Ended(503), 3, 40.0),
        (Ended(503), 9, 60.0),
        (Ended(error="timeout"), 2, 20.0),
        (Ended(429, retry_after_s=2.0), 0, 2.0),
        (Ended(429, retry_after_s=2.0), 1, 10.0),
        (Ended(503, retry_after_s=30.0), 1, 30.0),
        (Ended(503, retry_after_s=86_400.0), 0, 60.0),
        (Ended(429, retry_after_s=0.0), 0, 1.0),
        (Ended(200, retry_after_s=30.0), 0, 1.0),
    ],
)
def test_a_domain_rests_as_long_as_its_answer_asks_for(ended: Ended, fails: int, rest_s: float) -> None:
    assert RULES.wait_s(1.0, ended, fails) == rest_s


def test_what_throttles_is_also_worth_another_try() -> None:
    assert THROTTLED <= RETRYABLE
    assert [Ended(status).retryable for status in (200, 404, 429, 500)] == [False, False, True, True]
    assert Ended(error="dns").retryable


# -- which URL may go --


def test_a_domain_has_one_request_at_a_time_and_rests_after_its_end() -> None:
    pacer = filled(lease("a.test", 1), lease("a.test", 2))

    first = pacer.take(0.0)
    assert first is not None
    assert first.number == 1
    assert pacer.take(100.0) is None

    assert pacer.ended("a.test", Ended(200), 100.0) == 101.0
    assert pacer.take(100.999) is None
    assert pacer.due_in_s(100.25) == 0.75
    second = pacer.take(101.0)
    assert second is not None
    assert second.number == 2


def test_other_domains_go_meanwhile() -> None:
    pacer = filled(*(lease(f"d{number}.test") for number in range(50)), lease("d0.test", 2))

    taken = [pacer.take(0.0) for _ in range(51)]

    assert len({one.domain for one in taken if one}) == 50
    assert taken[50] is None


def test_several_at_once_start_a_delay_apart() -> None:
    pacer = filled(*(lease("fast.test", number) for number in range(1, 6)))

    starts = [now_s / 10 for now_s in range(40) if pacer.take(now_s / 10)]

    assert starts == [0.0, 0.5, 1.0]
    pacer.ended("fast.test", Ended(200), 4.0)
    assert pacer.take(4.4) is None
    assert pacer.take(4.5) is not None


def test_the_delay_and_failures_a_lease_brings_are_kept() -> None:
    pacer = filled(lease("a.test", 1, fails=2, delay_ms=7000), lease("a.test", 2))

    assert pacer.delay_s("a.test") == 7.0
    pacer.take(0.0)
    assert pacer.ended("a.test", Ended(503), 0.0) == 20.0


def test_a_setting_longer_than_the_delay_a_lease_brings_wins() -> None:
    assert filled(lease("a.test", delay_ms=10)).delay_s("a.test") == 1.0


def test_nothing_goes_while_the_robots_txt_is_asked_for_then_the_same_url_first() -> None:
    pacer = filled(*(lease("fast.test", number) for number in (1, 2)))
    first = pacer.take(0.0)
    assert first is not None

    pacer.ask_first(first)

    assert pacer.buffered == 2
    assert pacer.take(100.0) is None
    pacer.asked("fast.test", Ended(200), 100.0)
    assert pacer.take(100.5) is first


def test_the_end_of_another_request_does_not_have_the_robots_txt_asked_for_twice() -> None:
    pacer = filled(*(lease("fast.test", number) for number in (1, 2, 3)))
    pacer.take(0.0)
    second = pacer.take(0.5)
    assert second is not None
    pacer.ask_first(second)

    pacer.ended("fast.test", Ended(200), 1.0)

    assert pacer.take(100.0) is None
    assert [one.number for one, _ in pacer.withdraw(lambda _: True)] == [3]


def test_a_crawl_delay_slows_down_from_the_next_end_and_never_speeds_up() -> None:
    pacer = filled(lease("fast.test", 1), lease("fast.test", 2))
    pacer.take(0.0)

    assert pacer.slow_down("fast.test", 10.0)
    assert not pacer.slow_down("fast.test", 2.0)
    assert pacer.take(5.0) is None
    assert pacer.ended("fast.test", Ended(200), 5.0) == 15.0


def test_a_crawl_delay_is_bounded() -> None:
    pacer = filled(lease("a.test"))

    pacer.slow_down("a.test", 10_000.0)

    assert pacer.delay_s("a.test") == 60.0


def test_a_url_that_needed_no_request_costs_no_rest() -> None:
    pacer = filled(lease("a.test", 1), lease("a.test", 2))
    first = pacer.take(3.0)
    assert first is not None

    assert pacer.skip(first) == 3.0
    assert pacer.take(3.0) is not None


def test_leases_withdrawn_come_last_lent_first_with_the_time_their_domain_is_due() -> None:
    pacer = filled(*(lease("a.test", number) for number in (1, 2, 3)), lease("b.test", 4))
    pacer.take(0.0)
    pacer.ended("a.test", Ended(200), 5.0)

    gone = pacer.withdraw(lambda one: one.domain == "a.test")

    assert [(one.number, next_at_s) for one, next_at_s in gone] == [(3, 6.0), (2, 6.0)]
    assert pacer.buffered == 1
    remaining = pacer.take(9.0)
    assert remaining is not None
    assert remaining.domain == "b.test"
    assert pacer.take(9.0) is None


def test_the_lease_for_which_robots_txt_is_being_fetched_cannot_be_withdrawn() -> None:
    pacer = filled(lease("a.test", 1), lease("a.test", 2))
    asked = pacer.take(0.0)
    assert asked is not None
    pacer.ask_first(asked)

    assert [one.number for one, _ in pacer.withdraw(lambda _: True)] == [2]

    pacer.asked("a.test", Ended(200), 1.0)
    assert pacer.take(2.0) is asked


class PacerMachine(RuleBasedStateMachine):
    """Any order of events, checked against what a server would see."""

    def __init__(self) -> None:
        super().__init__()
        self.pacer = Pacer(RULES)
        self.now_s = 0.0
        self.number = 0
        self.waiting: list[Lease] = []
        self.flying: list[Lease] = []
        self.asking: list[Lease] = []
        self.not_before_s: dict[str, float] = {}

    @rule(domain=st.sampled_from(["a.test", "b.test", "fast.test"]))
    def add(self, domain: str) -> None:
        self.number += 1
        self.waiting.append(lease(domain, self.number))
        self.pacer.add(self.waiting[-1], max(self.now_s, self.not_before_s.get(domain, 0.0)))

    @rule(seconds=st.sampled_from([0.1, 0.5, 1.0, 7.0]))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(ask=st.booleans())
    def take(self, ask: bool) -> None:
        taken = self.pacer.take(self.now_s)
        if taken is None:
            return
        first = next(one for one in self.waiting if one.domain == taken.domain)
        assert taken is first
        assert self.now_s >= self.not_before_s.get(taken.domain, 0.0)
        assert taken.domain not in [one.domain for one in self.asking]
        if ask:
            self.pacer.ask_first(taken)
            self.asking.append(taken)
        else:
            self.waiting.remove(taken)
            self.flying.append(taken)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), ended=endings)
    def end(self, data: st.DataObject, ended: Ended) -> None:
        one = data.draw(st.sampled_from(self.flying))
        self.flying.remove(one)
        self._ended(one.domain, self.pacer.ended(one.domain, ended, self.now_s))

    @precondition(lambda self: self.asking)
    @rule(ended=endings)
    def robots_end(self, ended: Ended) -> None:
        domain = self.asking.pop().domain
        self._ended(domain, self.pacer.asked(domain, ended, self.now_s))

    def _ended(self, domain: str, next_at_s: float) -> None:
        assert next_at_s >= self.now_s + RULES.rule(domain).delay_s
        self.not_before_s[domain] = max(self.not_before_s.get(domain, 0.0), next_at_s)

    @rule(domain=st.sampled_from(["a.test", "fast.test"]))
    def withdraw(self, domain: str) -> None:
        expected = [one for one in self.waiting if one.domain == domain and one not in self.asking]

        gone = self.pacer.withdraw(lambda one: one.domain == domain)

        assert [one for one, _ in gone] == expected[::-1]
        assert all(next_at_s >= self.not_before_s.get(domain, 0.0) for _, next_at_s in gone)
        self.waiting = [one for one in self.waiting if one not in expected]

    @invariant()
    def none_has_too_many_at_once(self) -> None:
        at_once = Counter(one.domain for one in [*self.flying, *self.asking])
        assert all(count <= RULES.rule(domain).at_once for domain, count in at_once.items())
        assert self.pacer.buffered == len(self.waiting)

    def teardown(self) -> None:
        """Whatever happened, everything can be brought to an end, and then nothing is left behind."""
        for one in self.flying:
            self.pacer.ended(one.domain, Ended(200), self.now_s)
        for one in self.asking:
            self.pacer.asked(one.domain, Ended(200), self.now_s)
        for _ in range(len(self.waiting)):
            self.now_s += 100.0
            taken = self.pacer.take(self.now_s)
            assert taken is not None
            self.pacer.ended(taken.domain, Ended(200), self.now_s)
        assert self.pacer.take(self.now_s + 100.0) is None
        assert (self.pacer.buffered, self.pacer._lines, self.pacer._heap) == (0, {}, [])


TestAnyOrderOfEvents = PacerMachine.TestCase
TestAnyOrderOfEvents.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
