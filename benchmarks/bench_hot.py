"""One domain with 90 % of all URLs among many that have a delay: is every one asked as often as it may be?

One shard, then two, fetch from 2,000 domains, with and without the large one in turn; and one at half and a
quarter of the pace, where the CPU of the machine cannot be what limits. What counts is what the server saw in
a window of time, against what the delay allows; and that no domain was asked sooner than that.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from crawling import PARTITIONS, RUN, admit_pages, start
from measuring import Goal, Options, RedisServer, Report, median, process_cpu_s, read_options, say, spread
from page_server import Asked, PageServer

from crawlproj.frontier.frontier import Frontier
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run

DOMAINS = 2000
QUICK_DOMAINS = 300
#: Small, so that only scheduling counts: `scale` measures what a page costs by its size.
PAGE_BYTES = 2000
#: So long after their start, and three delays, the shards know every robots.txt.
WARM_S = 5.0
WARM_DELAYS = 3
#: Multiples of every delay: a domain that is asked in bursts has as many of them in any such time.
WATCH_S, QUICK_WATCH_S = 12.0, 4.0
#: More than a domain can give in all of that time.
URLS_EACH = 24
REPEATS = 3
#: The large domain has this share of all URLs.
HOT_SHARE = 0.9
WANTED = 0.95
#: A delay counts from the end of a request, the server's time from before: only clocks can make it shorter.
CLOCK_S = 0.001


@dataclass(frozen=True, slots=True)
class Variant:
    delay_s: float
    has_hot: bool
    shards: int


VARIANTS: tuple[Variant, ...] = (
    Variant(1.0, False, 1),
    Variant(1.0, True, 1),
    Variant(1.0, True, 2),
    Variant(2.0, True, 1),
    Variant(4.0, True, 1),
)


@dataclass(frozen=True, slots=True)
class Watched:
    """The CPU time of all between two moments; what was fetched is in the server's log."""

    started_s: float
    begin_s: float
    end_s: float
    shards_s: float
    redis_s: float
    server_s: float


@dataclass(frozen=True, slots=True)
class Seen:
    pages_per_s: float
    #: CPU a page.
    shard_ms: float
    redis_ms: float
    server_ms: float
    all_percent: float
    #: By how much the time between two requests to a domain exceeded its delay: median, then 95th percentile.
    late_ms: float
    late_p95_ms: float
    shortest_gap_s: float


async def main(options: Options) -> None:
    domains, watch_s, repeats, variants = DOMAINS, WATCH_S, REPEATS, VARIANTS
    if options.quick:
        domains, watch_s, repeats, variants = QUICK_DOMAINS, QUICK_WATCH_S, 1, VARIANTS[:3]
    watched: list[tuple[Variant, Watched]] = []
    with (
        PageServer(links=0, page_bytes=PAGE_BYTES) as sites,
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
    ):
        frontiers = {
            has_hot: await fill(options.redis_server, sites, domains, has_hot, Path(folder))
            for has_hot in (False, True)
        }
        for _ in range(repeats):
            for variant in variants:
                with RedisServer(options.redis_server, snapshot=frontiers[variant.has_hot]) as redis:
                    report = Report(redis.version)
                    watched.append((variant, await watch(redis, sites, variant, watch_s)))
        asked = sites.asked()
    found: defaultdict[Variant, list[Seen]] = defaultdict(list)
    for variant, one in watched:
        found[variant].append(seen(one, asked, variant))
    add_results(report, domains, found)
    report.finish(options)


def add_results(report: Report, domains: int, found: dict[Variant, list[Seen]]) -> None:
    table = report.table(
        f"{domains:,} domains",
        "delay, s",
        "one has 90 % of the URLs",
        "shards",
        "pages/s allowed",
        "pages/s",
        "of what is allowed",
        "CPU ms a page: shards",
        "Redis",
        "server",
        "CPU of all",
        "asked later than its delay, ms: median",
        "p95",
        "shortest gap, s",
    )
    for variant, several in found.items():
        allowed = domains / variant.delay_s
        table.add(
            f"{variant.delay_s:g}",
            "yes" if variant.has_hot else "no",
            variant.shards,
            f"{allowed:.0f}",
            spread([one.pages_per_s for one in several], ".0f"),
            f"{median([one.pages_per_s for one in several]) / allowed:.1%}",
            f"{median([one.shard_ms for one in several]):.2f}",
            f"{median([one.redis_ms for one in several]):.2f}",
            f"{median([one.server_ms for one in several]):.2f}",
            f"{median([one.all_percent for one in several]):.0f} %",
            f"{median([one.late_ms for one in several]):.1f}",
            f"{median([one.late_p95_ms for one in several]):.1f}",
            f"{min(one.shortest_gap_s for one in several):.3f}",
        )
    table.notes.append(
        "Allowed is a page for each domain and delay, as if answers took no time. The delay counts from the "
        "end of an answer, so a little less is possible; how long answers took is part of how late it was "
        f"asked. Server, Redis and shards share the cores; pages have {PAGE_BYTES:,} bytes."
    )
    shares = {
        variant: median([one.pages_per_s for one in several]) * variant.delay_s / domains
        for variant, several in found.items()
        if variant.has_hot
    }
    spare_s = min(
        one.shortest_gap_s - variant.delay_s for variant, several in found.items() for one in several
    )
    at_pace = {variant.shards: share for variant, share in shares.items() if variant.delay_s == 1.0}
    slower = {variant.delay_s: share for variant, share in shares.items() if variant.delay_s > 1.0}
    report.goals += [
        Goal(
            f"{domains:,} domains at 1 s, one with 90 % of the URLs",
            f">= {WANTED:.0%} of the cap",
            ", ".join(f"shards {shards}: {share:.1%}" for shards, share in at_pace.items()),
            max(at_pace.values()) >= WANTED,
        ),
        Goal(
            "no domain is asked sooner than its delay",
            ">= 0 ms later",
            f"{1000 * spare_s:.1f} ms",
            spare_s >= -CLOCK_S,
        ),
    ]
    if slower:
        report.goals.append(
            Goal(
                "the same with longer delays, one shard",
                f">= {WANTED:.0%} of the cap",
                ", ".join(f"{delay_s:g} s: {share:.1%}" for delay_s, share in slower.items()),
                min(slower.values()) >= WANTED,
            )
        )


