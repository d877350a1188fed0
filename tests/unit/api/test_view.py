"""What a job says is wrong, for people."""

from __future__ import annotations

from crawlproj.api.view import _problems

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
