"""When partitions are read."""

from __future__ import annotations

import math

import pytest

from crawlproj.frontier.due import DueTimes


def test_an_answer_says_when_a_partition_is_read() -> None:
    due = DueTimes()

    due.note({1: 500, 2: -1, 3: 0}, {1, 2}, now_s=10.0)

    assert due.at_s == {1: pytest.approx(10.47), 2: math.inf}


def test_a_wake_that_overtakes_an_answer_is_not_forgotten() -> None:
    due = DueTimes()
    due.begin_call()

    # The order in which two connections may well deliver: the wake, then the answer that is older than it.
    due.wake({3}, 5.0)
    due.note({3: -1, 4: -1}, {3, 4}, now_s=6.0)

    assert due.at_s == {3: 5.0, 4: math.inf}


def test_the_next_answer_counts_again() -> None:
    due = DueTimes()
    due.wake({3}, 5.0)

    due.begin_call()
    due.note({3: -1}, {3}, now_s=6.0)

    assert due.at_s == {3: math.inf}
