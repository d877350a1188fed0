"""What the supervisor decides about its children."""

from __future__ import annotations

import pytest

from crawlproj.errors import (
    EXIT_FENCED,
    EXIT_NO_SEEDS,
    EXIT_REDIS,
    EXIT_RUN_MISMATCH,
    EXIT_USAGE,
    BadArgument,
)
from crawlproj.supervisor.plan import (
    Range,
    Restarts,
    amount_from,
    arguments_from,
    longest_pause_s,
    parsers_from,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2", Range(2, 2)),
        ("0", Range(0, 0)),
        ("1..4", Range(1, 4)),
        ("3..3", Range(3, 3)),
        ("1..", Range(1, 2)),
        ("3..", Range(3, 3)),
    ],
)
def test_a_number_of_parsers_is_one_or_a_range(text: str, expected: Range) -> None:
    assert parsers_from(text, cores=2) == expected


@pytest.mark.parametrize("text", ["", "x", "-1", "4..1", "0..2", "1..2..3", "1.5", "1...4", "..4", "99999"])
def test_a_wrong_number_of_parsers_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(BadArgument, match=f"--parsers {text}: .*1\\.\\.4"):
        parsers_from(text, cores=2)


@pytest.mark.parametrize("text", ["-1", "many", "1.5", "1e3", "", "9" * 16])
def test_a_wrong_limit_is_refused_with_its_value(text: str) -> None:
    with pytest.raises(
        BadArgument, match=f"--max-pages {text}: must be a whole number, at least 0; 0 means no limit"
    ):
        amount_from("max-pages", text, 0)


def test_a_limit_not_given_is_none() -> None:
    assert amount_from("max-pages", None, 0) is None
    assert amount_from("max-pages", "0", 0) == 0


def test_pauses_double_to_half_a_minute_and_the_fifth_death_in_a_row_is_the_last() -> None:
    restarts = Restarts()
    now_s = 100.0

    pauses_s, verdicts = [], []
    for _ in range(5):
        verdicts.append(restarts.after_death(EXIT_REDIS, lived_s=2.0, now_s=now_s))
        pauses_s.append(restarts.next_at_s - now_s)

    assert pauses_s == [1, 2, 4, 8, 16]
    assert verdicts == [True, True, True, True, False]


def test_a_minute_of_life_is_a_new_beginning() -> None:
    restarts = Restarts()
    for _ in range(4):
        restarts.after_death(-9, lived_s=1.0, now_s=0.0)

    restarts_again = restarts.after_death(-9, lived_s=60.0, now_s=0.0)

    assert restarts_again
    assert (restarts.deaths, restarts.next_at_s) == (1, 1.0)


@pytest.mark.parametrize("code", [EXIT_USAGE, EXIT_RUN_MISMATCH, EXIT_NO_SEEDS])
def test_what_will_not_change_is_not_tried_again(code: int) -> None:
    assert not Restarts().after_death(code, lived_s=3600.0, now_s=0.0)


@pytest.mark.parametrize("code", [0, 1, -9, EXIT_REDIS, EXIT_FENCED])
def test_what_may_change_is_tried_again(code: int) -> None:
    assert Restarts().after_death(code, lived_s=0.5, now_s=0.0)


def test_a_supervisor_looks_at_a_young_run_often_and_at_an_old_one_seldom() -> None:
    assert longest_pause_s(0.0) == longest_pause_s(1.0) == 0.3
    assert longest_pause_s(5.0) == 1.0
    assert longest_pause_s(3600.0) > 60


@pytest.mark.parametrize(
    ("pairs", "spider", "words"),
    [
        (["url"], "docs", "-a url: write -a NAME=VALUE"),
        (["url=x"], None, "-a url=x: .* name it with --spider"),
        (["run=x"], "docs", "-a run is given to each shard"),
    ],
)
def test_an_argument_that_a_spider_would_not_get_is_refused(
    pairs: list[str], spider: str | None, words: str
) -> None:
    with pytest.raises(BadArgument, match=words):
        arguments_from(pairs, spider)
