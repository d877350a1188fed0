"""What `scrapy status` shows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crawlproj.redisio import keys
from crawlproj.redisio.client import pairs
from crawlproj.runs.record import Run


async def status_of(run: Run) -> dict[str, Any]:
    """Return what `scrapy status` shows; its JSON form is an interface, so names only ever get added."""
    figures, run_map = await run.figures(), await run.read_map()
    counts = figures.counts
    reasons = {name[7:]: count for name, count in sorted(counts.items()) if name.startswith("reason:")}
    aside = await _set_aside(run)
    return {
        "run": run.name,
        "state": run_map.state,
        "reason": run_map.reason,
        "waiting": figures.waiting,
        "leased": figures.leased,
        "fetched": counts["done"],
        "bytes": counts["bytes"],
        "failed": counts["failed"],
        "skipped": counts["skipped"],
        "trapped": counts["trapped"],
        "parked": counts["parked"],
        "retried": counts["retry"],
        "returned": counts["returned"],
        "reclaimed": counts["reclaimed"],
        "admitted": figures.admitted,
        "by_reason": reasons,
        "filtered": aside.filtered,
        "parked_domains": aside.parked_domains,
        "trapped_kept": aside.trapped_urls,
        "pages_queued": figures.queue_pages,
        "pages_being_parsed": sum(figures.taken.values()),
        "pages_stored": figures.stored,
        "pages_cut": figures.cut,
        "partitions": run.partitions,
        "partitions_owned": figures.owned,
        "shards": run_map.shards,
        "shards_alive": {
            str(number): f"{holder.process.host}:{holder.process.pid}"
            for number, holder in run_map.alive.items()
        },
        "parsers": figures.taken,
    }


@dataclass(frozen=True, slots=True)
class _Aside:
    """What is not crawled for now, or never was admitted."""

    parked_domains: int
    trapped_urls: int
    filtered: dict[str, int]


async def _set_aside(run: Run) -> _Aside:
    everywhere = range(run.partitions)
    counters, *sizes = await run.door.pipeline(
        [
            ("HGETALL", keys.page_counters(run.name)),
            *(("ZCARD", keys.parked(run.name, p)) for p in everywhere),
            *(("ZCARD", keys.trapped(run.name, p)) for p in everywhere),
        ]
    )
    filtered = {
        name.removeprefix("filtered:"): int(count)
        for name, count in sorted(pairs(counters))
        if name.startswith("filtered:")
    }
    return _Aside(sum(sizes[: run.partitions]), sum(sizes[run.partitions :]), filtered)
