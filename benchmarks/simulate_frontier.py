"""How a run of any size goes over time: pages, share of the fetch capacity in use, URLs waiting and seen.

    python benchmarks/simulate_frontier.py --pages 1e9 --domains 33.3e6 --delay 1 --shards 48

Nothing is fetched. Domains of about one size that were found at about one time flow as a liquid: what they
know, wait for and have given are averages. bench_capacity.py checks that against `event_frontier`, which
follows every URL through crawlproj's own Pacer. What is assumed:

- A domain gives one page at a time and rests as `DelayRules` say; all have the same delay. Its robots.txt is
  its first request.
- Of the links of a page, ``inside`` lead to any page of its own domain and ``outside`` to any page of the
  web, so to large domains more often; all other links are known already.
- While more domains are due than can be fetched from, each has the same share: the frontier lends those that
  have waited longest.
- Nothing fails, and links are admitted as soon as their page is fetched.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import NormalDist
from typing import Any

from crawlproj.politeness.pacing import DelayRules, Ending

#: A class holds ranks that differ by this factor at most.
_CLASS_WIDTH = 1.12
#: A slice of time is this share of the time gone by, but no shorter than half a domain's turn.
_SLICE = 0.01
#: A new cohort begins when the time gone by has grown by this factor.
_COHORT, _FIRST_COHORT_S = 1.5, 10.0
_QUANTILES = 2000


@dataclass(frozen=True, slots=True)
class Web:
    """Sizes of domains by rank, and what links lead to.

    ``lognormal``: ``median`` and ``sigma`` fit the domains of Common Crawl's CC-MAIN-2026-30 (33.3 million
    with 64 pages each on average; the 500th has 65,900). ``pareto``: the share of domains with at least s
    pages is s ** -``exponent``; Huberman and Adamic found such a law for sites (arXiv cond-mat/9901071).
    """

    domains: int = 33_300_000
    shape: str = "lognormal"
    median: float = 4.9
    sigma: float = 2.28
    exponent: float = 0.8
    largest: float = 1e8
    #: CRAWL_DOMAIN_PAGES: no more URLs of a domain are admitted; 0 means no limit.
    budget: int = 0
    #: IRLbot found 41 billion URLs in 6.3 billion pages: 6.5 new ones a page (ACM TWEB 3(3), 2009).
    inside: float = 5.0
    outside: float = 1.5
    seeds: int = 1_000_000

    def size_of(self, rank: float) -> float:
        """Pages of the domain of this rank; 0 is the largest."""
        share = (rank + 0.5) / self.domains
        if self.shape == "pareto":
            size = share ** (-1 / self.exponent)
        else:
            size = self.median * math.exp(self.sigma * NormalDist().inv_cdf(1 - share))
        return float(max(1, round(min(size, self.largest))))

    def is_seed(self, rank: int) -> bool:
        """Seeds are spread evenly: they were chosen by name, not by size."""
        return (rank + 1) * self.seeds // self.domains > rank * self.seeds // self.domains


@dataclass(frozen=True, slots=True)
class Crew:
    """Who fetches and parses. A page's latency is log-normal."""

    shards: int = 48
    concurrency: int = 256
    shard_page_s: float = 0.0005
    parsers: int = 64
    parser_page_s: float = 0.002
    delay_s: float = 1.0
    delay_factor: float = 1.0
    latency_median_s: float = 0.4
    latency_sigma: float = 0.8
    #: CRAWL_LEASE_BATCH: URLs in a shard's memory.
    lease_batch: int = 256
    #: Between a domain's being due and its lease, and between the end of a page and its settlement.
    turn_s: float = 0.005

    @property
    def rules(self) -> DelayRules:
        return DelayRules(delay_s=self.delay_s, factor=self.delay_factor)

    @property
    def latency_s(self) -> float:
        return self.latency_median_s * math.exp(self.latency_sigma**2 / 2)

    @property
    def turn_of_domain_s(self) -> float:
        """From one request of a domain to the next, on average."""
        rules, normal, total_s = self.rules, NormalDist(0, self.latency_sigma), 0.0
        for at in range(_QUANTILES):
            latency_s = self.latency_median_s * math.exp(normal.inv_cdf((at + 0.5) / _QUANTILES))
            rest = rules.rest(self.delay_s, Ending(status=200, latency_s=latency_s), 0)
            total_s += latency_s + rest.wait_s
        return total_s / _QUANTILES + self.turn_s

    @property
    def limits(self) -> dict[str, float]:
        """Pages a second that each part of the crawl can do, were it the only limit."""
        return {
            "connections": self.shards * self.concurrency / self.latency_s,
            "shard CPU": self.shards / self.shard_page_s,
            "parser CPU": self.parsers / self.parser_page_s,
        }


