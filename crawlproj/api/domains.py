"""The domains of a job, sorted; read a few at a time, so that nobody waits for it."""

from __future__ import annotations

import time
from typing import Any

from crawlproj.model.domain import DomainState
from crawlproj.redisio import keys
from crawlproj.redisio.client import pairs
from crawlproj.runs import Run
from crawlproj.runs.overview import domain_line

#: Domains that are looked at; of a job with more, these are a sample.
MOST_READ = 20_000
#: Of each partition in a round trip.
_PAGE = 10
_FRESH_S = 5.0
_MOST_KEPT = 20
_FIGURES = {"fetched": "fetched", "delay": "delay_ms", "failures": "failures"}


class Domains:
    """The last lists that were read, by job and order."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[float, list[dict[str, Any]], bool]] = {}

    async def read(self, run: Run, sort: str) -> tuple[list[dict[str, Any]], bool]:
        """Return the domains of *run*, the highest first, and whether there are more."""
        kept = self._kept.get((run.name, sort))
        if kept is None or time.monotonic() - kept[0] > _FRESH_S:
            lines, is_sample = await _read(run)
            lines.sort(key=lambda line: (-line[_FIGURES[sort]], line["domain"]))
            self._kept.pop((run.name, sort), None)
            kept = self._kept[run.name, sort] = (time.monotonic(), lines, is_sample)
            if len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return kept[1], kept[2]


async def _read(run: Run) -> tuple[list[dict[str, Any]], bool]:
    found: dict[str, dict[str, Any]] = {}
    cursors = dict.fromkeys(range(run.partitions), b"0")
    while cursors and len(found) < MOST_READ:
        answers = await run.client.pipeline(
            [("HSCAN", keys.domains(run.name, p), cursor, "COUNT", _PAGE) for p, cursor in cursors.items()]
        )
        for partition, (cursor, flat) in zip(list(cursors), answers, strict=True):
            for domain, text in pairs(flat):
                found[domain] = domain_line(domain, DomainState.decode(text))
            cursors[partition] = cursor
            if cursor == b"0":
                del cursors[partition]
    return list(found.values()), bool(cursors)
