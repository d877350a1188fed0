"""Crawls compared: the table, its ratios, and the sentences that say what limited each."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from crawlproj.report.comparison import Measured, SlowDomain, Texts, limit_of, stored_texts, table_of, verdict
from crawlproj.report.comparison_page import render_comparison

CORES = 2
SINGLE = Measured(
    name="single",
    shards=0,
    pages=200,
    domains=4,
    failed=1,
    seconds=22.0,
    fetching_s=20.0,
    cpu_s={"shard": 4.0, "supervisor": 0.5, "parser": 0.0, "redis": 0.1},
    memory_bytes=150_000_000,
    redis_bytes=2_000_000,
    slowest=SlowDomain("slow.test", 100, delay_s=0.19, latency_s=0.01),
)
SHARDED = replace(
    SINGLE,
    name="2 shards",
    shards=2,
    seconds=11.0,
    fetching_s=10.0,
    cpu_s={"shard": 3.0, "supervisor": 0.5, "parser": 2.0, "redis": 0.2},
    memory_bytes=300_000_000,
    slowest=None,
    texts=Texts(200),
)


def row_of(label: str, *crawls: Measured) -> list[str]:
    return next(cells for name, *cells in table_of(crawls) if name == label)


def test_each_figure_has_its_ratio_to_the_sequential_crawl() -> None:
    crawls = (SINGLE, SHARDED, replace(SHARDED, name="4 shards", seconds=5.5))

    assert table_of(crawls)[0] == ["", "single", "2 shards", "ratio", "4 shards", "ratio"]
    assert row_of("seconds", *crawls) == ["22.0", "11.0", "0.50", "5.5", "0.25"]
    assert row_of("pages/s", *crawls) == ["9.1", "18.2", "2.00", "36.4", "4.00"]
    assert row_of("CPU ms/page", SINGLE, SHARDED) == ["23.0", "28.5", "1.24"]
    assert row_of("CPU ms/page, parsers", SINGLE, SHARDED) == ["0.0", "10.0", "-"]
    assert row_of("peak memory, MB", SINGLE, SHARDED) == ["150", "300", "2.00"]
    assert row_of("failed", SINGLE, SHARDED) == ["1", "1", "1.00"]


def test_every_row_has_as_many_cells_as_the_heading() -> None:
    assert {len(row) for row in table_of([SINGLE, SHARDED, SHARDED])} == {6}


def test_memory_that_could_not_be_measured_is_not_shown_as_zero() -> None:
    assert row_of("peak memory, MB", replace(SINGLE, memory_bytes=0), SHARDED) == ["-", "300", "-"]


def test_a_crawl_without_pages_has_no_cost_a_page() -> None:
    empty = replace(SINGLE, pages=0)

    assert row_of("CPU ms/page", empty, SHARDED) == ["0.0", "28.5", "-"]
    assert verdict([empty, SHARDED], CORES)[0].startswith("A crawl without pages cannot be compared")


@pytest.mark.parametrize(
    ("crawl", "limit"),
    [
        (SINGLE, "politeness"),
        (replace(SINGLE, slowest=SlowDomain("slow.test", 100, 0.01, 0.19)), "network"),
        (replace(SINGLE, slowest=SlowDomain("small.test", 20, 0.2, 0.01)), "network"),
        (replace(SINGLE, slowest=None, cpu_s={"shard": 18.0}), "process"),
        (replace(SHARDED, shards=1, cpu_s={"shard": 9.0}), "process"),
        (replace(SHARDED, cpu_s={"shard": 8.0}), "network"),
        (replace(SHARDED, cpu_s={"shard": 10.0, "parser": 8.0}), "machine"),
        (replace(SINGLE, fetching_s=5.0), "start"),
    ],
)
def test_what_limited_a_crawl_is_what_took_most_of_its_time(crawl: Measured, limit: str) -> None:
    assert limit_of(crawl, CORES) == limit


def test_the_verdict_says_what_politeness_costs() -> None:
    _, sentence, *_ = verdict([SINGLE, SHARDED], CORES)

    assert sentence == (
        "single: politeness limits it: the 100 pages of slow.test, one at a time with 0.19 s between them, "
        "take 19.8 s at least, and fetching took 20.0 s."
    )


def test_sharding_is_advised_where_it_is_noticeably_faster_with_its_price() -> None:
    choice, *_ = verdict([SINGLE, SHARDED], CORES)

    assert choice == (
        "Sharding pays here: 2 shards made it 2.0 times as fast, for 1.2 times the CPU a page and 2.0 times "
        "the memory."
    )


def test_single_mode_is_advised_where_sharding_gains_nothing() -> None:
    choice, *_ = verdict([SINGLE, replace(SINGLE, name="2 shards", shards=2)], CORES)

    assert choice.startswith("Single mode is enough here: 2 shards made it 1.00 times as fast, for 1.0 times")
    assert choice.endswith("more domains at once do.")


def test_nothing_is_advised_after_a_crawl_that_mostly_started() -> None:
    short = replace(SINGLE, fetching_s=1.0)

    assert verdict([short, short], CORES)[0].startswith("To decide, crawl for longer")


def test_texts_are_compared_url_by_url() -> None:
    texts = stored_texts({"a": 1, "b": 2, "c": 3}, {"a": 1, "b": 9, "d": 4})

    assert texts == Texts(2, ["b"], ["c", "d"])


def test_the_verdict_names_pages_that_differ() -> None:
    urls = [f"http://a.test/{number}" for number in range(7)]

    *_, sentence = verdict([SINGLE, replace(SHARDED, texts=Texts(200, urls, ["http://a.test/x"]))], CORES)

    assert sentence.startswith("2 shards and single, stored texts: 7 of 200 differ: http://a.test/0, ")
    assert "http://a.test/4 and 2 more." in sentence
    assert sentence.endswith("1 page is in one of the two only: http://a.test/x.")


def test_pages_that_only_one_has_are_explained_by_a_limit() -> None:
    *_, sentence = verdict([SINGLE, replace(SHARDED, limit="max_pages", texts=Texts(9, [], ["x"]))], CORES)

    assert "all 9 pages that both have are equal" in sentence
    assert sentence.endswith("1 page is in one of the two only, as each stopped at its limit.")


def test_the_page_loads_nothing_and_shows_text_from_the_web_as_text() -> None:
    crawls = [SINGLE, replace(SHARDED, texts=Texts(1, ["http://a.test/<script>"]))]

    page = render_comparison("<b>", crawls, verdict(crawls, CORES), made_at=datetime.now(UTC))

    assert "<script" not in page
    assert "<b>" not in page
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in page
    assert page.count("<svg") == 4
    assert "<td>CPU ms/page</td><td>23.0</td><td>28.5</td><td>1.24</td>" in page
