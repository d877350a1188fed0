"""How much is leased, by how full the page queue is and what a limit leaves."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crawlproj.frontier.pressure import (
    QUEUE_LOOK_S,
    QueueLimits,
    QueuePressure,
    plan_leases,
    within_promise,
)


def test_less_is_leased_above_the_soft_limit_and_nothing_from_the_hard_one_until_below_the_soft_one() -> None:
    pressure = QueuePressure(QueueLimits(100, 200))

    seen = []
    for pages in (50, 100, 150, 200, 150, 100, 99, 160):
        level = pressure.update(pages, 0, 0.0)
        seen.append((pages, level, round(pressure.share, 2)))

    assert seen == [
        (50, "", 1.0),
        (100, "", 1.0),
        (150, "soft", 0.5),
        (200, "hard", 0.0),
        (150, "", 0.0),
        (100, "", 0.0),
        (99, "", 1.0),
        (160, "soft", 0.4),
    ]


def test_while_redis_is_short_of_room_nothing_is_leased_until_all_pages_are_stored() -> None:
    pressure = QueuePressure(QueueLimits(100, 200))

    seen = []
    for pages, unstored in ((50, None), (50, 60), (0, 10), (0, 0), (10, 10), (10, None)):
        level = pressure.update(pages, 0, 0.0, unstored_when_short=unstored)
        seen.append((pages, unstored, level, pressure.share))

    assert seen == [
        (50, None, "", 1.0),
        (50, 60, "memory", 0.0),
        (0, 10, "", 0.0),
        (0, 0, "", 1.0),
        (10, 10, "", 0.0),
        (10, None, "", 1.0),
    ]


def test_bytes_count_as_pages_do() -> None:
    pressure = QueuePressure(QueueLimits(100, 200, 1000, 2000))

    assert (pressure.update(0, 1500, 0.0), pressure.share) == ("soft", 0.5)
    assert (pressure.update(0, 2000, 0.0), pressure.share) == ("hard", 0.0)


def test_the_length_of_the_queue_is_read_again_after_a_while() -> None:
    pressure = QueuePressure(QueueLimits(1, 2))

    assert pressure.is_stale(0.0)
    pressure.update(0, 0, 10.0)

    assert not pressure.is_stale(10.0 + QUEUE_LOOK_S / 2)
    assert pressure.is_stale(10.0 + 2 * QUEUE_LOOK_S)


@given(st.dictionaries(st.integers(0, 63), st.floats(0, 100), min_size=1), st.integers(1, 500))
def test_a_plan_fills_the_room_and_serves_those_that_wait_longest_first(
    due_at_s: dict[int, float], room: int
) -> None:
    plan = plan_leases(due_at_s, room)

    left_out = due_at_s.keys() - set(plan.partitions)
    assert room <= plan.total < room + len(plan.partitions)
    assert all(due_at_s[p] <= due_at_s[q] for p in plan.partitions for q in left_out)


@given(st.integers(1, 64), st.integers(1, 500), st.integers(1, 500))
def test_no_more_is_leased_than_was_promised(partitions: int, room: int, promised: int) -> None:
    plan = plan_leases(dict.fromkeys(range(partitions), 0.0), room)

    assert 0 < within_promise(plan, min(promised, plan.total)).total <= min(promised, plan.total)
