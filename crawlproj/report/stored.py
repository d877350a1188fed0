"""What a run has stored, as far as a comparison needs it."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from crawlproj.storage.reader import read_pages


@dataclass(slots=True)
class Stored:
    #: Hashes of the texts, by URL; not of a page that could not be fetched. For this process only.
    texts: dict[str, int] = field(default_factory=dict)
    #: Responses, and the sum of their times, by domain.
    responses: Counter[str] = field(default_factory=Counter)
    latency_s: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    #: Between the first response and the last.
    fetching_s: float = 0.0


def read_stored(directory: Path) -> Stored:
    """Read the committed pages in *directory*; of a run that stored none, too. Raises BadSegment."""
    stored = Stored()
    if not directory.is_dir():
        return stored
    begun_s, ended_s = float("inf"), 0.0
    for row in read_pages(directory, ("url", "domain", "status", "fetched_at", "latency_ms", "text")):
        if not row["status"]:
            continue
        stored.texts[row["url"]] = hash(row["text"])
        stored.responses[row["domain"]] += 1
        latency_s = row["latency_ms"] / 1000
        stored.latency_s[row["domain"]] += latency_s
        at_s = row["fetched_at"].timestamp()
        begun_s, ended_s = min(begun_s, at_s - latency_s), max(ended_s, at_s)
    stored.fetching_s = max(0.0, ended_s - begun_s)
    return stored
