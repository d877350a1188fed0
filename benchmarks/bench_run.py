"""`scrapy run` as a person waits for it: to its first page, after its last; and what its supervisor costs.

Everything on one machine, the simulated web included, by whose log pages are timed; the first page
is the first request that is not for a robots.txt. CPU per page is that of all but Redis and the web.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from measuring import Goal, Options, RedisServer, Report, median, process_cpu_s, read_options
from processes import start_scrapy

from crawlproj.simweb.accesslog import read_log
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec

STARTS = 7
PATIENCE_S = 300.0
LOOK_EVERY_S = 0.2


@dataclass(frozen=True, slots=True)
class Crawled:
    """One crawl. CPU of the supervisor is from its start-up on, that is, without its imports."""

    pages: int
    first_page_s: float
    after_last_s: float
    seconds: float
    cpu_s: float
    supervisor_percent: float


async def main(options: Options) -> None:
    with RedisServer(options.redis_server, aof=True) as server:
        report = Report(server.version)
        starts = [
            crawl(
                server, WorldSpec.calm(domains=20, pages_per_domain=2, size_spread=0.0), shards=2, delay_s=0.1
            )
            for _ in range(2 if options.quick else STARTS)
        ]
        tell_waits(report, starts)
        pages = 10 if options.quick else 60
        spec = WorldSpec.calm(domains=300, pages_per_domain=pages, size_spread=0.0)
        tell_shards(
            report, {shards: crawl(server, spec, shards=shards, delay_s=0.02) for shards in (1, 2, 4)}
        )
        long = WorldSpec.calm(domains=20, pages_per_domain=10 if options.quick else 60, size_spread=0.0)
        tell_supervisor(report, crawl(server, long, shards=2, delay_s=0.5))
    report.finish(options)


def crawl(server: RedisServer, spec: WorldSpec, *, shards: int, delay_s: float) -> Crawled:
    with tempfile.TemporaryDirectory() as name, SimwebProcess(spec, Path(name) / "web") as simweb:
        seeds = Path(name) / "seeds.txt"
        seeds.write_text("\n".join(simweb.seeds(spec.domains)))
        settings = {
            "CRAWL_DATA": f"{name}/data",
            "REDIS_URL": server.url,
            "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
            "CRAWL_SCOPE": "everything",
            "DOWNLOAD_DELAY": str(delay_s),
        }
        run = ["run", str(seeds), "--run", Path(name).name, "--shards", str(shards), "--parsers", "1"]
        before_s = _cpu_of_children_s()
        started_ms = time.time() * 1000
        process = start_scrapy(run, settings)
        supervisor_percent = _watch(process)
        ended_ms = time.time() * 1000
        cpu_s = _cpu_of_children_s() - before_s
        if process.returncode:
            raise RuntimeError(f"scrapy run ended with {process.returncode}.")
        simweb.referee()  # has the log written out
        asked = [request for request in read_log(simweb.log_path) if not request.url.endswith("/robots.txt")]
        return Crawled(
            pages=len(asked),
            first_page_s=(min(request.start_ms for request in asked) - started_ms) / 1000,
            after_last_s=(ended_ms - max(request.end_ms for request in asked)) / 1000,
            seconds=(max(r.end_ms for r in asked) - min(r.start_ms for r in asked)) / 1000,
            cpu_s=cpu_s,
            supervisor_percent=supervisor_percent,
        )


def _watch(process: subprocess.Popen[bytes]) -> float:
    """Wait for the end; returns the CPU of the supervisor in percent from its fifth second on."""
    deadline = time.monotonic() + PATIENCE_S
    first: tuple[float, float] | None = None
    last = first
    started_s = time.monotonic()
    while process.poll() is None:
        now_s = time.monotonic()
        if now_s > deadline:
            process.kill()
            raise RuntimeError(f"scrapy run was not over after {PATIENCE_S:g} s.")
        if now_s - started_s > 4:
            try:
                last = now_s, process_cpu_s(process.pid)
            except (OSError, IndexError):
                break
            first = first or last
        time.sleep(LOOK_EVERY_S)
    process.wait()
    if first is None or last is None or last[0] == first[0]:
        return 0.0
    return 100 * (last[1] - first[1]) / (last[0] - first[0])


def _cpu_of_children_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def tell_waits(report: Report, crawls: list[Crawled]) -> None:
    table = report.table(
        f"waiting for a crawl, {len(crawls)} times", "what", "median s", "shortest", "longest"
    )
    for what, waits_s, most_s in (
        ("from scrapy run to the first page", [c.first_page_s for c in crawls], 2.0),
        ("from the last page to the exit", [c.after_last_s for c in crawls], 5.0),
    ):
        typical_s = median(waits_s)
        table.add(what, f"{typical_s:.2f}", f"{min(waits_s):.2f}", f"{max(waits_s):.2f}")
        report.goals.append(Goal(what, f"<= {most_s:g} s", f"{typical_s:.2f} s", typical_s <= most_s))


def tell_shards(report: Report, crawls: dict[int, Crawled]) -> None:
    table = report.table("shards beside one parser", "shards", "pages", "pages/s", "CPU ms/page")
    costs = {shards: 1000 * c.cpu_s / c.pages for shards, c in crawls.items()}
    for shards, c in crawls.items():
        table.add(str(shards), str(c.pages), f"{c.pages / c.seconds:.0f}", f"{costs[shards]:.2f}")
    change = 100 * (max(costs.values()) / min(costs.values()) - 1)
    report.goals.append(
        Goal(
            "CPU per page with 1, 2, 4 shards, start-up included",
            "within 15 %",
            f"{change:.0f} %",
            change <= 15,
        )
    )


def tell_supervisor(report: Report, crawled: Crawled) -> None:
    table = report.table(f"the supervisor, {crawled.seconds:.0f} s", "what", "measured")
    table.add("CPU", f"{crawled.supervisor_percent:.2f} %")
    report.goals.append(
        Goal(
            "CPU of the supervisor",
            "< 1 %",
            f"{crawled.supervisor_percent:.2f} %",
            crawled.supervisor_percent < 1,
        )
    )


if __name__ == "__main__":
    asyncio.run(main(read_options(__doc__ or "")))
