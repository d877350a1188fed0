"""An outage of our own network is distinguished from dead sites."""

from __future__ import annotations

from crawlproj.politeness.outage import Egress, Outage


def fail_all(outage: Outage, count: int, now_s: float = 1.0) -> list[bool]:
    return [outage.failed(f"d{number}.test", now_s) for number in range(count)]


def test_many_domains_that_fail_after_one_answered_are_excused() -> None:
    outage = Outage()
    outage.answered(0.0)

    excused = fail_all(outage, 20)

    assert excused == [False] * 15 + [True] * 5


def test_one_domain_that_fails_again_and_again_is_not_excused() -> None:
    outage = Outage()
    outage.answered(0.0)

    assert not any(outage.failed("d.test", 1.0) for _ in range(100))


def test_an_answer_ends_it() -> None:
    outage = Outage()
    outage.answered(0.0)
    fail_all(outage, 20)

    assert outage.answered(2.0)
    assert not outage.answered(3.0)
    assert not outage.failed("d.test", 4.0)


def test_sites_are_blamed_where_none_ever_answered_or_none_for_long() -> None:
    never, long_ago = Outage(), Outage()
    long_ago.answered(0.0)

    assert not any(fail_all(never, 50))
    assert any(fail_all(long_ago, 50, 1799.0))
    assert not any(fail_all(long_ago, 50, 1801.0))


def lost(egress: Egress, domains: int, now_s: float) -> bool:
    for number in range(domains):
        egress.failed(f"d{number}.test", f"http://d{number}.test/", now_s)
    return egress.is_lost(now_s)


def test_a_machine_has_lost_the_web_when_a_few_domains_have_failed_for_a_while() -> None:
    egress = Egress(15.0)

    assert [lost(egress, 3, now_s) for now_s in (0.0, 14.9, 15.0)] == [False, False, True]


def test_two_domains_are_too_few_and_an_answer_is_enough() -> None:
    two, answered = Egress(15.0), Egress(15.0)
    assert not any(lost(two, 2, now_s) for now_s in (0.0, 100.0))

    lost(answered, 3, 0.0)
    answered.answered("http://a.test/")

    assert not answered.is_lost(100.0)
    assert not lost(answered, 3, 101.0)


def test_what_answered_before_is_tried_first() -> None:
    egress = Egress(15.0)
    lost(egress, 3, 0.0)
    assert egress.samples == ["http://d0.test/", "http://d1.test/", "http://d2.test/"]

    egress.answered("http://a.test/")

    assert egress.samples == ["http://a.test/"]
