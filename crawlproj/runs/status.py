"""What `scrapy status` shows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from crawlproj.model.spill import SpillRecord
from crawlproj.redisio import keys
from crawlproj.redisio.client import pairs
from crawlproj.redisio.clock import server_ms
from crawlproj.redisio.stripes import read_hash, read_page_counters
from crawlproj.runs.record import Run


async def status_of(run: Run) -> dict[str, Any]:
    """Return what `scrapy status` shows; its JSON form is an interface, so names are only ever added."""
    counters, run_map = await run.read_counters(), await run.read_map()
    counts, memory = counters.counts, await run.client.read_memory()
    partitions = range(run.partitions)
    page_counters = await read_page_counters(run.client, run.name)
    spills = await read_hash(run.client, run.name, keys.spills)
    fetching, *sizes = await run.client.pipeline(
        [
            ("HGETALL", keys.fetching()),
            *(("ZCARD", place(run.name, p)) for place in (keys.parked, keys.trapped) for p in partitions),
        ]
    )
    return {
        "run": run.name,
        "state": run_map.state,
        "reason": run_map.reason,
        # In all, over all its starts.
        "ran_seconds": round(run_map.ran_s, 1),
        "limits": asdict(run_map.limits),
        "waiting": counters.waiting,
        "leased": counters.leased,
        "fetched": counts["done"],
        "bytes": counts["bytes"],
        "failed": counts["failed"],
        "skipped": counts["skipped"],
        "trapped": counts["trapped"],
        "parked": counts["parked"],
        "retried": counts["retry"],
        "returned": counts["returned"],
        "reclaimed": counts["reclaimed"],
        "admitted": counters.admitted,
        "by_reason": _named(counts, "reason:"),
        # Links that were not admitted, by reason.
        "filtered": _named(page_counters, "filtered:"),
        "parked_domains": sum(sizes[: run.partitions]),
        "trapped_kept": sum(sizes[run.partitions :]),
        "pages_queued": counters.queue_pages,
        "pages_being_parsed": sum(counters.taken.values()),
        "pages_stored": counters.stored,
        "pages_cut": counters.cut,
        "items": page_counters["items"],
        "dead_letters": page_counters["dead"],
        **_spilled(spills),
        "partitions": run.partitions,
        "partitions_owned": counters.owned,
        "shards": run_map.shards,
        "shards_alive": {
            str(number): f"{holder.process.host}:{holder.process.pid}"
            for number, holder in run_map.alive.items()
        },
        "parsers": counters.taken,
        "redis_memory_bytes": memory.used,
        # 0: no limit.
        "redis_memory_max_bytes": memory.most,
        # What to do; '' unless it is full.
        "redis_full": f"Redis at {run.client.where} {memory}" if memory.is_full else "",
        "runs_beside": _beside(run.name, dict(pairs(fetching)), await server_ms(run.client)),
    }


def _named(counts: Mapping[str, int], prefix: str) -> dict[str, int]:
    return {
        name.removeprefix(prefix): count for name, count in sorted(counts.items()) if name.startswith(prefix)
    }


def _beside(run: str, fetching: dict[str, str], now_ms: int) -> list[str]:
    """Return the other runs that fetch now: domains rest for all of them together."""
    known = {name: json.loads(facts) for name, facts in fetching.items() if not name.startswith(":")}
    return sorted(
        name
        for name, facts in known.items()
        if name != run and now_ms - facts["at_ms"] < 1000 * facts["silent_s"]
    )


def _spilled(records: dict[str, str]) -> dict[str, Any]:
    """Return how many links wait on disk, and in which files; each is on the disk of its host."""
    spills = {name: SpillRecord.decode(record) for name, record in sorted(records.items())}
    return {
        "links_spilled": sum(spill.links for spill in spills.values()),
        "spill_files": [{"file": name, **asdict(spill)} for name, spill in spills.items()],
    }