@dataclass(slots=True)
class Cohort:
    """Domains of about one size that were found at about one time; figures are of all of them together."""

    size: float
    most: float
    domains: float = 0.0
    #: Whose robots.txt was not fetched yet.
    fresh: float = 0.0
    known: float = 0.0
    fetched: float = 0.0

    @property
    def waiting(self) -> float:
        return max(0.0, self.known - self.fetched)

    @property
    def settled(self) -> float:
        """Domains that could be asked for a page."""
        if self.domains <= 0:
            return 0.0
        # Some have what others lack: with few URLs a domain, as many have none as chance would have it.
        return max(0.0, self.domains - self.fresh) * -math.expm1(-self.waiting / self.domains)

    def fetch(self, turns: float, fresh_turns: float) -> float:
        """Let every domain that can be asked have so many *turns*. Returns the pages that came of it."""
        # The URL whose turn a robots.txt took goes next, without being lent again.
        asked = self.fresh * min(1.0, fresh_turns)
        pages = min(self.waiting, self.settled * turns + asked)
        self.fresh -= asked
        self.fetched += pages
        return pages

    def learn(self, hits: float) -> None:
        """Take in links, *hits* for each domain, that lead to any of its pages."""
        # Some lead to known ones: every hit makes what is unknown smaller by the same share.
        unknown = (self.size - self.known / self.domains) * math.exp(-hits / self.size)
        self.known = max(self.known, self.domains * min(self.most, self.size - unknown))

    def join(self, domains: float) -> None:
        """Take in *domains* that were just found, with one URL each."""
        self.domains += domains
        self.fresh += domains
        self.known += domains


@dataclass(slots=True)
class DomainClass:
    """Domains of about one size: ``unknown`` ones, and cohorts of those found, the last one open."""

    size: float
    most: float
    unknown: float
    cohorts: list[Cohort] = field(default_factory=list)

    def open_cohort(self) -> None:
        if not self.cohorts or self.cohorts[-1].domains:
            self.cohorts.append(Cohort(self.size, self.most))

    def find(self, domains: float) -> None:
        self.unknown -= domains
        self.cohorts[-1].join(domains)


@dataclass(frozen=True, slots=True)
class Moment:
    at_s: float
    fetched: float
    fetched_per_s: float
    usable: float
    waiting: float
    seen: float
    domains: float
    #: What kept it from being faster: domains, shards, parsers, or the memory that new domains wait in.
    limit: str = ""


@dataclass(slots=True)
class Course:
    """A run over time. ``usable``: the share of the fetch capacity that politeness lets us use."""

    moments: list[Moment] = field(default_factory=list)

    @property
    def last(self) -> Moment:
        return self.moments[-1]

    @property
    def most_waiting(self) -> float:
        return max(moment.waiting for moment in self.moments)

    def time_of_s(self, pages: float) -> float:
        """When so many pages were fetched; infinite if never."""
        before = Moment(0, 0, 0, 0, 0, 0, 0)
        for moment in self.moments:
            if moment.fetched >= pages:
                part = (pages - before.fetched) / max(moment.fetched - before.fetched, 1e-9)
                return before.at_s + part * (moment.at_s - before.at_s)
            before = moment
        return math.inf


def simulate(web: Web, crew: Crew, pages: float, *, most_s: float = 1e9) -> Course:
    """Return how a run goes until it has *pages*, has none left, or *most_s* are over."""
    flow, course = _Flow(web, crew), Course()
    while flow.fetched < pages and flow.at_s < most_s:
        moment = flow.next_moment()
        if moment is None:
            break
        course.moments.append(moment)
    return course


class _Flow:
    def __init__(self, web: Web, crew: Crew) -> None:
        self.at_s = self.fetched = 0.0
        self._web = web
        self._classes = list(_classes(web))
        self._size_of_all = sum(each.unknown * each.size for each in self._classes)
        self._turn_s = crew.turn_of_domain_s
        self._capacity = min(crew.limits.values())
        # Shards also fetch robots.txt; parsers see pages only.
        self._fetches = min(crew.limits["connections"], crew.limits["shard CPU"])
        self._parses = crew.limits["parser CPU"]
        # The first URL of a new domain waits in memory while its robots.txt is fetched and the delay after.
        # As those that are due longest are lent first, whatever is behind a new domain waits with it.
        self._fresh = crew.shards * crew.lease_batch / self._turn_s
        self._cohort_until_s = 0.0
        self._open_cohorts()
        for each, seeds in zip(self._classes, _seeds(web), strict=True):
            each.find(seeds)

    def next_moment(self) -> Moment | None:
        """Let a slice of time pass. Returns None when there is nothing left to fetch."""
        if self.at_s >= self._cohort_until_s:
            self._open_cohorts()
        slice_s = max(self._turn_s / 2, _SLICE * self.at_s)
        cohorts = [cohort for each in self._classes for cohort in each.cohorts if cohort.domains]
        wanted = [(each.settled, each.waiting) for each in cohorts]
        fresh = sum(each.fresh for each in cohorts)
        busy = fresh + sum(settled for settled, _ in wanted)
        if busy < 1:
            return None
        turns, limit = min(
            (slice_s / self._turn_s, "domains"),
            (turns_in(self._fetches * slice_s, [*wanted, (2 * fresh, 2 * fresh)]), "shards"),
            (turns_in(self._parses * slice_s, [*wanted, (fresh, fresh)]), "parsers"),
            (turns_in(self._fresh * slice_s, [(fresh, fresh)]), "new domains"),
        )
        # Two requests take a domain two turns, however few others there are.
        fresh_turns = min(turns, slice_s / self._turn_s / 2)
        gained = [each.fetch(turns, fresh_turns) for each in cohorts]
        self._follow_links(cohorts, gained)
        self.at_s += slice_s
        self.fetched += sum(gained)
        return Moment(
            self.at_s,
            self.fetched,
            sum(gained) / slice_s,
            min(1.0, busy / self._turn_s / self._capacity),
            sum(each.waiting for each in cohorts),
            sum(each.known for each in cohorts),
            sum(each.domains for each in cohorts),
            limit,
        )

    def _follow_links(self, cohorts: list[Cohort], gained: list[float]) -> None:
        outside = sum(gained) * self._web.outside / self._size_of_all
        for cohort, pages in zip(cohorts, gained, strict=True):
            cohort.learn(outside * cohort.size + pages * self._web.inside / cohort.domains)
        for each in self._classes:
            each.find(each.unknown * -math.expm1(-outside * each.size))

    def _open_cohorts(self) -> None:
        self._cohort_until_s = max(_FIRST_COHORT_S, self.at_s * _COHORT)
        for each in self._classes:
            each.open_cohort()


