"""The figures of a run as its leader tells them to Prometheus; named in `observe.metrics.RUN_METRICS`."""

from __future__ import annotations

import asyncio
import re
import shutil
from typing import Any

from crawlproj.config import Config
from crawlproj.redisio import keys
from crawlproj.runs.leader import limit_ratio
from crawlproj.runs.processes import live_processes
from crawlproj.runs.record import Run, RunState

_USED_MEMORY = re.compile(rb"used_memory:(\d+)")
#: A parser that was silent for longer is not counted.
_SILENT_S = 60.0


async def run_gauges(run: Run, config: Config) -> dict[str, Any]:
    """Return the figures of *run* now, in a few round trips whatever its size."""
    everywhere = range(run.partitions)
    figures, run_map = await run.figures(), await run.read_map()
    queued_bytes, dead, memory, *sizes = await run.door.pipeline(
        [
            ("HGET", keys.page_counters(run.name), "queued_bytes"),
            ("HLEN", keys.dead_letters(run.name)),
            ("INFO", "memory"),
            *(("ZCARD", keys.ready(run.name, p)) for p in everywhere),
            *(("ZCARD", keys.parked(run.name, p)) for p in everywhere),
        ]
    )
    alive = await live_processes(run, _SILENT_S)
    used = _USED_MEMORY.search(memory)
    return {
        "frontier_waiting_urls": figures.waiting,
        "frontier_leased_urls": figures.leased,
        "frontier_ready_domains": sum(sizes[: run.partitions]),
        "frontier_parked_domains": sum(sizes[run.partitions :]),
        "circuits_open": figures.counts["parked:failures"],
        "page_queue_pages": figures.queue_pages,
        "page_queue_bytes": int(queued_bytes or 0),
        "page_queue_hard_limit_pages": config.page_queue_hard,
        "page_queue_hard_limit_bytes": config.page_queue_hard_bytes,
        "dead_letters": dead,
        "run_pages_fetched_total": figures.fetched,
        "run_pages_stored_total": figures.stored,
        "run_pages_cut_total": figures.cut,
        "limit_ratio": limit_ratio(run_map.limits, figures, run_map.ran_s),
        "shards_wanted": run_map.shards,
        "shards_alive": sum(name.startswith("shard") for name in alive),
        "parsers_alive": sum(name.startswith("parser") for name in alive),
        "redis_memory_bytes": int(used[1]) if used else 0,
        "run_state": {state.value: int(state == run_map.state) for state in RunState},
        **await asyncio.to_thread(_disk, config),
    }


def _disk(config: Config) -> dict[str, int]:
    try:
        return {"disk_free_bytes": shutil.disk_usage(config.data).free}
    except OSError:
        # It is away: whoever writes there says so, and the crawl does not end for a figure.
        return {}
