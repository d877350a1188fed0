"""One domain with 90 % of all URLs among many at a delay of one second: does it slow the others down?

One shard, then two, fetch from 2,000 domains, with and without the large one in turn. What counts is what the
server saw in a window of time, against what the delay allows; and that no domain was asked sooner than that.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from crawling import PARTITIONS, RUN, admit_pages, start
from measuring import Goal, Options, RedisServer, Report, median, process_cpu_s, read_options, say
from page_server import Asked, PageServer

from crawlproj.frontier.frontier import Frontier
from crawlproj.redisio.client import Door
from crawlproj.runs import Run

DELAY_S = 1.0
DOMAINS = 2000
QUICK_DOMAINS = 300
#: The shard has started and knows every robots.txt by then.
WARM_S = 20.0
WATCH_S = 20.0
URLS_EACH = 60
REPEATS = 3
#: The large domain has this share of all URLs.
HOT_SHARE = 0.9
WANTED = 0.95
#: A delay counts from the end of a request, the server's time from before: only clocks can make it shorter.
CLOCK_S = 0.001


@dataclass(frozen=True, slots=True)
class Seen:
    pages_per_s: float
    shard_percent: float
    redis_percent: float
    shortest_gap_s: float


async def main(options: Options) -> None:
    domains, watch_s, repeats = (QUICK_DOMAINS, 8.0, 1) if options.quick else (DOMAINS, WATCH_S, REPEATS)
    #: By whether there is a large domain, and the number of shards.
    found: dict[tuple[bool, int], list[Seen]] = {(False, 1): [], (True, 1): [], (True, 2): []}
    with RedisServer(options.redis_server) as server:
        report = Report(server.version)
        for _ in range(repeats):
            for (has_hot, shards), seen in found.items():
                seen.append(await measure(server, domains, has_hot, shards, watch_s))
                say(f"   large domain {has_hot}, shards {shards}: {seen[-1].pages_per_s:.0f} pages/s")
    cap = domains / DELAY_S
    table = report.table(
        f"{domains:,} domains at {DELAY_S:g} s: {cap:,.0f} pages/s are allowed",
        "one has 90 % of the URLs",
        "shards",
        "pages/s",
        "of what is allowed",
        "CPU of shards",
        "Redis CPU",
        "shortest gap, s",
    )
    for (has_hot, shards), seen in found.items():
        rate, shard, redis = (
            median([getattr(one, part) for one in seen])
            for part in ("pages_per_s", "shard_percent", "redis_percent")
        )
        gap_s = min(one.shortest_gap_s for one in seen)
        speed = (f"{rate:.0f}", f"{rate / cap:.1%}")
        used = (f"{shard:.0f} %", f"{redis:.0f} %")
        table.add("yes" if has_hot else "no", shards, *speed, *used, f"{gap_s:.3f}")
    shares = {
        shards: median([one.pages_per_s for one in seen]) / cap
        for (has_hot, shards), seen in found.items()
        if has_hot
    }
    gap_s = min(one.shortest_gap_s for seen in found.values() for one in seen)
    report.goals += [
        Goal(
            f"{domains:,} domains at {DELAY_S:g} s, one with 90 % of the URLs",
            f">= {WANTED:.0%} of the cap",
            ", ".join(f"shards {shards}: {share:.1%}" for shards, share in shares.items()),
            max(shares.values()) >= WANTED,
        ),
        Goal(
            "no domain is asked sooner than its delay",
            f">= {DELAY_S:g} s",
            f"{gap_s:.3f} s",
            gap_s >= DELAY_S - CLOCK_S,
        ),
    ]
    report.finish(options)


async def measure(server: RedisServer, domains: int, has_hot: bool, shards: int, watch_s: float) -> Seen:
    with PageServer() as sites, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        door = await Door.open(url=server.url, data_dir=Path())
        await door.command("FLUSHDB")
        await Run.open(door, RUN, partitions=PARTITIONS)
        frontier = Frontier(door, RUN, PARTITIONS)
        if has_hot:
            hot_urls = round((domains - 1) * URLS_EACH * HOT_SHARE / (1 - HOT_SHARE))
            await admit_pages(frontier, sites, range(1), hot_urls)
        await admit_pages(frontier, sites, range(1 if has_hot else 0, domains), URLS_EACH)
        settings = {"DOWNLOAD_DELAY": str(DELAY_S), "CONCURRENT_REQUESTS": "512"}
        crew = [
            start(["crawl", "web", f"-ashard={n}", f"-ashards={shards}"], server, Path(folder), settings)
            for n in range(shards)
        ]
        try:
            await asyncio.sleep(WARM_S)
            begin_s, redis_s = time.time(), server.cpu_s()
            before_s = sum(process_cpu_s(one.pid) for one in crew)
            await asyncio.sleep(watch_s)
            end_s, shard_s = time.time(), sum(process_cpu_s(one.pid) for one in crew) - before_s
            redis_s = server.cpu_since_s(redis_s)
        finally:
            for one in crew:
                one.kill()
                one.wait()
            await door.close()
        asked = sites.asked()
    took_s = end_s - begin_s
    pages = [one for one in asked if begin_s <= one.at_s < end_s]
    return Seen(len(pages) / took_s, 100 * shard_s / took_s, 100 * redis_s / took_s, shortest_gap_s(asked))


def shortest_gap_s(asked: list[Asked]) -> float:
    """Between two requests to one domain, robots.txt included."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for one in asked:
        times[one.host].append(one.at_s)
    return min(later - sooner for of_one in times.values() for sooner, later in pairwise(of_one))


if __name__ == "__main__":
    asyncio.run(main(read_options(__doc__ or "")))
