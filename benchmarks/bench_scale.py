"""What a page costs a shard and a parser, and their memory, against the size of everything around it.

Sites, URLs waiting, links a page, bytes a page, shards, and TLS: one curve each. Sites are those of
page_server, without delay; the page queue is not limited. Within a curve the sizes take turns, several times.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import fields
from itertools import pairwise

from crawling import Cost, Web, crawl
from measuring import Goal, Options, RedisServer, Report, median, read_options, say
from plots import Curve, draw, want_flat

REPEATS = 3
#: Sites beyond these are visited by one crawl only: it takes ten minutes until each was.
MOST_SITES_REPEATED = 10_000
MOST_MB = 250
#: For curves of sites: an answer a connection and a lease a round, or few sites would gain from being few.
ALIKE = {"CRAWL_CHAIN": "1"}


async def main(options: Options) -> None:
    with RedisServer(options.redis_server) as server:
        report = Report(server.version)
    for measure in CURVES:
        await measure(report, options)
    report.finish(options)


async def measure_sites(report: Report, options: Options) -> None:
    pages = 500 if options.quick else 5000

    def web(sites: int) -> Web:
        # Every site was visited once, robots.txt first, before the time is taken; some are, by then, twice.
        return Web(sites, pages, first=sites + 1000, close_after=1, settings=ALIKE)

    sizes = [100, 1000] if options.quick else [100, 1000, 10_000, 100_000]
    fitting = [size for size in sizes if size <= options.most_urls // 10]
    costs = await measured(options, web, fitting, once_from=MOST_SITES_REPEATED + 1)
    show(report, options, "sites", "sites", costs)
    want_small(report, "sites", costs)
    want_flat(report, "CPU of a shard a page, by sites", curve(costs, "shard_ms"))
    want_flat(report, "CPU of a parser a page, by sites", curve(costs, "parser_ms"))


async def measure_waiting(report: Report, options: Options) -> None:
    pages = 500 if options.quick else 5000

    def web(waiting: int) -> Web:
        return Web(1000, pages, first=1000, urls=waiting)

    sizes = [10_000, 20_000] if options.quick else [10_000, 100_000, 1_000_000]
    costs = await measured(options, web, [size for size in sizes if size <= options.most_urls])
    show(report, options, "waiting", "URLs waiting", costs)
    want_small(report, "URLs waiting", costs)
    want_flat(report, "CPU of a shard a page, by URLs waiting", curve(costs, "shard_ms"))


async def measure_links(report: Report, options: Options) -> None:
    pages = 200 if options.quick else 1500

    def web(links: int) -> Web:
        return Web(50, pages, first=100, links=links, page_bytes=100_000)

    costs = await measured(options, web, [10, 1000] if options.quick else [10, 30, 100, 300, 1000])
    show(report, options, "links", "links a page of 100 KB", costs)
    tell_slope(report, "a link", 1000, "us", costs)


async def measure_bytes(report: Report, options: Options) -> None:
    def web(size: int) -> Web:
        # Few of the large ones: they all wait in Redis for the parser.
        pages = min(200 if options.quick else 4000, 600_000_000 // size)
        return Web(50, pages, first=100, page_bytes=size)

    sizes = [1000, 100_000] if options.quick else [1000, 4000, 16_000, 64_000, 256_000, 1_000_000, 2_000_000]
    costs = await measured(options, web, sizes)
    show(report, options, "bytes", "bytes a page with 10 links", costs)
    tell_slope(report, "a KB", 1_000_000, "us", costs)


async def measure_shards(report: Report, options: Options) -> None:
    pages = 500 if options.quick else 8000

    def web(shards: int) -> Web:
        return Web(200, pages, shards=shards, parse=False)

    costs = await measured(options, web, [1, 2] if options.quick else [1, 2, 3, 4])
    show(report, options, "shards", "shards", costs)
    want_flat(report, "CPU of all shards a page, by shards", [*curve(costs, "shard_ms")])


async def measure_tls(report: Report, options: Options) -> None:
    pages = 300 if options.quick else 3000
    sizes = [1, 16] if options.quick else [1, 2, 4, 16, 64]

    def web(each: int, *, tls: bool) -> Web:
        return Web(200, pages, tls=tls, close_after=each, parse=False)

    plain = await measured(options, lambda each: web(each, tls=False), sizes)
    secure = await measured(options, lambda each: web(each, tls=True), sizes)
    table = report.table(
        "TLS 1.3, ECDSA P-256, not verified: CPU ms a page of 10 KB",
        "pages a connection",
        "shard, http",
        "shard, https",
        "TLS alone",
    )
    for each in sizes:
        without, with_it = plain[each].shard_ms, secure[each].shard_ms
        table.add(each, f"{without:.3f}", f"{with_it:.3f}", f"{with_it - without:.3f}")
    draw(
        options,
        "scale-tls",
        "CPU of a shard, with and without TLS",
        "pages a connection",
        "ms a page",
        {"http": curve(plain, "shard_ms"), "https": curve(secure, "shard_ms")},
    )


async def measured(
    options: Options, web: Callable[[int], Web], sizes: list[int], once_from: float = math.inf
) -> dict[int, Cost]:
    """Crawl what *web* makes of each of *sizes*, in turns; returns the medians."""
    costs: dict[int, list[Cost]] = {size: [] for size in sizes}
    for turn in range(1 if options.quick else REPEATS):
        for size, found in costs.items():
            if turn and size >= once_from:
                continue
            found.append(await crawl(options.redis_server, web(size)))
            say(f"   {size:,}: shard {found[-1].shard_ms:.2f} ms, parser {found[-1].parser_ms:.2f} ms")
    names = [field.name for field in fields(Cost)]
    return {
        size: Cost(*(median([getattr(one, name) for one in found]) for name in names))
        for size, found in costs.items()
    }


def curve(costs: dict[int, Cost], name: str) -> Curve:
    return [(size, getattr(cost, name)) for size, cost in costs.items()]


def show(report: Report, options: Options, name: str, what: str, costs: dict[int, Cost]) -> None:
    table = report.table(
        f"CPU ms a page and resident MB, by {what}",
        what,
        "shard",
        "Redis, fetching",
        "parser",
        "Redis, parsing",
        "shard MB",
        "parser MB",
    )
    for size, cost in costs.items():
        cpu = (cost.shard_ms, cost.fetch_redis_ms, cost.parser_ms, cost.parse_redis_ms)
        table.add(f"{size:,}", *(f"{ms:.3f}" for ms in cpu), f"{cost.shard_mb:.0f}", f"{cost.parser_mb:.0f}")
    labels = {
        "shard": "shard_ms",
        "parser": "parser_ms",
        "Redis, fetching": "fetch_redis_ms",
        "Redis, parsing": "parse_redis_ms",
    }
    curves = {label: curve(costs, field) for label, field in labels.items()}
    shown = {label: points for label, points in curves.items() if any(value for _, value in points)}
    draw(options, f"scale-{name}", f"CPU of a page, by {what}", what, "ms a page", shown)


def want_small(report: Report, what: str, costs: dict[int, Cost]) -> None:
    size, cost = max(costs.items())
    for process, used_mb in (("shard", cost.shard_mb), ("parser", cost.parser_mb)):
        goal = f"memory of a {process}, {size:,} {what}"
        report.goals.append(Goal(goal, f"<= {MOST_MB} MB", f"{used_mb:.0f} MB", used_mb <= MOST_MB))


def tell_slope(report: Report, what: str, times: float, unit: str, costs: dict[int, Cost]) -> None:
    """What one more costs, from each size to the next: a cost that grows faster than the size shows here."""
    columns = [f"{process}, {unit} {what}" for process in ("shard", "parser")]
    table = report.table(f"what one more costs: {what}", "from", "to", *columns)
    for low, high in pairwise(costs):
        slopes = [
            (getattr(costs[high], name) - getattr(costs[low], name)) / (high - low) * times
            for name in ("shard_ms", "parser_ms")
        ]
        table.add(f"{low:,}", f"{high:,}", *(f"{slope:.2f}" for slope in slopes))


CURVES = (measure_sites, measure_waiting, measure_links, measure_bytes, measure_shards, measure_tls)


if __name__ == "__main__":
    asyncio.run(main(read_options(__doc__ or "")))
