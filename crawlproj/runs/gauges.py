"""The metrics of a run, published by its leader; declared in `observe.metrics.RUN_METRICS`."""

from __future__ import annotations

from typing import Any

from crawlproj.config import Config
from crawlproj.model.run import RunState
from crawlproj.redisio import keys
from crawlproj.redisio.stripes import read_page_counters
from crawlproj.runs.leader import limit_ratio
from crawlproj.runs.processes import SILENT_S, live_processes
from crawlproj.runs.record import Run


async def run_gauges(run: Run, config: Config) -> dict[str, Any]:
    """Return the metrics of *run* now, in a few round trips whatever its size."""
    everywhere = range(run.partitions)
    counters, run_map = await run.read_counters(), await run.read_map()
    pages = await read_page_counters(run.client, run.name)
    sizes = await run.client.pipeline(
        [
            *(("ZCARD", keys.ready(run.name, p)) for p in everywhere),
            *(("LLEN", keys.newcomers(run.name, p)) for p in everywhere),
            *(("ZCARD", keys.parked(run.name, p)) for p in everywhere),
        ]
    )
    alive = await live_processes(run, SILENT_S)
    room = await run.client.read_memory()
    return {
        "frontier_waiting_urls": counters.waiting,
        "frontier_leased_urls": counters.leased,
        "frontier_ready_domains": sum(sizes[: 2 * run.partitions]),
        "frontier_spilled_links": counters.spilled,
        "frontier_parked_domains": sum(sizes[2 * run.partitions :]),
        "circuits_open": counters.counts["parked:failures"],
        "page_queue_pages": counters.queue_pages,
        "page_queue_bytes": pages["queued_bytes"],
        "page_queue_hard_limit_pages": config.page_queue_hard,
        "page_queue_hard_limit_bytes": config.page_queue_hard_bytes,
        "dead_letters": pages["dead"],
        "run_pages_fetched_total": counters.fetched,
        "run_pages_stored_total": counters.stored,
        "run_pages_cut_total": counters.cut,
        "limit_ratio": limit_ratio(run_map.limits, counters, run_map.ran_s),
        "shards_wanted": run_map.shards,
        "shards_alive": sum(name.startswith("shard") for name in alive),
        "parsers_alive": sum(name.startswith("parser") for name in alive),
        "redis_memory_bytes": room.used,
        "redis_memory_max_bytes": room.most,
        "run_state": {state.value: int(state == run_map.state) for state in RunState},
    }