def turns_in(room: float, wanted: list[tuple[float, float]]) -> float:
    """Return how many turns each domain may have if there is *room* for so many requests in all.

    *wanted*: groups of domains, and the requests each has at most. What one cannot use is for the others.
    """
    domains = sum(count for count, _ in wanted)
    for turns, count, most in sorted((most / count, count, most) for count, most in wanted if count > 0):
        if domains * turns >= room:
            return room / domains
        room -= most
        domains -= count
    return math.inf


def _ranks(web: Web) -> Iterator[tuple[int, int]]:
    """The first rank of each class and the first after it: the largest domains have a class each."""
    first = 0
    while first < web.domains:
        after = min(web.domains, max(first + 1, int(first * _CLASS_WIDTH)))
        yield first, after
        first = after


def _classes(web: Web) -> Iterator[DomainClass]:
    for first, after in _ranks(web):
        size = web.size_of((first + after - 1) / 2)
        yield DomainClass(size, min(size, web.budget or size), after - first)


def _seeds(web: Web) -> Iterator[int]:
    for first, after in _ranks(web):
        yield after * web.seeds // web.domains - first * web.seeds // web.domains


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--pages", type=float, default=1e9)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the course there")
    for kind in (Web, Crew):
        for name, default in asdict(kind()).items():
            read = str if isinstance(default, str) else float
            parser.add_argument(
                f"--{name.removesuffix('_s').replace('_', '-')}", dest=name, type=read, default=default
            )
    given = vars(parser.parse_args())

    def chosen(defaults: dict[str, Any]) -> dict[str, Any]:
        return {name: type(default)(given[name]) for name, default in defaults.items()}

    web, crew = Web(**chosen(asdict(Web()))), Crew(**chosen(asdict(Crew())))
    course = simulate(web, crew, given["pages"])
    print("\n".join(described(crew, course, given["pages"])))
    if given["json"]:
        given["json"].write_text(json.dumps([asdict(moment) for moment in course.moments]) + "\n")


def described(crew: Crew, course: Course, pages: float) -> list[str]:
    last = course.last
    limit = min(crew.limits, key=crew.limits.__getitem__)
    turn = f"a domain's turn takes {crew.turn_of_domain_s:.2f} s"
    pace = f"{last.fetched:,.0f} pages in {last.at_s / 3600:,.1f} h, {last.fetched / last.at_s:,.0f} a second"
    most = f"at most {course.most_waiting:,.0f} URLs wait"
    lines = [
        f"{turn}; the crew can fetch {crew.limits[limit]:,.0f} pages/s ({limit})",
        f"{pace}; {most}; {last.seen:,.0f} seen of {last.domains:,.0f} domains",
        "",
        "| share of the pages | hours | pages/s | limited by | usable capacity | waiting | seen |",
        "|---|---|---|---|---|---|---|",
    ]
    for percent in (1, 10, 25, 50, 75, 90, 99, 100):
        reached = [moment for moment in course.moments if moment.fetched >= pages * percent / 100]
        if not reached:
            return [*lines, f"{percent} % of the pages are never reached: there are no more"]
        now = reached[0]
        lines.append(
            f"| {percent} % | {now.at_s / 3600:.2f} | {now.fetched_per_s:,.0f} | {now.limit} "
            f"| {now.usable:.0%} | {now.waiting:,.0f} | {now.seen:,.0f} |"
        )
    return lines


if __name__ == "__main__":
    main()
