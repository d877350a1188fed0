"""CPU of a shard per page, beside stock Scrapy on the same simulated web in the same run.

Ours fetches, packs and settles while a parser process of its own extracts and stores, as in a real crawl.
Stock Scrapy fetches and follows links in one process and stores nothing; 'fetch only' is given all URLs and
does not even parse. Only the time between spider_opened and spider_closed counts, the same for all.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from measuring import Goal, Options, RedisServer, Report, interleaved, median, read_options, spread
from processes import PROJECT, cpu_of_child_s, start_scrapy

from crawlproj.simweb.accesslog import read_log
from crawlproj.simweb.process import SimwebProcess
from crawlproj.simweb.spec import WorldSpec

REPEATS = 3
#: The default of our settings; Scrapy's own default is 16.
CONCURRENT_REQUESTS = 128
PATIENCE_S = 300


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU of one crawl in ms per page, by process."""

    fetch: float
    parse: float = 0.0
    redis: float = 0.0

    @property
    def total(self) -> float:
        return self.fetch + self.parse + self.redis


class Server(Protocol):
    """A Redis, of one server or more."""

    @property
    def url(self) -> str: ...

    def cpu_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Web:
    """A simulated web of its own, so that its log holds one crawl."""

    spec: WorldSpec
    redis_server: str

    def crawl_ours(self) -> Cost:
        with RedisServer(self.redis_server, aof=True) as server:
            return self.crawl_on(server)

    def crawl_on(self, server: Server) -> Cost:
        with tempfile.TemporaryDirectory() as name, SimwebProcess(self.spec, Path(name)) as simweb:
            folder = Path(name)
            seeds = _write(folder / "seeds.txt", simweb.seeds())
            common = {
                "CRAWL_DATA": folder / "data",
                "REDIS_URL": server.url,
                "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
                "CRAWL_SCOPE": "everything",
                "DOWNLOAD_DELAY": 0,
            }
            before_s = server.cpu_s()
            parser = start_scrapy(["parser", "--run", "web"], common)
            try:
                shard = ["crawl", "web", "-a", "shard=0", "-a", f"seeds={seeds}"]
                fetch_s = _crawl(shard, common, folder, PROJECT)
                parse_s = cpu_of_child_s(parser)
            finally:
                parser.kill()
            redis_s = server.cpu_s() - before_s
            pages = _pages_served(simweb)
        return Cost(*(1000 * used_s / pages for used_s in (fetch_s, parse_s, redis_s)))

    def crawl_stock(self) -> Cost:
        return self._crawl_stock("yes", lambda simweb: simweb.seeds())

    def crawl_fetch_only(self) -> Cost:
        return self._crawl_stock("no", lambda simweb: sorted(simweb.referee().expected))

    def _crawl_stock(self, follow: str, urls: Callable[[SimwebProcess], list[str]]) -> Cost:
        with tempfile.TemporaryDirectory() as name, SimwebProcess(self.spec, Path(name)) as simweb:
            folder = Path(name)
            seeds = _write(folder / "seeds.txt", urls(simweb))
            stock = str(PROJECT / "benchmarks" / "stock_spider.py")
            spider = ["runspider", stock, "-a", f"seeds={seeds}", "-a", f"follow={follow}"]
            settings = {"ROBOTSTXT_OBEY": 1, "DOWNLOAD_DELAY": 0}
            # Outside the project: none of our settings may reach it.
            fetch_s = _crawl(spider, settings, folder, folder)
            return Cost(1000 * fetch_s / _pages_served(simweb))


def _crawl(arguments: list[str], settings: dict[str, object], folder: Path, cwd: Path) -> float:
    cpu_file, log = folder / "cpu.json", folder / "crawl.log"
    more = {
        "BENCH_CPU_FILE": cpu_file,
        "EXTENSIONS": json.dumps({"cpu_stats.CpuStats": 0}),
        "CONCURRENT_REQUESTS": CONCURRENT_REQUESTS,
        "LOG_LEVEL": "INFO",
        "LOG_FILE": log,
    }
    ended = start_scrapy(arguments, settings | more, cwd=cwd).wait(PATIENCE_S)
    if ended != 0 or not cpu_file.exists():
        raise RuntimeError(f"scrapy {arguments[0]} ended with {ended}:\n{log.read_text()[-3000:]}")
    used_s: float = json.loads(cpu_file.read_text())["cpu_s"]
    return used_s


def _write(path: Path, urls: list[str]) -> Path:
    path.write_text("".join(f"{url}\n" for url in urls))
    return path


def _pages_served(simweb: SimwebProcess) -> int:
    simweb.stop()
    return sum(1 for request in read_log(simweb.log_path) if not request.url.endswith("/robots.txt"))


def main(options: Options) -> None:
    pages = 10 if options.quick else 75
    spec = WorldSpec.calm(
        domains=40, pages_per_domain=pages, size_spread=0.0, page_bytes=15_000, links_mean=30, latency_ms=2
    )
    web = Web(spec, options.redis_server)
    with RedisServer(options.redis_server) as server:
        report = Report(server.version)
    crawls = {
        "stock Scrapy, links followed": web.crawl_stock,
        "stock Scrapy, fetch only": web.crawl_fetch_only,
        "ours": web.crawl_ours,
    }
    costs = interleaved(crawls, 1 if options.quick else REPEATS)
    table = report.table(
        f"CPU ms per page, {spec.domains * pages:,} pages of {spec.domains} domains, no delay",
        "crawler",
        "fetching process",
        "parser",
        "Redis (AOF)",
        "all",
        "fetching process, repetitions",
    )
    fetch = {name: median([cost.fetch for cost in values]) for name, values in costs.items()}
    for name, values in costs.items():
        parse, redis, total = (
            median([getattr(cost, part) for cost in values]) for part in ("parse", "redis", "total")
        )
        repetitions = spread([cost.fetch for cost in values], ".2f")
        table.add(name, f"{fetch[name]:.2f}", f"{parse:.2f}", f"{redis:.2f}", f"{total:.2f}", repetitions)
    table.notes.append("The parser's figure includes starting Python, about a second in all.")
    ours = fetch["ours"]
    for peer in ("stock Scrapy, links followed", "stock Scrapy, fetch only"):
        ratio = ours / fetch[peer]
        goal = Goal(f"CPU of a shard per page to {peer}", "<= 0.50", f"{ratio:.2f}", ratio <= 0.5)
        report.goals.append(goal)
    report.finish(options)


if __name__ == "__main__":
    main(read_options(__doc__ or ""))
