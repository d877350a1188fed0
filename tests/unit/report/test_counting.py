from __future__ import annotations

import errno
from pathlib import Path

import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from crawlproj.config import load_config
from crawlproj.errors import BadArgument, BadSegment
from crawlproj.report.counting import DEEPEST, NAMED, count_pages
from crawlproj.report.tally import Delays
from tests.unit.report.conftest import Store, a_row

ONE_SECOND = Delays(1.0)


@pytest.mark.parametrize("format_", ["parquet", "jsonl", "warc"])
def test_every_format_gives_the_same_numbers(store: Store, format_: str) -> None:
    directory = store(
        [
            a_row(0, content_hash="aa", simhash=1, truncated=True),
            a_row(2, domain="b.test", content_hash="aa", simhash=2, depth=1, language=None),
            a_row(3, domain="b.test", status=404, body_bytes=50, content_hash="aa"),
            a_row(
                5, domain="c.test", status=0, error="timeout", body_bytes=0, latency_ms=0, content_type=None
            ),
            a_row(10, domain="c.test", status=0, error="robots", body_bytes=0, latency_ms=0),
        ],
        format_,
    )

    tally = count_pages(directory, ONE_SECOND)

    totals = tally.totals
    assert (totals.pages, totals.fetched, totals.domains, totals.seconds) == (5, 4, 3, 10.0)
    assert (totals.good, totals.http_errors, totals.failures, totals.skipped) == (2, 1, 1, 1)
    assert (totals.body_bytes, totals.same_body, totals.same_text, totals.cut) == (2050, 1, 0, 1)
    assert tally.statuses == {200: 2, 404: 1}
    assert (tally.errors, tally.refusals) == ({"timeout": 1}, {"robots": 1})
    assert tally.languages == {"en": 1, "unknown": 1}
    assert tally.content_types == {"text/html": 2}
    assert tally.depths == {"0": 4, "1": 1}


def test_segments_of_several_formats_are_counted_together(store: Store) -> None:
    store([a_row()], "parquet", parser="p")
    store([a_row(1)], "jsonl", parser="q")
    directory = store([a_row(2)], "warc", parser="r")

    assert count_pages(directory, ONE_SECOND).totals.pages == 3


def test_the_slices_of_time_add_up_to_what_was_fetched_and_show_when_nothing_came(store: Store) -> None:
    skipped = a_row(0.2, status=0, error="robots")
    directory = store([a_row(0), a_row(0.1), skipped, a_row(9.5, status=0, error="timeout"), a_row(10)])

    slices = count_pages(directory, ONE_SECOND).slices

    assert len(slices) == 10
    assert [part.pages_per_s for part in slices] == [2, *[0] * 8, 2]
    assert slices[-1].failures_per_s == 1
    assert slices[0].bytes_per_s == 2000
    assert slices[0].middle_s == 0.5


def test_a_single_page_is_a_run_as_well(store: Store) -> None:
    tally = count_pages(store([a_row()]), ONE_SECOND)

    assert (tally.totals.seconds, tally.slices, sum(tally.pauses.by_length.values())) == (0, [], 0)


def test_the_rest_is_counted_as_others(store: Store) -> None:
    rows = [a_row(n, content_type=f"text/{n:02}") for n in range(NAMED + 5)]

    types = count_pages(store(rows), ONE_SECOND).content_types

    assert len(types) == NAMED + 1
    assert list(types.items())[-1] == ("others", 5)


def test_the_largest_domains_come_first(store: Store) -> None:
    rows = [a_row(n, domain=f"d{n % 7 % 3}.test") for n in range(7)]

    tally = count_pages(store(rows), ONE_SECOND)

    assert list(tally.top_domains.items()) == [("d0.test", 3), ("d1.test", 2), ("d2.test", 2)]
    assert tally.domains_by_pages["2-10"] == 3


def test_sizes_and_latencies_fall_where_their_names_say(store: Store) -> None:
    rows = [
        a_row(body_bytes=size, latency_ms=latency) for size, latency in [(0, 9), (1023, 10), (1024, 5000)]
    ]

    tally = count_pages(store(rows), ONE_SECOND)

    assert {name: n for name, n in tally.sizes.items() if n} == {"0": 1, "<1K": 1, "<4K": 1}
    assert {name: n for name, n in tally.latencies.items() if n} == {"<10": 1, "<50": 1, "≥5k": 1}


def test_quantiles_of_latency_are_exact(store: Store) -> None:
    rows = [a_row(latency_ms=n) for n in range(1, 101)]

    assert count_pages(store(rows), ONE_SECOND).latency_ms == (50, 90, 99)


