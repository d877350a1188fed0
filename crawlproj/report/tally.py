"""The figures of a report. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crawlproj.config import Config
from crawlproj.politeness.pacing import domain_rules


@dataclass(frozen=True, slots=True)
class Delays:
    """The delay of each domain between requests. None: it allows several requests at once."""

    usual_s: float
    by_domain: Mapping[str, float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config) -> Delays:
        """Return the delays from the settings, without what robots.txt or slow responses add."""
        rules = domain_rules(config)
        by_domain = {domain: rule.delay_s if rule.at_once == 1 else None for domain, rule in rules.items()}
        return cls(config.download_delay, by_domain)


@dataclass(frozen=True, slots=True)
class TimeSlice:
    middle_s: float
    pages_per_s: float
    failures_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class DomainLine:
    """A domain in a table. ``trouble`` is its most frequent failure."""

    domain: str
    pages: int
    failures: int = 0
    http_errors: int = 0
    trouble: str = ""
    mean_latency_ms: float = 0.0
    longest_latency_ms: int = 0


@dataclass(frozen=True, slots=True)
class PauseLine:
    domain: str
    pauses: int
    shortest_s: float
    delay_s: float


@dataclass(frozen=True, slots=True)
class Pauses:
    """Times from the end of one response of a domain to the start of its next request."""

    by_length: dict[str, int]
    #: In multiples of the delay, of domains that have one.
    by_multiple: dict[str, int]
    shortest: list[PauseLine]
    #: Shorter than the delay by more than the clocks explain.
    too_short: int

    @property
    def with_delay(self) -> int:
        return sum(self.by_multiple.values())


@dataclass(frozen=True, slots=True)
class Totals:
    pages: int
    domains: int
    begun_ms: int
    ended_ms: int
    #: Decompressed.
    body_bytes: int
    #: Status 2xx.
    good: int
    #: No response.
    failures: int
    #: Not requested: refused by robots.txt or a rule of the run.
    skipped: int
    #: Status 4xx and 5xx.
    http_errors: int
    #: Good pages with the same body as an earlier one.
    same_body: int
    #: The same for their texts, by simhash.
    same_text: int
    #: Truncated.
    cut: int

    @property
    def fetched(self) -> int:
        return self.pages - self.skipped

    @property
    def seconds(self) -> float:
        return (self.ended_ms - self.begun_ms) / 1000


@dataclass(frozen=True, slots=True)
class Tally:
    """The figures of a run. Dicts are in the order in which they are shown."""

    totals: Totals
    slices: list[TimeSlice]
    statuses: dict[int, int]
    errors: dict[str, int]
    #: Why URLs were skipped.
    refusals: dict[str, int]
    content_types: dict[str, int]
    languages: dict[str, int]
    top_domains: dict[str, int]
    domains_by_pages: dict[str, int]
    depths: dict[str, int]
    sizes: dict[str, int]
    latencies: dict[str, int]
    #: The 50th, 90th and 99th percentile.
    latency_ms: tuple[int, int, int]
    pauses: Pauses
    slowest: list[DomainLine]
    failing: list[DomainLine]
