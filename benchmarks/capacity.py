"""What a run needs: vCPUs, Redis, disk, bandwidth, money; by what was measured and its frontier simulated.

    python benchmarks/capacity.py --pages 1e9 --hours 24 --domain-pages 50000

Costs come from results/*.json, each from the first benchmark there is; docs/capacity.md shows the output.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from simulate_frontier import Course, Crew, Web, simulate

RESULTS = Path(__file__).parent / "results"
#: Links of a batch of pages go to each partition in one script; a busy shard takes a turn every 20 ms.
PARTITIONS, PARSE_BATCH, TURNS_PER_S = 64, 32, 50

#: One thread runs all scripts of a Redis server; beyond this share of it, waiting for it grows quickly.
_BUSIEST = 0.6
#: The pages that parsers were measured with.
MEASURED_BODY_KB = 34.0


@dataclass(frozen=True, slots=True)
class Place:
    """A cell: results/FILE.json, the table whose title begins so, a row, a column."""

    file: str
    table: str
    row: str
    column: str


@dataclass(frozen=True, slots=True)
class Cost:
    what: str
    value: float
    source: str


#: Where to search for each figure, in this order, and what to assume where it was never measured.
PLACES: dict[str, tuple[str, list[Place], float]] = {
    "shard_ms": (
        "shard, CPU ms a page",
        [
            Place("versus", "the whole job", "crawlproj, main text", "fetch"),
            Place("shard", "CPU ms per page", "ours", "fetching process"),
        ],
        1.0,
    ),
    "tls_ms": (
        "TLS, a handshake a page, CPU ms",
        [Place("scale", "TLS 1.3", "1", "TLS alone")],
        0.5,
    ),
    "parser_ms": (
        "parser, CPU ms a page",
        [
            Place("versus", "the whole job", "crawlproj, main text", "parse"),
            Place("parser", "one parser", "parser CPU ms a page", "value"),
        ],
        2.0,
    ),
    "admit_us": (
        "Redis, CPU us a link admitted, links of many domains",
        [Place("frontier", "admit", "500 of 5,000 domains", "us a URL")],
        14.0,
    ),
    "lease_us": (
        "Redis, CPU us a lease, no chains",
        [Place("frontier", "lease + settle", "chain 1, one partition a call, pages of 8 KB", "lease us")],
        25.0,
    ),
    "settle_us": (
        "Redis, CPU us a settlement with its page of 8 KB",
        [Place("frontier", "lease + settle", "chain 1, one partition a call, pages of 8 KB", "settle us")],
        60.0,
    ),
    "stored_bytes": (
        "stored bytes a page (Parquet, text of 8 KB)",
        [Place("storage", "storing", "parquet", "bytes a page")],
        2000.0,
    ),
}


def measured_costs() -> dict[str, Cost]:
    costs = {}
    for name, (what, places, otherwise) in PLACES.items():
        found = next((cost for place in places if (cost := _look_up(what, place))), None)
        costs[name] = found or Cost(what, otherwise, "assumed")
    return costs | _memory_costs()


def _records(file: str) -> Iterator[dict[str, Any]]:
    """What a benchmark found, the newest Redis first."""
    path = RESULTS / f"{file}.json"
    if path.exists():
        yield from (record for _, record in sorted(json.loads(path.read_text()).items(), reverse=True))


def _look_up(what: str, place: Place) -> Cost | None:
    for record in _records(place.file):
        for table in record["tables"]:
            if not table["title"].startswith(place.table) or place.column not in table["columns"]:
                continue
            for row in table["rows"]:
                if row[0] == place.row:
                    value = float(row[table["columns"].index(place.column)].replace(",", ""))
                    return Cost(what, value, _source(place.file, record))
    return None


def _memory_costs() -> dict[str, Cost]:
    """Bytes of Redis for a URL waiting, a domain and a URL seen; least squares over all frontiers filled."""
    sums = [0.0] * 5
    seen_bytes: list[float] = []
    source = ""
    for record in _records("growth"):
        tables = [table for table in record["tables"] if table["title"].startswith("Redis bytes")]
        for row in (row for table in tables for row in table["rows"]):
            size = re.fullmatch(r"([\d,]+) URLs of ([\d,]+) domains", row[0])
            if size:
                urls, domains = (int(number.replace(",", "")) for number in size.groups())
                x, y = domains / urls, float(row[2])
                for at, term in enumerate((1.0, x, y, x * x, x * y)):
                    sums[at] += term
                seen_bytes.append(float(row[1]))
                source = _source("growth", record)
    if not seen_bytes:
        assumed = {"seen_bytes": 9.2, "waiting_bytes": 42.0, "domain_bytes": 490.0}
        return {name: Cost(name.replace("_", " "), value, "assumed") for name, value in assumed.items()}
    n, x, y, xx, xy = sums
    domain = (n * xy - x * y) / (n * xx - x * x)
    return {
        "seen_bytes": Cost("Redis bytes a URL seen", max(seen_bytes), source),
        "waiting_bytes": Cost("Redis bytes a URL waiting", (y - domain * x) / n, source),
        "domain_bytes": Cost("Redis bytes a domain", domain, source),
    }


def _source(file: str, record: dict[str, Any]) -> str:
    return f"{file}.json, {record['date'][:10]}, {record['commit']}"


@dataclass(frozen=True, slots=True)
class Prices:
    """``vcpu_hour``: 462 dollars for 12 machines of 16 vCPU over 25.5 h, memory and disks included."""

    vcpu_hour: float = 0.0944
    disk_gb_month: float = 0.08


@dataclass(frozen=True, slots=True)
class Job:
    pages: float
    hours: float
    web: Web
    links: float
    page_kb: float
    body_kb: float
    headroom: float
    latency_s: float
    delay_s: float
    concurrency: int
    lease_batch: int
    server_gb: float
    prices: Prices


def plan(job: Job, costs: dict[str, Cost]) -> list[tuple[str, str]]:
    """Return what *job* needs, line by line."""
    of = {name: cost.value for name, cost in costs.items()}
    rate = job.pages / (job.hours * 3600)
    shard_ms = of["shard_ms"] + of["tls_ms"]
    parser_ms = of["parser_ms"] * job.body_kb / MEASURED_BODY_KB
    redis_ms = (job.links * of["admit_us"] + of["lease_us"] + of["settle_us"]) / 1000
    in_flight = rate * job.headroom * job.latency_s
    shards = math.ceil(max(rate * shard_ms / 1000 * job.headroom, in_flight / job.concurrency))
    parsers = math.ceil(rate * parser_ms / 1000 * job.headroom)
    crew = Crew(
        shards=shards,
        concurrency=job.concurrency,
        shard_page_s=shard_ms / 1000,
        parsers=parsers,
        parser_page_s=parser_ms / 1000,
        delay_s=job.delay_s,
        lease_batch=job.lease_batch,
    )
    # Its mean, not its median, is what people know.
    crew = replace(crew, latency_median_s=crew.latency_median_s * job.latency_s / crew.latency_s)
    course = simulate(job.web, crew, job.pages)
    last, took_h = course.last, min(course.time_of_s(job.pages), course.last.at_s) / 3600
    waiting_gb = course.most_waiting * of["waiting_bytes"] / 1e9
    domains_gb = last.domains * of["domain_bytes"] / 1e9
    seen_gb = last.seen * of["seen_bytes"] / 1e9
    redis_gb = (waiting_gb + domains_gb + seen_gb) * job.headroom
    redis_cores = rate * redis_ms / 1000
    one_rate = _BUSIEST / (redis_ms / 1000)
    servers = max(math.ceil(redis_gb / job.server_gb), math.ceil(redis_cores / _BUSIEST))
    vcpus = shards + parsers + servers * 2
    disk_gb = job.pages * of["stored_bytes"] / 1e9
    scripts = rate * PARTITIONS / PARSE_BATCH + 2 * PARTITIONS * TURNS_PER_S
    waiting = f"waiting {waiting_gb:,.0f} (at most {course.most_waiting / 1e6:,.0f} M URLs)"
    known = f"domains {domains_gb:,.0f} ({last.domains / 1e6:,.1f} M)"
    seen = f"seen {seen_gb:,.0f} ({last.seen / 1e6:,.0f} M)"
    dollars = vcpus * max(took_h, job.hours) * job.prices.vcpu_hour
    rent = f"{dollars:,.0f} dollars at {job.prices.vcpu_hour:g} a vCPU-hour"
    keep = f"{disk_gb * job.prices.disk_gb_month:,.0f} a month for the disk"
    steps = f"{rate * job.links:,.0f} links, {rate:,.0f} leases, {rate:,.0f} settlements"
    received = f"{rate * job.page_kb * 8 / 1e6:,.1f} Gbit/s, {job.pages * job.page_kb / 1e9:,.0f} TB"
    return [
        ("pages a second, on average", f"{rate:,.0f} wanted; simulated {last.fetched / last.at_s:,.0f}"),
        ("hours", f"{job.hours:g} wanted; simulated {took_h:.1f}" + _shortfall(last.fetched, job.pages)),
        ("capacity that politeness leaves unused in the last tenth", f"{1 - _last_tenth(course):.0%}"),
        ("requests in flight", f"{in_flight:,.0f}"),
        (f"shards of {job.concurrency} requests", f"{shards} ({shard_ms:.2f} ms a page with TLS)"),
        ("parsers", f"{parsers} ({parser_ms:.2f} ms a page)"),
        ("Redis, cores", f"{redis_cores:.1f} ({redis_ms * 1000:,.0f} us a page with {job.links:g} links)"),
        ("Redis, a second", f"{steps}, in at most {scripts:,.0f} scripts"),
        ("Redis, memory", f"{redis_gb:,.0f} GB: {waiting}, {known}, {seen}, times {job.headroom:g}"),
        (f"Redis Cluster, masters of {job.server_gb:g} GB", f"{servers}"),
        ("with one Redis instead", f"{one_rate:,.0f} pages/s, {job.pages / one_rate / 3600:,.0f} hours"),
        ("vCPU in all, two for each Redis", f"{vcpus}, {rate / vcpus:,.0f} pages/s each"),
        ("network, received", received),
        ("disk", f"{disk_gb / 1000:,.1f} TB"),
        ("money", f"{rent}; {keep}"),
    ]


def _shortfall(fetched: float, pages: float) -> str:
    return f", and only {fetched:,.0f} pages: there are no more" if fetched < 0.999 * pages else ""


def _last_tenth(course: Course) -> float:
    """The share of the capacity that politeness let us use while the last tenth of the pages came."""
    late = [moment for moment in course.moments if moment.fetched > 0.9 * course.last.fetched]
    return min(moment.usable for moment in late)


def read_job() -> Job:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    option = parser.add_argument
    option("--pages", type=float, default=1e9)
    option("--hours", type=float, default=24)
    option("--domains", type=float, default=33.3e6, help="registered domains that can be reached")
    option("--shape", choices=("lognormal", "pareto"), default="lognormal", help="their sizes")
    option("--domain-pages", type=float, default=0, help="CRAWL_DOMAIN_PAGES; 0: no limit")
    option("--seeds", type=float, default=1e6)
    option("--delay", type=float, default=1.0, metavar="SECONDS")
    option("--latency", type=float, default=0.55, metavar="SECONDS", help="of a page, on average")
    option("--links", type=float, default=40, help="links of a page that Redis is asked about")
    option("--page-kb", type=float, default=30, help="of a page on the wire, compressed")
    option(
        "--body-kb", type=float, default=MEASURED_BODY_KB, help="of a page, inflated; parsing grows with it"
    )
    option("--concurrency", type=int, default=256, help="CONCURRENT_REQUESTS of a shard")
    option("--lease-batch", type=int, default=256, help="CRAWL_LEASE_BATCH")
    option("--headroom", type=float, default=1.3, help="capacity to what is needed on average")
    option("--server-gb", type=float, default=48, help="of data a Redis server holds")
    option("--vcpu-hour", type=float, default=Prices().vcpu_hour, metavar="DOLLARS")
    option("--disk-gb-month", type=float, default=Prices().disk_gb_month, metavar="DOLLARS")
    given = parser.parse_args()
    web = replace(
        Web(),
        domains=int(given.domains),
        shape=given.shape,
        budget=int(given.domain_pages),
        seeds=int(given.seeds),
    )
    return Job(
        given.pages,
        given.hours,
        web,
        given.links,
        given.page_kb,
        given.body_kb,
        given.headroom,
        given.latency,
        given.delay,
        given.concurrency,
        given.lease_batch,
        given.server_gb,
        Prices(given.vcpu_hour, given.disk_gb_month),
    )


def main() -> None:
    job, costs = read_job(), measured_costs()
    print("| cost | measured | by |\n|---|---|---|")
    for cost in costs.values():
        print(f"| {cost.what} | {cost.value:.4g} | {cost.source} |")
    print("\n| what | needed |\n|---|---|")
    for what, needed in plan(job, costs):
        print(f"| {what} | {needed} |")


if __name__ == "__main__":
    main()