def test_great_depths_are_counted_together(store: Store) -> None:
    depths = count_pages(store([a_row(depth=0), a_row(depth=99), a_row(depth=500)]), ONE_SECOND).depths

    assert (depths["0"], depths["1"], depths[f"≥{DEEPEST}"]) == (1, 0, 2)


def test_a_pause_is_from_the_end_of_an_answer_to_the_next_request(store: Store) -> None:
    # The second began at 2.0, a second after the first ended; the others are of another domain.
    rows = [a_row(1), a_row(2.5, latency_ms=500), a_row(1.1, domain="b.test"), a_row(1.6, domain="b.test")]

    pauses = count_pages(store(rows), ONE_SECOND).pauses

    assert {name: n for name, n in pauses.by_multiple.items() if n} == {"<0.5": 1, "<1.1": 1}
    assert {name: n for name, n in pauses.by_length.items() if n} == {"<0.5": 1, "<2": 1}
    assert (pauses.too_short, pauses.with_delay) == (1, 2)
    assert [(line.domain, line.shortest_s, line.delay_s) for line in pauses.shortest] == [
        ("b.test", 0.49, 1.0),
        ("a.test", 1.0, 1.0),
    ]


def test_what_the_clocks_explain_is_not_too_short(store: Store) -> None:
    rows = [a_row(1, latency_ms=0), a_row(1.95, latency_ms=0)]

    assert count_pages(store(rows), ONE_SECOND).pauses.too_short == 0


def test_pauses_are_held_against_the_delay_of_their_domain(store: Store) -> None:
    rows = [
        a_row(at_s, domain=domain, latency_ms=0) for at_s in (0, 4) for domain in ("slow.test", "own.test")
    ]
    settings = {"slow.test": {"delay": 8}, "www.own.test": {"delay": 0, "concurrency": 8}}

    pauses = count_pages(store(rows), Delays.of(load_config({"DOWNLOAD_SLOTS": settings}))).pauses

    assert {name: n for name, n in pauses.by_multiple.items() if n} == {"<0.9": 1}
    assert sum(pauses.by_length.values()) == 1


def test_failures_and_skipped_urls_make_no_pauses(store: Store) -> None:
    rows = [a_row(0), a_row(0, status=0, error="robots"), a_row(0, status=0, error="timeout")]

    assert count_pages(store(rows), ONE_SECOND).pauses.with_delay == 0


def test_failing_domains_come_with_their_commonest_trouble(store: Store) -> None:
    rows = [
        *(a_row(n, domain="bad.test", status=0, error="timeout") for n in range(3)),
        a_row(4, domain="bad.test", status=500),
        a_row(5, domain="half.test", status=503),
        a_row(6, domain="half.test"),
        a_row(7, domain="shy.test", status=0, error="robots"),
    ]

    failing = count_pages(store(rows), ONE_SECOND).failing

    assert [(line.domain, line.pages, line.failures, line.http_errors, line.trouble) for line in failing] == [
        ("bad.test", 4, 3, 1, "timeout"),
        ("half.test", 2, 0, 1, "503"),
    ]


def test_a_domain_is_called_slow_after_a_few_answers(store: Store) -> None:
    rows = [*(a_row(n, domain="slow.test", latency_ms=n * 100) for n in (1, 2, 3)), a_row(domain="once.test")]

    slowest = count_pages(store(rows), ONE_SECOND).slowest

    assert [(line.domain, line.mean_latency_ms, line.longest_latency_ms) for line in slowest] == [
        ("slow.test", 200.0, 300)
    ]


def test_a_directory_without_pages_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match="no pages"):
        count_pages(tmp_path, ONE_SECOND)


@pytest.mark.parametrize("name", ["x.parquet", "x.jsonl.zst", "x.warc.gz"])
def test_a_damaged_file_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"PAR1 this is no file of pages PAR1")

    with pytest.raises(BadSegment, match=name):
        count_pages(tmp_path, ONE_SECOND)


def test_a_full_temporary_directory_is_not_taken_for_damage(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    directory = store([a_row()], "jsonl")
    monkeypatch.setattr(pq.ParquetWriter, "write_batch", is_full)

    with pytest.raises(BadArgument, match="TMPDIR"):
        count_pages(directory, ONE_SECOND)


def test_a_directory_with_a_quote_in_its_name_is_read(tmp_path: Path, store: Store) -> None:
    directory = store([a_row()]).rename(tmp_path / "it's")

    assert count_pages(directory, ONE_SECOND).totals.pages == 1
