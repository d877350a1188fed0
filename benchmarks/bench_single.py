"""Single mode beside one shard and one parser, on the same simulated web.

CPU is that of all processes of a crawl but Redis, starting Python included. Pages a second are those between
the first and the last request that the web saw. Rates and lags depend on who else uses the cores.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from measuring import Goal, Options, RedisServer, Report, interleaved, median, read_options, spread
from processes import cpu_of_child_s, start_scrapy

from crawlproj.simweb.accesslog import read_log
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec

REPEATS = 3
EXTENSIONS = {
    "crawlproj.shard.single.InlineParser": 0,
    "loop_lag.LoopLag": 0,
}


@dataclass(frozen=True, slots=True)
class Measured:
    pages_per_s: float
    cpu_ms: float
    lag_p99_ms: float
    lag_max_ms: float


def crawl(spec: WorldSpec, redis_server: str, *commands: str) -> Measured:
    """Crawl *spec* with a process for each of *commands*."""
    with (
        tempfile.TemporaryDirectory() as name,
        SimwebProcess(spec, Path(name)) as simweb,
        RedisServer(redis_server, aof=True) as server,
    ):
        folder = Path(name)
        (folder / "seeds.txt").write_text("".join(f"{url}\n" for url in simweb.seeds()))
        settings = {
            "CRAWL_DATA": folder / "data",
            "REDIS_URL": server.url,
            "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
            "CRAWL_SCOPE": "everything",
            "DOWNLOAD_DELAY": 0,
            "EXTENSIONS": json.dumps(EXTENSIONS),
            "BENCH_LAG_FILE": folder / "lag.json",
        }
        children = [start_scrapy(command.format(folder=folder).split(), settings) for command in commands]
        cpu_s = sum(map(cpu_of_child_s, children))
        simweb.stop()
        served = [seen for seen in read_log(simweb.log_path) if not seen.url.endswith("/robots.txt")]
        took_s = (max(seen.end_ms for seen in served) - min(seen.start_ms for seen in served)) / 1000
        lag = json.loads((folder / "lag.json").read_text())
    pages = len(served)
    return Measured(pages / took_s, 1000 * cpu_s / pages, lag["p99_ms"], lag["max_ms"])


def main(options: Options) -> None:
    pages = 5 if options.quick else 30
    spec = WorldSpec.calm(
        domains=40, pages_per_domain=pages, size_spread=0.0, page_bytes=15_000, links_mean=30, latency_ms=2
    )
    with RedisServer(options.redis_server) as server:
        report = Report(server.version)
    single, distributed = "single mode", "1 shard, 1 parser"
    crawls: dict[str, Callable[[], Measured]] = {
        single: lambda: crawl(spec, options.redis_server, "crawl web -aseeds={folder}/seeds.txt"),
        distributed: lambda: crawl(
            spec, options.redis_server, "crawl web -ashard=0 -aseeds={folder}/seeds.txt", "parser"
        ),
    }
    found = interleaved(crawls, 1 if options.quick else REPEATS)
    table = report.table(
        f"{spec.domains * pages:,} pages of {spec.domains} domains, no delay",
        "crawl",
        "pages/s",
        "CPU ms/page",
        "loop lag of the shard, p99 ms",
        "max ms",
        "CPU ms/page, repetitions",
    )
    for name, values in found.items():
        columns = ("pages_per_s", "cpu_ms", "lag_p99_ms", "lag_max_ms")
        rate, cpu, p99, most = (median([getattr(value, column) for value in values]) for column in columns)
        repetitions = spread([value.cpu_ms for value in values], ".2f")
        table.add(name, f"{rate:.0f}", f"{cpu:.2f}", f"{p99:.1f}", f"{most:.0f}", repetitions)
    cpu_ms = {name: median([value.cpu_ms for value in values]) for name, values in found.items()}
    ratio = cpu_ms[single] / cpu_ms[distributed]
    report.goals.append(
        Goal("CPU per page of single mode to a shard and a parser", "<= 1.15", f"{ratio:.2f}", ratio <= 1.15)
    )
    report.finish(options)


if __name__ == "__main__":
    main(read_options(__doc__ or ""))
