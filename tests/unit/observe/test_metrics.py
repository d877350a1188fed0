"""What a process counts, and what of it outlives the process."""

from __future__ import annotations

import json
from dataclasses import asdict

from crawlproj.observe.metrics import METRICS, RUN_METRICS, Histogram, Metrics, Snapshot


def test_a_value_falls_into_the_first_bucket_it_does_not_exceed() -> None:
    histogram = Histogram((0.1, 1.0))

    for value in (0.05, 0.1, 0.5, 2.0):
        histogram.add(value)

    assert histogram.counts == [2, 1, 1]
    assert round(histogram.sum, 6) == 2.65


def test_known_label_values_are_there_before_anything_happened() -> None:
    assert Metrics().snapshot().counters["fetches"] == {"page": 0, "robots": 0, "sitemap": 0}


def test_a_snapshot_does_not_change_with_what_is_counted_later() -> None:
    metrics = Metrics()
    taken = metrics.snapshot()

    metrics.fetches["page"] += 1
    metrics.fetch_seconds.add(0.2)

    assert taken.counters["fetches"]["page"] == 0
    assert sum(taken.histograms["fetch_seconds"]) == 0


def test_gauges_are_read_and_unset_ones_left_out() -> None:
    metrics = Metrics()
    metrics.active_downloads = lambda: 3
    metrics.open_descriptors = lambda: {"http": 2}

    gauges = metrics.snapshot().gauges

    assert gauges == {"active_downloads": {"": 3}, "open_descriptors": {"http": 2}}


def test_counters_continue_from_those_of_the_process_before() -> None:
    before = Metrics()
    before.fetches["page"] = 5
    before.fetch_errors["connection_refused"] = 2
    before.fetched_bytes = 100
    before.parse_seconds.add(0.002)
    stored = Snapshot(**json.loads(json.dumps(asdict(before.snapshot()))))

    after = Metrics(earlier=stored)
    after.fetches["page"] += 1
    after.parse_seconds.add(0.002)

    scraped = after.snapshot()
    assert scraped.counters["fetches"] == {"page": 6, "robots": 0, "sitemap": 0}
    assert scraped.counters["fetch_errors"]["connection_refused"] == 2
    assert scraped.counters["fetched_bytes"] == {"": 100}
    assert scraped.histograms["parse_seconds"][0] == 0.004
    assert sum(scraped.histograms["parse_seconds"][1:]) == 2


def test_what_a_process_counted_itself_is_not_mixed_with_what_was_before() -> None:
    before = Metrics(fetched_bytes=100)

    after = Metrics(fetched_bytes=7, earlier=before.snapshot())

    assert (after.fetched_bytes, after.snapshot().counters["fetched_bytes"]) == (7, {"": 107})


def test_a_histogram_with_other_bounds_starts_from_zero() -> None:
    metrics = Metrics(earlier=Snapshot(histograms={"parse_seconds": [9.0, 1, 2]}))

    assert sum(metrics.snapshot().histograms["parse_seconds"]) == 0


def test_no_name_is_used_twice_and_no_label_grows_with_the_web() -> None:
    metrics = [*METRICS.values(), *RUN_METRICS.values()]

    names = [metric.name for metric in metrics if metric.name != "crawlproj_dead_letters_total"]
    assert len(set(names)) == len(names)
    assert {metric.label for metric in metrics} <= {
        *("", "kind_of", "reason", "level", "change", "decision", "descriptor", "state", "host")
    }
