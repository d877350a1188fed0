"""CPU of a shard alone (lease, download, pack, push) on real pages, beside Scrapy's own components.

All URLs wait in the frontier before the shard starts, no parser runs, and the page queue holds every page.
What counts is its CPU from the first request for a page until the last page is in the queue.
"""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
import time
from bisect import bisect_left
from dataclasses import dataclass
from pathlib import Path

import redis
from corpus import Corpus, load
from corpus_server import CorpusServer
from measuring import Goal, Options, RedisServer, Report, median, process_cpu_s, read_options, say, spread
from processes import start_scrapy

from crawlproj.redisio import keys

ROUNDS = 3
PATIENCE_S = 300.0
_LOOK_EVERY_S = 0.02

_SCRAPYS_HANDLER = {
    "CRAWL_DIRECT": "False",
    "DOWNLOAD_HANDLERS": json.dumps(
        dict.fromkeys(("http", "https"), "scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler")
    ),
}
#: Given on the command line these replace all tables of the project; what is not named is as Scrapy has it.
_SCRAPYS_MIDDLEWARES = {
    "CONCURRENT_ITEMS": "100",
    "SPIDER_MIDDLEWARES": "{}",
    "DOWNLOADER_MIDDLEWARES": json.dumps(
        {
            "scrapy.downloadermiddlewares.robotstxt.RobotsTxtMiddleware": None,
            "scrapy.downloadermiddlewares.offsite.OffsiteMiddleware": None,
            "scrapy.downloadermiddlewares.useragent.UserAgentMiddleware": None,
            "crawlproj.middlewares.UserAgentMiddleware": 500,
            "crawlproj.middlewares.RetryLater": 840,
        }
    ),
}
STOCK = "Scrapy's engine, handler and middlewares"
VARIANTS = {
    STOCK: _SCRAPYS_HANDLER | _SCRAPYS_MIDDLEWARES,
    "Scrapy's engine and handler": _SCRAPYS_HANDLER,
    "Scrapy's engine (CRAWL_DIRECT off)": {"CRAWL_DIRECT": "False"},
    "ours": {},
}


@dataclass(frozen=True, slots=True)
class Fetched:
    """CPU in ms per page."""

    shard: float
    redis: float
    pages_per_s: float


def fetch(corpus: Corpus, redis_server: str, settings: dict[str, str]) -> Fetched:
    with (
        tempfile.TemporaryDirectory(prefix="fetch-") as name,
        RedisServer(redis_server, aof=True) as server,
        redis.Redis.from_url(server.url) as client,
    ):
        folder = Path(name)
        with CorpusServer(corpus) as web:
            expected = corpus.urls("http", web.port)
            seeds = folder / "seeds.txt"
            # A URL of each host in turn, as links come in.
            seeds.write_text("\n".join(sorted(expected, key=lambda url: url.partition("/")[2][::-1])))
            words = _words(settings | {"REDIS_URL": server.url, "CRAWL_DATA": str(folder / "data")})
            _start(["seed", str(seeds), *words], folder).wait(PATIENCE_S)
            before_s = server.cpu_s()
            shard = _start(["crawl", "web", "-a", "shard=0", *words], folder)
            try:
                samples = _watch(shard, client, len(expected), folder)
                redis_s = server.cpu_since_s(before_s)
            finally:
                _end(shard)
        asked = [(at_s, url) for at_s, url, _ in web.log if not url.endswith("/robots.txt")]
        if sorted(url for _, url in asked) != sorted(expected):
            raise RuntimeError(f"The shard made {len(asked)} requests for {len(expected)} pages.")
        first_s, last_s = asked[0][0], asked[-1][0]
        used_s = samples[-1][1] - _cpu_at(samples, first_s)
        pages = len(expected)
        return Fetched(1000 * used_s / pages, 1000 * redis_s / pages, pages / (last_s - first_s))


def _words(settings: dict[str, str]) -> list[str]:
    common = {
        "CRAWL_ALLOW_ADDRESSES": "127.0.0.0/8",
        "CRAWL_SCOPE": "everything",
        "DOWNLOAD_DELAY": "0",
        "CRAWL_DELAY_FACTOR": "0",
        "CRAWL_MAX_BODY": "1000000",
        "CRAWL_PAGE_QUEUE_SOFT": "10000000",
        "CRAWL_PAGE_QUEUE_HARD": "10000000",
        "CRAWL_PAGE_QUEUE_SOFT_BYTES": "10000000000",
        "CRAWL_PAGE_QUEUE_HARD_BYTES": "10000000000",
    }
    return [word for pair in (common | settings).items() for word in ("-s", "=".join(pair))]


def _start(words: list[str], folder: Path) -> subprocess.Popen[bytes]:
    with (folder / "output.log").open("ab") as log:
        return start_scrapy(words, log=log)


def _watch(
    shard: subprocess.Popen[bytes], client: redis.Redis, pages: int, folder: Path
) -> list[tuple[float, float]]:
    """Sample the CPU until *pages* are in the page queue; returns the times and what was used by then."""
    samples = []
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        queued = client.llen(keys.pages("web"))
        samples.append((time.monotonic(), process_cpu_s(shard.pid)))
        if queued == pages:
            return samples
        if shard.poll() is not None or samples[-1][0] > deadline_s:
            log = (folder / "output.log").read_text()[-3000:]
            raise RuntimeError(f"The shard brought {queued} of {pages} pages. It said:\n{log}")
        time.sleep(_LOOK_EVERY_S)


def _cpu_at(samples: list[tuple[float, float]], at_s: float) -> float:
    later = bisect_left(samples, (at_s, 0.0))
    return samples[min(later, len(samples) - 1)][1]


def _end(shard: subprocess.Popen[bytes]) -> None:
    shard.send_signal(signal.SIGTERM)
    try:
        shard.wait(15)
    except subprocess.TimeoutExpired:
        shard.kill()
        shard.wait()


def main(options: Options) -> None:
    corpus = load()
    if options.quick:
        corpus = corpus.smaller(10)
    with RedisServer(options.redis_server) as server:
        report = Report(server.version)
    results: dict[str, list[Fetched]] = {name: [] for name in VARIANTS}
    for turn in range(1 if options.quick else ROUNDS):
        for name, settings in VARIANTS.items():
            results[name].append(fetch(corpus, options.redis_server, settings))
            say(f"   {turn + 1}: {name}: {results[name][-1].shard:.3f} ms a page")
    table = report.table(
        f"a shard alone: CPU ms per page, {corpus.page_count:,} pages of {corpus.mean_bytes / 1000:.0f} KB",
        *("the shard's way", "shard", "shard, repetitions", "Redis (AOF)", "pages/s"),
    )
    shard_ms = {name: median([fetched.shard for fetched in results[name]]) for name in results}
    for name, fetched in results.items():
        table.add(
            name,
            f"{shard_ms[name]:.3f}",
            spread([f.shard for f in fetched], ".3f"),
            f"{median([f.redis for f in fetched]):.3f}",
            f"{median([f.pages_per_s for f in fetched]):.0f}",
        )
    ratio = shard_ms[STOCK] / shard_ms["ours"]
    report.goals.append(Goal(f"CPU of a shard per page, to {STOCK}", "<= 1/6", f"1/{ratio:.1f}", ratio >= 6))
    report.finish(options)


if __name__ == "__main__":
    main(read_options(__doc__ or ""))
