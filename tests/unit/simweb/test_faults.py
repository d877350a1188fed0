"""A fault is a function of the attempt."""

from __future__ import annotations

import pytest

from crawlproj.simweb.faults import ALWAYS, Fault, answers_within, fault_at


def test_a_transient_fault_passes_after_its_failures() -> None:
    assert [fault_at(Fault.DROP, 2, attempt) for attempt in range(4)] == [Fault.DROP] * 2 + [Fault.NONE] * 2


def test_a_permanent_fault_never_passes() -> None:
    assert fault_at(Fault.ERROR, ALWAYS, 1000) is Fault.ERROR


def test_a_slow_page_stays_slow_and_still_answers() -> None:
    assert fault_at(Fault.SLOW, 0, 7) is Fault.SLOW
    assert answers_within(Fault.SLOW, 0, 1)


@pytest.mark.parametrize(("attempts", "answers"), [(1, False), (2, False), (3, True)])
def test_two_failures_need_three_attempts(attempts: int, answers: bool) -> None:
    assert answers_within(Fault.HANG, 2, attempts) is answers
