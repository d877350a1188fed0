"""What `scrapy status` shows."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import Any

from crawlproj.model.spill import SpillRecord
from crawlproj.redisio import keys
from crawlproj.redisio.client import pairs
from crawlproj.runs.record import Run


async def status_of(run: Run) -> dict[str, Any]:
    """Return what `scrapy status` shows; its JSON form is an interface, so names are only ever added."""
    counters, run_map = await run.read_counters(), await run.read_map()
    counts, memory = counters.counts, await run.client.read_memory()
    reasons = {name[7:]: count for name, count in sorted(counts.items()) if name.startswith("reason:")}
    partitions = range(run.partitions)
    page_counters, spills, fetching, *sizes = await run.client.pipeline(
        [
            ("HGETALL", keys.page_counters(run.name)),
            ("HGETALL", keys.spills(run.name)),
            ("HGETALL", keys.fetching()),
            *(("ZCARD", place(run.name, p)) for place in (keys.parked, keys.trapped) for p in partitions),
        ]
    )
    return {
        "run": run.name,
        "state": run_map.state,
        "reason": run_map.reason,
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
        "by_reason": reasons,
        # Links that were not admitted, by reason.
        "filtered": {
            name.removeprefix("filtered:"): int(count)
            for name, count in sorted(pairs(page_counters))
            if name.startswith("filtered:")
        },
        "parked_domains": sum(sizes[: run.partitions]),
        "trapped_kept": sum(sizes[run.partitions :]),
        "pages_queued": counters.queue_pages,
        "pages_being_parsed": sum(counters.taken.values()),
        "pages_stored": counters.stored,
        "pages_cut": counters.cut,
        **_stored(dict(pairs(page_counters))),
        **_spilled(dict(pairs(spills))),
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
        "runs_beside": _beside(run.name, dict(pairs(fetching))),
    }


def _stored(counts: dict[str, str]) -> dict[str, int]:
    return {"items": int(counts.get("items", 0)), "dead_letters": int(counts.get("dead", 0))}


def _beside(run: str, fetching: dict[str, str]) -> list[str]:
    """Return the other runs that fetch now: domains rest for all of them together."""
    known = {name: json.loads(facts) for name, facts in fetching.items() if not name.startswith(":")}
    now_ms = time.time() * 1000
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
