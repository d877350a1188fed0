"""What merging small segments costs, and what it saves: `scrapy compact` beside DuckDB's own sort.

A million pages (BENCH_PAGES) with texts of real documents, 1,000 in a segment, of 50,000 domains. Both merge
the same segments to files of 256 MB, sorted by domain; each is a process of its own.
"""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from pathlib import Path

from bench_storage import documents, made_of
from measuring import Goal, RedisServer, Report, median, read_options, say, spread

from crawlproj.model.records import Page
from crawlproj.model.segment import SegmentRecord
from crawlproj.redisio import keys
from crawlproj.redisio.client import RedisClient
from crawlproj.redisio.names import ProcessName
from crawlproj.runs import Run
from crawlproj.storage.browse import PageFilter, browse
from crawlproj.storage.query import QueryResult
from crawlproj.storage.segments import SegmentWriter

PROJECT = Path(__file__).parents[1]
RUN = "bench"
PAGES, SEGMENT_PAGES, DOMAINS = 1_000_000, 1000, 50_000
TARGET_BYTES = 256_000_000
TEXT_CHARS = 5400
#: Of what is not in a Parquet file nothing is asked.
PAGE = Page("", RUN, "", 0, 200, 0, 0, {}, b"")

_DUCKDB = """
import sys, duckdb
files, target, folder = sys.argv[3:], sys.argv[1], sys.argv[2]
duckdb.sql(f"SET temp_directory = '{folder}'")
duckdb.sql("SET threads = 1")
duckdb.sql("SET memory_limit = '1GB'")
duckdb.sql("SET preserve_insertion_order = true")
rows = duckdb.read_parquet(files)
rows.order("domain, fetched_at, url").write_parquet(target, compression="zstd", row_group_size=1000)
"""


@dataclass(frozen=True, slots=True)
class Used:
    cpu_s: float
    wall_s: float
    memory_mb: float


def main() -> None:
    options = read_options(__doc__ or "")
    pages = 20_000 if options.quick else int(os.environ.get("BENCH_PAGES", PAGES))
    with (
        RedisServer(options.redis_server) as redis,
        tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_DIR")) as folder,
    ):
        report = Report(redis_version=redis.version)
        data = Path(folder)
        say(f"storing {pages:,} pages")
        asyncio.run(store(redis.url, data, pages))
        measure(report, redis.url, data, pages)
    report.finish(options)


def measure(report: Report, url: str, data: Path, pages: int) -> None:
    place = data / "runs" / RUN / "pages"
    before = looks(place)
    small = sorted(place.iterdir())
    small_bytes = sum(file.stat().st_size for file in small)
    # As many segments as make one file, for the peer.
    group = small[: max(2, int(len(small) * min(1.0, TARGET_BYTES / small_bytes)))]
    peer = run_process(
        [sys.executable, "-c", _DUCKDB, str(data / "peer.parquet"), str(data), *map(str, group)]
    )
    peer_pages = len(group) * SEGMENT_PAGES
    (data / "peer.parquet").unlink()

    command = [sys.executable, "-m", "crawlproj", "compact", "--run", RUN, "--data", str(data)]
    command += ["--bytes", str(TARGET_BYTES), "-s", f"REDIS_URL={url}"]
    ours = run_process(command)
    after = looks(place)

    large = sorted(place.iterdir())
    large_bytes = sum(file.stat().st_size for file in large)
    table = report.table(
        f"merging {pages:,} pages", "", "files", "MB", "CPU ms a page", "seconds", "memory MB"
    )
    table.add("before", f"{len(small):,}", f"{small_bytes / 1e6:,.0f}", "", "", "")
    mine, theirs = (1000 * used.cpu_s / count for used, count in ((ours, pages), (peer, peer_pages)))
    table.add(
        "scrapy compact", f"{len(large):,}", f"{large_bytes / 1e6:,.0f}",
        f"{mine:.3f}", f"{ours.wall_s:.0f}", f"{ours.memory_mb:,.0f}",
    )  # fmt: skip
    table.add(
        f"DuckDB, {peer_pages:,} pages",
        "1",
        "",
        f"{theirs:.3f}",
        f"{peer.wall_s:.0f}",
        f"{peer.memory_mb:,.0f}",
    )
    table.notes.append(f"To DuckDB's sort in the same run: {mine / theirs:.2f} times the CPU a page.")
    times = report.table("seconds to read", "", "before", "after", "all runs before", "all runs after")
    for what in before:
        times.add(
            what, f"{median(before[what]):.3f}", f"{median(after[what]):.3f}",
            spread(before[what], ".3f"), spread(after[what], ".3f"),
        )  # fmt: skip
    is_complete = QueryResult(place, "SELECT count(DISTINCT url) AS n FROM pages")
    [row] = is_complete.rows()
    report.goals.append(
        Goal("pages after it", f"all {pages:,}, each once", f"{row['n']:,}", row["n"] == pages)
    )


async def store(url: str, data: Path, pages: int) -> None:
    """Store *pages* as a parser does, with records in Redis."""
    texts = [row for row, _ in islice(made_of(documents()), 400)]
    sentences = [sentence for row in texts for sentence in (row.text or "").split(". ")]
    chance = random.Random(7)
    client = await RedisClient.open(url=url, data_dir=data)
    run = await Run.open(client, RUN, partitions=64)
    writer = SegmentWriter(data / "runs" / RUN / "pages", "p", ["parquet"], run_id=run.created_ms)
    host, where = ProcessName.of_this().host, str(data)

    async def record(name: str, count: int) -> None:
        text = SegmentRecord(count, host, where, writer.marks).encode()
        await client.command("HSET", keys.segments(RUN), name, text)

    start = texts[0].fetched_at
    for number in range(pages):
        row = texts[number % len(texts)]
        # Sentences of real documents, in an order of their own: else all pages would compress to one.
        text = ""
        while len(text) < TEXT_CHARS:
            text += chance.choice(sentences) + ". "
        row.text = text[:TEXT_CHARS]
        row.domain = f"site-{chance.randrange(DOMAINS)}.example"
        row.url = row.final_url = f"https://www.{row.domain}/docs/a-longer-title-{number:07d}.html"
        row.fetched_at = start + timedelta(milliseconds=30 * number)
        writer.append(row, PAGE)
        if writer.rows == SEGMENT_PAGES:
            await writer.commit(record)
    await writer.commit(record)
    await client.close()


def looks(place: Path) -> dict[str, list[float]]:
    """Return the seconds that readers need, three times each."""
    domain = "site-77.example"
    questions: dict[str, Callable[[], object]] = {
        "all pages of a domain, by SQL": lambda: list(
            QueryResult(place, f"SELECT url, text FROM pages WHERE domain = '{domain}'").rows()
        ),
        "pages by language, by SQL": lambda: list(
            QueryResult(place, "SELECT language, count(*) FROM pages GROUP BY 1").rows()
        ),
        "the first 50 of a domain, in the web page": lambda: browse(
            place, PageFilter(domain=domain), 50, within_s=60
        ),
    }
    return {what: [seconds(question) for _ in range(3)] for what, question in questions.items()}


def seconds(work: Callable[[], object]) -> float:
    begun_s = time.perf_counter()
    work()
    return time.perf_counter() - begun_s


def run_process(command: list[str]) -> Used:
    begun_s = time.perf_counter()
    process = subprocess.Popen(command, cwd=PROJECT, stdout=sys.stderr)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command[:4]} ended with {process.returncode}")
    return Used(usage.ru_utime + usage.ru_stime, time.perf_counter() - begun_s, usage.ru_maxrss / 1024)


if __name__ == "__main__":
    main()
