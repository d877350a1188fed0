from __future__ import annotations

import math

from crawlproj.frontier.rests import Rest, Rests


def test_a_rest_is_kept_until_it_is_over() -> None:
    rests = Rests()

    rests.note("a.test", Rest(10.0), 5.0)

    assert rests.resting(9.9) == [("a.test", Rest(10.0))]
    assert rests.resting(10.0) == []


def test_the_longest_rest_of_a_domain_counts_whatever_came_last() -> None:
    rests = Rests()

    for until_s in (10.0, 30.0, 20.0):
        rests.note("a.test", Rest(until_s), 5.0)

    assert rests.resting(5.0) == [("a.test", Rest(30.0))]


def test_a_domain_parked_for_as_long_as_it_rests_is_parked() -> None:
    rests = Rests()

    rests.note("a.test", Rest(10.0), 5.0)
    rests.note("a.test", Rest(10.0, "failures"), 5.0)
    rests.note("a.test", Rest(10.0), 5.0)

    assert rests.resting(5.0) == [("a.test", Rest(10.0, "failures"))]


def test_rests_that_are_over_are_dropped_as_others_come_and_no_other() -> None:
    rests = Rests()
    rests.note("parked.test", Rest(math.inf, "byte_budget"), 0.0)

    for number in range(10_000):
        rests.note(f"d{number}.test", Rest(number + 1.0), number)

    assert len(rests) <= 1002
    assert rests.resting(9999.0) == [
        ("parked.test", Rest(math.inf, "byte_budget")),
        ("d9999.test", Rest(10_000.0)),
    ]


def test_what_is_left_of_a_rest_is_rounded_up_and_of_an_endless_one_as_the_caller_says() -> None:
    assert Rest(1.0001).wait_ms(0.0, -1) == 1001
    assert Rest(1.0).wait_ms(2.0, -1) == 0
    assert Rest(math.inf).wait_ms(0.0, -1) == -1
