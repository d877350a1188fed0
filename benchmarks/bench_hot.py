"""One domain with 99 % of all URLs beside many small ones: does it slow them down?

A shard fetches from 300 domains at a delay of one second, without and with the large domain in turn. What is
counted is what the simulated web saw of the small ones in a window of time, against what their delay allows.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from measuring import Goal, Options, RedisServer, Report, median, process_cpu_s, read_options, say

from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Candidate
from crawlproj.model.urls import canonicalise
from crawlproj.redisio.client import Door
from crawlproj.runs import Run
from crawlproj.simweb.accesslog import read_log
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec

RUN = "web"
DELAY_S = 1.0
DOMAINS = 300
URLS_EACH = 60
#: The shard has started and knows every robots.txt by then.
WARM_S = 12.0
WATCH_S = 20.0
REPEATS = 3
PROJECT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Seen:
    """Requests to the small domains in the window, how many there could be, and the shard's CPU."""

    share: float
    pages_per_s: float
    cpu_percent: float


async def main(options: Options) -> None:
    watch_s, repeats = (6.0, 1) if options.quick else (WATCH_S, REPEATS)
    found: dict[str, list[Seen]] = {"without": [], "with": []}
    with RedisServer(options.redis_server) as server:
        report = Report(server.version)
        for _ in range(repeats):
            for name, seen in found.items():
                hot_urls = 99 * DOMAINS * URLS_EACH if name == "with" else 0
                seen.append(await measure(server, hot_urls, watch_s))
                say(f"   {name} the large domain: {100 * seen[-1].share:.1f} % of what the delay allows")
    table = report.table(
        f"{DOMAINS} domains at {DELAY_S:g} s",
        "the large domain",
        "pages/s",
        "of what is allowed",
        "shard CPU",
    )
    for name, seen in found.items():
        share = 100 * median([one.share for one in seen])
        cpu = median([one.cpu_percent for one in seen])
        table.add(name, f"{median([one.pages_per_s for one in seen]):.0f}", f"{share:.1f} %", f"{cpu:.0f} %")
    with_it = median([one.share for one in found["with"]])
    report.goals.append(
        Goal(
            "small domains beside one with 99 % of all URLs",
            ">= 90 %",
            f"{100 * with_it:.1f} %",
            with_it >= 0.9,
        )
    )
    report.finish(options)


async def measure(server: RedisServer, hot_urls: int, watch_s: float) -> Seen:
    spec = WorldSpec.calm(domains=DOMAINS + 1, pages_per_domain=URLS_EACH, size_spread=0.0, latency_ms=1.0)
    with tempfile.TemporaryDirectory() as name, SimwebProcess(spec, Path(name) / "web") as simweb:
        door = await Door.open(url=server.url, data_dir=Path())
        homes = [canonicalise(url) for url in simweb.seeds(DOMAINS + 1)]
        hot, *others = homes
        await door.command("FLUSHDB")
        run = await Run.open(door, RUN, partitions=64)
        frontier = Frontier(door, RUN, run.partitions)
        await frontier.admit(Candidate(f"{home}p{n}") for home in others for n in range(URLS_EACH))
        for start in range(0, hot_urls, 10_000):
            await frontier.admit(Candidate(f"{hot}p{n}") for n in range(start, start + 10_000))
        shard = _start(Path(name), server)
        try:
            await asyncio.sleep(WARM_S)
            begin_s, cpu_s = time.time(), process_cpu_s(shard.pid)
            await asyncio.sleep(watch_s)
            end_s, cpu_s = time.time(), process_cpu_s(shard.pid) - cpu_s
        finally:
            shard.kill()
            shard.wait()
            await door.close()
        simweb.referee()  # has the log written out
        hosts = {home.split("/")[2].partition(":")[0] for home in others}
        asked = [
            request
            for request in read_log(simweb.log_path)
            if request.host in hosts and begin_s * 1000 <= request.start_ms < end_s * 1000
        ]
    # A request takes a moment, and the pause begins when it has ended.
    took_s = median([(request.end_ms - request.start_ms) / 1000 for request in asked])
    pages_per_s = len(asked) / watch_s
    return Seen(pages_per_s * (DELAY_S + took_s) / DOMAINS, pages_per_s, 100 * cpu_s / watch_s)


def _start(folder: Path, server: RedisServer) -> subprocess.Popen[bytes]:
    settings = {
        "CRAWL_DATA": str(folder / "data"),
        "REDIS_URL": server.url,
        "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
        "DOWNLOAD_DELAY": str(DELAY_S),
        "CONCURRENT_REQUESTS": "512",
        # Nobody parses: the queue must not be what limits.
        "CRAWL_PAGE_QUEUE_SOFT": "10000000",
        "CRAWL_PAGE_QUEUE_HARD": "10000000",
        "CRAWL_PAGE_QUEUE_SOFT_BYTES": "10000000000",
        "CRAWL_PAGE_QUEUE_HARD_BYTES": "10000000000",
        "LOG_LEVEL": "ERROR",
    }
    words = [word for pair in settings.items() for word in ("-s", "=".join(pair))]
    return subprocess.Popen(
        [sys.executable, "-m", "scrapy", "crawl", "web", "-a", "shard=0", *words],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": str(PROJECT)},
    )


if __name__ == "__main__":
    asyncio.run(main(read_options(__doc__ or "")))
