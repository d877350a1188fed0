"""What a job says of itself, for people."""

from __future__ import annotations

import pytest

from crawlproj.api.view import _problems, _progress

WELL = {
    "redis_full": "",
    "parked_domains": 0,
    "dead_letters": 0,
    "pages_cut": 0,
    "state": "processing",
    "completed": 10,
    "problems": [],
}


def test_a_job_that_is_well_has_no_problems() -> None:
    assert _problems(WELL, {}) == []


def test_what_is_wrong_comes_before_what_is_worth_knowing() -> None:
    found = _problems(WELL | {"parked_domains": 2, "redis_full": "Redis is full."}, {})

    assert [one["level"] for one in found] == ["wrong", "note"]


@pytest.mark.parametrize(
    ("pages", "seconds", "rate", "progress"),
    [
        (0, 0, 10.0, (25.0, 30)),
        # Paused or stopped: how far it is, but not how long it takes.
        (0, 0, 0, (25.0, None)),
        (200, 0, 10.0, (50.0, 10)),
        (200, 0, 0, (50.0, None)),
        (200, 25, 10.0, (80.0, 5)),
        # More than the frontier holds: no limit.
        (1000, 0, 10.0, (25.0, 30)),
    ],
)
def test_progress_is_towards_the_nearest_limit(
    pages: int, seconds: int, rate: float, progress: tuple[float, int | None]
) -> None:
    counts = {"fetched": 100, "failed": 0, "skipped": 0, "remaining": 300, "pages_stored": 90}
    overview = counts | {"ran_seconds": 20}

    found = _progress(overview | {"pages_per_second": rate}, {"pages": pages, "seconds": seconds})

    assert found == progress


@pytest.mark.parametrize(("stored", "progress"), [(0, (None, None)), (3, (100.0, 0))])
def test_nothing_is_left_only_once_pages_were_stored(
    stored: int, progress: tuple[float | None, int | None]
) -> None:
    overview = {"fetched": 3, "failed": 0, "skipped": 0, "remaining": 0, "pages_stored": stored}

    found = _progress(overview | {"pages_per_second": 1.0}, {"pages": 0, "seconds": 0})

    assert found == progress
