"""Compares what the web saw with what is stored."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from crawlproj.errors import BadSegment
from crawlproj.simweb.referee import Referee
from crawlproj.storage import read_pages
from tests.chaos.crawl import DELAY_S

_EXAMPLES = 12


@dataclass(slots=True)
class Judgement:
    """What went wrong, by kind; all empty: nothing did."""

    requests: int
    refetched: int
    rows: int
    violations: dict[str, list[str]] = field(default_factory=dict)

    @property
    def is_ok(self) -> bool:
        return not any(self.violations.values())

    def report(self) -> str:
        counts = "  ".join(f"{name} {len(found):,}" for name, found in self.violations.items())
        lines = [
            f"requests {self.requests:,}  refetched {self.refetched:,}  rows {self.rows:,}",
            counts,
        ]
        for name, found in self.violations.items():
            lines += [f"  {name}: {one}" for one in found[:_EXAMPLES]]
            if len(found) > _EXAMPLES:
                lines.append(f"  {name}: and {len(found) - _EXAMPLES:,} more")
        return "\n".join(lines)


def judge(referee: Referee, pages: Path, began_ms: float) -> Judgement:
    """Judge a run by the web's log and the committed segments in *pages*.

    A page may have been fetched again, as often as processes died or were set back; everything else is a
    violation. *began_ms*: violations in time are given in seconds since then.
    """
    stored, damaged = _stored(pages)
    expected = referee.expected
    impolite = [
        f"{request.url} at {(request.start_ms - began_ms) / 1000:.2f} s: {gap_ms:.0f} ms after the last "
        f"request of its domain ended, instead of {required_ms:.0f} (from port {request.port})"
        for request, gap_ms, required_ms in referee.rushes(1000 * DELAY_S)
    ]
    impolite += [
        f"{domain}: Retry-After ignored, {ms:.0f} ms early" for domain, ms in referee.hurried().items()
    ]
    return Judgement(
        requests=len(referee.requests),
        refetched=sum(count - 1 for count in referee.fetched_twice().values()),
        rows=stored.total(),
        violations={
            "lost": sorted(expected - stored.keys()),
            "stored twice": sorted(f"{url}: {n} rows" for url, n in stored.items() if n > 1),
            "forbidden": sorted(referee.forbidden() | referee.before_robots()),
            "impolite": impolite,
            "damaged": damaged,
        },
    )


def _stored(pages: Path) -> tuple[Counter[str], list[str]]:
    if not pages.is_dir():
        return Counter(), []
    stored: Counter[str] = Counter()
    try:
        stored.update(row["url"] for row in read_pages(pages, ["url"]))
    except BadSegment as exc:
        return stored, [str(exc)]
    return stored, []
