"""Parsers follow the page queue."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from crawlproj.supervisor.autoscale import GROW_AFTER_S, REST_S, SHRINK_AFTER_S, ScaleState, decide
from crawlproj.supervisor.plan import Range

#: Pages a second one simulated parser takes.
SPEED = 50


def state_of(least: int = 1, most: int = 4) -> ScaleState:
    return ScaleState(Range(least, most), soft_pages=2000, soft_bytes=64_000_000)


@dataclass
class Simulation:
    """A queue that shards fill and parsers empty, looked at once a second."""

    state: ScaleState = field(default_factory=state_of)
    parsers: int = 1
    queue_pages: float = 0
    now_s: float = 0
    counts: list[int] = field(default_factory=list)
    changes: list[tuple[float, str]] = field(default_factory=list)

    def run(self, seconds: int, arriving_per_s: float) -> None:
        for _ in range(seconds):
            self.now_s += 1
            wanted = self.queue_pages + arriving_per_s
            taken = min(wanted, self.parsers * SPEED)
            self.queue_pages = wanted - taken
            decision = decide(self.state, int(self.queue_pages), 0, self.parsers, taken, self.now_s)
            if decision.reason:
                self.changes.append((self.now_s, decision.reason))
            self.parsers = decision.count
            self.counts.append(self.parsers)


def test_a_burst_takes_the_parsers_from_one_to_four_and_back() -> None:
    crawl = Simulation()

    crawl.run(60, arriving_per_s=10)
    before = list(crawl.counts)
    crawl.run(60, arriving_per_s=220)
    highest = crawl.parsers
    crawl.run(300, arriving_per_s=10)

    assert set(before) == {1}
    assert highest == 4
    assert crawl.parsers == 1
    assert len(crawl.changes) == 6


def test_changes_are_one_parser_at_a_time_with_a_rest_between_them() -> None:
    crawl = Simulation()

    crawl.run(100, arriving_per_s=1000)
    crawl.run(600, arriving_per_s=0)

    steps = [after - before for before, after in pairwise(crawl.counts)]
    gaps_s = [b - a for (a, _), (b, _) in pairwise(crawl.changes)]
    assert set(steps) == {-1, 0, 1}
    assert min(gaps_s) >= REST_S
    # Each needs its reason to hold anew: the three times that parsers became fewer.
    assert min(gaps_s[-2:]) >= SHRINK_AFTER_S


def test_a_load_that_two_parsers_carry_is_carried_by_two_without_swinging() -> None:
    crawl = Simulation(parsers=1)

    crawl.run(60, arriving_per_s=90)
    crawl.changes.clear()
    crawl.run(300, arriving_per_s=90)

    assert crawl.parsers == 2
    assert crawl.changes == []


def test_a_short_peak_changes_nothing() -> None:
    state = state_of()

    decisions = [
        decide(state, pages, 0, 1, 10, now_s) for now_s, pages in enumerate([1500, 1500, 0, 1500, 1500])
    ]

    assert {decision.count for decision in decisions} == {1}


def test_pages_that_would_wait_too_long_call_for_one_more_with_the_reason() -> None:
    state = state_of()
    decide(state, 500, 0, 1, 20, 0.0)

    decision = decide(state, 500, 0, 1, 20, GROW_AFTER_S)

    assert decision.count == 2
    assert decision.reason == "500 pages are queued and 20 parsed per second"


def test_bytes_count_as_well_as_pages() -> None:
    state = state_of()
    decide(state, 100, 40_000_000, 1, 50, 0.0)

    decision = decide(state, 100, 40_000_000, 1, 50, GROW_AFTER_S)

    assert decision.count == 2
    assert "40,000,000 bytes" in decision.reason


def test_there_are_never_more_or_fewer_than_allowed() -> None:
    full, empty = state_of(2, 3), state_of(2, 3)

    grown = [decide(full, 5000, 0, 3, 1, float(now_s)).count for now_s in range(60)]
    shrunk = [decide(empty, 0, 0, 2, 0, float(now_s)).count for now_s in range(60)]

    assert set(grown) == {3}
    assert set(shrunk) == {2}


def test_one_leaves_only_after_the_queue_was_nearly_empty_for_long() -> None:
    state = state_of()
    decide(state, 0, 0, 2, 0, 0.0)

    soon = decide(state, 0, 0, 2, 0, SHRINK_AFTER_S - 1)
    later = decide(state, 0, 0, 2, 0, SHRINK_AFTER_S)

    assert (soon.count, later.count) == (2, 1)
    assert later.reason
