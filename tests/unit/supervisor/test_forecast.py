"""How far a crawl is and how long it will take: only where that can be known."""

from __future__ import annotations

from typing import Any

import pytest

from crawlproj.runs import Limits
from crawlproj.supervisor.forecast import FrontierTrend, duration, forecast, size

STATUS: dict[str, Any] = {"fetched": 1500, "failed": 20, "skipped": 30, "waiting": 400, "leased": 50}


def told(limits: Limits, pages_per_s: float = 10.0, falls_per_s: float = 0.0, **changes: Any) -> str:
    return str(forecast(STATUS | changes, limits, pages_per_s, falls_per_s, 60))


def test_without_limits_nothing_is_known_of_a_growing_frontier() -> None:
    assert forecast(STATUS, Limits(), 10.0, 0.0, 60) is None


def test_the_time_to_a_limit_of_pages_follows_from_the_pace() -> None:
    assert told(Limits(pages=3000)) == "50% of 3,000 pages, about 0:02:30 left"


def test_the_limit_reached_first_is_the_one_shown() -> None:
    limits = Limits(pages=3000, seconds=120)

    assert told(limits, ran_seconds=90.0) == "75% of 0:02:00, about 0:00:30 left"
    assert told(limits, 100.0, ran_seconds=90.0) == "50% of 3,000 pages, about 0:00:15 left"


def test_a_byte_limit_shows_what_was_fetched_so_far() -> None:
    assert told(Limits(bytes=100_000_000), ran_seconds=100.0, bytes=25_000_000) == (
        "25% of 100 MB, about 0:05:00 left"
    )


def test_while_nothing_is_fetched_no_time_is_promised() -> None:
    assert told(Limits(pages=3000), 0.0) == "50% of 3,000 pages"


def test_a_limit_lower_than_what_is_fetched_is_full_and_not_fuller() -> None:
    assert told(Limits(pages=100)) == "100% of 100 pages"


def test_a_shrinking_frontier_shows_what_is_left_of_all_urls() -> None:
    # 1,550 are done, 450 are left.
    assert told(Limits(), falls_per_s=5.0) == "78% of 2,000 URLs known, about 0:01:30 left"
    assert told(Limits(pages=1510), falls_per_s=5.0) == "99% of 1,510 pages, about 0:00:01 left"
    assert told(Limits(), falls_per_s=5.0, waiting=0, leased=0) == "None"


@pytest.mark.parametrize(
    ("left", "per_s"),
    [
        ([100], 0.0),
        ([100, 90], 0.0),
        ([100, 80, 60, 40], 20 / 3),
        # It grew before.
        ([90, 100, 80], 0.0),
        ([60, 100, 80], 0.0),
        # It does not move.
        ([100, 100, 100], 0.0),
        # Too long ago.
        ([1000, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100], 0.0),
    ],
)
def test_a_frontier_shrinks_if_it_did_for_a_while(left: list[int], per_s: float) -> None:
    trend = FrontierTrend()
    for number, count in enumerate(left):
        trend.note(3.0 * number, count)

    assert trend.falls_per_s == pytest.approx(per_s)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, "0 B"), (999, "999 B"), (131_000_000, "131 MB"), (1_500_000_000, "1.5 GB"), (5e12, "5000.0 GB")],
)
def test_sizes_are_shown_with_units(count: float, expected: str) -> None:
    assert size(count) == expected


def test_durations_are_hours_minutes_and_seconds() -> None:
    assert [duration(s) for s in (0, 59.9, 3661, 360_000)] == ["0:00:00", "0:00:59", "1:01:01", "100:00:00"]
