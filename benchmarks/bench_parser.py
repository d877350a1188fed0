"""A parser process as a whole: CPU, speed, memory and stored bytes per page of real documentation.

The pages are those of bench_extract, as if many sites had them. Only the parser's own process counts, from
its first pages on; links are admitted to a real Redis and pages stored as Parquet, as in a crawl.

What a parser does besides reading pages is measured apart, in this process: what the pages say is known
before, and they wait in the queue, those of all sites mixed.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench_extract import cpu_ms, documents, scrapy_reads
from measuring import Goal, Options, RedisServer, Report, median, process_cpu_s, read_options, spread

from crawlproj.config import Config, load_config
from crawlproj.frontier.frontier import Frontier
from crawlproj.model.records import Page
from crawlproj.pages.envelope import pack
from crawlproj.pages.queue import PageQueue
from crawlproj.parsing import reading, worker
from crawlproj.parsing.extract import Extract, ExtractOptions, extract
from crawlproj.parsing.memory import settle_memory
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.runs import Run, RunState

RUN = "bench"
PROJECT = Path(__file__).parent.parent
#: Sites with the same documents: every link is new on the first visit of a site and known afterwards.
SITES = 25
#: The same, mixed in the queue, for what is not extraction.
MIXED_SITES = 10
#: Kept in the queue, so that the parser never waits.
QUEUED = 1000
DOCUMENTS = 400
TARGET_MS = 1.0
#: The same for what is not extraction, and for Redis.
BESIDES_MS, REDIS_MS = 0.2, 0.05
TARGET_PAGES_S = 800
TIMES_FASTER = 8
#: A page may leave nothing behind; this much is noise of the allocator over 100,000 pages (10 MB).
FLAT_BYTES = 100
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class Measured:
    pages: int
    seconds: float
    cpu_s: float
    redis_s: float
    stored_bytes: int
    #: Samples of pages parsed and resident bytes.
    memory: list[tuple[int, int]] = field(default_factory=list)

    @property
    def cpu_ms(self) -> float:
        return self.cpu_s / self.pages * 1000

    @property
    def growth_bytes(self) -> float:
        """Bytes a page adds, as a line through the memory; the first fifth fills caches and is left out."""
        later = [point for point in self.memory if point[0] > self.pages / 5]
        return statistics.linear_regression(*zip(*later, strict=True)).slope


def main() -> None:
    options = read_options(__doc__ or "")
    bodies = documents()[:DOCUMENTS]
    total = 3000 if options.quick else 100_000
    with RedisServer(options.redis_server, aof=True) as server, tempfile.TemporaryDirectory() as folder:
        report = Report(redis_version=server.version)
        found = asyncio.run(measure(server, Path(folder), bodies, total))
        besides = [
            asyncio.run(besides_extraction(server, Path(folder), bodies, f"besides-{number}"))
            for number in range(1 if options.quick else 3)
        ]
    theirs = cpu_ms(scrapy_reads, bodies[:: 10 if options.quick else 2])
    show_besides(report, besides)
    show(report, options, bodies, found, theirs)


async def measure(server: RedisServer, data: Path, bodies: list[Page], total: int) -> Measured:
    client = await RedisClient.open(url=server.url, data_dir=data)
    run = await Run.open(client, RUN, partitions=64)
    queue = PageQueue(client, RUN)
    settings = {"REDIS_URL": server.url, "CRAWL_DATA": data, "LOG_LEVEL": "WARNING"}
    settings["CRAWL_SCOPE"] = "everything"
    guard = subprocess.Popen(  # noqa: ASYNC220  # nothing else runs here
        [sys.executable, "-m", "scrapy", "parser", "--run", RUN]
        + [f"--set={name}={value}" for name, value in settings.items()],
        cwd=PROJECT,
    )
    try:
        # Each document once: what they take on the disk without copies beside them, and first use of all.
        await _feed(client, queue, bodies, range(len(bodies)), guard)
        await _all_stored(run, queue)
        stored_bytes = sum(file.stat().st_size for file in (data / "runs" / RUN / "pages").iterdir())
        parser = _child_of(guard.pid)
        found = Measured(total, time.monotonic(), process_cpu_s(parser), server.cpu_s(), stored_bytes)
        await _feed(client, queue, bodies, range(len(bodies), len(bodies) + total), guard, found, parser)
        await _all_stored(run, queue)
        found.seconds = time.monotonic() - found.seconds
        found.cpu_s = process_cpu_s(parser) - found.cpu_s
        found.redis_s = server.cpu_since_s(found.redis_s)
        await run.change(RunState.STOPPED)
        guard.wait(30)
    finally:
        guard.kill()
        await client.close()
    return found


async def besides_extraction(
    server: RedisServer, data: Path, bodies: list[Page], run: str
) -> tuple[float, float]:
    """Return CPU ms a page, of Python and of Redis, of all that a parser does but extraction."""
    said = [extract(page, ExtractOptions(Config())) for page in bodies]
    pages: list[Page] = []
    known: dict[str, Extract] = {}
    for site in range(MIXED_SITES):
        for page, words in zip(bodies, said, strict=True):
            here = _on_site(page, site)
            pages.append(here)
            known[here.url] = replace(
                words, links=[link.replace("docs.example", here.domain) for link in words.links]
            )
    random.Random(0).shuffle(pages)
    settle_memory()
    client = await RedisClient.open(url=server.url, data_dir=data)
    await Run.open(client, run, partitions=64)
    for first in range(0, len(pages), 100):
        await client.command("RPUSH", keys.pages(run), *map(pack, pages[first : first + 100]))

    async def is_over() -> bool:
        return True

    parser = worker.Parser(
        name=run,
        queue=PageQueue(client, run),
        frontier=Frontier(client, run, 64),
        directory=data / run,
        config=load_config({"CRAWL_DATA": data, "CRAWL_SCOPE": "everything"}),
        is_over=is_over,
    )
    reading.extract = lambda page, options: known[page.url]  # type: ignore[attr-defined]
    redis_s, python_s = server.cpu_s(), time.process_time()
    try:
        await parser.run()
    finally:
        reading.extract = extract  # type: ignore[attr-defined]
    python_s, redis_s = time.process_time() - python_s, server.cpu_since_s(redis_s)
    await client.close()
    return python_s / len(pages) * 1000, redis_s / len(pages) * 1000


async def _all_stored(run: Run, queue: PageQueue) -> None:
    while await queue.length():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    await run.ask_to_commit()
    while (await run.read_counters()).unstored:  # noqa: ASYNC110
        await asyncio.sleep(0.01)


async def _feed(
    client: RedisClient,
    queue: PageQueue,
    bodies: list[Page],
    numbers: range,
    guard: subprocess.Popen[bytes],
    found: Measured | None = None,
    parser: int = 0,
) -> None:
    """Put pages onto the queue as they are taken, and note the memory of *parser* meanwhile."""
    for first in range(numbers.start, numbers.stop, 100):
        batch = []
        for number in range(first, min(first + 100, numbers.stop)):
            page, site = bodies[number % len(bodies)], number // len(bodies) % SITES
            batch.append(pack(_on_site(page, site)))
        size = sum(len(page) for page in batch)
        await client.command("RPUSH", keys.pages(RUN), *batch)
        await client.command("HINCRBY", keys.page_counters(RUN), "queued_bytes", size)
        while (length := await queue.length()) > QUEUED:
            if guard.poll() is not None:
                raise RuntimeError(f"the parser ended with {guard.returncode}")
            await asyncio.sleep(0.01)
        if found:
            found.memory.append((first + len(batch) - numbers.start - length, _resident_bytes(parser)))


def _on_site(page: Page, site: int) -> Page:
    domain = f"docs-{site}.example"
    return replace(page, url=page.url.replace("docs.example", domain), domain=domain)


def _resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES


def _child_of(guard: int) -> int:
    return int(Path(f"/proc/{guard}/task/{guard}/children").read_text().split()[0])


def show_besides(report: Report, besides: list[tuple[float, float]]) -> None:
    python_ms, redis_ms = zip(*besides, strict=True)
    table = report.table(
        "a page without its extraction: take, unpack, judge and admit links, store, commit",
        "what", "CPU ms a page", "all runs",
    )  # fmt: skip
    table.add("parser", f"{median(python_ms):.3f}", spread(python_ms, ".3f"))
    table.add("Redis", f"{median(redis_ms):.3f}", spread(redis_ms, ".3f"))
    for what, measured, target in (("parser", python_ms, BESIDES_MS), ("Redis", redis_ms, REDIS_MS)):
        report.goals.append(
            Goal(
                f"{what}, all but extraction",
                f"at most {target} ms CPU",
                f"{median(measured):.3f} ms",
                median(measured) <= target,
            )
        )


def show(report: Report, options: Options, bodies: list[Page], found: Measured, theirs_ms: float) -> None:
    size = sum(len(page.body) for page in bodies) / len(bodies)
    stored = found.stored_bytes / len(bodies)
    speed = 1000 / found.cpu_ms
    table = report.table(
        f"one parser, {found.pages:,} pages of {size / 1000:.1f} KB, "
        f"{found.pages / found.seconds:.0f} pages/s beside its feeder and Redis",
        "what", "value",
    )  # fmt: skip
    table.add("parser CPU ms a page", f"{found.cpu_ms:.2f}")
    table.add("Redis CPU ms a page", f"{found.redis_s / found.pages * 1000:.2f}")
    table.add("Scrapy LinkExtractor + parsel text, CPU ms a page", f"{theirs_ms:.2f}")
    table.add("pages a second of CPU", f"{speed:.0f}")
    for share in (0.2, 0.6, 1.0):
        pages, resident = found.memory[int(share * (len(found.memory) - 1))]
        table.add(f"resident MB after {pages:,} pages", f"{resident / 1e6:.1f}")
    table.add("bytes of memory a page adds (linear fit)", f"{found.growth_bytes:.0f}")
    table.add("stored bytes a page (Parquet)", f"{stored:.0f}")
    table.add("body bytes to stored bytes", f"{size / stored:.1f}")
    report.goals += [
        Goal("parser", f"at most {TARGET_MS} ms CPU", f"{found.cpu_ms:.2f} ms", found.cpu_ms <= TARGET_MS),
        Goal(
            "beside Scrapy LinkExtractor + parsel text",
            f"{TIMES_FASTER} times faster",
            f"{theirs_ms / found.cpu_ms:.1f} times",
            theirs_ms >= TIMES_FASTER * found.cpu_ms,
        ),
        Goal(
            "one core", f"at least {TARGET_PAGES_S} pages/s", f"{speed:.0f} pages/s", speed >= TARGET_PAGES_S
        ),
        Goal(
            "memory of a parser",
            f"flat: at most {FLAT_BYTES} bytes a page",
            f"{found.growth_bytes:.0f} bytes a page",
            found.growth_bytes <= FLAT_BYTES,
        ),
    ]
    report.finish(options)


if __name__ == "__main__":
    main()
