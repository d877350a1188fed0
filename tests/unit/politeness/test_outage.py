"""An outage of our own network is distinguished from dead sites."""

from __future__ import annotations

from crawlproj.politeness.outage import Outage


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