async def fill(redis_server: str, sites: PageServer, domains: int, has_hot: bool, folder: Path) -> Path:
    """Return a snapshot of a frontier: admitting a million URLs takes longer than crawling from them."""
    path = folder / f"{has_hot}.rdb"
    with RedisServer(redis_server) as redis:
        client = await RedisClient.open(url=redis.url, data_dir=Path())
        await Run.open(client, RUN, partitions=PARTITIONS)
        frontier = Frontier(client, RUN, PARTITIONS)
        if has_hot:
            hot_urls = round((domains - 1) * URLS_EACH * HOT_SHARE / (1 - HOT_SHARE))
            await admit_pages(frontier, sites, range(1), hot_urls)
        await admit_pages(frontier, sites, range(1 if has_hot else 0, domains), URLS_EACH)
        await client.command("SAVE")
        await client.close()
        shutil.copy(redis.folder / "dump.rdb", path)
    return path


async def watch(redis: RedisServer, sites: PageServer, variant: Variant, watch_s: float) -> Watched:
    settings = {
        "DOWNLOAD_DELAY": str(variant.delay_s),
        "CONCURRENT_REQUESTS": "512",
        # One for each domain: of fewer, visited in turn, none would ever be found again.
        "CRAWL_IDLE_CONNECTIONS": str(2 * DOMAINS),
    }
    started_s = time.time()
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        crew = [
            start(
                ["crawl", "web", f"-ashard={number}", f"-ashards={variant.shards}"],
                redis,
                Path(folder),
                settings,
            )
            for number in range(variant.shards)
        ]
        try:
            await asyncio.sleep(WARM_S + WARM_DELAYS * variant.delay_s)

            def used_s() -> tuple[float, float]:
                return sum(process_cpu_s(one.pid) for one in crew), process_cpu_s(sites.pid)

            begin_s, redis_s, before = time.time(), redis.cpu_s(), used_s()
            await asyncio.sleep(watch_s)
            end_s, redis_s, after = time.time(), redis.cpu_since_s(redis_s), used_s()
        finally:
            for one in crew:
                one.kill()
                one.wait()
    say(f"   {variant}: CPU of shards {100 * (after[0] - before[0]) / (end_s - begin_s):.0f} %")
    return Watched(started_s, begin_s, end_s, after[0] - before[0], redis_s, after[1] - before[1])


def seen(watched: Watched, asked: list[Asked], variant: Variant) -> Seen:
    begin_s, end_s, took_s = watched.begin_s, watched.end_s, watched.end_s - watched.begin_s
    times: defaultdict[str, list[float]] = defaultdict(list)
    for one in asked:
        # Those after the window are of shards that are about to be killed, not of the next.
        if watched.started_s <= one.at_s < end_s:
            times[one.host].append(one.at_s)
    pages = sum(begin_s <= at_s for of_one in times.values() for at_s in of_one)
    gaps = [(later, later - sooner) for of_one in times.values() for sooner, later in pairwise(of_one)]
    late_ms = sorted(1000 * (gap_s - variant.delay_s) for at_s, gap_s in gaps if at_s >= begin_s)
    cpu_s = watched.shards_s + watched.redis_s + watched.server_s
    return Seen(
        pages / took_s,
        1000 * watched.shards_s / pages,
        1000 * watched.redis_s / pages,
        1000 * watched.server_s / pages,
        100 * cpu_s / took_s,
        late_ms[len(late_ms) // 2],
        late_ms[len(late_ms) * 95 // 100],
        min(gap_s for _, gap_s in gaps),
    )


if __name__ == "__main__":
    asyncio.run(main(read_options(__doc__ or "")))
