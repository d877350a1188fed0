"""CPU a page of one machine and of three that share a run, with as many shards and parsers in all.

The machines are data directories on this one: cores are shared, so pages a second say nothing. Starting
Python is left out: what counts is the difference between a large crawl and a small one, divided by their
difference in pages. CPU is that of supervisors, shards and parsers.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from measuring import Goal, Options, RedisServer, Report, interleaved, median, read_options, spread
from processes import cpu_of_child_s, start_scrapy

from crawlproj.simweb.accesslog import read_log
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec

REPEATS = 5
#: Shards, and parsers, in all.
PROCESSES = 3
SMALL_PAGES = 30


def cpu_of_crawl(spec: WorldSpec, redis_server: str, machines: int) -> tuple[float, int]:
    """Return the CPU seconds of a crawl on so many machines, and its pages."""
    with (
        tempfile.TemporaryDirectory() as name,
        SimwebProcess(spec, Path(name)) as simweb,
        RedisServer(redis_server, aof=True) as server,
    ):
        folder, each = Path(name), PROCESSES // machines
        (folder / "seeds.txt").write_text("".join(f"{url}\n" for url in simweb.seeds()))
        settings = {
            "REDIS_URL": server.url,
            "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
            "CRAWL_SCOPE": "everything",
            # So long that the last machine joins before all is fetched.
            "DOWNLOAD_DELAY": 0.3,
            "CRAWL_SEGMENT_SECONDS": 5,
        }
        command = ["run", str(folder / "seeds.txt"), "--run", "web"]
        command += ["--shards", str(each), "--parsers", str(each)]
        children = [
            start_scrapy(command, settings | {"CRAWL_DATA": folder / str(number)})
            for number in range(machines)
        ]
        cpu_s = sum(map(cpu_of_child_s, children))
        simweb.stop()
        pages = sum(not seen.url.endswith("/robots.txt") for seen in read_log(simweb.log_path))
    return cpu_s, pages


def cpu_ms(spec: WorldSpec, redis_server: str, machines: int) -> float:
    large_s, pages = cpu_of_crawl(spec, redis_server, machines)
    small_s, fewer = cpu_of_crawl(replace(spec, pages_per_domain=SMALL_PAGES), redis_server, machines)
    return 1000 * (large_s - small_s) / (pages - fewer)


def main(options: Options) -> None:
    pages = 80 if options.quick else 130
    spec = WorldSpec.calm(
        domains=100, pages_per_domain=pages, size_spread=0.0, page_bytes=15_000, links_mean=30, latency_ms=2
    )
    with RedisServer(options.redis_server) as server:
        report = Report(server.version)
    crawls: dict[str, Callable[[], float]] = {
        f"{machines} of {PROCESSES // machines} each": lambda machines=machines: cpu_ms(  # type: ignore[misc]
            spec, options.redis_server, machines
        )
        for machines in (1, 3)
    }
    found = interleaved(crawls, 2 if options.quick else REPEATS)
    table = report.table(
        f"{spec.domains * pages:,} pages of {spec.domains} domains, {PROCESSES} shards and parsers",
        "machines, shards",
        "CPU ms/page",
        "repetitions",
    )
    for name, values in found.items():
        table.add(name, f"{median(values):.2f}", spread(values, ".2f"))
    one, three = (median(values) for values in found.values())
    ratio = three / one
    report.goals.append(Goal("CPU per page of 3 machines to 1", "<= 1.05", f"{ratio:.2f}", ratio <= 1.05))
    report.finish(options)


if __name__ == "__main__":
    main(read_options(__doc__ or ""))
