"""What a report knows about a run. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from crawlproj.config import Config
from crawlproj.model.urls import domain_of_host


@dataclass(frozen=True, slots=True)
class Delays:
    """What a domain was to rest between requests. None: it may be asked several times at once."""

    usual_s: float
    by_domain: Mapping[str, float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, config: Config) -> Delays:
        """Return what the settings say; what robots.txt or the pace of a site adds is not known here."""
        by_domain: dict[str, float | None] = {}
        for host, slot in config.download_slots.items():
            domain = domain_of_host(host.lower())
            delay_s = float(slot.get("delay", config.download_delay))
            is_one_at_once = int(slot.get("concurrency", 1)) == 1
            by_domain[domain] = max(delay_s, by_domain.get(domain) or 0) if is_one_at_once else None
        return cls(config.download_delay, by_domain)


@dataclass(frozen=True, slots=True)
class Moment:
    """A slice of the time of a run."""

    middle_s: float
    pages_per_s: float
    failures_per_s: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class DomainLine:
    """A domain in a table. ``trouble`` is its commonest."""

    domain: str
    pages: int
    failures: int = 0
    http_errors: int = 0
    trouble: str = ""
    mean_latency_ms: float = 0.0
    longest_latency_ms: int = 0


@dataclass(frozen=True, slots=True)
class PauseLine:
    """A domain by its shortest pause."""

    domain: str
    pauses: int
    shortest_s: float
    delay_s: float


@dataclass(frozen=True, slots=True)
class Pauses:
    """Times from the end of one answer of a domain to the beginning of its next request."""

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
    #: Of bodies, unpacked.
    body_bytes: int
    #: Answers of 2xx.
    good: int
    #: No answer.
    failures: int
    #: Not asked for: robots.txt or a rule of the run said no.
    skipped: int
    #: Answers of 4xx and 5xx.
    http_errors: int
    #: Good pages whose body another one has, too, without the first of each.
    same_body: int
    #: The same, of their texts, by simhash.
    same_text: int
    #: Part of the body is missing.
    cut: int

    @property
    def fetched(self) -> int:
        return self.pages - self.skipped

    @property
    def seconds(self) -> float:
        return (self.ended_ms - self.begun_ms) / 1000


@dataclass(frozen=True, slots=True)
class Tally:
    """The numbers of a run. Dicts are in the order in which they are to be shown."""

    totals: Totals
    moments: list[Moment]
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
    #: Below which half, nine tenths and 99 of 100 answers came, in ms.
    latency_ms: tuple[int, int, int]
    pauses: Pauses
    slowest: list[DomainLine]
    failing: list[DomainLine]
