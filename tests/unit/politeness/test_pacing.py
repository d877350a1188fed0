"""Pacing: one at a time per domain, a delay after each end, and slower in trouble, never faster."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from crawlproj.model.records import Lease
from crawlproj.politeness.pacing import (
    MOST_RETRY_AFTER_S,
    DelayRules,
    DomainRule,
    Ending,
    Pacer,
    Rest,
    Trouble,
)

RULES = DelayRules(
    1.0,
    {"fast.test": DomainRule(0.5, at_once=3)},
    factor=2.0,
    max_delay_s=60.0,
    backoff_s=5.0,
    max_backoff_s=100.0,
)
PARKING = replace(RULES, give_up=3, parked_s=1000.0)
DAY_S = 86_400.0


def lease(domain: str, number: int = 1, *, fails: int = 0, delay_ms: int = 0, partition: int = 0) -> Lease:
    return Lease.from_token(f"{number} 1 {domain} 0 0 s/{number}".encode(), partition, 1, fails, delay_ms)


def filled(*leases: Lease, rules: DelayRules = RULES) -> Pacer:
    pacer = Pacer(rules)
    for one in leases:
        pacer.add(one, 0.0)
    return pacer


def taken(pacer: Pacer, now_s: float = 0.0) -> Lease:
    lease = pacer.take(now_s)
    assert lease is not None
    return lease


# -- how long a domain rests --

seconds = st.floats(0, 1000)
endings = st.builds(
    Ending,
    status=st.sampled_from([0, 200, 301, 404, 408, 429, 500, 502, 503, 504, 522]),
    latency_s=seconds,
    retry_after_s=st.none() | seconds,
    error=st.sampled_from(["", "timeout"]),
    error_means=st.sampled_from(Trouble),
)
all_rules = st.sampled_from([RULES, PARKING])


@given(all_rules, endings, seconds, st.integers(0, 60))
def test_a_rest_is_never_shorter_than_the_delay_nor_longer_than_the_bound_unless_parked(
    rules: DelayRules, ended: Ending, delay_s: float, fails: int
) -> None:
    rest = rules.rest(delay_s, ended, fails)

    assert rest.wait_s >= (0.0 if rest.park else delay_s)
    assert rest.park or rest.wait_s <= max(delay_s, rules.max_backoff_s)


@given(all_rules, endings, seconds, st.integers(0, 60))
def test_more_failures_in_a_row_never_shorten_a_rest(
    rules: DelayRules, ended: Ending, delay_s: float, fails: int
) -> None:
    assert rules.rest(delay_s, ended, fails).wait_s <= rules.rest(delay_s, ended, fails + 1).wait_s


@given(all_rules, endings, seconds, st.integers(0, 60))
def test_a_site_with_a_retry_after_is_not_requested_before(
    rules: DelayRules, ended: Ending, delay_s: float, fails: int
) -> None:
    if ended.hurts_site and ended.retry_after_s is not None:
        assert rules.rest(delay_s, ended, fails).wait_s >= ended.retry_after_s


@pytest.mark.parametrize(
    ("ended", "fails", "rest_s"),
    [
        (Ending(200), 0, 1.0),
        (Ending(200, latency_s=3.0), 0, 6.0),
        (Ending(200, latency_s=300.0), 0, 60.0),
        (Ending(500), 0, 1.0),
        (Ending(429), 0, 5.0),
        (Ending(503), 1, 10.0),
        (Ending(522), 3, 40.0),
        (Ending(503), 9, 100.0),
        (Ending(error="timeout"), 2, 20.0),
        (Ending(error="too big", error_means=Trouble.FINAL), 2, 1.0),
        (Ending(error="cut", error_means=Trouble.PAGE), 2, 1.0),
        (Ending(429, retry_after_s=2.0), 0, 2.0),
        (Ending(429, retry_after_s=2.0), 1, 10.0),
        (Ending(503, retry_after_s=30.0), 1, 30.0),
        (Ending(503, retry_after_s=100.0), 0, 100.0),
        (Ending(429, retry_after_s=0.0), 0, 1.0),
        (Ending(200, retry_after_s=30.0), 0, 1.0),
    ],
)
def test_a_domain_rests_as_long_as_its_answer_asks_for(ended: Ending, fails: int, rest_s: float) -> None:
    assert RULES.rest(1.0, ended, fails) == Rest(rest_s)


@pytest.mark.parametrize(
    ("rules", "ended", "fails", "rest"),
    [
        (PARKING, Ending(503), 1, Rest(10.0)),
        (PARKING, Ending(503), 2, Rest(1000.0, "failures")),
        (PARKING, Ending(error="dns"), 3, Rest(2000.0, "failures")),
        (PARKING, Ending(error="dns"), 7, Rest(32_000.0, "failures")),
        (PARKING, Ending(error="dns"), 900, Rest(MOST_RETRY_AFTER_S, "failures")),
        (PARKING, Ending(429, retry_after_s=2000.0), 2, Rest(2000.0, "failures")),
        (PARKING, Ending(200), 2, Rest(1.0)),
        (PARKING, Ending(500), 2, Rest(1.0)),
        (RULES, Ending(503), 50, Rest(100.0)),
        (RULES, Ending(503, retry_after_s=101.0), 0, Rest(101.0, "retry_after")),
        (RULES, Ending(429, retry_after_s=1e12), 0, Rest(30 * DAY_S, "retry_after")),
    ],
)
def test_a_site_that_fails_too_often_or_asks_for_too_long_a_rest_is_parked(
    rules: DelayRules, ended: Ending, fails: int, rest: Rest
) -> None:
    assert rules.rest(1.0, ended, fails) == rest


@pytest.mark.parametrize(
    ("ended", "trouble", "retryable"),
    [
        (Ending(200), Trouble.NONE, False),
        (Ending(404), Trouble.NONE, False),
        (Ending(501), Trouble.NONE, False),
        (Ending(408), Trouble.PAGE, True),
        (Ending(500), Trouble.PAGE, True),
        (Ending(429), Trouble.SITE, True),
        (Ending(502), Trouble.SITE, True),
        (Ending(524), Trouble.SITE, True),
        (Ending(error="timeout"), Trouble.ANSWER, True),
        (Ending(error="dns", error_means=Trouble.SITE), Trouble.SITE, True),
        (Ending(error="cut", error_means=Trouble.PAGE), Trouble.PAGE, True),
        (Ending(error="refused", error_means=Trouble.FINAL), Trouble.FINAL, False),
        (Ending(200, error="cut short", error_means=Trouble.FINAL), Trouble.FINAL, False),
    ],
)
def test_what_an_end_says_of_the_site_and_of_another_try(
    ended: Ending, trouble: Trouble, retryable: bool
) -> None:
    assert (ended.trouble, ended.retryable) == (trouble, retryable)


@pytest.mark.parametrize(
    ("give_up", "ended", "attempts"),
    [
        (8, Ending(500), 3),
        (8, Ending(error="timeout"), 3),
        (8, Ending(429), 8),
        (2, Ending(429), 3),
        (8, Ending(error="dns", error_means=Trouble.SITE), 8),
    ],
)
def test_a_url_has_more_tries_where_its_site_is_to_blame(give_up: int, ended: Ending, attempts: int) -> None:
    assert replace(RULES, give_up=give_up).attempts(ended, 3) == attempts


# -- which URL may go --


def test_a_domain_has_one_request_at_a_time_and_rests_after_its_end() -> None:
    pacer = filled(lease("a.test", 1), lease("a.test", 2))

    first = pacer.take(0.0)
    assert first is not None
    assert first.number == 1
    assert pacer.take(100.0) is None

    assert pacer.ended(first, Ending(200), 100.0) == (101.0, "")
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


def test_a_domain_leased_ahead_is_not_requested_sooner() -> None:
    early = lease("a.test")
    early.wait_ms = 500
    pacer = filled(early)

    assert pacer.take(0.499) is None
    assert pacer.due_in_s(0.4) == pytest.approx(0.1)
    assert pacer.take(0.5) is early


def test_several_at_once_start_a_delay_apart() -> None:
    pacer = filled(*(lease("fast.test", number) for number in range(1, 6)))

    taken = [(now_s / 10, one) for now_s in range(40) if (one := pacer.take(now_s / 10))]

    assert [start_s for start_s, _ in taken] == [0.0, 0.5, 1.0]
    pacer.ended(taken[0][1], Ending(200), 4.0)
    assert pacer.take(4.4) is None
    assert pacer.take(4.5) is not None


def test_the_delay_and_failures_a_lease_brings_are_kept() -> None:
    pacer = filled(lease("a.test", 1, fails=2, delay_ms=7000), lease("a.test", 2))

    assert pacer.delay_s("a.test") == 7.0
    first = taken(pacer)
    assert pacer.ended(first, Ending(503), 0.0) == (20.0, "")


def test_a_setting_longer_than_the_delay_a_lease_brings_wins() -> None:
    assert filled(lease("a.test", delay_ms=10)).delay_s("a.test") == 1.0


def test_nothing_goes_while_the_robots_txt_is_fetched_then_the_same_url_first() -> None:
    pacer = filled(*(lease("fast.test", number) for number in (1, 2)))
    first = pacer.take(0.0)
    assert first is not None

    pacer.fetch_robots_first(first)

    assert pacer.buffered == 2
    assert pacer.take(100.0) is None
    pacer.robots_ended("fast.test", Ending(200), 100.0)
    assert pacer.take(100.5) is first


def test_the_end_of_another_request_does_not_have_the_robots_txt_fetched_twice() -> None:
    pacer = filled(*(lease("fast.test", number) for number in (1, 2, 3)))
    first, second = taken(pacer), taken(pacer, 0.5)
    pacer.fetch_robots_first(second)

    pacer.ended(first, Ending(200), 1.0)

    assert pacer.take(100.0) is None
    assert [one.number for one, _ in pacer.withdraw(lambda _: True)] == [3]


def test_a_crawl_delay_slows_down_from_the_next_end_and_never_speeds_up() -> None:
    pacer = filled(lease("fast.test", 1), lease("fast.test", 2))
    first = taken(pacer)

    assert pacer.slow_down("fast.test", 10.0)
    assert not pacer.slow_down("fast.test", 2.0)
    assert pacer.take(5.0) is None
    assert pacer.ended(first, Ending(200), 5.0) == (15.0, "")


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


def test_withdrawn_leases_come_last_leased_first_with_the_time_their_domain_is_due() -> None:
    pacer = filled(*(lease("a.test", number) for number in (1, 2, 3)), lease("b.test", 4))
    pacer.ended(taken(pacer), Ending(200), 5.0)

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
    pacer.fetch_robots_first(asked)

    assert [one.number for one, _ in pacer.withdraw(lambda _: True)] == [2]

    pacer.robots_ended("a.test", Ending(200), 1.0)
    assert pacer.take(2.0) is asked


# -- slower in trouble --


def in_turn(pacer: Pacer, *answers: Ending) -> list[Lease]:
    """Fetch one after the other as soon as it may go; returns the leases as they are after that."""
    now_s, leases = 0.0, []
    for ended in answers:
        now_s += pacer.due_in_s(now_s) or 0.0
        leases.append(taken(pacer, now_s))
        pacer.ended(leases[-1], ended, now_s)
    return leases


def line_of(count: int, rules: DelayRules = RULES) -> Pacer:
    return filled(*(lease("a.test", number) for number in range(1, count + 1)), rules=rules)


def test_failures_in_a_row_are_counted_by_site_and_ended_by_an_answer() -> None:
    answers = [
        Ending(503),
        Ending(error="dns"),
        Ending(error="too big", error_means=Trouble.FINAL),
        Ending(429),
        Ending(500),
        Ending(502),
        Ending(404),
    ]

    leases = in_turn(line_of(8), *answers)

    assert [one.fails for one in leases] == [1, 2, 2, 3, 0, 1, 0]


@pytest.mark.parametrize(
    ("fetched", "answers", "parked_at"),
    [
        (0, [], 3),
        (0, [Ending(200)], 6),
        (0, [Ending(503)], 6),
        (7, [], 6),
    ],
)
def test_a_domain_that_was_never_reached_is_parked_sooner(
    fetched: int, answers: list[Ending], parked_at: int
) -> None:
    rules = replace(PARKING, give_up=6, max_backoff_s=20.0)
    pacer = Pacer(rules)
    first = Lease.from_token(b"1 1 a.test 0 0 s/1", 0, 1, fetched=fetched)
    for one in (first, *(lease("a.test", number) for number in range(2, 9))):
        pacer.add(one, 0.0)
    failing = [*(ended for ended in answers if ended.hurts_site), *[Ending(error="dns")] * 7]

    ends: list[tuple[float, str]] = []
    for ended in [ended for ended in answers if not ended.hurts_site] + failing:
        taken = pacer.take(1000.0 * len(ends))
        assert taken is not None
        ends.append(pacer.ended(taken, ended, 1000.0 * len(ends)))
        if ended.hurts_site and ends[-1][1]:
            break

    answered = len(answers) - sum(ended.hurts_site for ended in answers)
    assert (len(ends) - answered, ends[-1][1]) == (parked_at, "failures")


def test_a_domain_that_throttles_us_has_its_delay_doubled_and_brought_back_step_by_step() -> None:
    answers = [
        Ending(429),
        Ending(503),
        Ending(502),
        Ending(200),
        Ending(200),
        Ending(500),
        *[Ending(200)] * 40,
    ]

    delays_ms = [one.delay_ms for one in in_turn(line_of(50), *answers)]

    assert delays_ms[:6] == [2000, 4000, 4000, 3800, 3610, 3610]
    assert delays_ms[6:] == sorted(delays_ms[6:], reverse=True)
    assert delays_ms[-1] == 1000


def test_a_delay_grows_to_its_bound_and_one_set_longer_than_that_stays() -> None:
    delays_ms = [one.delay_ms for one in in_turn(line_of(9), *[Ending(429)] * 8)]
    slow = DelayRules(90.0, max_delay_s=60.0)

    assert delays_ms == [2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000, 60_000]
    assert [one.delay_ms for one in in_turn(line_of(3, slow), Ending(429), Ending(200))] == [90_000, 90_000]


def test_a_crawl_delay_is_the_least_a_delay_comes_back_to() -> None:
    pacer = line_of(60)
    first = taken(pacer)
    pacer.slow_down("a.test", 3.0)
    pacer.ended(first, Ending(200), 0.0)

    leases = in_turn(pacer, Ending(429), *[Ending(200)] * 50)

    assert [leases[0].delay_ms, leases[-1].delay_ms] == [6000, 3000]


def test_the_state_of_a_domain_is_passed_to_its_next_owner_by_its_last_lease() -> None:
    [last] = in_turn(line_of(1), Ending(429))
    next_owner = filled(lease("a.test", 2, fails=last.fails, delay_ms=last.delay_ms))

    [later] = in_turn(next_owner, Ending(429))

    assert (last.fails, last.delay_ms) == (1, 2000)
    assert (later.fails, later.delay_ms) == (2, 4000)


def test_withdrawn_or_skipped_leases_carry_the_state_of_their_domain() -> None:
    pacer = line_of(4)
    in_turn(pacer, Ending(429))
    skipped = taken(pacer, 100.0)
    pacer.skip(skipped)

    gone = [one for one, _ in pacer.withdraw(lambda _: True)]

    assert {(one.fails, one.delay_ms) for one in [skipped, *gone]} == {(1, 2000)}
    assert len(gone) == 2


def test_a_robots_txt_that_cannot_be_fetched_is_a_failure_of_the_domain() -> None:
    pacer = line_of(2, PARKING)
    ends = []
    for now_s in (0.0, 1000.0, 2000.0):
        pacer.fetch_robots_first(taken(pacer, now_s))
        ends.append(pacer.robots_ended("a.test", Ending(error="dns"), now_s))

    assert ends == [(5.0, ""), (1010.0, ""), (3000.0, "failures")]


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
            self.pacer.fetch_robots_first(taken)
            self.asking.append(taken)
        else:
            self.waiting.remove(taken)
            self.flying.append(taken)

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), ended=endings)
    def end(self, data: st.DataObject, ended: Ending) -> None:
        one = data.draw(st.sampled_from(self.flying))
        self.flying.remove(one)
        self._ended(one.domain, self.pacer.ended(one, ended, self.now_s)[0])

    @precondition(lambda self: self.asking)
    @rule(ended=endings)
    def robots_end(self, ended: Ending) -> None:
        domain = self.asking.pop().domain
        self._ended(domain, self.pacer.robots_ended(domain, ended, self.now_s)[0])

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
            self.pacer.ended(one, Ending(200), self.now_s)
        for one in self.asking:
            self.pacer.robots_ended(one.domain, Ending(200), self.now_s)
        for _ in range(len(self.waiting)):
            self.now_s += 2000.0
            taken = self.pacer.take(self.now_s)
            assert taken is not None
            self.pacer.ended(taken, Ending(200), self.now_s)
        assert self.pacer.take(self.now_s + 2000.0) is None
        assert (self.pacer.buffered, self.pacer._lines, self.pacer._heap) == (0, {}, [])


TestAnyOrderOfEvents = PacerMachine.TestCase
TestAnyOrderOfEvents.settings = settings(max_examples=60, stateful_step_count=40)
