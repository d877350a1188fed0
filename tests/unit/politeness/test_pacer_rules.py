"""Other delays while domains are being fetched: a longer one counts at once, what a site asked for stays."""

from __future__ import annotations

import pytest

from crawlproj.politeness.pacing import DelayRules, DomainRule, Ending, Pacer
from tests.unit.politeness.test_pacing import filled, lease, taken

ONE_S, FIVE_S = DelayRules(1.0), DelayRules(5.0)


def end(pacer: Pacer, status: int = 200, now_s: float = 0.0) -> float:
    """End the request of a domain; returns when it may be requested next."""
    return pacer.ended(taken(pacer, now_s), Ending(status=status), now_s)[0]


def two_leases(rules: DelayRules) -> Pacer:
    return filled(lease("a.test", 1), lease("a.test", 2), rules=rules)


@pytest.mark.parametrize(("before", "after", "rest_s"), [(ONE_S, FIVE_S, 5.0), (FIVE_S, ONE_S, 1.0)])
def test_a_request_in_flight_ends_with_the_new_delay(
    before: DelayRules, after: DelayRules, rest_s: float
) -> None:
    pacer = two_leases(before)
    request = taken(pacer)

    pacer.change(after)

    assert pacer.ended(request, Ending(status=200), 0.0)[0] == rest_s


def test_a_crawl_delay_stays_when_the_delay_becomes_shorter_and_gives_way_to_a_longer_one() -> None:
    pacer = two_leases(ONE_S)
    pacer.slow_down("a.test", 3.0)

    pacer.change(DelayRules(0.1))
    shorter_s = pacer.delay_s("a.test")
    pacer.change(FIVE_S)

    assert (shorter_s, pacer.delay_s("a.test")) == (3.0, 5.0)


def test_a_site_that_throttled_us_is_not_asked_faster() -> None:
    pacer = filled(lease("a.test", 1, delay_ms=8000), lease("a.test", 2), rules=ONE_S)

    pacer.change(DelayRules(0.1))

    assert pacer.delay_s("a.test") == 8.0


def test_how_many_requests_a_domain_gets_at_once_follows_unless_it_has_a_crawl_delay() -> None:
    many = DelayRules(1.0, {"a.test": DomainRule(0.0, at_once=2), "b.test": DomainRule(0.0, at_once=2)})
    pacer = filled(*(lease(f"{name}.test", n) for name in "ab" for n in (1, 2)), rules=ONE_S)
    pacer.slow_down("b.test", 3.0)

    pacer.change(many)

    assert [taken(pacer).domain for _ in range(3)].count("a.test") == 2
    assert pacer.take(0.0) is None


def test_domains_that_come_later_have_the_new_delay() -> None:
    pacer = Pacer(ONE_S)
    pacer.change(FIVE_S)
    pacer.add(lease("a.test"), 0.0)

    assert end(pacer) == 5.0
