"""A shard with nothing to do: its CPU, what it asks of Redis, and how fast it wakes when work arrives.

A single shard with 64 partitions, all of whose URLs are fetched and parsed, waits for more. Waking is timed
from just before the URL is admitted until the simulated web sees the first request, which is for robots.txt.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
import time
from pathlib import Path

from measuring import Goal, Options, RedisServer, Report, median, process_cpu_s, read_options, say
from processes import start_scrapy

from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate
from crawlproj.model.urls import canonicalise
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run
from crawlproj.simweb.accesslog import read_log
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec

PARTITIONS = 64
RUN = "web"
WAKES = 20
#: Just after the last page the leader checks again soon, then less and less often: that is not idling yet.
SETTLE_S = 30.0
WATCH_S = 60.0
#: Long enough for the shard to be at rest again, and not a multiple of any of its periods.
BETWEEN_WAKES_S = 1.3
PATIENCE_S = 60.0


async def main(options: Options) -> None:
    wakes = 3 if options.quick else WAKES
    settle_s, watch_s = (6.0, 12.0) if options.quick else (SETTLE_S, WATCH_S)
    spec = WorldSpec.calm(domains=wakes + 1, pages_per_domain=1, size_spread=0.0, cross_domain_share=0.0)
    with (
        tempfile.TemporaryDirectory() as name,
        SimwebProcess(spec, Path(name) / "web") as simweb,
        RedisServer(options.redis_server, aof=True) as server,
    ):
        report = Report(server.version)
        first, *others = (canonicalise(url) for url in simweb.seeds(wakes + 1))
        client = await RedisClient.open(url=server.url, data_dir=Path())
        shard = _start(Path(name), server, "crawl", "web", "-a", "shard=0")
        parser = _start(Path(name), server, "parser", "--run", RUN)
        try:
            await _finish_one_page(client, first)
            # Its commands must not count for the shard.
            parser.terminate()
            parser.wait(PATIENCE_S)
            say(f"   left alone for {settle_s:g} s, then watched for {watch_s:g} s")
            await asyncio.sleep(settle_s)
            await measure_rest(report, server, shard.pid, watch_s)
            await measure_wakes(report, client, simweb, others)
        finally:
            for child in (parser, shard):
                child.kill()
                child.wait()
            await client.close()
    report.finish(options)


def _start(folder: Path, server: RedisServer, *command: str) -> subprocess.Popen[bytes]:
    settings = {
        "CRAWL_DATA": str(folder / "data"),
        "CRAWL_PARTITIONS": str(PARTITIONS),
        "REDIS_URL": server.url,
        "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
        "CRAWL_SCOPE": "everything",
        "DOWNLOAD_DELAY": "0",
        # The links of the first page stay out: what they lead to is admitted later, to see the shard wake.
        "DEPTH_LIMIT": "1",
        "SCHEDULER_IDLE_BEFORE_CLOSE": "3600",
        "LOG_LEVEL": "ERROR",
    }
    return start_scrapy(command, settings, log=None)


async def _finish_one_page(client: RedisClient, url: str) -> None:
    """Admit *url* and wait until it is fetched, parsed and stored, and nothing is left to do."""
    run = await Run.open(client, RUN, partitions=PARTITIONS, shards=1)
    await Frontier(client, RUN, PARTITIONS).admit([Candidate(url, depth=1)])
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        counters = await run.read_counters()
        if counters.stored and not counters.outstanding:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError(f"{url} was not stored within {PATIENCE_S:g} s; counters: {counters}.")


async def _first_request_ms(simweb: SimwebProcess, prefix: str) -> float:
    """When the simulated web saw the first request that begins with *prefix*."""
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        await asyncio.to_thread(simweb.referee)  # has the log written out
        starts = [request.start_ms for request in read_log(simweb.log_path) if request.url.startswith(prefix)]
        if starts:
            return min(starts)
        await asyncio.sleep(0.1)
    raise RuntimeError(f"{prefix} was not requested within {PATIENCE_S:g} s.")


async def measure_rest(report: Report, server: RedisServer, pid: int, watch_s: float) -> None:
    before_s, started_s = process_cpu_s(pid), time.monotonic()
    calls = await asyncio.to_thread(server.commands_during, watch_s)
    watched_s = time.monotonic() - started_s
    cpu_percent = 100 * (process_cpu_s(pid) - before_s) / watched_s
    rate = calls.total() / watched_s
    table = report.table(f"an idle shard, {PARTITIONS} partitions, for {watched_s:.0f} s", "what", "measured")
    table.add("CPU", f"{cpu_percent:.2f} %")
    table.add("commands to Redis", f"{rate:.1f}/s")
    table.add(
        "of these", ", ".join(f"{name} {count / watched_s:.2f}/s" for name, count in calls.most_common(8))
    )
    report.goals += [
        Goal(
            f"CPU of an idle shard, {PARTITIONS} partitions", "< 1 %", f"{cpu_percent:.2f} %", cpu_percent < 1
        ),
        Goal("Redis commands of an idle shard", "< 10/s", f"{rate:.1f}/s", rate < 10),
    ]


async def measure_wakes(report: Report, client: RedisClient, simweb: SimwebProcess, urls: list[str]) -> None:
    frontier = Frontier(client, RUN, PARTITIONS)
    waits_ms = []
    for url in urls:
        await asyncio.sleep(BETWEEN_WAKES_S)
        before_ms = time.time() * 1000
        await frontier.admit([Candidate(url)])
        waited_ms = await _first_request_ms(simweb, url.rstrip("/")) - before_ms
        if waited_ms < 0:
            raise RuntimeError(f"{url} was asked for before it was admitted, so waking was not measured.")
        waits_ms.append(waited_ms)
    table = report.table(
        f"waking of an idle shard, {len(urls)} times", "median ms", "shortest", "longest", "all"
    )
    slowest = max(waits_ms)
    table.add(
        f"{median(waits_ms):.0f}",
        f"{min(waits_ms):.0f}",
        f"{slowest:.0f}",
        " ".join(f"{wait:.0f}" for wait in sorted(waits_ms)),
    )
    report.goals.append(
        Goal("waking of an idle shard, the slowest", "< 200 ms", f"{slowest:.0f} ms", slowest < 200)
    )


if __name__ == "__main__":
    asyncio.run(main(read_options(__doc__ or "")))
