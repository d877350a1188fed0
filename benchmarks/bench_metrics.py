"""What metrics cost a shard: scraped every five seconds, beside the same shard without an endpoint, in turn.

Counting itself cannot be switched off; what it costs a page is measured by itself and added.
"""

from __future__ import annotations

import asyncio
import random
import socket
import threading
import time
import urllib.error
import urllib.request

from crawling import Web, crawl
from measuring import Goal, Options, RedisServer, Report, median, read_options, say, spread

from crawlproj.observe.exposition import exposition
from crawlproj.observe.metrics import Metrics
from crawlproj.observe.process import Heartbeat
from crawlproj.observe.slots import ProcessMetrics

REPEATS = 5
SCRAPE_EVERY_S = 5.0
MOST_SHARE = 0.03
_SCRAPES = 50


class Scraper:
    """Scrapes as Prometheus would, a little more often than usual."""

    def __init__(self, port: int) -> None:
        self.answers = 0
        self._url = f"http://127.0.0.1:{port}/metrics"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Scraper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._is_over.wait(SCRAPE_EVERY_S if self.answers else 0.2):
            try:
                with urllib.request.urlopen(self._url, timeout=5) as answer:
                    self.answers += bool(answer.read())
            except (OSError, urllib.error.URLError):
                # Not there yet, or gone already.
                continue


def counting_ms() -> float:
    """Return what the counting for one page costs: all that a page passes, and its share of a round trip."""
    metrics, pages = Metrics(), 200_000
    begun_s = time.process_time()
    for _ in range(pages):
        metrics.robots_decisions["allowed"] += 1
        metrics.fetches["page"] += 1
        metrics.fetched_bytes += 10_000
        metrics.fetch_seconds.add(0.07)
        metrics.redis_seconds.add(0.002)
    return 1000 * (time.process_time() - begun_s) / pages


def scrape_ms() -> float:
    """Return what one scrape costs a process with 200 connections."""
    metrics, figures = Metrics(), Heartbeat()
    figures.show_in(metrics)
    sockets = [socket.socket() for _ in range(200)]
    begun_s = time.process_time()
    for _ in range(_SCRAPES):
        exposition("web", [ProcessMetrics("shard", 0, metrics.snapshot(), is_live=True)])
    used_s = time.process_time() - begun_s
    for one in sockets:
        one.close()
    figures.close()
    return 1000 * used_s / _SCRAPES


async def measure(options: Options, report: Report) -> None:
    # The first pages are left out: they include imports, the first scrape and the first read of the run.
    web = Web(sites=100, first=3000, pages=1000 if options.quick else 25_000, parse=False)
    costs: dict[str, list[float]] = {"without": [], "with": []}
    scrapes = []
    for repeat in range(1 if options.quick else REPEATS):
        # They alternate in going first, so that warming up affects both.
        for name in list(costs) if repeat % 2 else reversed(list(costs)):
            port = random.randrange(20_000, 30_000)
            web.settings.clear()
            web.settings.update({"CRAWL_METRICS_PORT": str(port)} if name == "with" else {})
            with Scraper(port) as scraper:
                costs[name].append((await crawl(options.redis_server, web)).shard_ms)
            if name == "with":
                scrapes.append(scraper.answers)
            say(f"   {repeat + 1}: {name} {costs[name][-1]:.3f} ms a page, {scraper.answers} scrapes")
    if not all(scrapes):
        raise RuntimeError("No scrape was answered, so their cost was not measured.")
    table = report.table(
        f"CPU of a shard, ms a page, {web.pages:,} pages; metrics on and off",
        "metrics",
        "ms a page",
        "repetitions",
    )
    for name, values in costs.items():
        table.add(name, f"{median(values):.3f}", spread(values, ".3f"))
    counting = counting_ms()
    table.add("counting alone", f"{counting:.4f}", "")
    # A difference of a few percent drowns on a busy machine; its parts do not.
    parts = counting / median(costs["without"]) + scrape_ms() / 1000 / SCRAPE_EVERY_S
    table.notes.append(
        f"Counting, and a scrape every {SCRAPE_EVERY_S:g} s (as a share of a core), each measured by itself, "
        f"make {parts:.2%}."
    )
    without = median(costs["without"])
    share = (median(costs["with"]) - without + counting) / (without - counting)
    report.goals.append(
        Goal("all metrics together, of a shard's CPU", "< 3 %", f"{share:.1%}", share < MOST_SHARE)
    )


def main(options: Options) -> None:
    with RedisServer(options.redis_server) as server:
        report = Report(server.version)
    asyncio.run(measure(options, report))
    report.finish(options)


if __name__ == "__main__":
    main(read_options(__doc__ or ""))
