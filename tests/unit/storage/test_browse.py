"""Stored pages, a few at a time."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from crawlproj.errors import BadArgument
from crawlproj.storage.browse import PageFilter, browse, find_page
from crawlproj.storage.row import PageRow
from crawlproj.storage.sink import SINKS

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(params=["parquet", "jsonl"])
def store(tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[int], Path]:
    """Adds a segment of so many pages, numbered on from the last, and returns the directory."""
    sink_type = SINKS[request.param]
    numbers, segments = count(), count(1)

    def add(pages: int) -> Path:
        path = tmp_path / f"p-{next(segments):06d}{sink_type.suffix}"
        sink = sink_type(path)
        for number in (next(numbers) for _ in range(pages)):
            row = PageRow(
                url=f"http://d{number % 3}.test/{number}",
                final_url="",
                domain=f"d{number % 3}.test",
                depth=0,
                status=404 if number % 5 == 0 else 200,
                fetched_at=START + timedelta(minutes=number),
                latency_ms=1,
                title=f"Page {number}",
                text=f"{'words ' * 50} Needle{number} in hay",
                shard=0,
                attempt=0,
            )
            sink.append(row, None)  # type: ignore[arg-type]  # not needed for text formats
        sink.close()
        # In the order of their numbers, whatever the clock of the disk does.
        os.utime(path, ns=(0, 1000 * int(path.name[2:8])))
        return tmp_path

    return add


def numbers(found: list[dict[str, object]]) -> list[int]:
    return [int(str(line["url"]).rpartition("/")[2]) for line in found]


def all_of(directory: Path, wanted: PageFilter, limit: int, within_s: float = 60.0) -> tuple[list[int], int]:
    """The numbers of all pages found, page by page, and how many were looked at."""
    found: list[int] = []
    searched, cursor = 0, ""
    while True:
        part = browse(directory, wanted, limit, cursor, within_s=within_s)
        assert len(part.lines) <= limit
        found += numbers(part.lines)
        searched += part.searched
        cursor = part.cursor
        if not cursor:
            return found, searched


def test_all_pages_are_listed_once_the_newest_first(store: Callable[[int], Path]) -> None:
    store(1500)
    directory = store(20)

    assert all_of(directory, PageFilter(), 7)[0] == list(reversed(range(1520)))
    assert all_of(directory, PageFilter(), 2000) == (list(reversed(range(1520))), 1520)


@pytest.mark.parametrize(
    ("wanted", "matching"),
    [
        (PageFilter(domain="d1.test"), lambda n: n % 3 == 1),
        (PageFilter(status=404), lambda n: n % 5 == 0),
        (PageFilter(text="NEEDLE7 "), lambda n: n == 7),
        (PageFilter(text="page 12"), lambda n: str(n).startswith("12")),
        (PageFilter(since=START + timedelta(minutes=1500)), lambda n: n >= 1500),
        (PageFilter(until=START + timedelta(minutes=5)), lambda n: n < 5),
        (
            PageFilter("d2.test", 200, "hay", START + timedelta(minutes=1000)),
            lambda n: n in range(1000, 1520) and n % 3 == 2 and n % 5,
        ),
        (PageFilter(domain="gone.test"), lambda n: False),
    ],
)
def test_filters_are_combined(
    store: Callable[[int], Path], wanted: PageFilter, matching: Callable[[int], bool]
) -> None:
    store(1500)
    directory = store(20)

    found, searched = all_of(directory, wanted, 50)

    assert found == [n for n in reversed(range(1520)) if matching(n)]
    assert searched == 1520


def test_a_search_without_time_continues_where_it_was(store: Callable[[int], Path]) -> None:
    store(1500)
    directory = store(20)

    assert all_of(directory, PageFilter(text="needle3 "), 50, within_s=0)[0] == [3]


def test_pages_stored_meanwhile_do_not_shift_a_list(store: Callable[[int], Path]) -> None:
    directory = store(10)
    first = browse(directory, PageFilter(), 4)

    store(10)

    assert numbers(browse(directory, PageFilter(), 4, first.cursor).lines) == [5, 4, 3, 2]


def test_a_page_is_found_by_its_id_with_its_text(store: Callable[[int], Path]) -> None:
    directory = store(1200)
    line = browse(directory, PageFilter(text="needle1100 "), 1).lines[0]

    page = find_page(directory, str(line["id"]))

    assert page is not None
    assert (page["url"], page["fetched_at"]) == (line["url"], START + timedelta(minutes=1100))
    assert "Needle1100" in page["text"]
    assert line["text_chars"] == len(page["text"])
    assert "Needle1100" in str(line["snippet"])


@pytest.mark.parametrize(
    "page", ["", "p-000001", "p-000001.99999", "../p-000001.1", "gone-000001.1", "p-000001.-1"]
)
def test_any_other_id_is_no_page(store: Callable[[int], Path], page: str) -> None:
    assert find_page(store(10), page) is None


def test_a_cursor_of_another_kind_is_refused(store: Callable[[int], Path]) -> None:
    with pytest.raises(BadArgument, match="cursor"):
        browse(store(1), PageFilter(), 1, "../etc/passwd")


def test_a_job_without_pages_has_an_empty_list(tmp_path: Path) -> None:
    assert browse(tmp_path / "none", PageFilter(), 1).lines == []
